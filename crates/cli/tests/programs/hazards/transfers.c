/* Activities `direct` and `splice`: the kernel reads and writes memory that is merged, by direct input and output and
 * through a pipe. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hazards.h"

#define FILE_PAGES 64
#define REGION_PAGES 96

struct own {
    struct region region;
    int file, ends[2];
};

static void renew(struct worker *worker)
{
    struct own *own = worker->own;
    if (own->region.base)
        drop_region(&own->region);
    if (!make_region(&own->region, COMMITTED, REGION_PAGES, &worker->random))
        own->region.base = NULL;
}

/* Opens a file that has no name. */
static int open_file(int flags)
{
    char path[300];
    snprintf(path, sizeof path, "%s/transfers.XXXXXX", options.folder);
    lock_descriptors();
    int file = know_descriptor(mkostemp(path, flags | O_CLOEXEC));
    unlock_descriptors();
    if (file >= 0)
        unlink(path);
    return file;
}

static bool begin(struct worker *worker)
{
    struct own *own = worker->own = calloc(1, sizeof(struct own));
    renew(worker);
    own->file = open_file(O_DIRECT);
    if (own->file < 0)
        return false;
    uint64_t *page = aligned_alloc(PAGE, PAGE);
    bool is_written = true;
    for (unsigned i = 0; i < FILE_PAGES && is_written; i++) {
        fill_page(page, 1 + i);
        is_written = pwrite(own->file, page, PAGE, (off_t)(i * PAGE)) == (ssize_t)PAGE;
    }
    free(page);
    return is_written;
}

/* Reads pages of the file into the region, or writes pages of the region to the file and reads them again. */
static void step(struct worker *worker)
{
    struct own *own = worker->own;
    struct region *region = &own->region;
    if (!region->base || below(worker, 50) == 0)
        renew(worker);
    if (!region->base)
        return nap(0.01);
    size_t count = 1 + below(worker, 16), from = below(worker, FILE_PAGES - count);
    size_t to = below(worker, region->pages - count), length = count * PAGE;
    ssize_t result = pread(own->file, page_of(region, to), length, (off_t)(from * PAGE));
    if (result != (ssize_t)length)
        broken("direct: read returned %zd, errno %d", result, errno);
    for (size_t i = 0; i < count; i++) {
        region->tags[to + i] = 1 + from + i;
        check_page("direct: read", page_of(region, to + i), 1 + from + i);
    }
    result = pwrite(own->file, page_of(region, to), length, (off_t)(from * PAGE));
    if (result != (ssize_t)length)
        broken("direct: write returned %zd, errno %d", result, errno);
    for (size_t i = 0; i < 16; i++) {
        size_t page = below(worker, region->pages);
        check_page("direct: pages nearby", page_of(region, page), region->tags[page]);
    }
}

const struct activity direct_activity = {.name = "direct", .threads = 1, .begin = begin, .step = step};

static bool begin_splice(struct worker *worker)
{
    struct own *own = worker->own = calloc(1, sizeof(struct own));
    renew(worker);
    make_pipe(own->ends);
    return true;
}

/* Puts pages into a pipe without a copy, and reads them back into other pages of the region. */
static void step_splice(struct worker *worker)
{
    struct own *own = worker->own;
    struct region *region = &own->region;
    if (!region->base || below(worker, 100) == 0)
        renew(worker);
    if (!region->base)
        return nap(0.01);
    size_t count = 1 + below(worker, 8), half = region->pages / 2;
    size_t from = below(worker, half - count), to = half + below(worker, half - count);
    struct iovec pages = {page_of(region, from), count * PAGE};
    ssize_t spliced = vmsplice(own->ends[1], &pages, 1, 0);
    if (spliced <= 0)
        broken("splice: vmsplice returned %zd, errno %d", spliced, errno);
    nap(below(worker, 4000) * 1e-6);
    for (size_t got = 0; got < (size_t)spliced;) {
        ssize_t result = read(own->ends[0], region->base + to * PAGE + got, (size_t)spliced - got);
        if (result <= 0)
            broken("splice: read returned %zd, errno %d", result, errno);
        got += (size_t)result;
    }
    for (size_t i = 0; i < (size_t)spliced / PAGE; i++) {
        region->tags[to + i] = region->tags[from + i];
        check_page("splice: from a pipe", page_of(region, to + i), region->tags[to + i]);
        check_page("splice: in a pipe", page_of(region, from + i), region->tags[from + i]);
        region->tags[from + i] = next_random(&worker->random) | 1;
        fill_page(page_of(region, from + i), region->tags[from + i]);
    }
}

const struct activity splice_activity = {.name = "splice", .threads = 1, .begin = begin_splice, .step = step_splice};
