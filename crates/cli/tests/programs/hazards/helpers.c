/* Child processes that help the target, and the descriptors that the target knows of. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hazards.h"

#define MOST_HELPERS 8
#define MOST_DESCRIPTORS 1024

static pid_t helpers[MOST_HELPERS];
static unsigned helper_count;
static bool known[MOST_DESCRIPTORS];
/* Held for writing while the list is compared, so that a descriptor is opened or closed and noted in one step. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* Starts a child that runs until the target ends. Called before other threads and memory exist. */
pid_t start_helper(void (*run)(pid_t target))
{
    pid_t target = getpid();
    pid_t child = fork();
    if (child < 0)
        broken("fork of a helper: errno %d", errno);
    if (child == 0) {
        sigset_t end;
        sigemptyset(&end);
        sigaddset(&end, SIGTERM);
        signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &end, NULL);
        run(target);
        _exit(0);
    }
    helpers[helper_count++] = child;
    return child;
}

void end_helpers(void)
{
    for (unsigned i = 0; i < helper_count; i++) {
        int status = 0;
        kill(helpers[i], SIGTERM);
        while (waitpid(helpers[i], &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            _exit(77);
    }
    helper_count = 0;
}

void lock_descriptors(void)
{
    pthread_rwlock_rdlock(&lock);
}

void unlock_descriptors(void)
{
    pthread_rwlock_unlock(&lock);
}

/* Notes a descriptor that was opened under the lock. */
int know_descriptor(int descriptor)
{
    if (descriptor >= MOST_DESCRIPTORS)
        broken("descriptor %d", descriptor);
    if (descriptor >= 0)
        known[descriptor] = true;
    return descriptor;
}

void close_known(int descriptor)
{
    lock_descriptors();
    known[descriptor] = false;
    if (close(descriptor))
        broken("close of descriptor %d: errno %d", descriptor, errno);
    unlock_descriptors();
}

void make_pipe(int ends[2])
{
    lock_descriptors();
    if (pipe2(ends, O_CLOEXEC))
        broken("pipe: errno %d", errno);
    know_descriptor(ends[0]);
    know_descriptor(ends[1]);
    unlock_descriptors();
}

void check_descriptors(void)
{
    static bool has_first;
    pthread_rwlock_wrlock(&lock);
    DIR *folder = opendir("/proc/thread-self/fd");
    if (!folder)
        broken("opendir of /proc/thread-self/fd: errno %d", errno);
    bool open[MOST_DESCRIPTORS] = {false};
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
            open[atoi(entry->d_name) % MOST_DESCRIPTORS] = true;
    closedir(folder);
    for (int i = 0; i < MOST_DESCRIPTORS; i++) {
        if (has_first && open[i] != known[i])
            broken("descriptor %d is %s", i, open[i] ? "open and not ours" : "closed");
        known[i] = open[i];
    }
    has_first = true;
    pthread_rwlock_unlock(&lock);
}
