// A process that has inherited its memory from a parent, and changes it.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BOTH = PROT_READ | PROT_WRITE };

static void map(char *at, int pages) {
    mmap(at, pages * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int main(void) {
    char *at = mmap(0, 100 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 1, 40 * PAGE);
    if (fork()) return wait(0) < 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    printf("ready\n");
    fflush(stdout);
    for (int i = 0;; i++) {
        mprotect(at + 10 * PAGE, PAGE, PROT_READ);
        mprotect(at + 10 * PAGE, PAGE, BOTH);
        at[10 * PAGE] = 2;
        map(at + 40 * PAGE, 10);
        if (i % 2) at[45 * PAGE] = 1;
        map(at + 20 * PAGE, 2);
        if (i % 5 == 0) at[20 * PAGE] = 1;
        mprotect(at + 60 * PAGE, PAGE, PROT_READ);
        mprotect(at + 60 * PAGE, PAGE, BOTH);
        usleep(500);
    }
}
