// Threads that allocate a little each, in the arenas that the environment permits.   usage: arenas-few COUNT
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_barrier_t all;
static void *fill(void *nothing) {
    for (int i = 0; i < 100; i++) *(volatile char *)malloc(1000) = 1;
    pthread_barrier_wait(&all);
    pause();
    return nothing;
}
int main(int count, char **words) {
    (void)count;
    int number = atoi(words[1]);
    pthread_barrier_init(&all, NULL, number + 1);
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        pthread_attr_t small;
        pthread_attr_init(&small);
        if (pthread_create(&thread, &small, fill, NULL)) return perror("pthread_create"), 1;
    }
    pthread_barrier_wait(&all);
    puts("ready"), fflush(stdout);
    pause();
}
