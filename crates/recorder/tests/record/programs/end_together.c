// Children whose threads exit one by one at the moment when the process ends: the exit of the whole
// group wakes a thread from its own exit stop.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 40, THREADS = 4 };

static atomic_int ready;

static void *leaves(void *unused) {
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) <= THREADS)
        sched_yield();
    syscall(SYS_exit, 0);
    return unused;
}

static void child(int nr) {
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, leaves, NULL))
            _exit(1);
    }
    while (atomic_load(&ready) < THREADS)
        sched_yield();
    atomic_fetch_add(&ready, 1);
    for (volatile int n = 0; n < nr * 1000; n++)
        ;
    _exit(0);
}

int main(void) {
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid == 0)
            child(i);
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
            return 1;
    }
    return 0;
}
