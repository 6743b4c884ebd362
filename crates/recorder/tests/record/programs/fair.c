/* Threads that continuously make a call at which the recorder stops all of them. Prints the number of calls
 * of the fastest and of the slowest thread. */
#include <pthread.h>
#include <stdio.h>
#include <sys/personality.h>
#include <time.h>

enum { THREADS = 24 };
static volatile int over;
static long rounds[THREADS];

static void *work(void *number) {
    long *count = &rounds[(long)number];
    while (!over) {
        if (personality(0) == -1) return number;
        ++*count;
    }
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, work, (void *)i)) return 1;
    struct timespec pause = {3, 0};
    nanosleep(&pause, 0);
    over = 1;
    long most = 0, least = -1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], 0);
        if (rounds[i] > most) most = rounds[i];
        if (least < 0 || rounds[i] < least) least = rounds[i];
    }
    printf("most %ld least %ld\n", most, least);
    return 0;
}
