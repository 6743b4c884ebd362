/* Makes memory calls as fast as possible: a call storm.
 * usage: storm mmap|mprotect|mixed THREADS ROUNDS
 *   mmap      maps and unmaps a page
 *   mprotect  splits a mapping by its protection and lets it merge again
 *   mixed     both, touches the page, and advises and moves mappings
 * Each thread makes ROUNDS rounds; a failed call ends the program with status 1. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096L
#define NEED(condition) \
    do { \
        if (!(condition)) { \
            perror(#condition); \
            exit(1); \
        } \
    } while (0)

static const char *kind;
static long rounds;

static char *map(long pages) {
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED);
    return at;
}

static void map_and_unmap(void) {
    char *at = map(1);
    NEED(munmap(at, PAGE) == 0);
}

static void protect(char *arena) {
    NEED(mprotect(arena + PAGE, PAGE, PROT_READ) == 0);
    NEED(mprotect(arena + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void mix(char *arena, long round) {
    char *at = map(2);
    at[PAGE] = 1;
    protect(arena);
    NEED(madvise(arena + 2 * PAGE, PAGE, round % 2 ? MADV_DONTFORK : MADV_DOFORK) == 0);
    char *moved = mremap(at, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    NEED(moved != MAP_FAILED);
    moved[2 * PAGE] = 1;
    NEED(munmap(moved, 3 * PAGE) == 0);
}

static void *storm(void *unused) {
    char *arena = map(4);
    for (long round = 0; round < rounds; round++) {
        if (strcmp(kind, "mmap") == 0)
            map_and_unmap();
        else if (strcmp(kind, "mprotect") == 0)
            protect(arena);
        else
            mix(arena, round);
    }
    NEED(munmap(arena, 4 * PAGE) == 0);
    return unused;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: storm mmap|mprotect|mixed THREADS ROUNDS\n");
        return 2;
    }
    kind = words[1];
    rounds = atol(words[3]);
    enum { MOST = 64 };
    int threads = atoi(words[2]);
    NEED(0 < threads && threads <= MOST);
    pthread_t others[MOST];
    for (int n = 1; n < threads; n++) NEED(pthread_create(&others[n], NULL, storm, NULL) == 0);
    storm(NULL);
    for (int n = 1; n < threads; n++) NEED(pthread_join(others[n], NULL) == 0);
    return 0;
}
