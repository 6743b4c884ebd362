/* A program for the commands of vmarea, which counts its own calls and checks its own bytes.
 * usage: program apart PAGES SECONDS   neighbours that the kernel leaves separate, until SIGTERM or for SECONDS
 *        program calls ROUNDS MS       memory calls, with a pause of MS milliseconds after each round
 * Prints "ready" when there is something to see, and at the end "wrong N", the number of pages with another byte, and
 * "mappings N" of the range or "calls N". The exit status is 1 if a byte is wrong. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)

static volatile sig_atomic_t over;
static void end(int signal) { (void)signal, over = 1; }

static void die(const char *what) {
    perror(what);
    exit(2);
}

static char *map(size_t bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

static long mappings(char *from, size_t bytes) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    unsigned long start, stop;
    long found = 0;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &stop) == 2)
            found += start < (unsigned long)from + bytes && stop > (unsigned long)from;
    fclose(maps);
    return found;
}

static long wrong(char *from, long pages) {
    long count = 0;
    for (long page = 0; page < pages; page++)
        for (long byte = 0; byte < PAGE; byte++)
            if (from[page * PAGE + byte] != (char)(page + byte)) {
                count++;
                break;
            }
    return count;
}

/* Pages that are written before they become neighbours have an anon_vma each. */
static int apart(long pages, double seconds) {
    char *area = map(pages * PAGE);
    for (long page = 0; page < pages; page++) {
        char *one = map(PAGE);
        for (long byte = 0; byte < PAGE; byte++)
            one[byte] = (char)(page + byte);
        if (mremap(one, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + page * PAGE) == MAP_FAILED)
            die("mremap");
    }
    signal(SIGTERM, end);
    puts("ready");
    fflush(stdout);
    for (double past = 0; !over && past < seconds; past += 0.01)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, 0);
    long bad = wrong(area, pages);
    printf("wrong %ld\nmappings %ld\n", bad, mappings(area, pages * PAGE));
    return bad != 0;
}

static int calls(long rounds, long ms) {
    long made = 0, bad = 0;
    puts("ready");
    fflush(stdout);
    for (long round = 0; round < rounds; round++) {
        char *at = map(8 * PAGE);
        for (long page = 0; page < 8; page++)
            memset(at + page * PAGE, (int)(round + page), PAGE);
        mprotect(at + 2 * PAGE, 2 * PAGE, PROT_READ);
        mprotect(at + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE);
        at = mremap(at, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
        if (at == MAP_FAILED)
            die("mremap");
        for (long page = 0; page < 8; page++)
            bad += at[page * PAGE + 7] != (char)(round + page);
        munmap(at, 16 * PAGE);
        made += 5;
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, 0);
    }
    printf("wrong %ld\ncalls %ld\n", bad, made);
    return bad != 0;
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[1], "apart"))
        return apart(atol(words[2]), atof(words[3]));
    if (count == 4 && !strcmp(words[1], "calls"))
        return calls(atol(words[2]), atol(words[3]));
    fprintf(stderr, "usage: program apart PAGES SECONDS | calls ROUNDS MS\n");
    return 2;
}
