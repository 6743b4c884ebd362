/* Merging mappings of the calling process that do not need to be separate. Link with libvmarea_repair_capi.so. */
#ifndef VMAREA_REPAIR_H
#define VMAREA_REPAIR_H
#include <stddef.h>
#include <stdint.h>

#define VMAREA_MERGE_PLAIN 1 /* no flag (madvise, mlock) and no protection key was ever set in the range */

struct vmarea_merge_options {
    uint64_t max_pause_us; /* maximum time that a thread may wait for its memory; 0: no limit */
    uint64_t copy_pages;   /* maximum number of shared pages that may be copied */
    uint64_t flags;        /* 0 or VMAREA_MERGE_PLAIN */
};

struct vmarea_merge_report {
    uint64_t before, after; /* number of mappings in the range */
    uint64_t bytes;         /* bytes of address space that were replaced */
    uint64_t copied;        /* number of pages copied */
    uint64_t forks;         /* number of forks during the merge whose children were given the missing pages */
    uint64_t longest_pause_ns, total_ns;
};

/* Merges the mappings in a range, which the caller owns: until the call has returned, no other thread unmaps, maps
 * over, moves, protects or discards (madvise) any part of it. Reading, writing and forking are allowed.
 * Returns 0 or a negative errno: -EINVAL if the range is empty or not made of whole pages, or for unknown flags,
 * -EPERM without permission to use userfaultfd, -ENOSYS before Linux 6.8, -ETIME if the pause is too short, else the
 * errno of a system call that should not have failed. It returns only when every page is at its address, even if the
 * kernel has refused calls. Both pointers may be null. It allocates memory in a separate thread: do not call it while
 * holding a lock that malloc needs. */
int vmarea_merge_range(void *start, size_t len, const struct vmarea_merge_options *options,
                       struct vmarea_merge_report *report);

/* Returns one line that explains the last failed call of this thread; valid until the next failure. */
const char *vmarea_last_error(void);
#endif
