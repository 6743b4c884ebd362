/* The leader exits first; another thread continues, changes the address space, and exits last. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *last(void *unused) {
    usleep(50000);
    for (int i = 0; i < 40; i++) {
        char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p[0] = 1;
        if (mprotect(p, 4096, PROT_READ)) abort();
    }
    exit(5);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, last, 0);
    pthread_exit(0);
}
