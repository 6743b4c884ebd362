// A process that is recorded while it runs, and that notices any call that ends too early.
//
// Two threads map, protect, touch and unmap memory, and one thread forks. Four threads wait inside
// epoll_wait, futex, read and nanosleep, without libc's retries. After a byte on standard input, the
// process wakes the waiting threads and prints what each of them has seen.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16 };

static volatile int over;
static int event, pipes[2];
static unsigned futex_word;

static const char *of(long result, long expected) {
    if (result == expected) return "ok";
    return result < 0 ? strerror(errno) : "wrong result";
}

static void *in_epoll(void *poll) {
    struct epoll_event got;
    return (void *)of(syscall(SYS_epoll_wait, *(int *)poll, &got, 1, -1), 1);
}

static void *in_futex(void *unused) {
    return (void *)of(syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, 0, 0, 0), 0);
}

static void *in_read(void *unused) {
    char byte;
    return (void *)of(syscall(SYS_read, pipes[0], &byte, 1), 1);
}

static void *in_nanosleep(void *unused) {
    struct timespec long_time = {1000, 0};
    const char *seen = of(syscall(SYS_nanosleep, &long_time, 0), 1);
    printf("nanosleep ended: %s\n", seen);
    return 0;
}

static void *maps(void *unused) {
    struct timespec pause = {0, 500000};
    while (!over) {
        char *at = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return "mmap";
        memset(at, 7, PAGES * PAGE);
        if (mprotect(at + 4 * PAGE, 4 * PAGE, PROT_READ)) return "mprotect";
        if (mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE)) return "mprotect";
        at[5 * PAGE] = 8;
        if (at[0] != 7 || at[5 * PAGE] != 8) return "content";
        if (munmap(at, PAGES * PAGE)) return "munmap";
        nanosleep(&pause, 0);
    }
    return "ok";
}

static void *forks(void *unused) {
    struct timespec pause = {0, 5000000};
    while (!over) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            char *at = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            *at = 1;
            _exit(7);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) return "fork";
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return "status";
        nanosleep(&pause, 0);
    }
    return "ok";
}

int main(void) {
    pthread_t threads[6], sleeper;
    int poll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN};
    char byte;
    event = eventfd(0, 0);
    epoll_ctl(poll, EPOLL_CTL_ADD, event, &wanted);
    if (pipe(pipes)) return 1;
    setvbuf(stdout, 0, _IOLBF, 0);
    pthread_create(&threads[0], 0, in_epoll, &poll);
    pthread_create(&threads[1], 0, in_futex, 0);
    pthread_create(&threads[2], 0, in_read, 0);
    pthread_create(&threads[3], 0, maps, 0);
    pthread_create(&threads[4], 0, maps, 0);
    pthread_create(&threads[5], 0, forks, 0);
    pthread_create(&sleeper, 0, in_nanosleep, 0);
    printf("ready\n");
    printf("input: %s\n", of(syscall(SYS_read, 0, &byte, 1), 1));
    over = 1;
    eventfd_write(event, 1);
    futex_word = 1;
    syscall(SYS_futex, &futex_word, FUTEX_WAKE, 1, 0, 0, 0);
    if (write(pipes[1], "x", 1) != 1) return 1;
    const char *names[] = {"epoll_wait", "futex", "read", "maps", "maps", "forks"};
    for (int i = 0; i < 6; i++) {
        void *seen;
        pthread_join(threads[i], &seen);
        printf("%s: %s\n", names[i], (char *)seen);
    }
    return 0;
}
