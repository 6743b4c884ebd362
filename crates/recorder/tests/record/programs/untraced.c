/* Children created with CLONE_UNTRACED: they run like any other, and see the original arguments. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int maps(void) {
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? errno : 0;
}

static int end(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, __WALL) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

static int in_thread(void *none) { return maps(); }

static int as_fork(void) {
    unsigned long flags = CLONE_UNTRACED | SIGCHLD, first = flags;
    long result = SYS_clone;
    register long tls __asm__("r8") = 0;
    register long child_tid __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "+a"(result), "+D"(first)
                     : "S"(0), "d"(0), "r"(child_tid), "r"(tls)
                     : "rcx", "r11", "memory");
    if (result == 0) _exit(first == flags ? maps() : 99);
    return first == flags ? end(result) : 98;
}

static int by_clone3(void) {
    struct clone_args args = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0) _exit(args.flags == CLONE_UNTRACED ? maps() : 99);
    return args.flags == CLONE_UNTRACED ? end(child) : 98;
}

int main(void) {
    static char stack[65536] __attribute__((aligned(16)));
    int flags = CLONE_UNTRACED | CLONE_VM | CLONE_FS | CLONE_FILES;
    pid_t thread = clone(in_thread, stack + sizeof stack, flags, 0);
    printf("thread %d", end(thread));
    fflush(stdout);
    printf(" fork %d", as_fork());
    fflush(stdout);
    printf(" clone3 %d", by_clone3());
    /* Refused as without a recorder, and the flag is restored. */
    struct clone_args wrong = {.flags = CLONE_UNTRACED | CLONE_SIGHAND};
    long none = syscall(SYS_clone3, &wrong, sizeof wrong);
    printf(" refused %d\n", none == -1 && wrong.flags == (CLONE_UNTRACED | CLONE_SIGHAND));
    return 0;
}
