/* What the parts of the hazards target share: the board, workers and activities, regions, and checks. */
#ifndef HAZARDS_H
#define HAZARDS_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "board.h"

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define WORDS (PAGE / 8)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* Signals with a purpose. All threads block them, except for the one that expects them. */
#define SIG_NUMBERED (SIGRTMIN + 1)
#define SIG_NUMBERED_TOO (SIGRTMIN + 2)
#define SIG_TIMER (SIGRTMIN + 3)
#define SIG_WAITED (SIGRTMIN + 4)
#define SIG_WAKE (SIGRTMIN + 5)

struct worker;

/* Something that one or more threads do all the time. */
struct activity {
    const char *name;
    /* Number of threads; 0 if the activity only changes the process. */
    unsigned threads;
    /* Called once by the main thread, before other threads and memory exist. */
    void (*prepare)(void);
    /* Called once when all workers have begun. */
    void (*settle)(void);
    /* Called by each worker; false if this machine lacks what it takes. */
    bool (*begin)(struct worker *);
    /* Called again and again; takes a fraction of a second. */
    void (*step)(struct worker *);
    /* Called by each worker before the last checks. */
    void (*end)(struct worker *);
    /* True if chosen only by name or by a seed that selects a single one of its kind. */
    bool is_state;
    bool is_by_name_only;
};

struct worker {
    const struct activity *activity;
    /* Number among the threads of the activity. */
    unsigned index;
    bool is_idle;
    pid_t thread;
    uint64_t random;
    sigset_t mask;
    _Atomic uint64_t rounds;
    void *own;
};

extern const struct activity pages_activity, calls_activity, fork_activity, spawn_activity, share_activity,
    signals_activity, timers_activity, blocking_activity, futex_activity, robust_activity, rseq_activity, sud_activity,
    foreign_activity, uring_activity, direct_activity, splice_activity, userfault_activity, keys_activity, mcl_activity,
    leader_activity, seccomp_activity, limit_activity, exec_activity, stops_activity, fpu_activity, within_activity;

extern struct board *board;
extern _Atomic bool is_over;
/* What the command line and the activities say about the process. */
extern struct options {
    uint64_t seed;
    double seconds;
    /* No one but the merge stops the process. */
    bool is_strict;
    /* Descriptors that are not its own are no failure. */
    bool adopts;
    /* The tracer of a merge is killed: calls that only a handler may interrupt return EINTR then. */
    bool loses_tracer;
    bool leader_exits, locks_future, executes, has_another_thread;
    char *folder;
    /* The library with which the target merges its own memory; NULL if it does not. */
    char *library;
} options;

/* basics.c */
uint64_t mix(uint64_t x);
uint64_t next_random(uint64_t *state);
uint64_t below(struct worker *worker, uint64_t limit);
double now(void);
void nap(double seconds);
void broken(const char *what, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* True on a kernel before a version of Linux. */
bool is_before(unsigned major, unsigned minor);
/* Notes that a call failed with EINTR although no handler ran and a merge makes the kernel repeat it. */
void note_interruption(const char *call);
void fill_page(uint64_t *page, uint64_t tag);
/* Returns the first wrong word, or -1. A page with tag 0 contains zeros. */
int wrong_word(const uint64_t *page, uint64_t tag);
void check_page(const char *what, const uint64_t *page, uint64_t tag);

/* helpers.c: child processes that exist while the target does, and descriptors that it knows of. */
pid_t start_helper(void (*run)(pid_t target));
void end_helpers(void);
void lock_descriptors(void);
void unlock_descriptors(void);
int know_descriptor(int descriptor);
void close_known(int descriptor);
void make_pipe(int ends[2]);
/* Compares the list of open descriptors with the known ones. */
void check_descriptors(void);

/* regions.c */
enum shape { COMMITTED, REMAPPED, LARGE, PAGED_OUT, SAME_PAGES, SHAPES };
struct region {
    char *base;
    size_t pages;
    enum shape shape;
    /* VMAREA_MERGE_PLAIN holds. */
    bool is_plain;
    /* Some of the pages are empty in a child. */
    bool wipes;
    uint64_t *tags;
    char *reservation;
    size_t reserved;
};
/* False if memory, mappings or address space ran out. */
bool make_region(struct region *region, enum shape shape, size_t pages, uint64_t *random);
void drop_region(struct region *region);
static inline uint64_t *page_of(const struct region *region, size_t page)
{
    return (uint64_t *)(region->base + page * PAGE);
}
/* Memory in pieces that a merge joins; ends the program if there is none. */
char *make_pieces(size_t pages);

/* loans.c: memory of which only its owner changes the mappings, and not before it has recalled it. Regions and pieces
 * are lent. Without `options.library`, nothing is. */
enum use { MERGE, ADVISE, USES };
struct loan {
    char *_Atomic base;
    size_t pages;
    /* VMAREA_MERGE_PLAIN holds. */
    bool is_plain;
    pthread_mutex_t uses[USES];
};
void lend(char *base, size_t pages, bool is_plain);
/* Waits until nobody uses the memory, and ends the loan, if there is one. */
void recall(const char *base);
/* Returns memory that nobody else has for this use, or NULL. */
struct loan *borrow(enum use use, uint64_t *random);
void give_back(struct loan *loan, enum use use);

/* processes.c: a child that verifies and changes its copy of a region. `is_raw` goes round the C library's fork. */
pid_t start_child(const struct region *region, bool is_raw);
/* Waits for a child, and ends the program if the child has found a failure. */
void wait_for(const char *what, pid_t child);

/* signals.c: lets the calling thread have a signal that the others block. */
void unblock(struct worker *worker, int signal);

/* within.c: merges memory that the caller owns, and checks the report. */
void merge_memory(char *base, size_t pages, bool is_plain, uint64_t *random);
/* True if the target's own userfaultfd watches the address (userfault.c). */
bool is_watched(uintptr_t address);

/* target.c */
struct threads {
    /* Without the workers of an io_uring. */
    unsigned own, of_merges;
    /* Highest id of its own ones. */
    long newest;
};
struct threads count_threads(void);

/* registers.c */
void check_registers(struct worker *worker);
void check_vector_registers(struct worker *worker);

#endif
