/* Activity `pages`: makes regions that can be merged, verifies and rewrites their pages, drops them, and so on. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "hazards.h"

#define REGIONS 4

struct own {
    struct region regions[REGIONS];
    double drop_at[REGIONS];
};

static enum shape choose_shape(struct worker *worker)
{
    unsigned n = below(worker, 20);
    return n < 11 ? COMMITTED : n < 15 ? REMAPPED : n < 17 ? PAGED_OUT : n < 19 ? SAME_PAGES : LARGE;
}

static void renew(struct worker *worker, unsigned which)
{
    struct own *own = worker->own;
    struct region *region = &own->regions[which];
    if (region->base)
        drop_region(region);
    enum shape shape = choose_shape(worker);
    /* Most are small, so that a merge is over soon, and many merges meet many states. */
    size_t pages = below(worker, 4) ? 4 + below(worker, 40) : 16 + below(worker, 200);
    if (!make_region(region, shape, pages, &worker->random))
        region->base = NULL;
    own->drop_at[which] = now() + 0.05 + below(worker, 700) * 1e-3;
}

static bool begin(struct worker *worker)
{
    worker->own = calloc(1, sizeof(struct own));
    for (unsigned i = 0; i < REGIONS; i++)
        renew(worker, i);
    return true;
}

/* Verifies some pages in a row, and writes other contents to some of them. */
static void step(struct worker *worker)
{
    struct own *own = worker->own;
    unsigned which = below(worker, REGIONS);
    struct region *region = &own->regions[which];
    if (!region->base || now() > own->drop_at[which])
        return renew(worker, which);
    size_t first = below(worker, region->pages);
    for (size_t i = 0; i < 64 && first + i < region->pages; i++) {
        uint64_t *page = page_of(region, first + i), *tag = &region->tags[first + i];
        check_page("pages", page, *tag);
        if (region->shape != SAME_PAGES && below(worker, 4) == 0) {
            *tag = next_random(&worker->random) | 1;
            fill_page(page, *tag);
        }
    }
}

static void end(struct worker *worker)
{
    struct own *own = worker->own;
    for (unsigned i = 0; i < REGIONS; i++) {
        struct region *region = &own->regions[i];
        for (size_t page = 0; region->base && page < region->pages; page++)
            check_page("pages at the end", page_of(region, page), region->tags[page]);
    }
}

const struct activity pages_activity = {.name = "pages", .threads = 2, .begin = begin, .step = step, .end = end};
