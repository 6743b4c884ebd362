// Threads that end at once, and that nobody joins: their stacks stay, unless they are detached.   usage: unjoined COUNT [detached]
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_barrier_t all;
static void *end(void *nothing) { pthread_barrier_wait(&all); return nothing; }
int main(int count, char **words) {
    int number = atoi(words[1]);
    pthread_barrier_init(&all, NULL, number + 1);
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, end, NULL)) return perror("pthread_create"), 1;
        if (count > 2) pthread_detach(thread);
    }
    pthread_barrier_wait(&all);
    // Until the last one has ended, which /proc shows.
    char line[4096];
    for (int threads = 0; threads != 1;) {
        FILE *status = fopen("/proc/self/status", "r");
        while (fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &threads);
        fclose(status);
    }
    puts("ready"), fflush(stdout);
    pause();
}
