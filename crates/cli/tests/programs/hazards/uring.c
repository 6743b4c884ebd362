/* Activity `uring`: reads into memory that is merged through an io_uring, also by the kernel's own threads and into
 * registered buffers, and waits for a time limit and for a pipe. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hazards.h"

#define FILE_PAGES 32
#define PAGES 64
/* The first pages of the region are registered in every second ring. */
#define REGISTERED 8

struct ring {
    int descriptor;
    char *queues;
    struct io_uring_sqe *entries;
    struct io_uring_params parameters;
};

static struct ring ring;
static struct region region;
static bool is_registered;
static int file, ends[2];

static bool open_ring(void)
{
    ring.parameters = (struct io_uring_params){0};
    lock_descriptors();
    ring.descriptor = know_descriptor((int)syscall(SYS_io_uring_setup, 8, &ring.parameters));
    unlock_descriptors();
    if (ring.descriptor < 0)
        return false;
    struct io_cqring_offsets *completion = &ring.parameters.cq_off;
    size_t size = completion->cqes + ring.parameters.cq_entries * sizeof(struct io_uring_cqe);
    size_t submission = ring.parameters.sq_off.array + ring.parameters.sq_entries * sizeof(uint32_t);
    size = size > submission ? size : submission;
    int flags = MAP_SHARED | MAP_POPULATE;
    ring.queues = mmap(NULL, size, RW, flags, ring.descriptor, IORING_OFF_SQ_RING);
    ring.entries = mmap(NULL, 8 * sizeof *ring.entries, RW, flags, ring.descriptor, IORING_OFF_SQES);
    return ring.queues != MAP_FAILED && ring.entries != MAP_FAILED;
}

static _Atomic uint32_t *counter(uint32_t offset)
{
    return (_Atomic uint32_t *)(ring.queues + offset);
}

static void submit(const struct io_uring_sqe *entry)
{
    struct io_sqring_offsets *offsets = &ring.parameters.sq_off;
    uint32_t tail = *counter(offsets->tail), slot = tail & *counter(offsets->ring_mask);
    ring.entries[slot] = *entry;
    *counter(offsets->array + slot * sizeof(uint32_t)) = slot;
    *counter(offsets->tail) = tail + 1;
}

/* Submits what is queued, and waits for one completion. Returns its result. */
static int32_t complete(unsigned submitted)
{
    struct io_cqring_offsets *offsets = &ring.parameters.cq_off;
    uint32_t head = *counter(offsets->head);
    while (*counter(offsets->tail) == head) {
        long result = syscall(SYS_io_uring_enter, ring.descriptor, submitted, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        if (result < 0 && errno != EINTR)
            broken("uring: io_uring_enter: errno %d", errno);
        if (result < 0)
            note_interruption("io_uring_enter");
        submitted = result > 0 ? submitted - (unsigned)result : submitted;
    }
    struct io_uring_cqe *entries = (struct io_uring_cqe *)(ring.queues + offsets->cqes);
    int32_t result = entries[head & *counter(offsets->ring_mask)].res;
    *counter(offsets->head) = head + 1;
    return result;
}

static bool make_file(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/uring.XXXXXX", options.folder);
    lock_descriptors();
    file = know_descriptor(mkostemp(path, O_CLOEXEC));
    unlock_descriptors();
    if (file < 0)
        return false;
    unlink(path);
    uint64_t *page = aligned_alloc(PAGE, PAGE);
    for (unsigned i = 0; i < FILE_PAGES; i++) {
        fill_page(page, 1 + i);
        if (pwrite(file, page, PAGE, (off_t)(i * PAGE)) != (ssize_t)PAGE)
            return false;
    }
    free(page);
    return true;
}

static bool begin(struct worker *worker)
{
    if (!make_region(&region, COMMITTED, PAGES, &worker->random) || !make_file() || !open_ring())
        return false;
    make_pipe(ends);
    if (options.seed % 2) {
        struct iovec buffer = {region.base, REGISTERED * PAGE};
        is_registered = syscall(SYS_io_uring_register, ring.descriptor, IORING_REGISTER_BUFFERS, &buffer, 1) == 0;
    }
    return true;
}

static void read_file(struct worker *worker)
{
    size_t count = 1 + below(worker, 6), from = below(worker, FILE_PAGES - count);
    bool is_fixed = is_registered && below(worker, 2);
    size_t to = is_fixed ? below(worker, REGISTERED - count + 1) : below(worker, region.pages - count);
    struct io_uring_sqe entry = {
        .opcode = is_fixed ? IORING_OP_READ_FIXED : IORING_OP_READ,
        .flags = below(worker, 2) ? IOSQE_ASYNC : 0,
        .fd = file,
        .off = from * PAGE,
        .addr = (uintptr_t)page_of(&region, to),
        .len = (uint32_t)(count * PAGE),
    };
    int32_t result;
    do {
        submit(&entry);
        result = complete(1);
        /* Linux 6.1 cancels requests if signals or stops interrupt the creation of a worker four times. */
    } while (result == -ECANCELED && is_before(6, 18));
    if (result != (int32_t)(count * PAGE))
        broken("uring: a read returned %d", result);
    for (size_t i = 0; i < count; i++) {
        region.tags[to + i] = 1 + from + i;
        check_page(is_fixed ? "uring: fixed read" : "uring: read", page_of(&region, to + i), 1 + from + i);
    }
}

static void wait_for_time(struct worker *worker)
{
    struct __kernel_timespec limit = {0, 1000000 * (1 + (long)below(worker, 10))};
    struct io_uring_sqe entry = {.opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (uintptr_t)&limit, .len = 1};
    double begun = now();
    submit(&entry);
    int32_t result = complete(1);
    if (result != -ETIME || now() - begun < limit.tv_nsec * 1e-9)
        broken("uring: a limit returned %d after %.3f ms", result, (now() - begun) * 1e3);
}

/* The read waits until the pipe has something. */
static void read_pipe(struct worker *worker)
{
    size_t to = below(worker, region.pages);
    struct io_uring_sqe entry = {
        .opcode = IORING_OP_READ, .fd = ends[0], .addr = (uintptr_t)page_of(&region, to), .len = PAGE};
    submit(&entry);
    long submitted;
    while ((submitted = syscall(SYS_io_uring_enter, ring.descriptor, 1, 0, 0, NULL, 0)) < 0 && errno == EINTR)
        ;
    nap(below(worker, 3000) * 1e-6);
    uint64_t contents[WORDS];
    fill_page(contents, 5);
    if (submitted != 1 || write(ends[1], contents, PAGE) != (ssize_t)PAGE)
        broken("uring: write to a pipe: errno %d", errno);
    int32_t result = complete(0);
    if (result != (int32_t)PAGE)
        broken("uring: a read of a pipe returned %d", result);
    region.tags[to] = 5;
    check_page("uring: read of a pipe", page_of(&region, to), 5);
}

static void step(struct worker *worker)
{
    switch (below(worker, 4)) {
    case 0:
        wait_for_time(worker);
        break;
    case 1:
        read_pipe(worker);
        break;
    default:
        read_file(worker);
    }
    size_t page = below(worker, region.pages);
    check_page("uring: pages nearby", page_of(&region, page), region.tags[page]);
}

const struct activity uring_activity = {.name = "uring", .threads = 1, .begin = begin, .step = step};
