/* Activity `dispatch`: a thread with Syscall User Dispatch, as Wine uses it. A call from outside of the C library
 * raises SIGSYS while the selector says so. The selector lies in memory that is merged. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "hazards.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif
#define ALLOW 0
#define BLOCK 1
#define ANSWER 4711

static volatile char *selector;
static volatile uint64_t caught;
static struct region region;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    if (info->si_syscall != SYS_getpgrp)
        broken("dispatch: SIGSYS for call %d", info->si_syscall);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = ANSWER;
    caught++;
}

struct text {
    uintptr_t start, length;
};

static int find_library(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    if (!strstr(info->dlpi_name, "libc.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
            *(struct text *)found = (struct text){info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                                                  info->dlpi_phdr[i].p_memsz};
    return 1;
}

static long call_directly(long number)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
    return result;
}

static bool begin(struct worker *worker)
{
    /* A tracer is not told that a thread uses the dispatch, and must not run code in it (docs/live.md). */
    if (is_before(6, 4))
        return false;
    struct text text = {0};
    dl_iterate_phdr(find_library, &text);
    selector = make_pieces(8);
    *selector = ALLOW;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &worker->mask);
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    return make_region(&region, COMMITTED, 64, &worker->random) && text.length &&
           prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, text.start, text.length, selector) == 0;
}

static void step(struct worker *worker)
{
    uint64_t before = caught;
    *selector = BLOCK;
    for (unsigned i = 0; i < 100; i++) {
        size_t page = below(worker, region.pages);
        if (wrong_word(page_of(&region, page), region.tags[page]) >= 0)
            break;
        region.tags[page]++;
        region.tags[page] |= 1;
        fill_page(page_of(&region, page), region.tags[page]);
    }
    long answer = call_directly(SYS_getpgrp);
    if (*selector != BLOCK)
        broken("dispatch: the selector is %d", *selector);
    *selector = ALLOW;
    if (answer != ANSWER || caught != before + 1)
        broken("dispatch: call returned %ld, %lu calls were caught", answer, caught - before);
    answer = call_directly(SYS_getpgrp);
    if (answer == ANSWER || caught != before + 1)
        broken("dispatch: a call that is allowed was caught");
    for (size_t page = 0; page < region.pages; page++)
        check_page("dispatch", page_of(&region, page), region.tags[page]);
}

const struct activity sud_activity = {.name = "dispatch", .threads = 1, .begin = begin, .step = step};
