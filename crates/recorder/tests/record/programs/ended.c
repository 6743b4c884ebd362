/* Children that end in many ways. Prints, for each way, how often the child could not be waited for
 * although the kernel had announced its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}
static void *exits_last(void *leader) {
    pthread_join(*(pthread_t *)leader, 0);
    _exit(7);
}
static void *executes(void *unused) {
    execl("/bin/sh", "sh", "-c", "exit 7", (char *)0);
    return unused;
}
static void start(void *(*body)(void *), int count) {
    static pthread_t leader;
    leader = pthread_self();
    pthread_t thread;
    while (count--) check(!pthread_create(&thread, 0, body, &leader), "thread");
}

static void exits(void) { _exit(7); }
static void is_killed(void) { kill(getpid(), SIGKILL); }
static void crashes(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    abort();
}
static void exits_with_threads(void) {
    start(sleeps, 5);
    _exit(7);
}
static void is_killed_with_threads(void) {
    start(sleeps, 5);
    kill(getpid(), SIGKILL);
}
static void leader_exits_first(void) {
    start(exits_last, 1);
    pthread_exit(0);
}
static void *exits_at_once(void *unused) {
    _exit(7);
    return unused;
}
static void leader_exits_too(void) {
    start(exits_at_once, 1);
    syscall(SYS_exit, 0);
}
static void thread_executes(void) {
    start(executes, 1);
    sleeps(0);
}
static void executes_program(void) { executes(0); }

/* A way to end, and the wait status. */
static const struct {
    const char *name;
    void (*child)(void);
    int status;
} WAYS[] = {
    {"exit", exits, 7 << 8},
    {"kill", is_killed, SIGKILL},
    {"abort", crashes, SIGABRT},
    {"threads", exits_with_threads, 7 << 8},
    {"killed_threads", is_killed_with_threads, SIGKILL},
    {"leader_first", leader_exits_first, 7 << 8},
    {"leader_too", leader_exits_too, 7 << 8},
    {"thread_execs", thread_executes, 7 << 8},
    {"exec", executes_program, 7 << 8},
};

/* Returns 1 if a child that the kernel has announced as ended cannot be waited for. */
static int missed(pid_t child, int status) {
    int got;
    pid_t pid = waitpid(child, &got, WNOHANG | __WALL);
    if (pid == 0) check(waitpid(child, &got, __WALL) == child, "wait");
    check(pid == child || pid == 0, "wait");
    if (got != status) printf("status %#x instead of %#x\n", got, status);
    return pid == 0;
}

static int pidfd_of(pid_t child) {
    int fd = syscall(SYS_pidfd_open, child, 0);
    check(fd >= 0, "pidfd_open");
    return fd;
}
static void await_pidfd(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    check(poll(&p, 1, -1) == 1, "poll");
    close(fd);
}

static int by_pidfd(pid_t child, int status) {
    await_pidfd(pidfd_of(child));
    return missed(child, status);
}
static int by_signal(pid_t child, int status) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    siginfo_t info;
    check(sigwaitinfo(&set, &info) == SIGCHLD, "sigwaitinfo");
    int code = WIFEXITED(status) ? CLD_EXITED : CLD_KILLED;
    if (info.si_pid != child || info.si_code != code)
        printf("pid %d of %d, code %d of %d\n", info.si_pid, child, info.si_code, code);
    return missed(child, status);
}

static void rounds(const char *name, const char *how, int count, void (*body)(void), int status,
                   int (*end)(pid_t, int)) {
    int misses = 0;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        check(child >= 0, "fork");
        if (!child) {
            body();
            sleeps(0);
        }
        misses += end(child, status);
    }
    printf("%s %s %d\n", name, how, misses);
}

static int shared_memory_child(void *unused) {
    (void)unused;
    syscall(SYS_exit, 7);
    return 0;
}
/* A child that shares its parent's memory; without an exit signal, nothing but the pidfd tells. */
static void clones(const char *name, int count, int flags) {
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int misses = 0;
    for (int i = 0; i < count; i++) {
        int fd;
        pid_t child = clone(shared_memory_child, stack + 65536, flags | CLONE_PIDFD, 0, &fd);
        check(child > 0, "clone");
        await_pidfd(fd);
        misses += missed(child, 7 << 8);
    }
    printf("%s pidfd %d\n", name, misses);
}

/* Orphans come to this process, as a subreaper. */
static void orphans(int count) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int misses = 0;
    for (int i = 0; i < count; i++) {
        int to[2], from[2];
        check(!pipe(to) && !pipe(from), "pipe");
        pid_t child = fork();
        if (!child) {
            pid_t orphan = fork();
            char byte;
            if (!orphan) _exit(read(to[0], &byte, 1) == 1 ? 7 : 8);
            _exit(write(from[1], &orphan, sizeof orphan) == sizeof orphan ? 7 : 8);
        }
        pid_t orphan;
        check(read(from[0], &orphan, sizeof orphan) == sizeof orphan, "read");
        misses += by_pidfd(child, 7 << 8);
        int fd = pidfd_of(orphan);
        check(write(to[1], "x", 1) == 1, "write");
        await_pidfd(fd);
        misses += missed(orphan, 7 << 8);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
    }
    printf("orphan pidfd %d\n", misses);
}

/* Children of a process that ignores SIGCHLD are gone without a wait. */
static void ignored(int count) {
    signal(SIGCHLD, SIG_IGN);
    int misses = 0;
    for (int i = 0; i < count; i++) {
        int go[2];
        check(!pipe(go), "pipe");
        pid_t child = fork();
        char byte;
        if (!child) _exit(read(go[0], &byte, 1) == 1 ? 7 : 8);
        int fd = pidfd_of(child);
        check(write(go[1], "x", 1) == 1, "write");
        await_pidfd(fd);
        misses += waitpid(child, 0, WNOHANG) != -1 || errno != ECHILD;
        close(go[0]), close(go[1]);
    }
    printf("ignored pidfd %d\n", misses);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 50;
    setvbuf(stdout, 0, _IOLBF, 0);
    for (unsigned i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        rounds(WAYS[i].name, "pidfd", count, WAYS[i].child, WAYS[i].status, by_pidfd);
    clones("clone_vm", count, CLONE_VM | SIGCHLD);
    clones("clone_vm_silent", count, CLONE_VM);
    clones("vfork", count, CLONE_VM | CLONE_VFORK | SIGCHLD);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, 0);
    struct timespec now = {0, 0};
    while (sigtimedwait(&set, 0, &now) == SIGCHLD) {}
    for (unsigned i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        rounds(WAYS[i].name, "sigchld", count, WAYS[i].child, WAYS[i].status, by_signal);
    orphans(count);
    ignored(count);
    return 0;
}
