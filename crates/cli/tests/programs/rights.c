/* Limits of processes and capabilities of threads, and their effect on memory calls: one case for
 * each argument. Run as root. */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static void *map(size_t len) { return mmap(0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static void limit(pid_t pid, int resource, rlim_t bytes) {
    struct rlimit limit = {bytes, bytes};
    if (prlimit(pid, resource, &limit, 0)) perror("prlimit");
}

/* More than the limit on locked memory. */
static void lock(const char *name) {
    void *at = map(MIB);
    printf("%s %d\n", name, mlock(at, MIB));
    munmap(at, MIB);
}

static void *in_thread(void *none) {
    /* The system call itself affects only this thread. */
    syscall(SYS_setresuid, 65534, 65534, 65534);
    lock("thread");
    return none;
}

static int child(void *what) {
    lock(what);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    setvbuf(stdout, 0, _IONBF, 0);
    if (!strcmp(which, "maps")) return printf("maps %d\n", map(256 * MIB) != MAP_FAILED) < 0;
    if (strcmp(which, "vfork")) limit(0, RLIMIT_MEMLOCK, 65536);
    if (!strcmp(which, "uid")) {
        lock("before");
        if (setresuid(65534, 65534, 65534)) return 1;
        lock("after");
        if (!fork()) _exit(child("child"));
        wait(0);
    } else if (!strcmp(which, "euid")) {
        if (seteuid(65534)) return 1;
        lock("away");
        if (seteuid(0)) return 1;
        lock("back");
    } else if (!strcmp(which, "capset")) {
        struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct data[2];
        syscall(SYS_capget, &head, data);
        data[0].effective &= ~(1u << CAP_IPC_LOCK);
        if (syscall(SYS_capset, &head, data)) return 1;
        lock("without");
        data[0].effective |= 1u << CAP_IPC_LOCK;
        if (syscall(SYS_capset, &head, data)) return 1;
        lock("with");
    } else if (!strcmp(which, "thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, in_thread, 0);
        pthread_join(thread, 0);
        lock("main");
    } else if (!strcmp(which, "namespace")) {
        static char stack[65536] __attribute__((aligned(16)));
        int pid = clone(child, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, "clone");
        waitpid(pid, 0, 0);
        lock("outside");
        if (unshare(CLONE_NEWUSER)) return 1;
        lock("inside");
    } else if (!strcmp(which, "other")) {
        int pid = fork();
        if (!pid) {
            pause();
            _exit(0);
        }
        limit(pid, RLIMIT_AS, MIB);
        printf("own %d\n", map(16 * MIB) != MAP_FAILED);
        limit(getpid(), RLIMIT_AS, 32 * MIB);
        printf("own %d\n", map(64 * MIB) != MAP_FAILED);
        kill(pid, SIGKILL);
        wait(0);
    } else if (!strcmp(which, "told")) {
        /* A child whose limit is set by another process. */
        int go[2], pid;
        char byte = 0;
        if (pipe(go)) return 1;
        if (!(pid = fork())) {
            if (read(go[0], &byte, 1) != 1) _exit(1);
            printf("told %d\n", map(256 * MIB) != MAP_FAILED);
            _exit(0);
        }
        limit(pid, RLIMIT_AS, 64 * MIB);
        if (write(go[1], &byte, 1) != 1) return 1;
        wait(0);
        printf("self %d\n", map(256 * MIB) != MAP_FAILED);
    } else if (!strcmp(which, "vfork")) {
        int pid = vfork();
        if (!pid) {
            struct rlimit limit = {128 * MIB, 128 * MIB};
            setrlimit(RLIMIT_AS, &limit);
            execl("/proc/self/exe", "rights", "maps", (char *)0);
            _exit(1);
        }
        wait(0);
        printf("parent %d\n", map(256 * MIB) != MAP_FAILED);
    } else {
        return 2;
    }
    return 0;
}
