/* Eight threads map, protect, move and unmap at random for a given number of rounds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096L
static int rounds;

static void *work(void *number) {
    unsigned seed = (unsigned)(long)number;
    for (int n = 0; n < rounds; n++) {
        char *p = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) abort();
        p[rand_r(&seed) % 16 * PAGE] = 1;
        if (mprotect(p + rand_r(&seed) % 8 * PAGE, 4 * PAGE, PROT_READ)) abort();
        p[15 * PAGE] = 2;
        if (rand_r(&seed) % 4 == 0) {
            char *q = mremap(p + 12 * PAGE, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
            if (q == MAP_FAILED || munmap(q, 8 * PAGE)) abort();
            if (munmap(p, 12 * PAGE)) abort();
        } else if (rand_r(&seed) % 8 != 0) {
            if (munmap(p, 16 * PAGE)) abort();
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[8];
    rounds = argc > 1 ? atoi(argv[1]) : 100;
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    return 0;
}
