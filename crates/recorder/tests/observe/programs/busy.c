// Changes its mappings from several threads and a child until its standard input ends.
//
// The argument is the pause of each thread between two rounds, in microseconds.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, THREADS = 4 };

static int pause_us;

static void check(int right) {
    if (!right) {
        perror("busy");
        abort();
    }
}

static void *changes_mappings(void *unused) {
    for (unsigned round = 0;; round++) {
        char *at = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(at != MAP_FAILED);
        at[0] = at[5 * PAGE] = 1;
        check(mprotect(at + 4 * PAGE, 4 * PAGE, PROT_READ) == 0);
        check(madvise(at + 12 * PAGE, 2 * PAGE, MADV_DONTFORK) == 0);
        at[13 * PAGE] = 2;
        char *moved = mremap(at, 4 * PAGE, 40 * PAGE, MREMAP_MAYMOVE);
        check(moved != MAP_FAILED);
        moved[39 * PAGE] = 3;
        check(munmap(moved, 40 * PAGE) == 0);
        check(munmap(at + 4 * PAGE, 12 * PAGE) == 0);
        if (round % 16 == 0) {
            char *kept = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            check(kept != MAP_FAILED);
            kept[0] = 4;
            check(mprotect(kept, PAGE, round % 32 == 0 ? PROT_READ : PROT_NONE) == 0);
        }
        if (pause_us != 0) {
            usleep(pause_us);
        }
    }
    return unused;
}

static void *short_lived(void *unused) {
    return unused;
}

static void *creates(void *unused) {
    for (;;) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, short_lived, NULL) == 0);
        check(pthread_join(thread, NULL) == 0);
        pid_t child = fork();
        if (child == 0) {
            char *at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            at[0] = 1;
            mprotect(at + PAGE, PAGE, PROT_NONE);
            usleep(20000);
            munmap(at, 4 * PAGE);
            _exit(0);
        }
        check(child > 0 && waitpid(child, NULL, 0) == child);
        usleep(30000);
    }
    return unused;
}

int main(int argc, char **argv) {
    pause_us = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;
    for (int n = 0; n < THREADS; n++) {
        check(pthread_create(&thread, NULL, changes_mappings, NULL) == 0);
    }
    check(pthread_create(&thread, NULL, creates, NULL) == 0);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
