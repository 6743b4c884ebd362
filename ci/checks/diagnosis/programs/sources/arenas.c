// Threads whose small allocations fill several heaps of an arena each, or a little of the arenas that the environment
// permits.   usage: arenas COUNT [few]
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static pthread_barrier_t all;
static long size = 500000, total = 250L << 20;
static void *fill(void *nothing) {
    for (long sum = 0; sum < total; sum += size) *(volatile char *)malloc(size) = 1;
    pthread_barrier_wait(&all);
    pause();
    return nothing;
}
int main(int count, char **words) {
    int number = atoi(words[1]);
    if (count > 2) {
        size = 1000, total = 100 * size;
    } else {
        mallopt(M_ARENA_MAX, 100000);
        mallopt(M_MMAP_THRESHOLD, 1 << 20);
    }
    pthread_barrier_init(&all, NULL, number + 1);
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, fill, NULL)) return perror("pthread_create"), 1;
    }
    pthread_barrier_wait(&all);
    puts("ready"), fflush(stdout);
    pause();
}
