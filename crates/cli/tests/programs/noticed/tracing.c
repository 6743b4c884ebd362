/* What a program can do as a tracer, with filters, and with CLONE_UNTRACED. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "noticed.h"

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

const struct row TRACING[] = {
    ROW(trace_me), ROW(trace_child), ROW(strict_seccomp), ROW(filter_for_tracer), ROW(untraced_child),
    {0, 0},
};
