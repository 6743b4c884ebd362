/* Merging mappings of the calling process that need not be separate. Link with libvmarea_preload.so. */
#ifndef VMAREA_REPAIR_H
#define VMAREA_REPAIR_H
#include <stddef.h>
#include <stdint.h>

#define VMAREA_MERGE_PLAIN 1      /* no flag was ever set by madvise in the range */
#define VMAREA_MERGE_MAY_CHANGE 2 /* others may unmap, move or protect parts of it meanwhile */

struct vmarea_merge_options {
    uint64_t max_pause_us; /* how long a thread may wait for its memory; 0: no bound */
    uint64_t copy_pages;   /* how many shared pages may be copied */
    uint64_t flags;        /* VMAREA_MERGE_* */
};

struct vmarea_merge_report {
    uint64_t before, after; /* mappings in the range */
    uint64_t bytes;         /* address space that was replaced */
    uint64_t copied;        /* pages */
    uint64_t forks;         /* forks that were completed meanwhile */
    uint64_t longest_pause_ns, total_ns;
};

/* 0, or a negative errno: -EINVAL no range of pages, -EPERM no userfaultfd for us, -ENOSYS before
 * Linux 6.8, -ETIME the pause is too short, else the kernel's answer to a call that should not
 * fail. It returns when every page is at its place, whatever the kernel refused meanwhile. Both pointers may be null.
 * It allocates memory, in a thread of its own: do not call it while holding a lock that malloc needs. */
int vmarea_merge_range(void *start, size_t len, const struct vmarea_merge_options *options,
                       struct vmarea_merge_report *report);

/* Why the last call of this thread that failed did so, in one line; valid until the next that fails. */
const char *vmarea_last_error(void);
#endif
