// A program whose mappings one change would have prevented.
//
// usage: prevention commits|advice|guards N
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

static char *map(long bytes, int prot) {
    char *p = mmap(0, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    return p;
}

// parts of a reservation, each third one committed after its neighbours were written
static void commit_part(char *part) {
    if (mprotect(part, PAGE, RW)) exit(2);
    *part = 1;
}
static void commits(long n) {
    char *space = map(3 * n * PAGE, PROT_NONE);
    for (long i = 0; i < n; i++) {
        char *p = space + 3 * i * PAGE;
        commit_part(p);
        commit_part(p + 2 * PAGE);
        commit_part(p + PAGE);
    }
}

// buffers that children must not inherit, between others
static void advice(long n) {
    char *space = map(2 * n * PAGE, RW);
    memset(space, 1, 2 * n * PAGE);
    for (long i = 0; i < n; i++)
        if (madvise(space + 2 * i * PAGE, PAGE, MADV_DONTFORK)) exit(3);
}

// stacks of fibers with a guard below each
static void guards(long n) {
    char *space = map(4 * n * PAGE, RW);
    for (long i = 0; i < n; i++)
        if (mprotect(space + 4 * i * PAGE, PAGE, PROT_NONE)) exit(4);
    for (long i = 0; i < n; i++) space[4 * i * PAGE + 2 * PAGE] = 1;
}

int main(int argc, char **argv) {
    if (argc != 3) return 5;
    long n = atol(argv[2]);
    if (!strcmp(argv[1], "commits")) commits(n);
    if (!strcmp(argv[1], "advice")) advice(n);
    if (!strcmp(argv[1], "guards")) guards(n);
    return 0;
}
