/* What a program can learn about itself and its children: a line for each row of the table in
 * docs/differences.md, with the row's name and what the program found.
 *
 * Each row runs in a process of its own. The argument is the id of the process that started the program. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;
static pid_t starter, first_parent;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vprintf(format, words);
    va_end(words);
}
static const char *error(long result) {
    return result < 0 ? strerrorname_np(errno) : "0";
}
static void check(int good, const char *what) {
    if (good) return;
    say("%s failed: %s", what, strerrorname_np(errno));
    exit(1);
}
static void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}

/* Children, and what waits for them. */

static pid_t born(void (*body)(void)) {
    pid_t child = fork();
    check(child >= 0, "fork");
    if (!child) {
        body();
        _exit(7);
    }
    return child;
}
static int pidfd_of(pid_t child) {
    int fd = syscall(SYS_pidfd_open, child, 0);
    check(fd >= 0, "pidfd_open");
    return fd;
}
/* Sleeps until the kernel says that a child has ended. */
static void await_end(pid_t child) {
    struct pollfd p = {pidfd_of(child), POLLIN, 0};
    check(poll(&p, 1, -1) == 1, "poll");
    close(p.fd);
}
static void say_status(int status) {
    if (WIFEXITED(status)) say("exit %d", WEXITSTATUS(status));
    if (WIFSIGNALED(status)) say("signal %d", WTERMSIG(status));
    if (WIFSTOPPED(status)) say("stop %d", WSTOPSIG(status));
    if (WIFCONTINUED(status)) say("continued");
}
static void say_waited(pid_t child, int flags) {
    int status;
    pid_t pid = waitpid(child, &status, flags);
    if (pid == 0) say("nothing");
    if (pid == -1) say("%s", error(-1));
    if (pid == child) say_status(status);
}
static void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, 0);
}
static siginfo_t signal_info(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    siginfo_t info;
    check(sigwaitinfo(&set, &info) == signal, "sigwaitinfo");
    return info;
}
static void say_info(int signal, pid_t child) {
    siginfo_t info = signal_info(signal);
    say("code %d status %d %s", info.si_code, info.si_status,
        info.si_pid == child && info.si_uid == getuid() ? "of the child" : "of another");
}
static void wait_for_end_of(void (*body)(void)) {
    pid_t child = born(body);
    await_end(child);
    say_waited(child, WNOHANG);
}

static void exits(void) {}
static void kills_itself(void) { kill(getpid(), SIGKILL); }
static void *exits_after(void *leader) {
    pthread_join(*(pthread_t *)leader, 0);
    _exit(7);
}
static void *executes(void *unused) {
    execl("/bin/sh", "sh", "-c", "exit 7", (char *)0);
    return unused;
}
static pthread_t thread(void *(*body)(void *)) {
    static pthread_t leader;
    leader = pthread_self();
    pthread_t thread;
    check(!pthread_create(&thread, 0, body, &leader), "pthread_create");
    return thread;
}
static void has_threads(void) {
    for (int i = 0; i < 5; i++) thread(sleeps);
}
static void leader_ends_first(void) {
    thread(exits_after);
    pthread_exit(0);
}
static void thread_executes(void) {
    thread(executes);
    sleeps(0);
}
static void stops(void) { raise(SIGSTOP); }
static void stops_and_sleeps(void) {
    raise(SIGSTOP);
    sleeps(0);
}
static void stops_as_terminal(void) { raise(SIGTSTP); }

static void exited(void) { wait_for_end_of(exits); }
static void killed(void) { wait_for_end_of(kills_itself); }
static void many_threads(void) { wait_for_end_of(has_threads); }
static void leader_first(void) { wait_for_end_of(leader_ends_first); }
static void exec_in_thread(void) { wait_for_end_of(thread_executes); }
static void aborted(void) { wait_for_end_of(abort); }
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
static volatile sig_atomic_t arrived;
static void on_signal(int signal) {
    (void)signal;
    arrived++;
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

/* Parents that end. */

static int ends[2], says[2];
static void open_pipes(void) { check(!pipe(ends) && !pipe(says), "pipe"); }
static void tell(int value) { check(write(says[1], &value, sizeof value) == sizeof value, "write"); }
static int told(void) {
    int value;
    check(read(says[0], &value, sizeof value) == sizeof value, "read");
    return value;
}
static void on_death(int signal) {
    tell(signal);
    _exit(0);
}
static void lives_on(void) {
    signal(SIGUSR2, on_death);
    prctl(PR_SET_PDEATHSIG, SIGUSR2);
    tell(getpid());
    sleeps(0);
}
static void has_child(void) {
    born(lives_on);
    char byte;
    check(read(ends[0], &byte, 1) == 1, "read");
}
static void parent_death_signal(void) {
    open_pipes();
    pid_t parent = born(has_child);
    told();
    check(write(ends[1], "x", 1) == 1, "write");
    say("signal %s", told() == SIGUSR2 ? "SIGUSR2" : "another");
    waitpid(parent, 0, 0);
}
static void tells_parent(void) {
    tell(getpid());
    char byte;
    check(read(ends[0], &byte, 1) == 1, "read");
    tell(getppid());
}
static void leaves_child(void) { born(tells_parent); }
static void orphan(void) {
    open_pipes();
    pid_t parent = born(leaves_child);
    told();
    await_end(parent);
    check(write(ends[1], "x", 1) == 1, "write");
    pid_t new_parent = told();
    say("%s", new_parent == parent || new_parent == first_parent ? "the old one" : "another");
}
static void subreaper(void) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    open_pipes();
    pid_t parent = born(leaves_child), child = told();
    await_end(parent);
    check(write(ends[1], "x", 1) == 1, "write");
    say("%s, ", told() == getpid() ? "the subreaper" : "another");
    await_end(child);
    say_waited(child, WNOHANG);
}
static void stopped_job(void) {
    signal(SIGHUP, on_death);
    tell(getpid());
    raise(SIGSTOP);
    sleeps(0);
}
static void leaves_stopped_job(void) {
    setpgid(0, 0);
    pid_t child = born(stopped_job);
    waitpid(child, 0, WUNTRACED);
}
static void orphaned_group(void) {
    open_pipes();
    waitpid(born(leaves_stopped_job), 0, 0);
    told();
    say("signal %s", told() == SIGHUP ? "SIGHUP" : "another");
}

/* Job control. */

static pid_t stopped_child(void (*body)(void)) {
    pid_t child = born(body);
    say_waited(child, WUNTRACED);
    return child;
}
static void stopped(void) { kill(stopped_child(stops), SIGKILL); }
static void stopped_by_terminal(void) { kill(stopped_child(stops_as_terminal), SIGKILL); }
static void stop_info(void) {
    block(SIGCHLD);
    pid_t child = born(stops_and_sleeps);
    say_info(SIGCHLD, child);
    kill(child, SIGCONT);
    say(", ");
    say_info(SIGCHLD, child);
    kill(child, SIGKILL);
}
static void nap(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time)) {}
}
static void stays_stopped(void) {
    pid_t child = stopped_child(stops_and_sleeps);
    nap(30);
    say(", ");
    say_waited(child, WNOHANG);
    kill(child, SIGCONT);
    say(", ");
    say_waited(child, WCONTINUED);
    kill(child, SIGKILL);
}
static void tells_then_stops(void) {
    signal(SIGUSR1, on_signal);
    raise(SIGSTOP);
    _exit(arrived ? 3 : 4);
}
static void signal_while_stopped(void) {
    pid_t child = stopped_child(tells_then_stops);
    kill(child, SIGUSR1);
    nap(10);
    say(", ");
    say_waited(child, WNOHANG);
    kill(child, SIGCONT);
    say(", ");
    say_waited(child, 0);
}
static void killed_while_stopped(void) {
    pid_t child = stopped_child(stops);
    kill(child, SIGKILL);
    await_end(child);
    say(", ");
    say_waited(child, WNOHANG);
}
static void stops_with_threads(void) {
    has_threads();
    stops();
}
static void stopped_threads(void) {
    pid_t child = stopped_child(stops_with_threads);
    kill(child, SIGCONT);
    say(", ");
    say_waited(child, 0);
}

/* /proc and prctl. */

/* Returns the first word of a line of /proc/PID/status. */
static const char *field(pid_t pid, const char *name) {
    static char line[256];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    check(!!file, "open");
    size_t length = strlen(name);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && line[length] == ':') {
            fclose(file);
            line[length + 2 + strcspn(line + length + 2, " \n")] = 0;
            return line + length + 2;
        }
    check(0, name);
    return 0;
}
static void tracer_pid(void) { say("%s", strcmp(field(getpid(), "TracerPid"), "0") ? "not 0" : "0"); }
static void seccomp_field(void) { say("%s", field(getpid(), "Seccomp")); }
static void seccomp_prctl(void) { say("%d", prctl(PR_GET_SECCOMP)); }
static void no_new_privs(void) { say("%d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); }
static void dumpable(void) { say("%d", prctl(PR_GET_DUMPABLE)); }
static void zombie(void) {
    pid_t child = born(exits);
    await_end(child);
    say("%s, ", field(child, "State"));
    say("tracer %s", field(child, "TracerPid"));
}
static void state_of_stopped(void) {
    pid_t child = stopped_child(stops);
    say(", %s", field(child, "State"));
    kill(child, SIGKILL);
}
static void parent(void) {
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", first_parent);
    FILE *file = fopen(path, "r");
    check(file && fgets(name, sizeof name, file), "comm");
    name[strcspn(name, "\n")] = 0;
    say("%s", first_parent == starter ? "the starter" : name);
}
static void group_and_session(void) {
    say("%s, %s", getpgrp() == getpgid(starter) ? "the starter's" : "another",
        getsid(0) == getsid(starter) ? "the starter's" : "another");
}
static void capabilities(void) {
    say("%s ", field(getpid(), "CapEff"));
    say("%s ", field(getpid(), "CapBnd"));
    say("%s", field(getpid(), "CapAmb"));
}
static void identity(void) {
    say("%d %d %d %d %s", getuid(), geteuid(), getgid(), getegid(), field(getpid(), "Groups"));
}
static void signal_masks(void) {
    say("%s ", field(getpid(), "SigBlk"));
    say("%s", field(getpid(), "SigIgn"));
}
static void open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    check(!!folder, "opendir");
    struct dirent *entry;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder)) say("%s ", entry->d_name);
}
static void limits(void) {
    for (int n = 0; n < RLIM_NLIMITS; n++) {
        struct rlimit limit;
        getrlimit(n, &limit);
        say("%lld ", (long long)limit.rlim_cur);
    }
}
static void scheduling(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    say("%d CPUs, policy %d, nice %d, slack %d", CPU_COUNT(&set), sched_getscheduler(0),
        getpriority(PRIO_PROCESS, 0), prctl(PR_GET_TIMERSLACK));
}
static void file_context(void) {
    char folder[4096];
    mode_t mask = umask(0);
    say("%o %s", mask, getcwd(folder, sizeof folder));
}
static void process_personality(void) { say("%#x", personality(0xffffffff)); }
extern char **environ;
static void environment(void) {
    unsigned long count = 0, sum = 0;
    for (char **at = environ; *at; at++, count++)
        for (char *byte = *at; *byte; byte++) sum = sum * 31 + *byte;
    say("%lu %lx", count, sum);
}
static void context_switches(void) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    FILE *file = fopen(self, "r");
    check(!!file, "open");
    for (int i = 0; i < 200; i++)
        munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0), 4096);
    getrusage(RUSAGE_SELF, &after);
    say("%s", after.ru_nvcsw - before.ru_nvcsw >= 200 ? "many" : "few");
}

/* Tracing and filters. */

static void trace_me(void) { say("%s", error(ptrace(PTRACE_TRACEME, 0, 0, 0))); }
static void trace_child(void) {
    pid_t child = born((void (*)(void))pause);
    say("%s", error(ptrace(PTRACE_SEIZE, child, 0, 0)));
    kill(child, SIGKILL);
}
static void strict_seccomp(void) {
    pid_t child = fork();
    if (!child) {
        long result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        syscall(SYS_exit, result ? errno : 0);
    }
    int status;
    waitpid(child, &status, 0);
    say("%s", WEXITSTATUS(status) ? strerrorname_np(WEXITSTATUS(status)) : "0");
}
static void filter_for_tracer(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    check(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    check(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "seccomp");
    say("%s", error(munmap((void *)4096, 4096)));
}
static void untraced_child(void) {
    struct clone_args args = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};
    pid_t child = syscall(SYS_clone3, &args, sizeof args);
    if (!child) {
        char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        syscall(SYS_exit, page == MAP_FAILED ? errno : 7);
    }
    say_waited(child, 0);
    say(", flags %s", args.flags == CLONE_UNTRACED ? "kept" : "changed");
}

/* Signals that the program ignores, sent while it waits. SIGURG is ignored by default. */

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
    nap(20);
    kill(getppid(), SIGURG);
    sleeps(0);
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
/* Says how a wait of 60 ms ended, to which an ignored signal came. */
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

/* Signals with handlers. */

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
    execl(self, self, "--executed", (char *)0);
}
static void executed(void) {
    struct itimerval left;
    sigset_t pending;
    getitimer(ITIMER_REAL, &left);
    sigpending(&pending);
    printf("timer %s, signal %s", left.it_value.tv_sec ? "runs" : "gone",
           sigismember(&pending, SIGUSR1) ? "pending" : "gone");
}

#define ROW(name) {#name, name}
static const struct {
    const char *name;
    void (*body)(void);
} ROWS[] = {
    ROW(exited), ROW(killed), ROW(aborted), ROW(many_threads), ROW(leader_first), ROW(exec_in_thread),
    ROW(still_running), ROW(sigchld), ROW(sigchld_killed), ROW(waitid_nowait),
    ROW(waitid_pidfd), ROW(wait_in_thread), ROW(wait_for_group), ROW(gone_after_wait),
    ROW(ignored_children), ROW(exit_signal), ROW(no_exit_signal), ROW(vfork_waits), ROW(child_usage),
    ROW(zombie), ROW(parent_death_signal), ROW(orphan), ROW(subreaper), ROW(orphaned_group), ROW(stopped),
    ROW(stopped_by_terminal), ROW(stop_info), ROW(stays_stopped), ROW(signal_while_stopped),
    ROW(killed_while_stopped), ROW(stopped_threads), ROW(state_of_stopped),
    ROW(tracer_pid), ROW(seccomp_field), ROW(seccomp_prctl), ROW(no_new_privs), ROW(dumpable),
    ROW(parent), ROW(group_and_session), ROW(capabilities), ROW(identity), ROW(signal_masks),
    ROW(open_files), ROW(limits), ROW(scheduling), ROW(file_context), ROW(process_personality),
    ROW(environment), ROW(context_switches), ROW(trace_me), ROW(trace_child), ROW(strict_seccomp),
    ROW(filter_for_tracer), ROW(untraced_child), ROW(epoll_forever), ROW(semaphore_forever),
    ROW(sigwait_forever), ROW(pause_forever), ROW(epoll_stopped), ROW(sleep_limited), ROW(ppoll_limited),
    ROW(select_limited), ROW(futex_limited), ROW(epoll_limited), ROW(receive_limited),
    ROW(interrupted), ROW(restarted), ROW(queued), ROW(fault_info), ROW(breakpoint),
    ROW(timer_over_exec),
};

int main(int count, char **words) {
    self = "/proc/self/exe";
    if (count == 2 && !strcmp(words[1], "--executed")) return executed(), 0;
    starter = count == 2 ? atoi(words[1]) : 0;
    first_parent = getppid();
    for (unsigned i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        printf("%s: ", ROWS[i].name);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            ROWS[i].body();
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        printf(status ? " (status %#x)\n" : "\n", status);
        fflush(stdout);
    }
    return 0;
}
