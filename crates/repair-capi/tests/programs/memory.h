/* Memory in many mappings with known contents, threads that write to it, and children that check it.
 * Shared by the programs that merge their own mappings and those that are merged by another process. */
#ifndef MEMORY_H
#define MEMORY_H
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)

static char *area;
static size_t pages;
static _Atomic int stop;
static _Atomic long writes;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(2);
}

__attribute__((unused)) static long mappings(char *from, size_t len) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned long start, end;
    long n = 0;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && end > (unsigned long)from &&
            start < (unsigned long)from + len)
            n++;
    fclose(maps);
    return n;
}

static char *reserve(size_t len) {
    char *p = mmap(0, len, PROT_NONE, FLAGS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        die("mmap");
    return p;
}

/* Creates n adjacent, faulted mappings of one page each; returns the time that mremap took. */
static double one_page_mappings(size_t n) {
    pages = n;
    char *far = reserve(2 * n * PAGE);
    area = reserve(n * PAGE);
    for (size_t i = 0; i < n; i++) {
        char *p = mmap(far + 2 * i * PAGE, PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED)
            die("mmap");
        *(unsigned *)(p + 64) = i;
    }
    double begun = now();
    for (size_t i = 0; i < n; i++)
        if (mremap(far + 2 * i * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + i * PAGE) == MAP_FAILED)
            die("mremap");
    double took = now() - begun;
    munmap(far, 2 * n * PAGE);
    return took;
}

static long wrong_pages(void) {
    long wrong = 0;
    for (size_t i = 0; i < pages; i++)
        wrong += *(unsigned *)(area + i * PAGE + 64) != i;
    return wrong;
}

/* Each thread has its own word in every page, so no update may be lost. */
struct writer {
    pthread_t thread;
    int slot;
    double worst;
    unsigned *mine;
    long lost;
};

static void *write_all(void *argument) {
    struct writer *w = argument;
    unsigned seed = w->slot + 1;
    double before = now();
    while (!stop) {
        seed = seed * 1103515245 + 12345;
        size_t i = (seed >> 8) % pages;
        volatile unsigned *word = (unsigned *)(area + i * PAGE) + w->slot;
        if (*word != w->mine[i])
            w->lost++;
        *word = ++w->mine[i];
        double after = now();
        if (after - before > w->worst)
            w->worst = after - before;
        before = after;
        atomic_fetch_add_explicit(&writes, 1, memory_order_relaxed);
    }
    return 0;
}

static void start_writers(struct writer *w, int n) {
    stop = 0;
    for (int i = 0; i < n; i++) {
        w[i] = (struct writer){.slot = i, .mine = calloc(pages, sizeof(unsigned))};
        for (size_t p = 0; p < pages; p++)
            w[i].mine[p] = ((unsigned *)(area + p * PAGE))[i];
        if (pthread_create(&w[i].thread, 0, write_all, &w[i]))
            die("pthread_create");
    }
}

static long stop_writers(struct writer *w, int n, double *worst) {
    long lost = 0;
    stop = 1;
    for (int i = 0; i < n; i++) {
        pthread_join(w[i].thread, 0);
        lost += w[i].lost;
        for (size_t p = 0; p < pages; p++)
            lost += ((volatile unsigned *)(area + p * PAGE))[i] != w[i].mine[p];
        if (w[i].worst > *worst)
            *worst = w[i].worst;
        free(w[i].mine);
    }
    return lost;
}

/* The heap of a runtime that commits memory in its regions in turn, and touches it. */
__attribute__((unused)) static void commit_in_turn(size_t regions, size_t bytes) {
    size_t size = bytes / regions, step = 256 << 10;
    pages = bytes / PAGE;
    area = reserve(bytes);
    for (size_t off = 0; off < size; off += step)
        for (size_t r = 0; r < regions; r++) {
            char *p = area + r * size + off;
            if (mprotect(p, step, PROT_READ | PROT_WRITE))
                die("mprotect");
            for (size_t i = 0; i < step; i += PAGE)
                *(unsigned *)(p + i + 64) = (p + i - area) / PAGE;
        }
}

/* Waits for a random time, up to a little more than SECONDS; does not sleep, for accuracy. */
__attribute__((unused)) static void some_moment(double seconds) {
    static unsigned long long seed;
    if (!seed)
        seed = (unsigned long long)(now() * 1e9) ^ getpid() << 20;
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    for (double until = now() + seconds * 1.1 * (seed >> 40) / (1 << 24); now() < until;)
        sched_yield();
}

static long child_looks(void) {
    long wrong = wrong_pages();
    for (size_t i = 0; i < pages; i++) /* and the child's copy is separate */
        *(unsigned *)(area + i * PAGE + 64) = ~i;
    return wrong;
}

static long look_at_odd(long even_is_zero) {
    long wrong = 0;
    for (size_t i = 0; i < pages; i++) {
        unsigned is = *(volatile unsigned *)(area + i * PAGE + 64);
        wrong += i % 2 ? is != i : even_is_zero && is != 0;
    }
    return wrong;
}

/* The child discards every other page at once. */
static long child_drops(void) {
    for (size_t i = 0; i < pages; i += 2)
        if (madvise(area + i * PAGE, PAGE, MADV_DONTNEED))
            return -1;
    return look_at_odd(1);
}

/* The child replaces every other page with another mapping. */
static long child_maps(void) {
    for (size_t i = 0; i < pages; i += 2) {
        void *p = mmap(area + i * PAGE, PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED)
            return -1;
    }
    return look_at_odd(1);
}

/* The child moves pages away, and some of them back. */
static long child_moves(void) {
    long wrong = 0;
    char *far = reserve(pages * PAGE);
    for (size_t i = 0; i < pages; i += 2)
        if (mremap(area + i * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, far + i * PAGE) == MAP_FAILED)
            return -1;
    for (size_t i = 0; i < pages; i += 4)
        if (mremap(far + i * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + i * PAGE) == MAP_FAILED)
            return -1;
    for (size_t i = 0; i < pages; i++)
        wrong += *(volatile unsigned *)((i % 4 == 2 ? far : area) + i * PAGE + 64) != i;
    return wrong;
}

static pid_t clone_raw(void) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

#define MOST_DESCRIPTORS 64
static int taken[MOST_DESCRIPTORS];
__attribute__((unused)) static int were_taken;

/* Uses up all descriptors. Returns the value to pass to give_descriptors. */
static int take_descriptors(void) {
    int n = 0;
    were_taken = 1;
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){MOST_DESCRIPTORS, MOST_DESCRIPTORS});
    while (n < MOST_DESCRIPTORS && (taken[n] = dup(2)) >= 0)
        n++;
    return n;
}

static void give_descriptors(int n) {
    while (n > 0)
        close(taken[--n]);
}

static pid_t clone_without_descriptors(void) {
    int n = take_descriptors();
    pid_t child = clone_raw();
    give_descriptors(n);
    return child;
}

/* The child forks at once as well. */
static long child_forks(void) {
    int status = 1;
    pid_t child = clone_raw();
    if (child == 0)
        _exit(child_looks() != 0);
    long wrong = child_looks();
    waitpid(child, &status, 0);
    return wrong || status;
}

/* The child discards a few pages, and then forks. */
static long child_drops_and_forks(void) {
    int status = 1;
    long wrong = 0;
    for (size_t i = 0; i < pages; i += 64)
        if (madvise(area + i * PAGE, PAGE, MADV_DONTNEED))
            return -1;
    pid_t child = clone_raw();
    for (size_t i = 0; i < pages; i++)
        wrong += *(volatile unsigned *)(area + i * PAGE + 64) != (i % 64 ? i : 0);
    if (child == 0)
        _exit(wrong != 0);
    waitpid(child, &status, 0);
    return wrong || status;
}

/* The child's memory must have been wiped. */
static long child_is_wiped(void) {
    long wrong = 0;
    for (size_t i = 0; i < pages; i++)
        wrong += *(volatile unsigned *)(area + i * PAGE + 64) != 0;
    return wrong;
}

static const struct {
    const char *kind;
    pid_t (*fork)(void);
    long (*child)(void);
} fork_kinds[] = {
    {"fork", fork, child_looks},           {"clone", clone_raw, child_looks},
    {"clone-drops", clone_raw, child_drops}, {"clone-maps", clone_raw, child_maps},
    {"clone-moves", clone_raw, child_moves}, {"clone-forks", clone_raw, child_forks},
    {"clone-drops-forks", clone_raw, child_drops_and_forks},
    {"clone-wiped", clone_raw, child_is_wiped},
    {"clone-full", clone_without_descriptors, child_looks},
};

/* The child of vfork shares the memory, and must not write to its stack. */
static pid_t vfork_looks(void) {
    pid_t child = vfork();
    if (child == 0)
        _exit(wrong_pages() != 0);
    return child;
}

static pid_t fork_as(const char *kind) {
    if (!strcmp(kind, "vfork"))
        return vfork_looks();
    for (size_t i = 0; i < sizeof fork_kinds / sizeof *fork_kinds; i++)
        if (!strcmp(fork_kinds[i].kind, kind)) {
            pid_t child = fork_kinds[i].fork();
            if (child == 0)
                _exit(fork_kinds[i].child() != 0);
            return child;
        }
    fprintf(stderr, "no such kind of fork\n");
    exit(2);
}
#endif
