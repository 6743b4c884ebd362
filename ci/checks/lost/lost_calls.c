// Threads that map and unmap memory at the same time, four at a time, and count their calls themselves.
//
// usage: lost_calls CALLS     prints the number of mappings that it made and removed
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LENGTH = 16384, THREADS = 4 };

static void *maps_and_unmaps(void *made) {
    char *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    at[0] = 1;
    if (munmap(at, LENGTH)) abort();
    ++*(int *)made;
    return NULL;
}

int main(int count, char **words) {
    int calls = count > 1 ? atoi(words[1]) : 200, total = 0;
    while (total < calls) {
        pthread_t threads[THREADS];
        int made[THREADS] = {0};
        for (int n = 0; n < THREADS; n++)
            if (pthread_create(&threads[n], NULL, maps_and_unmaps, &made[n])) abort();
        for (int n = 0; n < THREADS; n++) {
            if (pthread_join(threads[n], NULL)) abort();
            total += made[n];
        }
    }
    printf("%d\n", total);
    return 0;
}
