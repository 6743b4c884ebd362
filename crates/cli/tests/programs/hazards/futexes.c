/* Activities `futexes` and `robust`: mutexes of several kinds in memory that is merged, and a thread that ends while
 * it holds one. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hazards.h"

#define MUTEXES 24
#define THREADS 3

/* A mutex and the number that it protects, in pages of their own. */
struct guarded {
    pthread_mutex_t mutex;
    char gap[PAGE - sizeof(pthread_mutex_t)];
    volatile uint64_t number;
    char gap_too[PAGE - 8];
};

static struct guarded *guarded;
static _Atomic bool is_made;
static uint64_t additions[THREADS][MUTEXES];

static void make_mutex(pthread_mutex_t *mutex, int protocol, int robust)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutexattr_setrobust(&attributes, robust);
    pthread_mutex_init(mutex, &attributes);
}

static bool begin(struct worker *worker)
{
    if (worker->index != 0) {
        while (!is_made)
            nap(0.001);
        return true;
    }
    guarded = (struct guarded *)make_pieces(MUTEXES * 2);
    for (unsigned i = 0; i < MUTEXES; i++)
        make_mutex(&guarded[i].mutex, i % 3 == 1 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE,
                   i % 3 == 2 ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED);
    is_made = true;
    return true;
}

static void step(struct worker *worker)
{
    unsigned which = below(worker, MUTEXES);
    struct guarded *one = &guarded[which];
    int error = pthread_mutex_lock(&one->mutex);
    if (error)
        broken("lock of mutex %u: error %d", which, error);
    uint64_t before = one->number;
    switch (below(worker, 8)) {
    case 0:
        nap(below(worker, 2000) * 1e-6);
        break;
    case 1:
        check_registers(worker);
        break;
    }
    if (one->number != before)
        broken("mutex %u does not exclude", which);
    one->number = before + 1;
    additions[worker->index][which]++;
    error = pthread_mutex_unlock(&one->mutex);
    if (error)
        broken("unlock of mutex %u: error %d", which, error);
}

static void end(struct worker *worker)
{
    static _Atomic unsigned ended;
    (void)worker;
    if (++ended < THREADS)
        return;
    for (unsigned i = 0; i < MUTEXES; i++) {
        uint64_t sum = 0;
        for (unsigned thread = 0; thread < THREADS; thread++)
            sum += additions[thread][i];
        if (sum != guarded[i].number)
            broken("mutex %u: %lu additions, %lu found", i, sum, guarded[i].number);
    }
}

const struct activity futex_activity = {
    .name = "futexes", .threads = THREADS, .begin = begin, .step = step, .end = end};

static struct guarded *left_locked;
static _Atomic int last_thread;

/* Ends without unlocking. The kernel marks the mutex. */
static void *leave_locked(void *argument)
{
    pthread_mutex_t *mutex = argument;
    last_thread = (int)syscall(SYS_gettid);
    int error = pthread_mutex_lock(mutex);
    if (error)
        broken("lock of a robust mutex: error %d", error);
    return NULL;
}

static bool begin_robust(struct worker *worker)
{
    (void)worker;
    options.has_another_thread = true;
    left_locked = (struct guarded *)make_pieces(16);
    for (unsigned i = 0; i < 8; i++)
        make_mutex(&left_locked[i].mutex, i % 2 ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST);
    return true;
}

static void step_robust(struct worker *worker)
{
    pthread_mutex_t *mutex = &left_locked[below(worker, 8)].mutex;
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave_locked, mutex))
        return nap(0.01);
    /* The owner ends before this thread waits for the mutex, or while it does. */
    while (!last_thread)
        nap(0.0001);
    if (below(worker, 2))
        nap(0.001);
    int error = pthread_mutex_lock(mutex);
    if (error == 0) {
        /* This thread was first. */
        pthread_mutex_unlock(mutex);
        pthread_join(thread, NULL);
        error = pthread_mutex_lock(mutex);
    } else {
        pthread_join(thread, NULL);
    }
    if (error != EOWNERDEAD)
        broken("lock of a mutex whose owner %d has ended: error %d, owner %d", last_thread, error,
               mutex->__data.__owner);
    pthread_mutex_consistent(mutex);
    pthread_mutex_unlock(mutex);
    last_thread = 0;
    nap(0.003);
}

const struct activity robust_activity = {
    .name = "robust", .threads = 1, .begin = begin_robust, .step = step_robust};
