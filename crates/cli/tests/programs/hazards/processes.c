/* Activities `fork`, `spawn` and `share`: children that copy the memory and verify it, that become another program,
 * and that share the memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hazards.h"

#define PAGES 96

static bool is_wiped(const struct region *region, size_t page)
{
    return region->wipes && page / 16 % 3 == 1;
}

static void renew(struct region *region, uint64_t *random)
{
    if (region->base)
        drop_region(region);
    region->base = NULL;
    if (!make_region(region, COMMITTED, PAGES, random)) {
        region->base = NULL;
        return;
    }
    recall(region->base);
    region->wipes = true;
    for (size_t page = 0; page < region->pages; page += 16)
        if (is_wiped(region, page))
            madvise(page_of(region, page), 16 * PAGE, MADV_WIPEONFORK);
    lend(region->base, region->pages, false);
}

static bool begin(struct worker *worker)
{
    worker->own = calloc(1, sizeof(struct region));
    renew(worker->own, &worker->random);
    return true;
}

/* The child: verifies all pages twice, with writes in between. */
static void __attribute__((noreturn)) verify_copy(const struct region *region)
{
    signal(SIGALRM, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    alarm(60);
    for (unsigned turn = 0; turn < 2; turn++)
        for (size_t page = 0; page < region->pages; page++) {
            uint64_t tag = is_wiped(region, page) ? 0 : region->tags[page];
            check_page(tag ? "copy in a child" : "empty page in a child", page_of(region, page), tag + (tag ? turn : 0));
            if (tag)
                fill_page(page_of(region, page), tag + turn + 1);
        }
    _exit(0);
}

pid_t start_child(const struct region *region, bool is_raw)
{
    pid_t child = is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0)
        verify_copy(region);
    return child;
}

void wait_for(const char *what, pid_t child)
{
    int status;
    pid_t ended;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        ;
    if (ended != child)
        broken("%s: waitpid: errno %d", what, errno);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        _exit(77);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        broken("%s: a child ended with status %#x", what, status);
}

static void step(struct worker *worker)
{
    struct region *region = worker->own;
    if (!region->base || below(worker, 10) == 0)
        renew(region, &worker->random);
    if (!region->base)
        return nap(0.01);
    pid_t child = start_child(region, below(worker, 4) == 0);
    if (child < 0)
        return nap(0.01);
    for (size_t page = 0; page < region->pages; page += 1 + below(worker, 4)) {
        check_page("own pages during a fork", page_of(region, page), region->tags[page]);
        region->tags[page] = next_random(&worker->random) | 1;
        fill_page(page_of(region, page), region->tags[page]);
    }
    wait_for("fork", child);
    nap(below(worker, 30) * 1e-3);
}

const struct activity fork_activity = {.name = "fork", .threads = 1, .begin = begin, .step = step};

static bool begin_spawn(struct worker *worker)
{
    (void)worker;
    return true;
}

static void step_spawn(struct worker *worker)
{
    char *arguments[] = {"true", NULL}, *environment[] = {NULL};
    pid_t child;
    if (below(worker, 2)) {
        child = vfork();
        if (child == 0) {
            execve("/bin/true", arguments, environment);
            _exit(1);
        }
        if (child < 0)
            return nap(0.01);
    } else if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environment)) {
        return nap(0.01);
    }
    wait_for("spawn", child);
    nap(below(worker, 20) * 1e-3);
}

const struct activity spawn_activity = {.name = "spawn", .threads = 1, .begin = begin_spawn, .step = step_spawn};

struct shared {
    struct region region;
    double seconds;
};

/* The child: a process of its own that shares the memory. It must not use the C library's state. */
static int use_shared(void *argument)
{
    struct shared *shared = argument;
    for (double until = now() + shared->seconds; now() < until;)
        for (size_t page = 0; page < shared->region.pages; page++) {
            if (wrong_word(page_of(&shared->region, page), shared->region.tags[page]) >= 0)
                return 3;
            shared->region.tags[page] += 2;
            fill_page(page_of(&shared->region, page), shared->region.tags[page]);
        }
    return 0;
}

static bool begin_share(struct worker *worker)
{
    struct shared *shared = calloc(1, sizeof *shared);
    worker->own = shared;
    return make_region(&shared->region, COMMITTED, 32, &worker->random);
}

static void step_share(struct worker *worker)
{
    static char stack[65536] __attribute__((aligned(16)));
    struct shared *shared = worker->own;
    shared->seconds = 1e-3 * (1 + below(worker, 20));
    pid_t child = clone(use_shared, stack + sizeof stack, CLONE_VM | SIGCHLD, shared);
    if (child < 0)
        return nap(0.01);
    wait_for("clone that shares the memory", child);
    nap(0.05 + below(worker, 200) * 1e-3);
}

const struct activity share_activity = {.name = "share", .threads = 1, .begin = begin_share, .step = step_share};
