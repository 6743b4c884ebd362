/* Activities `signals` and `timers`: numbered signals from another process, each of which must arrive once and in
 * order, and timers. Some handlers run on a stack that lies in memory that is merged. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "hazards.h"

#define MOST_PENDING 64
#define STACK_PAGES 32

static pid_t sender;
static char *stack;
static _Atomic uint64_t ticks, alarms;
static _Atomic bool is_misplaced;

static bool is_on_stack(const void *address)
{
    const char *at = address;
    return at >= stack && at < stack + STACK_PAGES * PAGE;
}

/* Recurses a little, and checks that its frames keep their contents. */
static int __attribute__((noinline)) use_stack(unsigned depth, uint64_t value)
{
    volatile uint64_t frame[64];
    for (unsigned i = 0; i < 64; i++)
        frame[i] = value + i;
    int failures = depth ? use_stack(depth - 1, value * 31 + 1) : 0;
    for (unsigned i = 0; i < 64; i++)
        failures += frame[i] != value + i;
    return failures;
}

static void take_number(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int error = errno;
    unsigned which = signal == SIG_NUMBERED_TOO;
    uint64_t expected = board->handled[which] + 1;
    if (info->si_code != SI_QUEUE || info->si_pid != sender)
        broken("signal %d is not from the sender: code %d, process %d", signal, info->si_code, info->si_pid);
    if ((uint64_t)info->si_value.sival_int != expected)
        broken("signal %d number %d arrived, expected %lu", signal, info->si_value.sival_int, expected);
    if (which && !is_on_stack(&error))
        broken("a handler is not on its stack");
    if (use_stack(10, expected))
        broken("a handler's stack changed");
    /* Meanwhile a merge may begin that does not see what the handler returns to. */
    if (expected % 16 == 0)
        nap(0.01);
    board->handled[which] = expected;
    errno = error;
}

static void send_numbers(pid_t target)
{
    uint64_t random = (uint64_t)getpid();
    while (!board->ready && getppid() == target)
        usleep(1000);
    while (getppid() == target) {
        unsigned which = next_random(&random) % 2;
        int signal = which ? SIG_NUMBERED_TOO : SIG_NUMBERED;
        uint64_t next = board->sent[which] + 1;
        if (!board->over && next - board->handled[which] < MOST_PENDING &&
            sigqueue(target, signal, (union sigval){.sival_int = (int)next}) == 0)
            board->sent[which] = next;
        usleep(next_random(&random) % 400);
    }
}

static void prepare(void)
{
    for (unsigned i = 0; i < 2; i++)
        board->sent[i] = board->handled[i] = 0;
    /* Signals that were sent before an execve are still pending. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIG_NUMBERED);
    sigaddset(&set, SIG_NUMBERED_TOO);
    while (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) > 0)
        ;
    sender = start_helper(send_numbers);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

void unblock(struct worker *worker, int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &worker->mask);
}

static bool begin(struct worker *worker)
{
    stack = make_pieces(STACK_PAGES);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK_PAGES * PAGE};
    if (sigaltstack(&alternate, NULL))
        broken("sigaltstack: errno %d", errno);
    handle(SIG_NUMBERED, take_number, SA_RESTART);
    handle(SIG_NUMBERED_TOO, take_number, SA_ONSTACK);
    unblock(worker, SIG_NUMBERED);
    unblock(worker, SIG_NUMBERED_TOO);
    return true;
}

static void step(struct worker *worker)
{
    stack_t alternate;
    if (sigaltstack(NULL, &alternate) || alternate.ss_sp != stack)
        broken("the alternate stack is another");
    if (below(worker, 2))
        check_vector_registers(worker);
    else
        nap(0.002);
}

static void end(struct worker *worker)
{
    (void)worker;
    /* The last ones are on their way, and the sender may be between a signal and its note. */
    double until = now() + 20;
    for (int quiet = 0; quiet < 10;) {
        nap(0.02);
        bool is_equal = board->sent[0] == board->handled[0] && board->sent[1] == board->handled[1];
        quiet = is_equal ? quiet + 1 : 0;
        if (now() > until)
            broken("%lu and %lu numbered signals were sent, %lu and %lu arrived", board->sent[0], board->sent[1],
                   board->handled[0], board->handled[1]);
    }
}

const struct activity signals_activity = {
    .name = "signals", .threads = 1, .prepare = prepare, .begin = begin, .step = step, .end = end};

static void count_tick(int signal, siginfo_t *info, void *context)
{
    char name[16];
    (void)context;
    is_misplaced |= prctl(PR_GET_NAME, name) == 0 && strcmp(name, "vmarea") == 0;
    if (signal == SIGALRM)
        alarms++;
    else
        ticks += 1 + info->si_overrun;
}

static timer_t timer;

static bool begin_timers(struct worker *worker)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIG_TIMER};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    handle(SIG_TIMER, count_tick, SA_RESTART);
    handle(SIGALRM, count_tick, 0);
    unblock(worker, SIG_TIMER);
    unblock(worker, SIGALRM);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer))
        broken("timer_create: errno %d", errno);
    return true;
}

/* Arms both timers for a while. Afterwards, the timer with a period has ticked as often as time has passed. */
static void step_timers(struct worker *worker)
{
    const double period = 1e-3 * (2 + below(worker, 10));
    struct itimerspec every = {{0, (long)(period * 1e9)}, {0, (long)(period * 1e9)}};
    struct itimerval once = {{0, 0}, {0, 20000}};
    uint64_t alarms_before = alarms;
    ticks = 0;
    setitimer(ITIMER_REAL, &once, NULL);
    double begun = now();
    timer_settime(timer, 0, &every, NULL);
    double armed = now();
    for (double until = armed + 0.1; now() < until;)
        nap(0.01);
    double passed = now() - armed;
    /* The last tick may be on its way. */
    nap(period);
    struct itimerspec none = {{0, 0}, {0, 0}};
    timer_settime(timer, 0, &none, NULL);
    double most = now() - begun;
    if (is_misplaced)
        broken("a handler ran in a thread of a merge");
    if (ticks + 2 < (uint64_t)(passed / period) || ticks > (uint64_t)(most / period) + 1)
        broken("a timer of %.0f ms ticked %lu times in %.3f to %.3f s", period * 1e3, ticks, passed, most);
    for (int i = 0; alarms == alarms_before; i++) {
        if (i == 1000)
            broken("no SIGALRM");
        nap(0.01);
    }
}

const struct activity timers_activity = {
    .name = "timers", .threads = 1, .begin = begin_timers, .step = step_timers};
