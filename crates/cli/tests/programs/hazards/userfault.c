/* Activities `userfault` and `keys`: the target's own userfaultfd, and memory protection keys. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hazards.h"

#define PAGES 64

static _Atomic int faults = -1;
static _Atomic bool is_missing;
static char *watched;
static struct region source;

bool is_watched(uintptr_t address)
{
    return watched && address - (uintptr_t)watched < PAGES * PAGE;
}

static uint64_t tag_of(uint64_t address)
{
    return mix(address / PAGE) | 1;
}

static bool open_faults(void)
{
    watched = mmap(NULL, (PAGES + 1) * PAGE, RW, PRIVATE, -1, 0);
    lock_descriptors();
    int descriptor = know_descriptor((int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    unlock_descriptors();
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)watched, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (watched == MAP_FAILED || descriptor < 0 || ioctl(descriptor, UFFDIO_API, &api) ||
        ioctl(descriptor, UFFDIO_REGISTER, &range))
        return false;
    faults = descriptor;
    return true;
}

/* The second thread serves the faults of the first, also when that one touches memory for the last time. */
static bool begin(struct worker *worker)
{
    if (worker->index == 1) {
        is_missing = !make_region(&source, COMMITTED, 16, &worker->random) || !open_faults();
        return !is_missing;
    }
    while (faults < 0 && !is_missing)
        nap(0.001);
    return !is_missing;
}

static void serve(struct worker *worker)
{
    struct uffd_msg message;
    struct pollfd poll_faults = {faults, POLLIN, 0};
    if (poll(&poll_faults, 1, 10) <= 0)
        return;
    ssize_t result = read(faults, &message, sizeof message);
    if (result < 0 && errno == EAGAIN)
        return;
    if (result != sizeof message || message.event != UFFD_EVENT_PAGEFAULT)
        broken("userfault: read returned %zd, errno %d", result, errno);
    uint64_t address = message.arg.pagefault.address & ~(PAGE - 1);
    if (address - (uintptr_t)watched >= PAGES * PAGE)
        broken("userfault: a fault at %#lx", address);
    size_t page = below(worker, source.pages);
    source.tags[page] = tag_of(address);
    fill_page(page_of(&source, page), tag_of(address));
    struct uffdio_copy copy = {.dst = address, .src = (uintptr_t)page_of(&source, page), .len = PAGE};
    while (ioctl(faults, UFFDIO_COPY, &copy) && errno != EEXIST)
        if (errno != EAGAIN && errno != EINTR)
            broken("userfault: copy: errno %d", errno);
}

static void step(struct worker *worker)
{
    if (worker->index == 1)
        return serve(worker);
    for (unsigned i = 0; i < 16; i++) {
        char *page = watched + below(worker, PAGES) * PAGE;
        check_page("userfault", (uint64_t *)page, tag_of((uintptr_t)page));
    }
    size_t first = below(worker, PAGES);
    madvise(watched + first * PAGE, (1 + below(worker, PAGES - first)) * PAGE, MADV_DONTNEED);
    nap(0.001);
}

const struct activity userfault_activity = {.name = "userfault", .threads = 2, .begin = begin, .step = step};

struct keyed {
    struct region region;
    int key;
};

static bool begin_keys(struct worker *worker)
{
    struct keyed *keyed = worker->own = calloc(1, sizeof(struct keyed));
    keyed->key = pkey_alloc(0, 0);
    if (keyed->key <= 0 || !make_region(&keyed->region, COMMITTED, 64, &worker->random))
        return false;
    recall(keyed->region.base);
    bool is_keyed = pkey_mprotect(keyed->region.base, 32 * PAGE, RW, keyed->key) == 0;
    lend(keyed->region.base, keyed->region.pages, false);
    return is_keyed;
}

/* Forbids access to the key's pages in this thread for a while; the rights must stay as they are. */
static void step_keys(struct worker *worker)
{
    struct keyed *keyed = worker->own;
    pkey_set(keyed->key, PKEY_DISABLE_ACCESS);
    check_vector_registers(worker);
    if (pkey_get(keyed->key) != PKEY_DISABLE_ACCESS)
        broken("keys: the rights are %d", pkey_get(keyed->key));
    pkey_set(keyed->key, 0);
    for (size_t page = 0; page < keyed->region.pages; page++)
        check_page("keys", page_of(&keyed->region, page), keyed->region.tags[page]);
}

const struct activity keys_activity = {.name = "keys", .threads = 1, .begin = begin_keys, .step = step_keys};
