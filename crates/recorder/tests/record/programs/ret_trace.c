/* Filters that return TRACE: without a tracer such a call fails with ENOSYS. The first argument is 0 or a
 * value that the recorder's filter may also return. The values from there on are tried, each in a child with
 * a separate filter, with a call at which the recorder stops and one at which it does not. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int set(unsigned value, unsigned flags) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mlockall, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | value),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    if (flags) return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int refused(void) {
    return syscall(SYS_getppid) == -1 && errno == ENOSYS && syscall(SYS_mlockall, MCL_CURRENT) == -1 &&
           errno == ENOSYS;
}

static void *in_thread(void *none) { return refused() ? "yes" : none; }

static int go, done;
static void *waits(void *none) {
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) usleep(100);
    __atomic_store_n(&done, refused(), __ATOMIC_RELEASE);
    return none;
}

static int one(unsigned value) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t before, after;
        void *answer = 0;
        pthread_create(&before, 0, waits, 0);
        if (set(value, value & 1 ? SECCOMP_FILTER_FLAG_TSYNC : 0)) _exit(2);
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
        pthread_join(before, 0);
        pthread_create(&after, 0, in_thread, 0);
        pthread_join(after, &answer);
        /* An older thread has the filter only if it was installed for all threads. */
        _exit(refused() && answer && done == (int)(value & 1) ? 0 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    unsigned first = argc > 1 ? strtoul(argv[1], 0, 0) : 0, wrong = 0;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (unsigned i = 0; i < 96; i++) wrong += one(first + i) != 0;
    printf("wrong %u\n", wrong);
    return 0;
}
