/* Threads that map, touch and unmap memory as fast as they can, while other memory of the process is merged.
 * A range that mmap returns to a thread belongs to this thread until it unmaps the range. */
#ifndef MAPPERS_H
#define MAPPERS_H
#include "memory.h"

#define HELD 12 /* mappings that a thread has at a time */

struct mapper {
    pthread_t thread;
    unsigned seed;
    long wrong, calls;
};

static _Atomic int mappers_stop;

/* Expected value of page i of a mapping that was created with this seed. */
static unsigned page_mark(unsigned seed, size_t i) { return seed + 2654435761u * (unsigned)i; }

static void *map_and_unmap(void *argument) {
    struct mapper *m = argument;
    struct {
        char *at;
        size_t count;
        unsigned seed;
    } held[HELD] = {0};
    while (!mappers_stop) {
        unsigned seed = m->seed = m->seed * 1103515245 + 12345;
        size_t n = (seed >> 8) % HELD;
        if (held[n].at) {
            /* If another thread has unmapped or replaced the page, the access kills the process or reads zeros. */
            for (size_t i = 0; i < held[n].count; i++)
                m->wrong += *(volatile unsigned *)(held[n].at + i * PAGE) != page_mark(held[n].seed, i);
            munmap(held[n].at, held[n].count * PAGE);
            held[n].at = 0;
            continue;
        }
        /* Sizes up to that of the merged range, so that a mapping fits into a hole of any size. */
        held[n].count = 1 + (seed >> 16) % (seed & 3 ? 8 : pages);
        held[n].seed = seed;
        char *p = mmap(0, held[n].count * PAGE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
        if (p == MAP_FAILED)
            die("mmap of a mapper");
        for (size_t i = 0; i < held[n].count; i++)
            *(volatile unsigned *)(p + i * PAGE) = page_mark(seed, i);
        held[n].at = p;
        m->calls++;
    }
    for (size_t n = 0; n < HELD; n++)
        if (held[n].at)
            munmap(held[n].at, held[n].count * PAGE);
    return 0;
}

static void start_mappers(struct mapper *m, int n) {
    mappers_stop = 0;
    for (int i = 0; i < n; i++) {
        m[i] = (struct mapper){.seed = 11 + i};
        if (pthread_create(&m[i].thread, 0, map_and_unmap, &m[i]))
            die("pthread_create");
    }
}

/* Prints the number of calls; returns the number of pages with unexpected values. */
static long stop_mappers(struct mapper *m, int n) {
    long wrong = 0, calls = 0;
    mappers_stop = 1;
    for (int i = 0; i < n; i++) {
        pthread_join(m[i].thread, 0);
        wrong += m[i].wrong;
        calls += m[i].calls;
    }
    printf("mapped %ld\nmapped_wrong %ld\n", calls, wrong);
    return wrong;
}

/* Creates n pages by committing every other one first: about n mappings, and never a hole in which a mapper's
 * mmap could be placed. */
static void commit_out_of_order(size_t n) {
    pages = n;
    area = reserve(n * PAGE);
    for (size_t first = 0; first < 2; first++)
        for (size_t i = first; i < n; i += 2) {
            if (mprotect(area + i * PAGE, PAGE, PROT_READ | PROT_WRITE))
                die("mprotect");
            *(unsigned *)(area + i * PAGE + 64) = i;
        }
}
#endif
