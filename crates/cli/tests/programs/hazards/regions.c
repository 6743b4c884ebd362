/* Memory that a merge joins: regions of several shapes, each of them in many mappings. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "hazards.h"

/* Commits every second piece first and writes to it, so that each gets an anon_vma of its own. */
static bool commit_in_turn(struct region *region, size_t piece)
{
    size_t pieces = region->pages / piece;
    for (size_t odd = 0; odd < 2; odd++)
        for (size_t i = odd; i < pieces; i += 2) {
            char *start = region->base + i * piece * PAGE;
            if (mprotect(start, piece * PAGE, RW))
                return false;
            for (size_t page = i * piece; page < (i + 1) * piece; page++)
                fill_page(page_of(region, page), region->tags[page]);
        }
    return true;
}

/* Moves pieces that were mapped elsewhere next to each other, so that page offsets do not follow. */
static bool move_together(struct region *region, size_t piece)
{
    for (size_t page = 0; page < region->pages; page += piece) {
        char *elsewhere = mmap(NULL, (piece + 1) * PAGE, RW, PRIVATE, -1, 0);
        if (elsewhere == MAP_FAILED)
            return false;
        for (size_t i = 0; i < piece; i++)
            fill_page((uint64_t *)(elsewhere + i * PAGE), region->tags[page + i]);
        char *to = region->base + page * PAGE;
        bool is_moved =
            mremap(elsewhere, piece * PAGE, piece * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
        munmap(is_moved ? elsewhere + piece * PAGE : elsewhere, (is_moved ? 1 : piece + 1) * PAGE);
        if (!is_moved)
            return false;
    }
    return true;
}

static bool commit(struct region *region, uint64_t *random)
{
    switch (region->shape) {
    case REMAPPED:
        return move_together(region, 1);
    case LARGE:
        madvise(region->base, region->pages * PAGE, MADV_HUGEPAGE);
        return commit_in_turn(region, HUGE / PAGE);
    case SAME_PAGES:
        for (size_t page = 0; page < region->pages; page++)
            region->tags[page] = 7;
        madvise(region->base, region->pages * PAGE, MADV_MERGEABLE);
        return commit_in_turn(region, 1);
    case PAGED_OUT:
        if (!commit_in_turn(region, 2))
            return false;
        madvise(region->base, region->pages * PAGE, MADV_PAGEOUT);
        return true;
    default:
        return commit_in_turn(region, 1 + next_random(random) % 3 / 2);
    }
}

bool make_region(struct region *region, enum shape shape, size_t pages, uint64_t *random)
{
    size_t unit = shape == LARGE ? HUGE : PAGE;
    pages = shape == LARGE ? 3 * HUGE / PAGE : pages & ~3UL;
    region->pages = pages;
    region->shape = shape;
    region->is_plain = shape != LARGE && shape != SAME_PAGES;
    region->wipes = false;
    region->reserved = pages * PAGE + 2 * unit;
    region->tags = malloc(pages * sizeof *region->tags);
    if (!region->tags)
        return false;
    region->reservation = mmap(NULL, region->reserved, PROT_NONE, PRIVATE, -1, 0);
    if (region->reservation == MAP_FAILED) {
        free(region->tags);
        return false;
    }
    region->base = (char *)(((uintptr_t)region->reservation + unit) & ~(unit - 1));
    uint64_t generation = next_random(random);
    for (size_t page = 0; page < pages; page++)
        region->tags[page] = mix(generation + (uintptr_t)page_of(region, page)) | 1;
    if (!commit(region, random)) {
        drop_region(region);
        return false;
    }
    /* With MCL_FUTURE the memory is locked, and would not be merged. */
    if (options.locks_future)
        munlock(region->base, pages * PAGE);
    lend(region->base, pages, region->is_plain);
    board->made++;
    return true;
}

void drop_region(struct region *region)
{
    recall(region->base);
    munmap(region->reservation, region->reserved);
    free(region->tags);
    region->base = NULL;
}

char *make_pieces(size_t pages)
{
    static _Atomic uint64_t random;
    struct region region;
    if (!make_region(&region, COMMITTED, pages, &(uint64_t){random++}))
        broken("no memory: errno %d", errno);
    free(region.tags);
    for (size_t page = 0; page < region.pages; page++)
        memset(page_of(&region, page), 0, PAGE);
    return region.base;
}
