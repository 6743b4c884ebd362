// A process with several threads, one of which executes this program again after a moment.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 12, LONGEST_US = 5000 };

static char *const again[] = {"executes", "again", 0};

static void *rest(void *unused) {
    for (;;) usleep(300);
    return unused;
}

static void *execute(void *unused) {
    usleep((useconds_t)(rand() % LONGEST_US));
    execv("/proc/self/exe", again);
    return unused;
}

int main(int count, char **words) {
    (void)words;
    if (count == 1) {
        puts("ready");
        fflush(stdout);
    }
    srand((unsigned)clock() ^ (unsigned)time(0));
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, 0, rest, 0);
    pthread_create(&thread, 0, execute, 0);
    for (;;) pause();
}
