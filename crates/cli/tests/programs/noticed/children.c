/* What a program can learn about children that end. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "noticed.h"

static void wait_for_end_of(void (*body)(void)) {
    pid_t child = born(body);
    await_end(child);
    say_waited(child, WNOHANG);
}
static void kills_itself(void) { kill(getpid(), SIGKILL); }
static void *exits_after(void *leader) {
    pthread_join(*(pthread_t *)leader, 0);
    _exit(7);
}
static void *executes(void *unused) {
    execl("/bin/sh", "sh", "-c", "exit 7", (char *)0);
    return unused;
}
static void leader_ends_first(void) {
    thread(exits_after);
    pthread_exit(0);
}
static void *exits_at_once(void *unused) {
    _exit(7);
    return unused;
}
static void leader_exits_too(void) {
    thread(exits_at_once);
    syscall(SYS_exit, 0);
}
static void thread_executes(void) {
    thread(executes);
    sleeps(0);
}
static void exited(void) { wait_for_end_of(exits); }
static void killed(void) { wait_for_end_of(kills_itself); }
static void many_threads(void) { wait_for_end_of(has_threads); }
static void leader_first(void) { wait_for_end_of(leader_ends_first); }
static void leader_too(void) {
    int missed = 0;
    for (int i = 0; i < 50; i++) {
        pid_t child = born(leader_exits_too);
        await_end(child);
        missed += waitpid(child, 0, WNOHANG) == 0 && waitpid(child, 0, 0) == child;
    }
    say("missed %d of 50", missed);
}
static void exec_in_thread(void) { wait_for_end_of(thread_executes); }
static void aborts(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
}
static void aborted(void) { wait_for_end_of(aborts); }
static void still_running(void) {
    pid_t child = born((void (*)(void))pause);
    say_waited(child, WNOHANG);
    kill(child, SIGKILL);
}
static void sigchld(void) {
    block(SIGCHLD);
    pid_t child = born(exits);
    say_info(SIGCHLD, child);
    say(", ");
    say_waited(child, WNOHANG);
}
static void sigchld_killed(void) {
    block(SIGCHLD);
    say_info(SIGCHLD, born(kills_itself));
}
static void waitid_nowait(void) {
    pid_t child = born(exits);
    await_end(child);
    for (int i = 0; i < 2; i++) {
        siginfo_t info = {0};
        check(!waitid(P_PID, child, &info, WEXITED | WNOWAIT | WNOHANG), "waitid");
        say("%s, ", info.si_pid == child ? "child" : "nothing");
    }
    say_waited(child, WNOHANG);
}
static void waitid_pidfd(void) {
    pid_t child = born(exits);
    int fd = pidfd_of(child);
    await_end(child);
    siginfo_t info = {0};
    check(!waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG), "waitid");
    say("code %d status %d", info.si_code, info.si_status);
}
static pid_t awaited;
static void *waits(void *flags) {
    say_waited(awaited, *(int *)flags);
    return 0;
}
static void wait_in_thread(void) {
    awaited = born(exits);
    await_end(awaited);
    int flags[2] = {WNOHANG | __WNOTHREAD, WNOHANG};
    for (int i = 0; i < 2; i++) {
        pthread_t other;
        check(!pthread_create(&other, 0, waits, &flags[i]), "pthread_create");
        pthread_join(other, 0);
        say(i ? "" : ", ");
    }
}
static void wait_for_group(void) {
    pid_t child = fork();
    if (!child) {
        setpgid(0, 0);
        _exit(7);
    }
    await_end(child);
    int status = 0;
    say(waitpid(-child, &status, WNOHANG) == child ? "child, " : "nothing, ");
    say_status(status);
}
static void gone_after_wait(void) {
    pid_t child = born(exits);
    await_end(child);
    waitpid(child, 0, 0);
    say("%s", error(kill(child, 0)));
}
static void ignored_children(void) {
    signal(SIGCHLD, SIG_IGN);
    pid_t child = born((void (*)(void))pause);
    int fd = pidfd_of(child);
    kill(child, SIGKILL);
    struct pollfd p = {fd, POLLIN, 0};
    check(poll(&p, 1, -1) == 1, "poll");
    say_waited(child, WNOHANG);
}
static int returns_seven(void *unused) {
    (void)unused;
    syscall(SYS_exit, 7);
    return 0;
}
static pid_t cloned(int flags, int *fd) {
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child = clone(returns_seven, stack + 65536, CLONE_VM | CLONE_PIDFD | flags, 0, fd);
    check(child > 0, "clone");
    return child;
}
static void exit_signal(void) {
    block(SIGUSR1);
    int fd;
    say_info(SIGUSR1, cloned(SIGUSR1, &fd));
}
static void no_exit_signal(void) {
    int fd;
    pid_t child = cloned(0, &fd);
    await_end(child);
    say_waited(child, WNOHANG);
    say(", ");
    say_waited(child, WNOHANG | __WCLONE);
}
static void vfork_waits(void) {
    volatile int written = 0;
    pid_t child = vfork();
    if (!child) {
        struct timespec nap = {0, 20000000};
        nanosleep(&nap, 0);
        written = 1;
        _exit(7);
    }
    say("%s, ", written ? "after the child" : "before the child");
    say_waited(child, 0);
}
static void child_usage(void) {
    pid_t child = fork();
    if (!child) {
        struct timespec used;
        do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        while (used.tv_sec == 0 && used.tv_nsec < 20000000);
        _exit(7);
    }
    struct rusage own, all;
    check(wait4(child, 0, 0, &own) == child && !getrusage(RUSAGE_CHILDREN, &all), "wait4");
    long us = own.ru_utime.tv_usec + own.ru_stime.tv_usec + own.ru_utime.tv_sec * 1000000;
    long sum = all.ru_utime.tv_usec + all.ru_stime.tv_usec + all.ru_utime.tv_sec * 1000000;
    say("%s, %s", us >= 10000 ? "counted" : "lost", sum >= us ? "counted" : "lost");
}
static void zombie(void) {
    pid_t child = born(exits);
    await_end(child);
    say("%s, ", field(child, "State"));
    say("tracer %s", field(child, "TracerPid"));
}

const struct row CHILDREN[] = {
    ROW(exited), ROW(killed), ROW(aborted), ROW(many_threads), ROW(leader_first), ROW(leader_too),
    ROW(exec_in_thread), ROW(still_running), ROW(sigchld), ROW(sigchld_killed), ROW(waitid_nowait),
    ROW(waitid_pidfd), ROW(wait_in_thread), ROW(wait_for_group), ROW(gone_after_wait),
    ROW(ignored_children), ROW(exit_signal), ROW(no_exit_signal), ROW(vfork_waits), ROW(child_usage),
    ROW(zombie), {0, 0},
};
