/* A program that does at random, in many threads, what a merge of its mappings could disturb, and checks itself.
 * Prints `ready PID ACTIVITY...`, and at the end `done` and what was done. A failed check prints one line that begins with
 * BROKEN, and ends the program with status 77.
 * usage: target BOARD FOLDER SEED SECONDS [--strict] [--adopt] [--loses-tracer] [--library FILE] ACTIVITY...
 *   BOARD     a file through which other processes watch it (board.h)
 *   FOLDER    a folder for its files
 *   --strict  nobody but the merge stops the process
 *   --adopt   descriptors that are not its own are no failure
 *   --loses-tracer   tracers of merges are killed
 *   --library FILE   libvmarea_repair_capi.so, for the activity `within`; the stacks of the threads, with their own
 *                    data (`rseq`, robust lists), lie in memory that is merged then
 *   ACTIVITY  the name of one of the activities below, `all`, or `random` for a selection by the seed. The first
 *             one with threads runs in the main thread. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "hazards.h"

#define MOST_WORKERS 64
#define STACK_PAGES 64
#define TICK 0.05
/* A worker hangs if it takes no step in so many ticks. Time in which the process is stopped does not count. */
#define HANG_TICKS 1000
/* Threads that end are listed for a moment longer, and an agent lives longer in an emulated machine. */
#define LATE_TICKS (getenv("HAZARDS_EMULATED") ? 600 : 60)

static const struct activity *const activities[] = {
    &pages_activity,    &calls_activity,   &fork_activity,   &spawn_activity,  &share_activity,     &signals_activity,
    &timers_activity,   &blocking_activity, &futex_activity, &robust_activity, &rseq_activity,      &sud_activity,
    &foreign_activity,  &uring_activity,   &direct_activity, &splice_activity, &userfault_activity, &keys_activity,
    &fpu_activity,      &mcl_activity,     &leader_activity, &seccomp_activity, &limit_activity,    &exec_activity,
    &stops_activity,    &within_activity,
};
#define ACTIVITIES (sizeof activities / sizeof *activities)

struct board *board;
struct options options;
_Atomic bool is_over;

static struct worker workers[MOST_WORKERS];
static unsigned worker_count;
static _Atomic unsigned begun, finished;
static const struct activity *chosen[ACTIVITIES];
static unsigned chosen_count;
static char **arguments;

static void add(unsigned activity)
{
    for (unsigned i = 0; i < chosen_count; i++)
        if (chosen[i] == activities[activity])
            return;
    chosen[chosen_count++] = activities[activity];
}

/* Adds the named activities. Those of `all` and `random` begin with another one for each seed. */
static void choose(const char *name, uint64_t *random)
{
    bool is_all = strcmp(name, "all") == 0, is_random = strcmp(name, "random") == 0, is_known = is_all || is_random;
    unsigned first = (unsigned)(is_known ? next_random(random) % ACTIVITIES : 0);
    for (unsigned n = 0; n < ACTIVITIES; n++) {
        unsigned i = (first + n) % ACTIVITIES;
        bool is_named = strcmp(name, activities[i]->name) == 0;
        bool is_listed = !activities[i]->is_by_name_only;
        bool by_chance = is_listed && is_random && next_random(random) % (activities[i]->is_state ? 12 : 3) == 0;
        if (is_named || by_chance || (is_listed && is_all && !activities[i]->is_state))
            add(i);
        is_known |= is_named;
    }
    if (!is_known) {
        fprintf(stderr, "no activity %s\n", name);
        exit(2);
    }
}

static void check_thread(struct worker *worker)
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int signal = 1; signal <= SIGRTMAX; signal++)
        if (sigismember(&mask, signal) != sigismember(&worker->mask, signal))
            broken("%s: signal %d is %s", worker->activity->name, signal,
                   sigismember(&mask, signal) ? "blocked" : "not blocked");
    check_registers(worker);
    check_vector_registers(worker);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    const struct activity *activity = worker->activity;
    worker->thread = (pid_t)syscall(SYS_gettid);
    /* A name is any bytes: here half a character, as the kernel cuts a long name. */
    prctl(PR_SET_NAME, "\xd0\xbe\xd0");
    pthread_sigmask(SIG_SETMASK, NULL, &worker->mask);
    worker->is_idle = !activity->begin(worker);
    begun++;
    while (begun < worker_count)
        nap(0.001);
    while (!is_over) {
        if (worker->is_idle)
            nap(0.05);
        else
            activity->step(worker);
        if (below(worker, 16) == 0)
            check_thread(worker);
        worker->rounds++;
    }
    /* Others may still wait for this one: it helps until all have left. */
    finished++;
    while (finished < worker_count)
        if (worker->is_idle || worker->index == 0)
            nap(0.001);
        else
            activity->step(worker);
    if (!worker->is_idle && activity->end)
        activity->end(worker);
    worker->rounds++;
    finished++;
    return NULL;
}

struct threads count_threads(void)
{
    struct threads threads = {0};
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        int file = entry->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        bool is_read = read(file, name, sizeof name - 1) > 0;
        if (is_read && strcmp(name, "vmarea\n") == 0) {
            threads.of_merges++;
        } else if (is_read && strncmp(name, "iou-", 4) != 0) {
            long id = atol(entry->d_name);
            threads.newest = id > threads.newest ? id : threads.newest;
            threads.own++;
        }
        close(file);
    }
    if (folder)
        closedir(folder);
    return threads;
}

static void check_progress(unsigned tick)
{
    static uint64_t rounds[MOST_WORKERS];
    static unsigned since[MOST_WORKERS];
    for (unsigned i = 0; i < worker_count; i++) {
        if (rounds[i] != workers[i].rounds) {
            rounds[i] = workers[i].rounds;
            since[i] = tick;
        }
        if (tick - since[i] > HANG_TICKS)
            broken("hang of %s, thread %u", workers[i].activity->name, workers[i].index);
    }
}

/* There are the workers, the control and perhaps a first thread that has ended. `robust` starts one more at a time.
 * Another one may be an agent, each time a new one. */
static void check_thread_count(unsigned tick)
{
    static unsigned wrong_since;
    static long seen;
    struct threads threads = count_threads();
    unsigned expected = worker_count + (options.leader_exits ? 2 : 1);
    if (threads.own == expected || threads.own == expected + options.has_another_thread)
        wrong_since = 0;
    else if (wrong_since == 0 || threads.newest != seen)
        wrong_since = tick, seen = threads.newest;
    else if (tick - wrong_since > LATE_TICKS)
        broken("%u threads, expected %u", threads.own, expected);
}

static void __attribute__((noreturn)) execute_again(double left)
{
    char seconds[32], seed[32];
    end_helpers();
    snprintf(seconds, sizeof seconds, "%.3f", left);
    snprintf(seed, sizeof seed, "%lu", options.seed + 1000000);
    arguments[3] = seed;
    arguments[4] = seconds;
    execv("/proc/thread-self/exe", arguments);
    broken("execv: errno %d", errno);
}

static void *control(void *argument)
{
    (void)argument;
    while (begun < worker_count)
        nap(0.01);
    for (unsigned i = 0; i < chosen_count; i++)
        if (chosen[i]->settle)
            chosen[i]->settle();
    printf("ready %d", getpid());
    for (unsigned i = 0; i < chosen_count; i++)
        printf(" %s", chosen[i]->name);
    printf("\n");
    fflush(stdout);
    board->magic = BOARD_MAGIC;
    board->ready = 1;
    uint64_t random = options.seed;
    double until = now() + options.seconds;
    double execute_at = options.executes ? now() + 0.3 + next_random(&random) % 3000 * 1e-3 : until + 1;
    unsigned tick = 0;
    for (; now() < until; tick++) {
        board->beats++;
        check_progress(tick);
        if (!options.adopts)
            check_descriptors();
        if (tick % 5 == 0)
            check_thread_count(tick);
        if (now() > execute_at && now() < until - 0.5)
            execute_again(until - now());
        nap(TICK);
    }
    board->over = is_over = true;
    for (; finished < 2 * worker_count; tick++) {
        board->beats++;
        check_progress(tick);
        nap(TICK);
    }
    end_helpers();
    uint64_t rounds = 0;
    for (unsigned i = 0; i < worker_count; i++)
        rounds += workers[i].rounds;
    if (board->failed)
        broken("another process found a failure");
    printf("done rounds %lu regions %lu signals %lu written %lu %lu completed %lu\n", rounds, board->made,
           board->handled[0] + board->handled[1], board->acknowledged[0], board->acknowledged[1], board->completed);
    fflush(stdout);
    _exit(0);
}

static void open_board(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *board))
        exit(2);
    board = mmap(NULL, sizeof *board, RW, MAP_SHARED, file, 0);
    close(file);
    if (board == MAP_FAILED)
        exit(2);
    board->ready = board->over = 0;
}

static void read_arguments(int count, char **all)
{
    if (count < 6) {
        fprintf(stderr, "usage: target BOARD FOLDER SEED SECONDS [--strict] [--adopt] [--loses-tracer] "
                        "[--library FILE] ACTIVITY...\n");
        exit(2);
    }
    arguments = all;
    open_board(all[1]);
    options.folder = all[2];
    options.seed = strtoul(all[3], NULL, 0);
    options.seconds = strtod(all[4], NULL);
    uint64_t random = options.seed % 1000000;
    for (int i = 5; i < count; i++) {
        if (strcmp(all[i], "--strict") == 0)
            options.is_strict = true;
        else if (strcmp(all[i], "--adopt") == 0)
            options.adopts = true;
        else if (strcmp(all[i], "--loses-tracer") == 0)
            options.loses_tracer = true;
        else if (strcmp(all[i], "--library") == 0 && i + 1 < count)
            options.library = all[++i];
        else
            choose(all[i], &random);
    }
}

/* Threads inherit this mask. */
static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int signal = SIG_NUMBERED; signal <= SIG_WAKE; signal++)
        sigaddset(&set, signal);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Says where a thread was when it touched memory that is not there. */
static void report_fault(int signal, siginfo_t *info, void *context)
{
    const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const char *name = "control";
    for (unsigned i = 0; i < worker_count; i++)
        if (workers[i].thread == (pid_t)syscall(SYS_gettid))
            name = workers[i].activity->name;
    Dl_info place = {0};
    dladdr((void *)registers[REG_RIP], &place);
    broken("signal %d, code %d, address %p, in %s at %#llx (%s+%#llx), stack %#llx, ax %#llx, mapped: %d", signal,
           info->si_code, info->si_addr, name, registers[REG_RIP], place.dli_fname ? place.dli_fname : "?",
           registers[REG_RIP] - (greg_t)place.dli_fbase, registers[REG_RSP], registers[REG_RAX],
           msync((void *)((uintptr_t)info->si_addr & ~(PAGE - 1)), PAGE, MS_ASYNC) == 0);
}

static void report_faults(void)
{
    struct sigaction action = {.sa_sigaction = report_fault, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    for (const int *signal = (const int[]){SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, 0}; *signal; signal++)
        sigaction(*signal, &action, NULL);
}

static void add_workers(const struct activity *activity)
{
    for (unsigned i = 0; i < activity->threads; i++) {
        if (worker_count == MOST_WORKERS)
            exit(2);
        struct worker *worker = &workers[worker_count++];
        worker->activity = activity;
        worker->index = i;
        worker->random = mix(options.seed + worker_count * 7919);
    }
}

int main(int count, char **all)
{
    read_arguments(count, all);
    block_signals();
    report_faults();
    for (unsigned i = 0; i < chosen_count; i++) {
        if (chosen[i]->prepare)
            chosen[i]->prepare();
        add_workers(chosen[i]);
    }
    if (worker_count == 0)
        add_workers(&pages_activity);
    check_descriptors();
    unsigned first = options.leader_exits ? 0 : 1;
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, control, NULL))
        exit(2);
    for (unsigned i = first; i < worker_count; i++) {
        if (options.library)
            pthread_attr_setstack(&attributes, make_pieces(STACK_PAGES), STACK_PAGES * PAGE);
        if (pthread_create(&thread, &attributes, work, &workers[i]))
            exit(2);
    }
    if (options.leader_exits)
        /* Ends this thread only. pthread_exit would load a library, for which there may be no room. */
        syscall(SYS_exit, 0);
    work(&workers[0]);
    for (;;)
        pause();
}
