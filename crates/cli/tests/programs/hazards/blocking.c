/* Activity `blocking`: calls that wait. No handler runs in the waiting thread (except for SIG_WAKE), so a call may
 * fail with EINTR only where signal(7) says that it does so after SIGSTOP and SIGCONT, and where only a handler may
 * interrupt it (`ppoll`) after the tracer of a merge was killed: the kernel repeats `poll` and `nanosleep` even then. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hazards.h"

enum wait { NOTHING, BYTE, FUTEX, SIGNAL, WAKE };

/* What the second thread is asked to do. */
static _Atomic int asked;
static _Atomic uint32_t word;
static _Atomic bool is_woken;
static int ends[2], epoll = -1;
static pid_t sleeper;
static pthread_t sleeper_thread;
static uint32_t *lock_word;

static void wake_handler(int signal)
{
    (void)signal;
}

static bool begin(struct worker *worker)
{
    if (worker->index == 1)
        return true;
    make_pipe(ends);
    lock_descriptors();
    epoll = know_descriptor(epoll_create1(EPOLL_CLOEXEC));
    unlock_descriptors();
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    struct sigaction action = {.sa_handler = wake_handler};
    sigaction(SIG_WAKE, &action, NULL);
    lock_word = (uint32_t *)make_pieces(8);
    sleeper = (pid_t)syscall(SYS_gettid);
    sleeper_thread = pthread_self();
    return true;
}

/* The second thread: does what the first one waits for. */
static void help(struct worker *worker)
{
    int what = asked;
    if (what == NOTHING)
        return nap(0.0005);
    if (below(worker, 2))
        nap(below(worker, 10000) * 1e-6);
    asked = NOTHING;
    switch (what) {
    case BYTE:
        if (write(ends[1], "x", 1) != 1)
            broken("write to a pipe: errno %d", errno);
        break;
    case FUTEX:
        __atomic_store_n(lock_word, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, lock_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        break;
    case SIGNAL:
        pthread_sigqueue(sleeper_thread, SIG_WAITED, (union sigval){.sival_int = 5});
        break;
    case WAKE:
        is_woken = true;
        pthread_kill(sleeper_thread, SIG_WAKE);
        break;
    }
}

static void expect(const char *call, long result, long wanted)
{
    if (result != wanted)
        broken("%s returned %ld (errno %d), expected %ld", call, result, result < 0 ? errno : 0, wanted);
}

static void read_byte(const char *call)
{
    char byte = 0;
    expect(call, read(ends[0], &byte, 1), 1);
    if (byte != 'x')
        broken("%s: wrong byte", call);
}

/* Calls that end by their time limit, and not earlier. */
static void wait_for_time(struct worker *worker)
{
    long limit = 1 + (long)below(worker, 15);
    struct timespec time = {0, limit * 1000000};
    double begun = now();
    sigset_t full;
    long result;
    switch (below(worker, 5)) {
    case 0:
        expect("nanosleep", nanosleep(&time, NULL), 0);
        break;
    case 1:
        expect("poll", poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, (int)limit), 0);
        break;
    case 2:
        sigfillset(&full);
        result = ppoll(&(struct pollfd){ends[0], POLLIN, 0}, 1, &time, &full);
        if (result == -1 && errno == EINTR && options.loses_tracer)
            return;
        expect("ppoll", result, 0);
        break;
    case 3:
        word = 0;
        expect("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0), -1);
        expect("errno of futex", errno, ETIMEDOUT);
        break;
    default:
        result = epoll_wait(epoll, &(struct epoll_event){0}, 1, (int)limit);
        if (result == -1 && errno == EINTR)
            return;
        expect("epoll_wait with a limit", result, 0);
    }
    double passed = now() - begun;
    if (passed < limit * 1e-3 - 1e-5)
        broken("a call with a limit of %ld ms returned after %.3f ms", limit, passed * 1e3);
}

static void wait_for_epoll(void)
{
    long result;
    while ((result = epoll_wait(epoll, &(struct epoll_event){0}, 1, -1)) < 0 && errno == EINTR)
        note_interruption("epoll_wait without a limit");
    expect("epoll_wait", result, 1);
    read_byte("read after epoll_wait");
}

static void wait_for_signal(struct worker *worker)
{
    sigset_t set;
    siginfo_t info = {0};
    sigemptyset(&set);
    sigaddset(&set, SIG_WAITED);
    struct timespec limit = {60, 0};
    long result;
    bool is_limited = below(worker, 2);
    while ((result = is_limited ? sigtimedwait(&set, &info, &limit) : sigwaitinfo(&set, &info)) < 0 && errno == EINTR)
        ;
    expect("sigtimedwait", result, SIG_WAITED);
    expect("value of a signal", info.si_value.sival_int, 5);
}

static void wait_for_handler(void)
{
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    sigdelset(&set, SIG_WAKE);
    while (!is_woken)
        sigsuspend(&set);
}

static void step(struct worker *worker)
{
    if (worker->index == 1)
        return help(worker);
    switch (below(worker, 8)) {
    case 0:
        asked = BYTE;
        return read_byte("read");
    case 1:
        asked = BYTE;
        expect("poll", poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1), 1);
        return read_byte("read after poll");
    case 2:
        asked = BYTE;
        return wait_for_epoll();
    case 3:
        __atomic_store_n(lock_word, 0, __ATOMIC_SEQ_CST);
        asked = FUTEX;
        while (__atomic_load_n(lock_word, __ATOMIC_SEQ_CST) == 0)
            if (syscall(SYS_futex, lock_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) && errno != EAGAIN)
                broken("futex without a limit: errno %d", errno);
        return;
    case 4:
        asked = SIGNAL;
        return wait_for_signal(worker);
    case 5:
        is_woken = false;
        asked = WAKE;
        return wait_for_handler();
    default:
        return wait_for_time(worker);
    }
}

const struct activity blocking_activity = {.name = "blocking", .threads = 2, .begin = begin, .step = step};
