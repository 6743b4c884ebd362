/* Activity `foreign`: other processes read and write pages of the target (process_vm_readv, /proc/PID/mem) while they
 * are merged. The pages are named on the board. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hazards.h"

#define PART 128
#define PARTS (SLOTS / PART)
/* Seconds between the removal of a page from the board and the end of its mapping. */
#define GRACE 1.5
/* Number of parts that are replaced at a time. */
#define RENEWED 8

/* Addresses are taken from one reservation, from low to high, so that none is used twice. */
static char *reservation, *next_part;
static const size_t reserved = 64UL << 30;
static char *parts[PARTS];

static void run(pid_t target)
{
    uint64_t random = (uint64_t)getpid();
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/mem", target);
    int memory = -1;
    while (getppid() == target) {
        if (memory < 0 && board->ready)
            memory = open(path, O_RDWR | O_CLOEXEC);
        if (visit_pages(board, target, memory, 0, &random))
            _exit(77);
        usleep(random % 300);
    }
}

static void prepare(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        board->slots[i] = (struct slot){0};
    start_helper(run);
}

/* Maps a part in many mappings, and puts its pages on the board. */
static void publish(unsigned part)
{
    char *start = next_part;
    next_part += (PART + 1) * PAGE;
    if (next_part > reservation + reserved)
        broken("no addresses are left for foreign pages");
    for (unsigned odd = 0; odd < 2; odd++)
        for (unsigned i = odd; i < PART; i += 2) {
            uint64_t *page = (uint64_t *)(start + i * PAGE);
            if (mprotect(page, PAGE, RW))
                return;
            for (unsigned word = 0; word < WORDS; word++)
                page[word] = word < WORDS / 2 ? (uintptr_t)page ^ word : 0;
        }
    if (options.locks_future)
        munlock(start, PART * PAGE);
    for (unsigned i = 0; i < PART; i++) {
        struct slot *slot = &board->slots[part * PART + i];
        for (unsigned writer = 0; writer < WRITERS; writer++)
            slot->written[writer] = 0;
        slot->page = (uintptr_t)start + i * PAGE;
    }
    parts[part] = start;
    lend(start, PART, true);
    board->made++;
}

/* A value that was acknowledged must be in memory, or a later one. */
static void verify(unsigned number)
{
    struct slot *slot = &board->slots[number];
    const uint64_t *page = (const uint64_t *)slot->page;
    if (!page)
        return;
    uint64_t written[WRITERS];
    for (unsigned writer = 0; writer < WRITERS; writer++)
        written[writer] = slot->written[writer];
    for (unsigned writer = 0; writer < WRITERS; writer++) {
        uint64_t found = ((const volatile uint64_t *)page)[WORDS / 2 + writer];
        if (found < written[writer])
            broken("foreign: value %lu at %p was acknowledged, found %lu", written[writer], (const void *)page, found);
    }
    for (unsigned word = 0; word < WORDS / 2; word += 1 + number % 8)
        if (page[word] != ((uintptr_t)page ^ word))
            broken("foreign: word %u of page %p is %#lx", word, (const void *)page, page[word]);
}

static bool begin(struct worker *worker)
{
    (void)worker;
    reservation = next_part = mmap(NULL, reserved, PROT_NONE, PRIVATE, -1, 0);
    if (reservation == MAP_FAILED)
        return false;
    for (unsigned part = 0; part < PARTS; part++)
        publish(part);
    return true;
}

/* Takes some parts from the board, or, when no call to them can still be under way, unmaps them and publishes others
 * in their slots, so that there is something to merge. */
static void renew(unsigned first)
{
    static bool is_leaving;
    static unsigned left;
    static double publish_at;
    if (is_leaving && now() < publish_at)
        return;
    if (!is_leaving)
        left = first;
    for (unsigned part = left; part < left + RENEWED; part++) {
        for (unsigned i = 0; i < PART; i++) {
            verify(part * PART + i);
            if (!is_leaving)
                board->slots[part * PART + i].page = 0;
        }
        if (is_leaving) {
            recall(parts[part]);
            mmap(parts[part], PART * PAGE, PROT_NONE, PRIVATE | MAP_FIXED, -1, 0);
            publish(part);
        }
    }
    is_leaving = !is_leaving;
    publish_at = now() + GRACE;
}

static void step(struct worker *worker)
{
    for (unsigned i = 0; i < PART; i++)
        verify(below(worker, SLOTS));
    renew(below(worker, PARTS / RENEWED) * RENEWED);
    nap(0.001);
}

static void end(struct worker *worker)
{
    (void)worker;
    for (unsigned i = 0; i < SLOTS; i++)
        verify(i);
}

const struct activity foreign_activity = {
    .name = "foreign", .threads = 1, .prepare = prepare, .begin = begin, .step = step, .end = end};
