/* Activity `within`: threads of the target merge its memory (vmarea_merge_range) again and again: memory that is lent
 * (loans.c), which others read and write meanwhile, and regions of their own, of which children verify a copy. Another
 * thread starts these children, and does with lent memory what the caller of a merge permits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hazards.h"
#include "vmarea_repair.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#define MERGERS 2
#define LINE 512
/* One of so many merges is followed by a look at what all of them have left. */
#define LOOK 16
/* Less than the scratch area of a merge has, and more than the sizes of the other activities vary. */
#define MOST_GROWTH (400UL << 20)

/* The regions that the mergers have at the moment. */
static struct {
    pthread_mutex_t lock;
    const struct region *region;
} own[MERGERS] = {{PTHREAD_MUTEX_INITIALIZER, NULL}, {PTHREAD_MUTEX_INITIALIZER, NULL}};
static __typeof__(vmarea_merge_range) *merge_range;
static __typeof__(vmarea_last_error) *last_error;
/* Held for reading during a merge. */
static pthread_rwlock_t merging = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* Opens `maps` or another list of this process. Other descriptors can be opened and compared once it is closed. */
static FILE *open_list(const char *name)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/thread-self/%s", name);
    lock_descriptors();
    FILE *list = fopen(path, "re");
    if (!list)
        broken("fopen of %s: errno %d", path, errno);
    return list;
}

static void close_list(FILE *list)
{
    fclose(list);
    unlock_descriptors();
}

static bool overlaps(const char *line, const char *base, size_t pages)
{
    uintptr_t start = (uintptr_t)base, from, to;
    return sscanf(line, "%lx-%lx ", &from, &to) == 2 && from < start + pages * PAGE && to > start;
}

static unsigned count_mappings(const char *base, size_t pages)
{
    unsigned count = 0;
    char line[LINE];
    FILE *list = open_list("maps");
    while (fgets(line, sizeof line, list))
        count += overlaps(line, base, pages);
    close_list(list);
    return count;
}

/* Lists all mappings but those of the region. */
static void list_others(char *text, size_t size, const struct region *region)
{
    size_t length = 0;
    char line[LINE];
    FILE *list = open_list("maps");
    while (fgets(line, sizeof line, list) && length + LINE < size)
        if (!overlaps(line, region->base, region->pages))
            length += (size_t)snprintf(text + length, LINE, "%s", line);
    close_list(list);
}

/* `sandbox` and `limits`, also after an execve. */
static bool has_filter(void)
{
    return prctl(PR_GET_SECCOMP) != 0;
}

static bool has_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static bool is_known_refusal(int error, const struct vmarea_merge_options *how)
{
    switch (error) {
    case ETIME:
        return how->max_pause_us != 0;
    case EPERM:
        return has_filter();
    case EAGAIN:
    case ENOMEM:
        return has_limit();
    default:
        return false;
    }
}

static bool has_threads(void)
{
    lock_descriptors();
    bool has = count_threads().of_merges > 0;
    unlock_descriptors();
    return has;
}

/* Checks what merges have left, while there is none: threads, watched and shared mappings, address space. */
static void check_rest(void)
{
    static unsigned first_shared;
    static unsigned long first_size;
    /* A thread that has ended is listed for a moment longer. */
    for (unsigned naps = 0; has_threads(); naps++) {
        if (naps == 3000)
            broken("a merge has left a thread");
        nap(0.001);
    }
    unsigned shared = 0;
    uintptr_t start = 0, from, to;
    unsigned long size = 0;
    char line[LINE];
    FILE *list = open_list("smaps");
    while (fgets(line, sizeof line, list))
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            shared += strstr(line, "/dev/zero (deleted)") != NULL, size += to - from, start = from;
        else if (strncmp(line, "VmFlags:", 8) == 0 && (strstr(line, " um") || strstr(line, " uw")) && !is_watched(start))
            broken("a merge has left %#lx watched", start);
    close_list(list);
    if (!first_size)
        first_shared = shared, first_size = size;
    if (shared != first_shared)
        broken("%u shared mappings, there were %u", shared, first_shared);
    if (size > first_size + MOST_GROWTH)
        broken("%lu bytes of address space, there were %lu", size, first_size);
}

static void note(int result, const struct vmarea_merge_report *report)
{
    if (result)
        board->refused[-result]++;
    else if (report->after < report->before)
        board->joined++;
    else
        board->idle++;
    board->completed += report->forks;
}

void merge_memory(char *base, size_t pages, bool is_plain, uint64_t *random)
{
    static const uint64_t pauses[] = {0, 0, 200, 1000, 5000, 50000}, copies[] = {0, 0, 10, 100000};
    static _Atomic unsigned merges;
    struct vmarea_merge_options how = {
        .max_pause_us = pauses[next_random(random) % 6],
        .copy_pages = copies[next_random(random) % 4],
        .flags = is_plain && next_random(random) % 2 ? VMAREA_MERGE_PLAIN : 0,
    };
    struct vmarea_merge_report report = {0};
    unsigned before = count_mappings(base, pages);
    pthread_rwlock_rdlock(&merging);
    int result = merge_range(base, pages * PAGE, &how, &report);
    pthread_rwlock_unlock(&merging);
    unsigned after = count_mappings(base, pages);
    if (result && (result < -ERRNOS || !is_known_refusal(-result, &how)))
        broken("vmarea_merge_range returned %d: %s", result, last_error());
    /* Two pieces may cut a mapping, and the second of them be refused. */
    bool may_grow = how.max_pause_us != 0;
    if ((after > before && !may_grow) || (!result && (report.before != before || report.after != after)))
        broken("%u mappings became %u, the report says %lu and %lu", before, after, report.before, report.after);
    if (report.copied > how.copy_pages)
        broken("%lu pages were copied, %lu permitted", report.copied, how.copy_pages);
    note(result, &report);
    if (++merges % LOOK == 0) {
        pthread_rwlock_wrlock(&merging);
        check_rest();
        pthread_rwlock_unlock(&merging);
    }
}

/* Merges a region while nothing else happens. It becomes one mapping, and all others stay as they were. The first
 * merges also make the C library map memory. */
static void check_alone(void)
{
    static char before[1 << 18], after[sizeof before];
    for (unsigned round = 0; round == 0 || strcmp(before, after); round++) {
        struct region region;
        if (round == 8)
            broken("each merge leaves a mapping");
        if (!make_region(&region, COMMITTED, 64, &(uint64_t){options.seed}))
            broken("no memory: errno %d", errno);
        recall(region.base);
        list_others(before, sizeof before, &region);
        int result = merge_range(region.base, region.pages * PAGE, NULL, NULL);
        list_others(after, sizeof after, &region);
        if (result || count_mappings(region.base, region.pages) != 1)
            broken("vmarea_merge_range returned %d: %s; %u mappings", result, last_error(),
                   count_mappings(region.base, region.pages));
        drop_region(&region);
    }
}

static void prepare(void)
{
    /* An arena for each thread would be much address space. */
    mallopt(M_ARENA_MAX, 1);
    void *library = options.library ? dlopen(options.library, RTLD_NOW) : NULL;
    if (!library)
        broken("no library: %s", dlerror());
    merge_range = dlsym(library, "vmarea_merge_range");
    last_error = dlsym(library, "vmarea_last_error");
    if (!has_filter() && !has_limit())
        check_alone();
}

static bool begin(struct worker *worker)
{
    (void)worker;
    return true;
}

static void show(struct worker *worker, const struct region *region)
{
    pthread_mutex_lock(&own[worker->index].lock);
    own[worker->index].region = region;
    pthread_mutex_unlock(&own[worker->index].lock);
}

static void merge_own(struct worker *worker)
{
    struct region region;
    if (!make_region(&region, below(worker, SHAPES), 16 + below(worker, 400), &worker->random))
        return nap(0.01);
    recall(region.base);
    show(worker, &region);
    nap(below(worker, 3000) * 1e-6);
    merge_memory(region.base, region.pages, region.is_plain, &worker->random);
    show(worker, NULL);
    for (size_t page = 0; page < region.pages; page++)
        check_page("within", page_of(&region, page), region.tags[page]);
    drop_region(&region);
}

static void merge_lent(struct worker *worker)
{
    struct loan *loan = borrow(MERGE, &worker->random);
    if (!loan)
        return nap(0.001);
    bool is_part = below(worker, 4) == 0;
    size_t first = is_part ? below(worker, loan->pages) : 0;
    size_t count = is_part ? 1 + below(worker, loan->pages - first) : loan->pages;
    merge_memory(loan->base + first * PAGE, count, loan->is_plain, &worker->random);
    give_back(loan, MERGE);
}

/* Starts a child while a region is perhaps being merged. */
static void start_children(struct worker *worker)
{
    unsigned which = below(worker, MERGERS);
    pthread_mutex_lock(&own[which].lock);
    if (own[which].region) {
        nap(below(worker, 5000) * 1e-6);
        pid_t child = start_child(own[which].region, below(worker, 2));
        if (child > 0)
            wait_for("within", child);
    }
    pthread_mutex_unlock(&own[which].lock);
}

/* Calls that neither change mappings nor discard pages. */
static void advise_lent(struct worker *worker)
{
    static const int kinds[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE};
    struct loan *loan = borrow(ADVISE, &worker->random);
    if (!loan)
        return nap(0.001);
    size_t first = below(worker, loan->pages), count = 1 + below(worker, loan->pages - first);
    char *start = loan->base + first * PAGE;
    unsigned kind = below(worker, 8);
    if (kind < 5) {
        madvise(start, count * PAGE, kinds[kind]);
    } else {
        char page[PAGE];
        struct iovec here = {page, sizeof page}, there = {start, sizeof page};
        ssize_t got = process_vm_readv(worker->thread, &here, 1, &there, 1, 0);
        if (got != (ssize_t)PAGE)
            broken("within: process_vm_readv returned %zd, errno %d", got, errno);
    }
    give_back(loan, ADVISE);
    nap(below(worker, 2000) * 1e-6);
}

static void step(struct worker *worker)
{
    /* SIGALRM (`timers`), which has its handler now, may go to the threads that merge, but not to those that a merge
     * starts. */
    if (worker->rounds == 0)
        unblock(worker, SIGALRM);
    if (worker->index == MERGERS)
        return below(worker, 2) ? start_children(worker) : advise_lent(worker);
    if (below(worker, 3) == 0)
        merge_own(worker);
    else
        merge_lent(worker);
    nap(below(worker, 4000) * 1e-6);
}

const struct activity within_activity = {
    .name = "within", .threads = MERGERS + 1, .prepare = prepare, .begin = begin, .step = step, .is_by_name_only = true};
