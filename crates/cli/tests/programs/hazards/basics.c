/* Random numbers, time, page contents, and the report of a failed check. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "hazards.h"

uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ULL;
    return mix(*state);
}

uint64_t below(struct worker *worker, uint64_t limit)
{
    return next_random(&worker->random) % limit;
}

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Sleeps; may end early. */
void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

void broken(const char *what, ...)
{
    char line[400];
    int length = snprintf(line, sizeof line, "BROKEN ");
    va_list arguments;
    va_start(arguments, what);
    length += vsnprintf(line + length, sizeof line - length - 1, what, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    if (write(STDOUT_FILENO, line, length + 1) < 0)
        _exit(78);
    if (board)
        board->failed = 1;
    _exit(77);
}

bool is_before(unsigned major, unsigned minor)
{
    struct utsname kernel;
    unsigned this_major = 0, this_minor = 0;
    uname(&kernel);
    sscanf(kernel.release, "%u.%u", &this_major, &this_minor);
    return this_major < major || (this_major == major && this_minor < minor);
}

void note_interruption(const char *call)
{
    /* Without any merge, this happens up to 12 times in a minute on a busy machine. */
    static _Atomic unsigned count;
    static _Atomic double begun;
    double none = 0;
    atomic_compare_exchange_strong(&begun, &none, now());
    if (++count > 3 + (now() - begun) && options.is_strict)
        broken("%s: EINTR, %u times by now", call, count);
}

void fill_page(uint64_t *page, uint64_t tag)
{
    for (size_t word = 0; word < WORDS; word++)
        page[word] = tag ? mix(tag * WORDS + word) | 1 : 0;
}

int wrong_word(const uint64_t *page, uint64_t tag)
{
    const volatile uint64_t *words = page;
    for (size_t word = 0; word < WORDS; word++)
        if (words[word] != (tag ? mix(tag * WORDS + word) | 1 : 0))
            return (int)word;
    return -1;
}

void check_page(const char *what, const uint64_t *page, uint64_t tag)
{
    int word = wrong_word(page, tag);
    if (word < 0)
        return;
    uint64_t is = ((const volatile uint64_t *)page)[word];
    broken("%s: page %p, word %d is %#lx, tag %#lx; again: %d", what, (const void *)page, word, is, tag,
           wrong_word(page, tag));
}
