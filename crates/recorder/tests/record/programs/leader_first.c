/* The leader exits first; another thread continues, changes the address space, and exits last. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *last(void *leader) {
    /* The kernel reports the end of a thread after its tracer has seen it. */
    if (pthread_join(*(pthread_t *)leader, 0)) abort();
    for (int i = 0; i < 40; i++) {
        char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p[0] = 1;
        if (mprotect(p, 4096, PROT_READ)) abort();
    }
    exit(5);
    return 0;
}

int main(void) {
    static pthread_t leader;
    pthread_t thread;
    leader = pthread_self();
    pthread_create(&thread, 0, last, &leader);
    pthread_exit(0);
}
