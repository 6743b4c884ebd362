/* What the parts of the program share; see noticed.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "noticed.h"

pid_t starter, first_parent;
volatile sig_atomic_t arrived;
int ends[2], says[2];

void say(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vprintf(format, words);
    va_end(words);
}
const char *error(long result) {
    return result < 0 ? strerrorname_np(errno) : "0";
}
void check(int good, const char *what) {
    if (good) return;
    say("%s failed: %s", what, strerrorname_np(errno));
    exit(1);
}
const char *field(pid_t pid, const char *name) {
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
void nap(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time)) {}
}
void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, 0);
}
siginfo_t signal_info(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    siginfo_t info;
    check(sigwaitinfo(&set, &info) == signal, "sigwaitinfo");
    return info;
}
void on_signal(int signal) {
    (void)signal;
    arrived++;
}
pid_t born(void (*body)(void)) {
    pid_t child = fork();
    check(child >= 0, "fork");
    if (!child) {
        body();
        _exit(7);
    }
    return child;
}
void exits(void) {}
void stops(void) { raise(SIGSTOP); }
void stops_and_sleeps(void) {
    raise(SIGSTOP);
    sleeps(0);
}
void *sleeps(void *unused) {
    for (;;) pause();
    return unused;
}
pthread_t thread(void *(*body)(void *)) {
    static pthread_t leader;
    leader = pthread_self();
    pthread_t thread;
    check(!pthread_create(&thread, 0, body, &leader), "pthread_create");
    return thread;
}
void has_threads(void) {
    for (int i = 0; i < 5; i++) thread(sleeps);
}
pid_t stopped_child(void (*body)(void)) {
    pid_t child = born(body);
    say_waited(child, WUNTRACED);
    return child;
}
int pidfd_of(pid_t child) {
    int fd = syscall(SYS_pidfd_open, child, 0);
    check(fd >= 0, "pidfd_open");
    return fd;
}
void await_end(pid_t child) {
    struct pollfd p = {pidfd_of(child), POLLIN, 0};
    check(poll(&p, 1, -1) == 1, "poll");
    close(p.fd);
}
void say_status(int status) {
    if (WIFEXITED(status)) say("exit %d", WEXITSTATUS(status));
    if (WIFSIGNALED(status)) say("signal %d", WTERMSIG(status));
    if (WIFSTOPPED(status)) say("stop %d", WSTOPSIG(status));
    if (WIFCONTINUED(status)) say("continued");
}
void say_waited(pid_t child, int flags) {
    int status;
    pid_t pid = waitpid(child, &status, flags);
    if (pid == 0) say("nothing");
    if (pid == -1) say("%s", error(-1));
    if (pid == child) say_status(status);
}
void say_info(int signal, pid_t child) {
    siginfo_t info = signal_info(signal);
    say("code %d status %d %s", info.si_code, info.si_status,
        info.si_pid == child && info.si_uid == getuid() ? "of the child" : "of another");
}
void open_pipes(void) { check(!pipe(ends) && !pipe(says), "pipe"); }
void tell(int value) { check(write(says[1], &value, sizeof value) == sizeof value, "write"); }
int told(void) {
    int value;
    check(read(says[0], &value, sizeof value) == sizeof value, "read");
    return value;
}
