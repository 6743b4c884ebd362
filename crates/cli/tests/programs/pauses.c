/* A program whose first thread counts, and records each time at which it stood still. Half of its mappings are joined
 * in place; the other half were moved by mremap, so that their page offsets do not follow from their addresses.
 * usage: pauses BOARD THREADS MAPPINGS [TOOL ARGUMENT...]
 *   BOARD  a file to share with whoever measures (ci/checks/pauses.py)
 *   TOOL   merges a child, in which no thread counts. Prints the nanoseconds of processor time that the tool and the
 *          child need. @ among the arguments stands for the child.
 * Ends when `stop` is set. Exits with 1 if a page does not contain what it should. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#define RW (PROT_READ | PROT_WRITE)
#define STANDSTILL_NS 100000UL
#define MOST 500000UL

/* What pauses.py reads and writes: times in nanoseconds of CLOCK_MONOTONIC. */
struct board {
    _Atomic uint64_t ready, stop;
    _Atomic uint64_t count; /* of standstills */
    struct {
        uint64_t begin, length;
    } standstills[MOST];
};

static struct board *board;
static char *area;
static size_t pages;
static long threads;
static int idle;

static void die(const char *what) {
    perror(what);
    exit(2);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000UL + t.tv_nsec;
}

/* The first word of a page identifies it; the second is written to by all threads. */
static volatile uint64_t *page(size_t i) { return (volatile uint64_t *)(area + i * PAGE); }

/* Commits every second page first and writes to it. Of the others, each joins the one below, so a mapping is two
 * pages. */
static void commit_in_turn(size_t begin, size_t end) {
    for (size_t odd = 0; odd < 2; odd++)
        for (size_t i = begin + odd; i < end; i += 2) {
            if (mprotect((void *)page(i), PAGE, RW))
                die("mprotect");
            *page(i) = i + 1;
        }
}

/* Moves pages that were mapped elsewhere next to each other. */
static void move_together(size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        char *elsewhere = mmap(0, 2 * PAGE, RW, PRIVATE, -1, 0);
        if (elsewhere == MAP_FAILED)
            die("mmap");
        *(uint64_t *)elsewhere = i + 1;
        if (mremap(elsewhere, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page(i)) == MAP_FAILED)
            die("mremap");
        munmap(elsewhere + PAGE, PAGE);
    }
}

/* All sleepers together wake up some thousand times a second, however many they are. */
static void *sleep_and_touch(void *argument) {
    uint64_t random = (uintptr_t)argument;
    while (!board->stop) {
        if (idle) {
            pause();
            continue;
        }
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        long length = 1000000 + 200000 * threads + (random >> 44);
        nanosleep(&(struct timespec){length / 1000000000, length % 1000000000}, 0);
        page((random >> 33) % pages)[1]++;
    }
    return 0;
}

static void start_sleepers(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 1; i < threads; i++)
        if (pthread_create(&(pthread_t){0}, &small, sleep_and_touch, (void *)(uintptr_t)i))
            die("pthread_create");
}

/* Reads the clock and writes to memory until it is told to stop. */
static void count_on(void) {
    uint64_t random = 0, before = now();
    while (!board->stop) {
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        page((random >> 33) % pages)[1]++;
        uint64_t at = now(), length = at - before, n = board->count;
        if (length > STANDSTILL_NS && n < MOST) {
            board->standstills[n].begin = before;
            board->standstills[n].length = length;
            board->count = n + 1;
        }
        before = at;
    }
}

/* Makes the mappings, and counts or sleeps until it is told to stop. Returns the number of wrong pages. */
static size_t live(size_t mappings) {
    size_t in_turn = mappings / 2 * 2, wrong = 0;
    pages = in_turn + mappings / 2;
    area = mmap(0, (pages + 2) * PAGE, PROT_NONE, PRIVATE, -1, 0);
    if (area == MAP_FAILED)
        die("mmap");
    area += PAGE;
    commit_in_turn(0, in_turn);
    move_together(in_turn, pages);
    start_sleepers();
    board->ready = 1;
    while (idle && !board->stop)
        usleep(10000);
    count_on();
    for (size_t i = 0; i < pages; i++)
        wrong += *page(i) != i + 1;
    return wrong;
}

static uint64_t processor_time(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        die("clock_getcpuclockid");
    return t.tv_sec * 1000000000UL + t.tv_nsec;
}

/* Merges a child by a tool, and prints what both need. Returns whether something was wrong. */
static int measure(size_t mappings, char **tool) {
    int status, ended;
    struct rusage used;
    char name[20];
    idle = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(live(mappings) != 0);
    while (!board->ready)
        usleep(1000);
    usleep(300000); /* until all threads sleep */
    snprintf(name, sizeof name, "%d", child);
    for (char **word = tool; *word; word++)
        if (!strcmp(*word, "@"))
            *word = name;
    uint64_t before = processor_time(child);
    pid_t merger = fork();
    if (merger == 0) {
        execv(*tool, tool);
        die(*tool);
    }
    wait4(merger, &status, 0, &used);
    uint64_t after = processor_time(child);
    printf("%ld %ld\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000 +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000, (long)(after - before));
    board->stop = 1;
    waitpid(child, &ended, 0);
    return status || ended;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: pauses BOARD THREADS MAPPINGS [TOOL ARGUMENT...]\n");
        return 2;
    }
    int file = open(argv[1], O_RDWR);
    board = mmap(0, sizeof *board, RW, MAP_SHARED, file, 0);
    if (file < 0 || board == MAP_FAILED)
        die(argv[1]);
    threads = atol(argv[2]);
    if (argc > 4)
        return measure(atol(argv[3]), argv + 4);
    madvise(board, sizeof *board, MADV_POPULATE_WRITE);
    size_t wrong = live(atol(argv[3]));
    printf("wrong %zu\n", wrong);
    return wrong != 0;
}
