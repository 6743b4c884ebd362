/* Activities without threads: they change the whole process. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hazards.h"

/* `future`: memory that is mapped from now on is locked. */
static void note_future(void)
{
    options.locks_future = true;
}

static void lock_future(void)
{
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &unlimited);
    if (mlockall(MCL_FUTURE))
        options.locks_future = false;
}

const struct activity mcl_activity = {
    .name = "future", .prepare = note_future, .settle = lock_future, .is_state = true};

/* `leader`: the first thread ends. */
static void let_leader_exit(void)
{
    options.leader_exits = true;
}

const struct activity leader_activity = {.name = "leader", .prepare = let_leader_exit, .is_state = true};

/* `execute`: the program executes itself now and then. */
static void let_it_execute(void)
{
    options.executes = true;
}

const struct activity exec_activity = {.name = "execute", .prepare = let_it_execute, .is_state = true};

/* `sandbox`: a filter forbids userfaultfd to all threads. */
static void install_filter(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
        fprintf(stderr, "no filter: errno %d\n", errno);
}

const struct activity seccomp_activity = {.name = "sandbox", .settle = install_filter, .is_state = true};

/* `limits`: little more address space than is used, and few more threads. */
static void lower_limits(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/thread-self/statm", "re");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        return;
    fclose(file);
    struct rlimit limit = {pages * PAGE + (96UL << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
}

const struct activity limit_activity = {.name = "limits", .settle = lower_limits, .is_state = true};

/* `stops`: another process stops and continues this one. */
static void stop_and_continue(pid_t target)
{
    uint64_t random = (uint64_t)getpid();
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    while (!board->ready && getppid() == target)
        usleep(1000);
    while (getppid() == target && !board->over) {
        /* Whoever ends this process must not leave the target stopped. */
        sigprocmask(SIG_BLOCK, &end, NULL);
        kill(target, SIGSTOP);
        usleep(next_random(&random) % 20000);
        kill(target, SIGCONT);
        sigprocmask(SIG_UNBLOCK, &end, NULL);
        usleep(next_random(&random) % 200000);
    }
}

static void start_stopper(void)
{
    options.is_strict = false;
    start_helper(stop_and_continue);
}

const struct activity stops_activity = {.name = "stops", .prepare = start_stopper, .is_state = true};
