/*
 * vmarea: Linux's virtual memory areas, outside of Linux.
 *
 * A `vmarea_space` is a machine. An address space is a number that is never reused; after its end
 * it gives -ESRCH. The embedder provides page frames and their bytes through callbacks.
 *
 * Errors. Functions return a negative errno with Linux's number. A pointer that is NULL or
 * misaligned where a value is needed gives -EFAULT; one to something that is not a space gives
 * -EBADF. An internal error aborts the process with a message; it never unwinds into the caller.
 *
 * Threads. All functions may run at the same time on one space, except vmarea_space_destroy and
 * vmarea_validate, which need the space for themselves, and vmarea_exit, which needs its address
 * space for itself. Callbacks may run at the same time, too. A callback must not call a function for
 * the same space, unless its comment says so, or end with longjmp or a C++ exception. Most run with
 * a lock held, some with a spinning lock, so they must not sleep for long. Pointers passed to a
 * callback are valid only during the call. A thread must not call any function while it holds a lock
 * that a callback takes.
 *
 * Written by cbindgen: change crates/capi/src and run
 * cargo run -p vmarea-capi --example header >crates/capi/include/vmarea.h
 */

#ifndef VMAREA_H
#define VMAREA_H

#include <stddef.h>
#include <stdint.h>

/* A machine: a set of address spaces that fork from each other and share pages. */
struct vmarea_space;

/*
 * Without std (cargo's --no-default-features) the program that links libvmarea.a defines these.
 * An allocation has at least `size` bytes, begins at a multiple of `align`, a power of two, and is
 * NULL if there is no memory. The allocator functions are called by several threads at once and
 * with spin locks held: they must not sleep and must not call vmarea. vmarea_panic gets a message
 * of `length` bytes without a NUL, and should not return: its thread would loop forever. A thread
 * that waits for a lock spins, so one that never yields must not preempt a thread in a function.
 */
#ifdef VMAREA_NO_STD
#ifdef __cplusplus
extern "C" {
#endif
void *vmarea_alloc(size_t size, size_t align);
void vmarea_dealloc(void *memory, size_t size, size_t align);
void vmarea_panic(const char *message, size_t length);
#ifdef __cplusplus
}
#endif
#endif

// `vmarea_change.kind`: a range in which nothing was mapped is mapped.
#define VMAREA_CHANGE_MAPPED 1

// `vmarea_change.kind`: a mapped range is no longer mapped.
#define VMAREA_CHANGE_UNMAPPED 2

// `vmarea_change.kind`: a mapped range has another protection.
#define VMAREA_CHANGE_PROTECTED 3

// `vmarea_change.kind`: a mapped range with its pages is at `to`, where nothing was mapped. If the
// old range stays mapped without pages, VMAREA_CHANGE_MAPPED follows.
#define VMAREA_CHANGE_MOVED 4

// `vmarea_change.kind`: the pages of a mapped range have been dropped.
#define VMAREA_CHANGE_EMPTIED 5

// `vmarea_change.kind`: the pages of a mapped range have been dropped, and accesses raise SIGSEGV.
#define VMAREA_CHANGE_GUARDED 6

// `vmarea_change.kind`: accesses to guard pages in a mapped range no longer raise SIGSEGV.
#define VMAREA_CHANGE_UNGUARDED 7

// Access of a fault: a load.
#define VMAREA_READ 0

// Access of a fault: a store.
#define VMAREA_WRITE 1

// Access of a fault: an instruction fetch.
#define VMAREA_EXEC 2

// Result of a fault: a page was mapped or made writable. Repeat the access.
#define VMAREA_FAULT_DONE 0

// Result of a fault: the access is allowed already. Repeat the access.
#define VMAREA_FAULT_SPURIOUS 1

// Result of a fault: SIGSEGV, no mapping (SEGV_MAPERR).
#define VMAREA_FAULT_NO_MAPPING 2

// Result of a fault: SIGSEGV, the mapping does not allow the access (SEGV_ACCERR).
#define VMAREA_FAULT_NO_ACCESS 3

// Result of a fault: SIGBUS, beyond the end of the file (BUS_ADRERR).
#define VMAREA_FAULT_NO_PAGE 4

// Result of a fault: no memory.
#define VMAREA_FAULT_OUT_OF_MEMORY 5

// Result of a fault: a userfaultfd watches the page.
#define VMAREA_FAULT_USERFAULT 6

// Result of a fault: nothing has changed. Repeat the access later.
#define VMAREA_FAULT_RETRY 7

// Result of a fault: a page of a file has to be read first. vmarea_needed_page tells which page.
#define VMAREA_FAULT_NEED_PAGE 8

// `vmarea_process.capabilities`: CAP_IPC_LOCK.
#define VMAREA_CAP_IPC_LOCK 1

// `vmarea_process.capabilities`: CAP_SYS_RAWIO.
#define VMAREA_CAP_SYS_RAWIO 2

// `vmarea_process.capabilities`: CAP_SYS_RESOURCE.
#define VMAREA_CAP_SYS_RESOURCE 4

// `vmarea_page.kind`: no page is mapped, so an access faults.
#define VMAREA_PAGE_NONE 0

// `vmarea_page.kind`: a page of zeros, which all address spaces share.
#define VMAREA_PAGE_ZERO 1

// `vmarea_page.kind`: the page in `frame`.
#define VMAREA_PAGE_FRAME 2

// `vmarea_page.kind`: page `index` of the file `inode`.
#define VMAREA_PAGE_FILE 3

// `vmarea_file.flags`: opened for reading.
#define VMAREA_FILE_READABLE 1

// `vmarea_file.flags`: opened for writing.
#define VMAREA_FILE_WRITABLE 2

// `vmarea_file.flags`: on a file system that is mounted noexec.
#define VMAREA_FILE_NOEXEC 4

// `vmarea_file.flags`: append-only.
#define VMAREA_FILE_APPEND_ONLY 8

// `vmarea_file.flags`: sealed against new writable shared mappings.
#define VMAREA_FILE_WRITE_SEALED 16

// `vmarea_file.kind`: a regular file.
#define VMAREA_FILE_REGULAR 0

// `vmarea_file.kind`: a regular file whose large mappings are aligned to huge pages.
#define VMAREA_FILE_HUGE_ALIGNED 1

// `vmarea_file.kind`: a tmpfs file or memfd.
#define VMAREA_FILE_SHMEM 2

// `vmarea_file.kind`: a hugetlbfs file.
#define VMAREA_FILE_HUGETLB 3

// `vmarea_file.kind`: /dev/zero.
#define VMAREA_FILE_DEV_ZERO 4

// `vmarea_file.kind`: a device.
#define VMAREA_FILE_DEVICE 5

// `vmarea_file.kind`: memfd_secret.
#define VMAREA_FILE_SECRET 6

// Verdict: mergeable; a system call on one of the two mappings merges them.
#define VMAREA_MERGES 0

// Verdict: one of the mappings is special and never merges.
#define VMAREA_APART_SPECIAL 1

// Verdict: one of the mappings has hugetlb pages and never merges.
#define VMAREA_APART_HUGETLB 2

// Verdict: different memory policies.
#define VMAREA_APART_POLICY 3

// Verdict: different permissions.
#define VMAREA_APART_PROTECTION 4

// Verdict: flags other than permissions differ.
#define VMAREA_APART_FLAGS 5

// Verdict: only one of the mappings is sealed.
#define VMAREA_APART_SEALED 6

// Verdict: different open files, or a file and anonymous memory.
#define VMAREA_APART_FILE 7

// Verdict: different userfaultfd registrations.
#define VMAREA_APART_USERFAULTFD 8

// Verdict: different names.
#define VMAREA_APART_NAME 9

// Verdict: different anon_vmas, or an anon_vma inherited from a parent.
#define VMAREA_APART_ANON_VMA 10

// Verdict: page offsets of anonymous memory that are not contiguous.
#define VMAREA_APART_PAGE_OFFSET 11

// Verdict: the merge would change pages that are pinned.
#define VMAREA_APART_PINNED 12

// Verdict: offsets in the file that are not contiguous.
#define VMAREA_APART_FILE_OFFSET 13

// Verdict: a mapping must not be removed because of its close hook.
#define VMAREA_APART_CLOSE_HOOK 14

// Verdict: a cause that is not modelled.
#define VMAREA_APART_OPAQUE 15

// A page of a file that a fault needs in the page cache.
struct vmarea_needed {
  // Inode number of the file.
  uint64_t inode;
  // Number of the page in the file.
  uint64_t index;
  // Identifies the mapping for vmarea_fault_again. Not 0.
  uint64_t ticket;
};

// A mapping (VMA).
struct vmarea_mapping {
  // First address.
  uint64_t start;
  // First address after the mapping.
  uint64_t end;
  // Offset in the file, in pages; for anonymous memory, the page offset that merging compares.
  uint64_t pgoff;
  // Linux's VM_ flags: 1 read, 2 write, 4 execute, 8 shared.
  uint64_t flags;
  // Number of the open file description; 0 for none.
  uint64_t file;
  // Inode number of the file; 0 for none.
  uint64_t inode;
  // A number that mappings with the same anon_vma share; 0 for none.
  uint64_t anon_vma;
};

// Memory layout and limits of a process. Addresses are page-aligned, and at most `task_size`.
struct vmarea_process {
  // Address below which mappings are placed, from high addresses to low ones.
  uint64_t mmap_base;
  // Address from which mappings are placed if there is no room below `mmap_base`.
  uint64_t legacy_base;
  // Start of the heap (brk).
  uint64_t start_brk;
  // RLIMIT_AS in bytes. For this and the other limits, UINT64_MAX means unlimited.
  uint64_t limit_as;
  // RLIMIT_DATA in bytes.
  uint64_t limit_data;
  // RLIMIT_STACK in bytes.
  uint64_t limit_stack;
  // RLIMIT_MEMLOCK in bytes.
  uint64_t limit_memlock;
  // VMAREA_CAP_IPC_LOCK and other capabilities.
  uint32_t capabilities;
  // Must be 0.
  uint32_t reserved;
};

// The page at an address, and the accesses that need no fault.
struct vmarea_page {
  // One of VMAREA_PAGE_NONE, VMAREA_PAGE_ZERO, VMAREA_PAGE_FRAME and VMAREA_PAGE_FILE.
  uint32_t kind;
  // Allowed accesses, as PROT_ bits. Loads are allowed if any access is, as on x86-64.
  uint32_t prot;
  // Protection key of the mapping.
  uint32_t pkey;
  // Always 0.
  uint32_t reserved;
  // Number of the frame: small, so that it can index an array, and reused after `free`.
  uint64_t frame;
  // Inode number of the file.
  uint64_t inode;
  // Number of the page in the file.
  uint64_t index;
};

// Properties of the machine. vmarea_system_init sets Linux's defaults.
struct vmarea_system {
  // End of user addresses: the first address that no process may map, at most 2^63.
  uint64_t task_size;
  // vm.mmap_min_addr, in bytes.
  uint64_t mmap_min_addr;
  // Size of the gap below a stack, in bytes.
  uint64_t stack_guard_gap;
  // Limit on committed pages if vm.overcommit_memory is 2; otherwise UINT64_MAX.
  uint64_t commit_limit;
  // vm.max_map_count.
  uint32_t max_map_count;
  // transparent_hugepage/enabled: 0 never, 1 madvise, 2 always.
  uint32_t huge_pages;
  // 1 if the processor has protection keys.
  uint32_t protection_keys;
  // 1 if there is a swap device. A platform then needs `swap_out`, `swap_in` and `swap_free`.
  uint32_t swap;
};

// An open file that a program maps.
struct vmarea_file {
  // Number of the open file description: not 0, and below 2^62. Mappings of different
  // descriptions never merge. A number must not be reused while vmarea_maps shows it.
  uint64_t id;
  // Inode number, below 2^62, by which callbacks identify the file.
  uint64_t inode;
  // VMAREA_FILE_REGULAR or another kind.
  uint32_t kind;
  // VMAREA_FILE_READABLE and other flags.
  uint32_t flags;
};

// The memory of a machine. `zero`, `copy`, `copy_file` and `free` must be set.
//
// Frame and swap slot numbers are small, so that they can index arrays; those in use need not be
// contiguous. A callback may reject too large a number with -ENOMEM.
//
// Callbacks of type `int` return 0, or a negative errno on failure; predicates return 1 or 0.
// `zero`, `copy`, `copy_file`, `free`, `swap_in` and `swap_free` run with a page-table lock held.
//
// A callback that fails must leave everything unchanged. A system call then fails with this errno,
// except for MADV_PAGEOUT and for pages that mmap and brk prefault, as in Linux. A fault returns
// VMAREA_FAULT_OUT_OF_MEMORY for -ENOMEM, VMAREA_FAULT_NEED_PAGE for -EAGAIN from `copy_file` or
// `file_bring`, VMAREA_FAULT_RETRY for any other -EAGAIN, and VMAREA_FAULT_NO_PAGE otherwise.
struct vmarea_platform {
  // sizeof(struct vmarea_platform).
  size_t size;
  // Passed to every callback.
  void *context;
  // Allocates `frame`, filled with zeros.
  int (*zero)(void *context, uint64_t frame);
  // Allocates the frame `to`, as a copy of `from`.
  int (*copy)(void *context, uint64_t to, uint64_t from);
  // Allocates the frame `to`, as a private copy of a page of a file.
  int (*copy_file)(void *context, uint64_t to, uint64_t inode, uint64_t index);
  // Frees the frame.
  void (*free)(void *context, uint64_t frame);
  // Checks whether two frames have equal bytes. If NULL, none are, so KSM shares nothing.
  int (*same)(void *context, uint64_t one, uint64_t other);
  // Copies `frame` to `slot`. If `vmarea_system.swap` is 1, the swap callbacks are required.
  int (*swap_out)(void *context, uint32_t slot, uint64_t frame);
  // Allocates `frame` as a copy of a swap slot, which stays allocated.
  int (*swap_in)(void *context, uint64_t frame, uint32_t slot);
  // Frees a slot.
  void (*swap_free)(void *context, uint32_t slot);
  // Creates the file of a shared anonymous mapping. The inode number is 2^62 or more. The file
  // is needed until `file_released`. If NULL, no file is created.
  int (*shared_anon)(void *context, uint64_t inode, uint64_t pages);
  // Zeroes pages `first` up to `end` of a file. If NULL, MADV_REMOVE gives -EOPNOTSUPP.
  int (*punch_hole)(void *context, uint64_t inode, uint64_t first, uint64_t end);
  // Checks whether the page cache contains a page. If NULL, every page is cached.
  int (*file_is_cached)(void *context, uint64_t inode, uint64_t index);
  // Notifies that a page of a file is about to be mapped. If NULL, no preparation is needed.
  int (*file_bring)(void *context, uint64_t inode, uint64_t index);
  // Checks whether a file has a page; if not, accesses raise SIGBUS. If NULL, all pages exist.
  int (*file_holds)(void *context, uint64_t inode, uint64_t index);
  // Describes the file of a descriptor passed to mmap. If NULL, every descriptor gives -EBADF.
  int (*describe_file)(void *context, int fd, struct vmarea_file *file);
  // Notifies that no shared mapping can write to a file any more. Runs without locks, and may
  // call functions of the library, like `file_released`.
  void (*file_unwritable)(void *context, uint64_t inode);
  // Notifies that the last mapping of a file has gone, and that vmarea_file_put has returned all
  // references, if there were any. A file of `shared_anon` can be freed; another one only if
  // vmarea_file_is_used returns 0, because another thread may have mapped it since.
  void (*file_released)(void *context, uint64_t inode);
};

// Hardware page tables and TLBs, or an emulator's translations. A callback may be NULL.
//
// Addresses are page-aligned, and `end` is the first address after the range. The callbacks run
// with a lock of the address space held. `mm_created` and `set_entry` return 0 or -ENOMEM; -ENOMEM
// makes the system call or the fault fail.
struct vmarea_mmu {
  // sizeof(struct vmarea_mmu).
  size_t size;
  // Passed to every callback.
  void *context;
  // Creates the tables of an address space.
  int (*mm_created)(void *context, uint64_t mm);
  // Frees the tables of an address space, which no longer map anything.
  void (*mm_gone)(void *context, uint64_t mm);
  // Maps the page `to` at an address, after a fault.
  int (*set_entry)(void *context, uint64_t mm, uint64_t addr, const struct vmarea_page *to);
  // Removes the entries in a range. TLBs may hold them until `flush`.
  void (*clear)(void *context, uint64_t mm, uint64_t start, uint64_t end);
  // Removes from a range the permissions that `prot` lacks. TLBs may hold them until `flush`.
  void (*protect)(void *context, uint64_t mm, uint64_t start, uint64_t end, uint32_t prot);
  // Returns once no TLB holds what `clear` or `protect` removed from a range.
  void (*flush)(void *context, uint64_t mm, uint64_t start, uint64_t end);
  // Frees the tables that map nothing outside of the range.
  void (*free_tables)(void *context, uint64_t mm, uint64_t start, uint64_t end);
};

// A change of the mappings of an address space.
struct vmarea_change {
  // VMAREA_CHANGE_MAPPED or another kind.
  uint32_t kind;
  // VMAREA_CHANGE_MAPPED and VMAREA_CHANGE_PROTECTED: the protection, as PROT_ bits.
  uint32_t prot;
  // VMAREA_CHANGE_MAPPED: 1 if the mapping is shared.
  uint32_t shared;
  // VMAREA_CHANGE_MAPPED: 1 if `inode` and `index` say what is mapped.
  uint32_t has_file;
  // First address of the range.
  uint64_t start;
  // First address after the range.
  uint64_t end;
  // VMAREA_CHANGE_MOVED: the new address of `start`.
  uint64_t to;
  // Inode number of the mapped file.
  uint64_t inode;
  // Number of the first page in the file.
  uint64_t index;
};

// An observer of changes, for a sandbox or an emulator whose host brings the pages.
struct vmarea_changes {
  // sizeof(struct vmarea_changes).
  size_t size;
  // Passed to the callback.
  void *context;
  // Notifies of each change of a mapping, whether or not the library has seen a fault in it.
  // vmarea_fork is not reported: the child has the mappings that vmarea_maps returns. Runs with a
  // lock of the address space held, and must not call the library.
  void (*changed)(void *context, uint64_t mm, const struct vmarea_change *change);
};

// What an embedder chooses for a space. Members that are 0 or NULL have defaults.
struct vmarea_options {
  // sizeof(struct vmarea_options).
  size_t size;
  // Name of a merge policy, such as "linux-6.12" or "vmarea+copy_budget=64". NULL for "linux".
  const char *policy;
  // Properties of the machine.
  const struct vmarea_system *system;
  // Memory. NULL for pages without bytes.
  const struct vmarea_platform *platform;
  // MMU. NULL for none.
  const struct vmarea_mmu *mmu;
  // Observer of changes of mappings. NULL for none.
  const struct vmarea_changes *changes;
  // Buffer for a message that says why creation failed.
  char *message;
  // Size of `message` in bytes. A longer message is truncated.
  size_t message_size;
};

// How many mappings a file has, in all address spaces.
struct vmarea_file_counts {
  // Number of mappings.
  uint32_t all;
  // Number of shared mappings of the file when it was opened for writing, whatever their
  // protection is.
  uint32_t writable;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Handles a fault caused by an `access`, such as VMAREA_READ. Returns a VMAREA_FAULT_ constant.
//
// Errors: -ESRCH; -EINVAL for an unknown `access`.
int vmarea_fault(const struct vmarea_space *space, uint64_t mm, uint64_t addr, uint32_t access);

// Tells which page an access to `addr` needs, after a fault returned VMAREA_FAULT_NEED_PAGE.
//
// Errors: -ESRCH; -ENOENT if no file is mapped there any more; repeat the access then.
int vmarea_needed_page(const struct vmarea_space *space, uint64_t mm, uint64_t addr, struct vmarea_needed *page);

// Resumes a fault once the needed page has been read, or could not be read (`copy_file` or
// `file_bring` then fails). Returns what vmarea_fault returns. If the ticket's mapping is gone or
// does not allow the access, the fault starts again and may need another page.
int vmarea_fault_again(const struct vmarea_space *space, uint64_t mm, uint64_t addr, uint32_t access, uint64_t ticket);

// Writes up to `capacity` of the mappings that end above `from` to the array `mappings`, in
// address order, and returns their number. To continue, pass the `end` of the last mapping as
// `from`. Each call returns a consistent snapshot.
int64_t vmarea_maps(const struct vmarea_space *space,
                    uint64_t mm,
                    uint64_t from,
                    struct vmarea_mapping *mappings,
                    size_t capacity);

// Sets `*process` to the values of an x86-64 process without address randomization.
int vmarea_process_init(struct vmarea_process *process);

// Creates an empty address space and stores its number, which is not 0, in `*mm`. If `process` is
// NULL, the values of vmarea_process_init apply, with `mmap_base` and `legacy_base` limited to
// `task_size`.
//
// Errors: -ENOMEM; -EINVAL for an invalid member of `process`; those of the callback `mm_created`.
int vmarea_mm_create(const struct vmarea_space *space, const struct vmarea_process *process, uint64_t *mm);

// Copies the address space `parent` copy-on-write and stores the number of the copy in `*child`.
//
// Errors: -ESRCH, -ENOMEM; those of the callback `mm_created`.
int vmarea_fork(const struct vmarea_space *space, uint64_t parent, uint64_t *child);

// Unmaps everything and ends an address space, which no other function may use meanwhile.
int vmarea_exit(const struct vmarea_space *space, uint64_t mm);

// Describes the page at `addr`. The answer may be out of date when this function returns. An
// embedder with several threads therefore keeps its own table of translations, which `set_entry`,
// `clear` and `protect` change under a lock, and copies bytes under that lock.
//
// Errors: -ESRCH if the address space has ended.
int vmarea_page_at(const struct vmarea_space *space, uint64_t mm, uint64_t addr, struct vmarea_page *page);

// Returns the version of the library, such as "0.1.0".
const char *vmarea_version(void);

// Sets Linux's defaults for an x86-64 machine.
int vmarea_system_init(struct vmarea_system *system);

// Creates a space and stores its handle in `*space`. The structures are copied. The callbacks and
// their contexts are used until the space is destroyed.
//
// Errors: -EINVAL for a wrong policy, value or structure size, explained in `options->message`.
int vmarea_space_create(const struct vmarea_options *options, struct vmarea_space **space);

// Destroys a space that has no address spaces left. No other function may use it meanwhile or
// later. NULL is allowed.
//
// Errors: -EBUSY if an address space has not ended; the space then stays as it is.
int vmarea_space_destroy(struct vmarea_space *space);

// Returns the memory of objects that are gone to the allocator: for when memory is scarce, or a
// large process has ended. No other thread may be in a call with the space meanwhile; threads that
// share it need a lock that each call takes for reading and this one for writing.
int vmarea_space_shrink(struct vmarea_space *space);

// Checks every invariant of a space that no other thread uses. If an invariant does not hold,
// describes it in `message`, which has `size` bytes, and returns -EIO.
int vmarea_validate(const struct vmarea_space *space, char *message, size_t size);

// Removes pages `first` up to `end` of a file from all mappings. `private_copies` is 1 if the file
// was truncated (private copies are removed, too), and 0 if a hole was punched.
int vmarea_unmap_mapping(const struct vmarea_space *space,
                         uint64_t inode,
                         uint64_t first,
                         uint64_t end,
                         int private_copies);

// Takes a reference to a file, so that `file_released` does not run before vmarea_file_put.
//
// Errors: -ENOMEM.
int vmarea_file_get(const struct vmarea_space *space, uint64_t inode);

// Returns a reference to a file. If nothing else uses the file, `file_released` runs.
//
// Errors: -EINVAL if vmarea_file_get has not taken the reference.
int vmarea_file_put(const struct vmarea_space *space, uint64_t inode);

// Returns 1 if a mapping, a call that is about to map the file, or a reference uses the file, and
// otherwise 0. `file_released` can run late. Therefore a thread that adds a file to a table takes a
// reference first, and `file_released` locks the table and removes the file only if this returns 0.
int vmarea_file_is_used(const struct vmarea_space *space, uint64_t inode);

// Counts the mappings of a file. A call that maps the file counts as a mapping while it runs.
int vmarea_file_mappings(const struct vmarea_space *space, uint64_t inode, struct vmarea_file_counts *mappings);

// Makes a system call of x86-64 and returns what the kernel returns: a value or a negative errno.
//
// Supports mmap, munmap, mprotect, pkey_mprotect, mremap, brk, madvise, mlock, mlock2, munlock,
// mlockall, munlockall, mseal, remap_file_pages, pkey_alloc, pkey_free, personality and the
// options of prctl that concern memory. To map a file, mmap calls `describe_file`.
//
// Errors: those of the system call; -ESRCH; -ENOSYS for other numbers, and for calls whose
// arguments are in the program's memory (mbind, process_madvise) or name a segment (shmat).
int64_t vmarea_syscall(const struct vmarea_space *space,
                       uint64_t mm,
                       uint64_t number,
                       uint64_t a,
                       uint64_t b,
                       uint64_t c,
                       uint64_t d,
                       uint64_t e,
                       uint64_t f);

// Checks whether the two mappings that meet at `boundary` can be merged under the space's policy.
// Changes nothing. Returns VMAREA_MERGES, or the reason why they stay apart.
//
// Errors: -ESRCH; -ENOENT if no two mappings meet there.
int vmarea_merge_verdict(const struct vmarea_space *space, uint64_t mm, uint64_t boundary);

// Returns the name of a verdict, such as "anon_vma"; NULL for VMAREA_MERGES and other numbers.
const char *vmarea_verdict_name(int verdict);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* VMAREA_H */
