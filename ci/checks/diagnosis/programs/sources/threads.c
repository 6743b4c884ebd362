// Threads that sleep, each with a stack of SIZE KiB (0: the default).   usage: threads COUNT SIZE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *rest(void *nothing) { pause(); return nothing; }
int main(int count, char **words) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (count > 2 && atoi(words[2])) pthread_attr_setstacksize(&attributes, atoi(words[2]) * 1024L);
    for (int i = 0; i < atoi(words[1]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, rest, NULL)) return perror("pthread_create"), 1;
    }
    puts("ready"), fflush(stdout);
    pause();
}
