/* Activity `calls`: memory calls at random on a slice of memory per thread, with a model of what must be there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hazards.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define PAGES 96
#define MPOL_DEFAULT 0
#define MPOL_PREFERRED 1

/* What must be at a page. */
struct page {
    int protection;
    /* Tag of the contents; 0 for zeros. */
    uint64_t tag;
    /* True if the page may be empty: it was given up, and not written since. */
    bool may_be_empty;
};

struct slice {
    char *base;
    struct page pages[PAGES];
};

static uint64_t *at(struct slice *slice, size_t page)
{
    return (uint64_t *)(slice->base + page * PAGE);
}

/* Replaces pages with fresh ones. */
static void map_fresh(struct slice *slice, size_t first, size_t count, int protection)
{
    if (mmap(at(slice, first), count * PAGE, protection, PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        /* Mappings or memory ran out. What was there may be gone. */
        if (errno != ENOMEM && errno != EAGAIN)
            broken("calls: mmap: errno %d", errno);
        for (size_t i = first; i < first + count; i++)
            slice->pages[i].may_be_empty = true;
        return;
    }
    for (size_t i = first; i < first + count; i++)
        slice->pages[i] = (struct page){.protection = protection};
}

static void verify(struct slice *slice, size_t page)
{
    struct page *model = &slice->pages[page];
    if (!(model->protection & PROT_READ))
        return;
    /* After MADV_FREE, the kernel may take the page at any time, also while it is read here. */
    if (model->may_be_empty) {
        if (wrong_word(at(slice, page), model->tag) < 0)
            return;
        model->tag = 0;
    }
    check_page("calls", at(slice, page), model->tag);
}

static void write_some(struct worker *worker, size_t first, size_t count)
{
    struct slice *slice = worker->own;
    for (size_t page = first; page < first + count; page++) {
        struct page *model = &slice->pages[page];
        if (!(model->protection & PROT_WRITE))
            continue;
        verify(slice, page);
        model->tag = next_random(&worker->random) | 1;
        model->may_be_empty = false;
        fill_page(at(slice, page), model->tag);
    }
}

static void protect(struct worker *worker, size_t first, size_t count)
{
    static const int protections[] = {PROT_NONE, PROT_READ, RW, RW, RW};
    struct slice *slice = worker->own;
    int protection = protections[below(worker, 5)];
    /* A call over several mappings can fail in the middle, so each page is changed by a call of its own. */
    for (size_t page = first; page < first + count; page++)
        if (mprotect(at(slice, page), PAGE, protection) == 0)
            slice->pages[page].protection = protection;
        else if (errno != ENOMEM)
            broken("calls: mprotect: errno %d", errno);
}

/* Moves pages of a fresh mapping into the slice, or pages within it. */
static void move(struct worker *worker, size_t first, size_t count)
{
    struct slice *slice = worker->own;
    char *fresh = mmap(NULL, (count + 2) * PAGE, RW, PRIVATE, -1, 0);
    if (fresh == MAP_FAILED)
        return;
    uint64_t tag = next_random(&worker->random) | 1;
    for (size_t i = 0; i < count; i++)
        fill_page((uint64_t *)(fresh + i * PAGE), tag + 2 * i);
    bool stays = below(worker, 2);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (stays ? MREMAP_DONTUNMAP : 0);
    void *moved = mremap(fresh, count * PAGE, count * PAGE, flags, at(slice, first));
    for (size_t i = 0; i < count && moved != MAP_FAILED; i++) {
        slice->pages[first + i] = (struct page){.protection = RW, .tag = tag + 2 * i};
        if (stays)
            check_page("calls: rest of a move", (uint64_t *)(fresh + i * PAGE), 0);
    }
    if (moved == MAP_FAILED)
        map_fresh(slice, first, count, RW);
    bool has_left = moved != MAP_FAILED && !stays;
    munmap(has_left ? fresh + count * PAGE : fresh, (has_left ? 2 : count + 2) * PAGE);
}

static void move_within(struct worker *worker, size_t first)
{
    struct slice *slice = worker->own;
    size_t to = below(worker, PAGES);
    if (to == first)
        return;
    void *moved = mremap(at(slice, first), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, at(slice, to));
    if (moved == MAP_FAILED)
        return map_fresh(slice, to, 1, RW);
    slice->pages[to] = slice->pages[first];
    slice->pages[first].tag = 0;
}

static void advise(struct worker *worker, size_t first, size_t count)
{
    static const int kinds[] = {MADV_DONTNEED, MADV_FREE, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK,
                                  MADV_KEEPONFORK, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_WRITE, MADV_WILLNEED,
                                  MADV_DONTDUMP, MADV_DODUMP};
    struct slice *slice = worker->own;
    int advice = kinds[below(worker, sizeof kinds / sizeof *kinds)];
    int result = madvise(at(slice, first), count * PAGE, advice);
    for (size_t page = first; page < first + count; page++) {
        struct page *model = &slice->pages[page];
        if (advice == MADV_DONTNEED && result == 0)
            *model = (struct page){.protection = model->protection};
        else if (advice == MADV_DONTNEED || advice == MADV_FREE)
            model->may_be_empty = true;
    }
}

static void lock(struct worker *worker, size_t first, size_t count)
{
    struct slice *slice = worker->own;
    switch (below(worker, 4)) {
    case 0:
        mlock(at(slice, first), count * PAGE);
        break;
    case 1:
        mlock2(at(slice, first), count * PAGE, MLOCK_ONFAULT);
        break;
    default:
        munlock(at(slice, 0), PAGES * PAGE);
    }
}

static void bind(struct worker *worker, size_t first, size_t count)
{
    struct slice *slice = worker->own;
    unsigned long node = 1;
    bool is_set = below(worker, 2);
    syscall(SYS_mbind, at(slice, first), count * PAGE, is_set ? MPOL_PREFERRED : MPOL_DEFAULT, is_set ? &node : NULL,
            is_set ? 8 * sizeof node : 0, 0);
}

/* Maps, uses and unmaps memory elsewhere. */
static void use_elsewhere(struct worker *worker, size_t count)
{
    char *fresh = mmap(NULL, count * PAGE, RW, PRIVATE, -1, 0);
    if (fresh == MAP_FAILED)
        return;
    for (size_t i = 0; i < count; i++)
        check_page("calls: fresh memory", (uint64_t *)(fresh + i * PAGE), 0);
    fill_page((uint64_t *)fresh, 11);
    char *grown = mremap(fresh, count * PAGE, (count + below(worker, 50)) * PAGE, MREMAP_MAYMOVE);
    if (grown != MAP_FAILED)
        fresh = grown;
    check_page("calls: grown memory", (uint64_t *)fresh, 11);
    if (munmap(fresh, count * PAGE))
        broken("calls: munmap: errno %d", errno);
}

/* Makes the whole slice anew, in pieces that a merge joins. */
static void renew(struct worker *worker)
{
    struct slice *slice = worker->own;
    map_fresh(slice, 0, PAGES, PROT_NONE);
    for (size_t odd = 0; odd < 2; odd++)
        for (size_t page = odd; page < PAGES; page += 2)
            if (mprotect(at(slice, page), PAGE, RW) == 0) {
                slice->pages[page].protection = RW;
                write_some(worker, page, 1);
            }
}

static bool begin(struct worker *worker)
{
    struct slice *slice = worker->own = calloc(1, sizeof(struct slice));
    char *base = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, PRIVATE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    slice->base = base + PAGE;
    renew(worker);
    return true;
}

static void step(struct worker *worker)
{
    size_t first = below(worker, PAGES), count = 1 + below(worker, PAGES - first < 12 ? PAGES - first : 12);
    struct slice *slice = worker->own;
    switch (below(worker, 12)) {
    case 0:
        map_fresh(slice, first, count, below(worker, 4) ? RW : PROT_NONE);
        break;
    case 1:
    case 2:
        protect(worker, first, count);
        break;
    case 3:
        move(worker, first, count);
        break;
    case 4:
        move_within(worker, first);
        break;
    case 5:
    case 6:
        advise(worker, first, count);
        break;
    case 7:
        below(worker, 2) ? lock(worker, first, count) : bind(worker, first, count);
        break;
    case 8:
        use_elsewhere(worker, count);
        break;
    case 9:
        if (below(worker, 40) == 0)
            renew(worker);
        else if (options.library && below(worker, 20) == 0)
            merge_memory((char *)at(slice, first), count, false, &worker->random);
        break;
    default:
        write_some(worker, first, count);
    }
    for (unsigned i = 0; i < 24; i++)
        verify(slice, below(worker, PAGES));
    if (below(worker, 8) == 0)
        nap(0.001);
}

const struct activity calls_activity = {.name = "calls", .threads = 2, .begin = begin, .step = step};
