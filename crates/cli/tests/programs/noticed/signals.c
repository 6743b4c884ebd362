/* What a program can learn from signals, and from waits to which signals come that it ignores: SIGURG is
 * ignored by default. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "noticed.h"

static void sends_ignored_signal(void) {
    nap(20);
    kill(getppid(), SIGURG);
    for (;;) {
        nap(20);
        kill(getppid(), SIGUSR1);
    }
}
/* Says how a wait ended to which an ignored signal came and then one with a handler. */
static long ended(long result) {
    return result < 0 && errno == EINTR && !arrived ? (errno = EAGAIN, -1) : result;
}
static pid_t disturbed(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, 0);
    return born(sends_ignored_signal);
}
static void epoll_forever(void) {
    pid_t child = disturbed();
    struct epoll_event event;
    say("%s", error(ended(epoll_wait(epoll_create1(0), &event, 1, -1))));
    kill(child, SIGKILL);
}
static void semaphore_forever(void) {
    pid_t child = disturbed();
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    say("%s", error(ended(semop(id, &down, 1))));
    semctl(id, 0, IPC_RMID);
    kill(child, SIGKILL);
}
static void sigwait_forever(void) {
    pid_t child = disturbed();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    say("%s", error(ended(sigwaitinfo(&set, 0))));
    kill(child, SIGKILL);
}
static void pause_forever(void) {
    pid_t child = disturbed();
    say("%s", error(ended(pause())));
    kill(child, SIGKILL);
}
static void waits_for_events(void) {
    struct epoll_event event;
    tell(epoll_wait(epoll_create1(0), &event, 1, -1) < 0 ? errno : 0);
}
static void epoll_stopped(void) {
    open_pipes();
    pid_t child = born(waits_for_events);
    struct pollfd p = {says[0], POLLIN, 0};
    /* The first stop may be too early. */
    for (int i = 0; i < 50 && poll(&p, 1, 100) == 0; i++) {
        kill(child, SIGSTOP);
        waitpid(child, 0, WUNTRACED);
        kill(child, SIGCONT);
    }
    say("%s", poll(&p, 1, 0) == 1 ? strerrorname_np(told()) : "waits on");
    kill(child, SIGKILL);
}
static void sends_only_ignored(void) {
    for (;;) {
        nap(10);
        kill(getppid(), SIGURG);
    }
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
/* Says how a wait of 60 ms ended, to which ignored signals came. */
static void limited(long (*wait)(void)) {
    pid_t child = born(sends_only_ignored);
    double begun = now();
    long result = wait();
    say("%s %s", error(result), now() - begun >= 0.06 ? "in time" : "early");
    kill(child, SIGKILL);
}
static const struct timespec LIMIT = {0, 60000000};
static long by_nanosleep(void) { return nanosleep(&LIMIT, 0); }
static long by_ppoll(void) { return ppoll(0, 0, &LIMIT, 0); }
static long by_select(void) {
    struct timeval limit = {0, 60000};
    return select(0, 0, 0, 0, &limit);
}
static long by_futex(void) {
    int word = 0;
    long result = syscall(SYS_futex, &word, 0, 0, &LIMIT, 0, 0);
    return result < 0 && errno == ETIMEDOUT ? 0 : result;
}
static long by_epoll(void) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, 60);
}
static long by_receive(void) {
    int pair[2];
    char byte;
    struct timeval limit = {0, 60000};
    check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    long result = recv(pair[0], &byte, 1, 0);
    return result < 0 && errno == EAGAIN ? 0 : result;
}
static void sleep_limited(void) { limited(by_nanosleep); }
static void ppoll_limited(void) { limited(by_ppoll); }
static void select_limited(void) { limited(by_select); }
static void futex_limited(void) { limited(by_futex); }
static void epoll_limited(void) { limited(by_epoll); }
static void receive_limited(void) { limited(by_receive); }
/* Says how a read ended during which signals arrived. Only with `SA_RESTART`, there is something to read. */
static void read_interrupted(int flags) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigaction(SIGALRM, &action, 0);
    open_pipes();
    pid_t child = fork();
    if (!child) {
        nap(60);
        if (flags) tell(1);
        sleeps(0);
    }
    struct itimerval often = {.it_interval = {0, 5000}, .it_value = {0, 5000}};
    setitimer(ITIMER_REAL, &often, 0);
    int value;
    const char *result = error(read(says[0], &value, sizeof value));
    say("%s, %s", result, arrived ? "signals" : "no signal");
    kill(child, SIGKILL);
}
static void interrupted(void) { read_interrupted(0); }
static void restarted(void) { read_interrupted(SA_RESTART); }
static void queued(void) {
    block(SIGRTMIN);
    for (int i = 0; i < 5; i++) sigqueue(getpid(), SIGRTMIN, (union sigval){i});
    for (int i = 0; i < 5; i++) {
        siginfo_t info = signal_info(SIGRTMIN);
        say("%d%s ", info.si_value.sival_int, info.si_pid == getpid() ? "" : "?");
    }
}
static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    say("signal %d code %d at %p", signal, info->si_code, signal == SIGSEGV ? info->si_addr : 0);
    fflush(stdout);
    _exit(0);
}
static void handled(int signal) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, 0);
}
static void fault_info(void) {
    handled(SIGSEGV);
    *(volatile int *)16 = 1;
}
static void breakpoint(void) {
    handled(SIGTRAP);
    __asm__ volatile("int3");
}
static void timer_over_exec(void) {
    struct itimerval once = {.it_value = {100, 0}};
    setitimer(ITIMER_REAL, &once, 0);
    block(SIGUSR1);
    raise(SIGUSR1);
    fflush(stdout);
    execl("/proc/self/exe", "noticed", "--executed", (char *)0);
}
void executed(void) {
    struct itimerval left;
    sigset_t pending;
    getitimer(ITIMER_REAL, &left);
    sigpending(&pending);
    printf("timer %s, signal %s", left.it_value.tv_sec ? "runs" : "gone",
           sigismember(&pending, SIGUSR1) ? "pending" : "gone");
}

const struct row SIGNALS[] = {
    ROW(epoll_forever), ROW(semaphore_forever), ROW(sigwait_forever), ROW(pause_forever),
    ROW(epoll_stopped), ROW(sleep_limited), ROW(ppoll_limited), ROW(select_limited),
    ROW(futex_limited), ROW(epoll_limited), ROW(receive_limited), ROW(interrupted), ROW(restarted),
    ROW(queued), ROW(fault_info), ROW(breakpoint), ROW(timer_over_exec), {0, 0},
};
