/*
 * The C interface with wrong arguments, with callbacks that fail, and with an MMU.
 *
 * Prints nothing if everything is as expected.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <vmarea.h>

enum { PAGE = 4096 };

static int failures;

#define EXPECT(expression, expected)                                                               \
    do {                                                                                           \
        long long got = (expression), want = (expected);                                           \
        if (got != want) {                                                                         \
            printf("line %d: %s is %lld, not %lld\n", __LINE__, #expression, got, want);           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* A platform whose callbacks return what the test wants. */
struct plan {
    int zero, describe_file, mm_created, set_entry;
    struct vmarea_file file;
    unsigned cleared, protected_to, flushed, gone;
    uint64_t released;
    struct vmarea_page shown;
};

static int zero(void *context, uint64_t frame)
{
    (void)frame;
    return ((struct plan *)context)->zero;
}

static int copy(void *context, uint64_t to, uint64_t from)
{
    (void)context, (void)to, (void)from;
    return 0;
}

static int copy_file(void *context, uint64_t to, uint64_t inode, uint64_t index)
{
    (void)context, (void)to, (void)inode, (void)index;
    return 0;
}

static void free_frame(void *context, uint64_t frame)
{
    (void)context, (void)frame;
}

static int swap_out(void *context, uint32_t slot, uint64_t frame)
{
    (void)context, (void)slot, (void)frame;
    return 0;
}

static int swap_in(void *context, uint64_t frame, uint32_t slot)
{
    (void)context, (void)frame, (void)slot;
    return 0;
}

static void swap_free(void *context, uint32_t slot)
{
    (void)context, (void)slot;
}

static int describe_file(void *context, int fd, struct vmarea_file *file)
{
    struct plan *plan = context;

    (void)fd;
    *file = plan->file;
    return plan->describe_file;
}

static void file_released(void *context, uint64_t inode)
{
    ((struct plan *)context)->released = inode;
}

static int mm_created(void *context, uint64_t mm)
{
    (void)mm;
    return ((struct plan *)context)->mm_created;
}

static void mm_gone(void *context, uint64_t mm)
{
    (void)mm;
    ((struct plan *)context)->gone++;
}

static int set_entry(void *context, uint64_t mm, uint64_t addr, const struct vmarea_page *to)
{
    struct plan *plan = context;

    (void)mm, (void)addr;
    plan->shown = *to;
    return plan->set_entry;
}

static void clear(void *context, uint64_t mm, uint64_t start, uint64_t end)
{
    (void)mm;
    ((struct plan *)context)->cleared += (unsigned)((end - start) / PAGE);
}

static void protect(void *context, uint64_t mm, uint64_t start, uint64_t end, uint32_t prot)
{
    (void)mm, (void)start, (void)end;
    ((struct plan *)context)->protected_to = prot;
}

static void flush(void *context, uint64_t mm, uint64_t start, uint64_t end)
{
    (void)mm, (void)start, (void)end;
    ((struct plan *)context)->flushed++;
}

static struct vmarea_space *space_for(struct plan *plan)
{
    struct vmarea_platform platform = { .size = sizeof platform, .context = plan, .zero = zero,
                                        .copy = copy, .copy_file = copy_file, .free = free_frame,
                                        .describe_file = describe_file,
                                        .file_released = file_released };
    struct vmarea_mmu mmu = { .size = sizeof mmu, .context = plan, .mm_created = mm_created,
                              .mm_gone = mm_gone, .set_entry = set_entry, .clear = clear,
                              .protect = protect, .flush = flush };
    struct vmarea_options options = { .size = sizeof options, .platform = &platform, .mmu = &mmu };
    struct vmarea_space *space = NULL;

    EXPECT(vmarea_space_create(&options, &space), 0);
    return space;
}

static int64_t map(struct vmarea_space *space, uint64_t mm, uint64_t pages)
{
    return vmarea_syscall(space, mm, SYS_mmap, 0, pages * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0);
}

/* Of a structure with a wrong size, nothing but the size is read. */
static void refused_sizes(void)
{
    size_t *size = malloc(sizeof *size);
    char message[200] = "";
    struct vmarea_options options = { .size = sizeof options, .message = message,
                                      .message_size = sizeof message };
    struct vmarea_space *space = NULL;

    *size = sizeof *size;
    EXPECT(vmarea_space_create((void *)size, &space), -EINVAL);
    options.platform = (void *)size;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strncmp(message, "vmarea_platform.size", 20), 0);
    options.platform = NULL;
    options.mmu = (void *)size;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strncmp(message, "vmarea_mmu.size", 15), 0);
    EXPECT(space == NULL, 1);
    free(size);
}

static void refused_options(void)
{
    struct vmarea_platform platform = { .size = sizeof platform, .zero = zero };
    struct vmarea_mmu mmu = { .size = 1 };
    struct vmarea_system system;
    char message[200] = "";
    struct vmarea_options options = { .size = sizeof options, .policy = "vmaera",
                                      .message = message, .message_size = sizeof message };
    struct vmarea_space *space = (void *)&options;

    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(space == NULL, 1);
    EXPECT(strstr(message, "did you mean vmarea?") != NULL, 1);
    options.policy = "vmarea+collectr";
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strstr(message, "did you mean collector?") != NULL, 1);
    options.policy = "\xff";
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strstr(message, "UTF-8") != NULL, 1);
    options.policy = NULL;
    options.platform = &platform;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strstr(message, "needs zero, copy") != NULL, 1);
    options.platform = (void *)((char *)&platform + 1);
    EXPECT(vmarea_space_create(&options, &space), -EFAULT);
    EXPECT(strstr(message, "misaligned") != NULL, 1);
    options.platform = NULL;
    options.mmu = &mmu;
    options.message_size = 10;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strcmp(message, "vmarea_mm"), 0);
    options.mmu = NULL;
    options.system = &system;
    options.message_size = sizeof message;
    EXPECT(vmarea_system_init(&system), 0);
    system.huge_pages = 3;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strstr(message, "huge_pages is 3") != NULL, 1);
    system.huge_pages = 0;
    system.task_size = (1ull << 63) + PAGE;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strstr(message, "above 2^63") != NULL, 1);
    options.message = NULL;
    EXPECT(vmarea_space_create(&options, &space), -EFAULT);
    options.message_size = 0;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    options.size--;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(vmarea_space_create(NULL, &space), -EFAULT);
    refused_sizes();
    EXPECT(vmarea_space_create(&options, NULL), -EFAULT);
    EXPECT(vmarea_system_init(NULL), -EFAULT);
    EXPECT(vmarea_process_init(NULL), -EFAULT);
}

static void missing_callbacks(void)
{
    struct vmarea_platform platform = { .size = sizeof platform, .zero = zero, .copy = copy,
                                        .copy_file = copy_file, .free = free_frame,
                                        .swap_out = swap_out, .swap_in = swap_in };
    struct vmarea_system system;
    char message[200] = "";
    struct vmarea_options options = { .size = sizeof options, .system = &system,
                                      .platform = &platform, .message = message,
                                      .message_size = sizeof message };
    struct vmarea_space *space;

    EXPECT(vmarea_system_init(&system), 0);
    system.swap = 1;
    EXPECT(vmarea_space_create(&options, &space), -EINVAL);
    EXPECT(strcmp(message, "vmarea_system.swap needs swap_out, swap_in and swap_free"), 0);
    platform.swap_free = swap_free;
    for (int without = 0; without < 2; without++) {
        uint64_t mm, addr;

        EXPECT(vmarea_space_create(&options, &space), 0);
        EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
        addr = (uint64_t)vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, (uint64_t)-1, 0);
        EXPECT(vmarea_syscall(space, mm, SYS_madvise, addr, PAGE, MADV_REMOVE, 0, 0, 0),
               without ? 0 : -EOPNOTSUPP);
        EXPECT(vmarea_exit(space, mm), 0);
        EXPECT(vmarea_space_destroy(space), 0);
        options.platform = NULL; /* pages without bytes need no callbacks */
    }
}

static void refused_handles(void)
{
    struct plan plan = { 0 };
    struct vmarea_space *space = space_for(&plan), *none = NULL;
    struct vmarea_space *misaligned = (void *)((char *)space + 1);
    static _Alignas(PAGE) char bytes[PAGE];
    struct vmarea_space *other = (void *)bytes;
    uint64_t mm = 0, child;

    EXPECT(vmarea_mm_create(none, NULL, &mm), -EFAULT);
    EXPECT(vmarea_mm_create(misaligned, NULL, &mm), -EFAULT);
    EXPECT(vmarea_mm_create(other, NULL, &mm), -EBADF);
    EXPECT(vmarea_space_destroy(other), -EBADF);
    EXPECT(vmarea_space_destroy(NULL), 0);
    EXPECT(vmarea_validate(none, NULL, 0), -EFAULT);
    EXPECT(map(none, 1, 1), -EFAULT);
    EXPECT(vmarea_mm_create(space, NULL, NULL), -EFAULT);
    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    EXPECT(vmarea_fork(space, mm, NULL), -EFAULT);
    EXPECT(vmarea_space_destroy(space), -EBUSY);
    EXPECT(vmarea_exit(space, mm), 0);
    /* The last one is a number that no address space ever has. */
    const uint64_t gone[] = { mm, 0, mm + (UINT64_C(1) << 32) };
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        EXPECT(vmarea_exit(space, gone[i]), -ESRCH);
        EXPECT(vmarea_fork(space, gone[i], &child), -ESRCH);
        EXPECT(map(space, gone[i], 1), -ESRCH);
        EXPECT(vmarea_fault(space, gone[i], 0, VMAREA_READ), -ESRCH);
        EXPECT(vmarea_maps(space, gone[i], 0, NULL, 0), -ESRCH);
        EXPECT(vmarea_merge_verdict(space, gone[i], PAGE), -ESRCH);
    }
    EXPECT(vmarea_space_destroy(space), 0);
}

static void refused_arguments(void)
{
    struct plan plan = { .describe_file = -EBADF };
    struct vmarea_space *space = space_for(&plan);
    struct vmarea_mapping maps[2];
    struct vmarea_page page;
    uint64_t mm;

    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    EXPECT(vmarea_syscall(space, mm, 100000, 0, 0, 0, 0, 0, 0), -ENOSYS);
    EXPECT(vmarea_syscall(space, mm, 1ull << 32 | SYS_munmap, 0, 0, 0, 0, 0, 0), -ENOSYS);
    EXPECT(vmarea_syscall(space, mm, SYS_mbind, 0, 0, 0, 0, 0, 0), -ENOSYS);
    EXPECT(vmarea_syscall(space, mm, SYS_munmap, 1, PAGE, 0, 0, 0, 0), -EINVAL);
    EXPECT(vmarea_syscall(space, mm, SYS_munmap, 0, -1ull, 0, 0, 0, 0), -EINVAL);
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, -1ull, 0, MAP_PRIVATE | MAP_ANONYMOUS, 0, 0),
           -ENOMEM);
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, 0, MAP_PRIVATE, 3, 1), -EINVAL);
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, 0, MAP_PRIVATE, 3, 0), -EBADF);
    plan.describe_file = 0;
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, 0, MAP_PRIVATE, 3, 0), -EINVAL);
    plan.file = (struct vmarea_file){ .id = 1, .kind = 99 };
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, 0, MAP_PRIVATE, 3, 0), -EINVAL);
    plan.file = (struct vmarea_file){ .id = 1, .inode = 1ull << 62, .flags = VMAREA_FILE_READABLE };
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, 0, MAP_PRIVATE, 3, 0), -EINVAL);
    plan.file = (struct vmarea_file){ .id = 1, .inode = 2 };
    EXPECT(vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, 0, MAP_PRIVATE, 3, 0), -EACCES);
    EXPECT(vmarea_syscall(space, mm, SYS_brk, 1, 0, 0, 0, 0, 0), 0x555555559000);
    EXPECT(vmarea_fault(space, mm, 0, 3), -EINVAL);
    EXPECT(vmarea_fault(space, mm, -1ull, VMAREA_WRITE), VMAREA_FAULT_NO_MAPPING);
    EXPECT(vmarea_page_at(space, mm, 0, NULL), -EFAULT);
    EXPECT(vmarea_page_at(space, mm, -1ull, &page), 0);
    EXPECT(page.kind, VMAREA_PAGE_NONE);
    EXPECT(vmarea_maps(space, mm, 0, NULL, 0), 0);
    EXPECT(vmarea_maps(space, mm, 0, NULL, 1), -EFAULT);
    EXPECT(vmarea_maps(space, mm, 0, maps, (size_t)-1), -EFAULT);
    EXPECT(vmarea_maps(space, mm, -1ull, maps, 2), 0);
    EXPECT(vmarea_merge_verdict(space, mm, 0), -ENOENT);
    EXPECT(vmarea_merge_verdict(space, mm, -1ull), -ENOENT);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(vmarea_space_destroy(space), 0);
}

static void refused_processes(void)
{
    enum { TASK = 1 << 30 };
    struct vmarea_system system;
    struct vmarea_options options = { .size = sizeof options, .system = &system };
    struct vmarea_process usual, wrong;
    struct vmarea_space *space;
    uint64_t mm = 0, addr;

    EXPECT(vmarea_system_init(&system), 0);
    system.task_size = TASK;
    EXPECT(vmarea_space_create(&options, &space), 0);
    EXPECT(vmarea_process_init(&usual), 0);
    EXPECT(vmarea_mm_create(space, &usual, &mm), -EINVAL);
    usual.mmap_base = usual.legacy_base = usual.start_brk = TASK;
    wrong = usual;
    wrong.mmap_base += PAGE;
    EXPECT(vmarea_mm_create(space, &wrong, &mm), -EINVAL);
    wrong = usual;
    wrong.legacy_base += PAGE;
    EXPECT(vmarea_mm_create(space, &wrong, &mm), -EINVAL);
    wrong = usual;
    wrong.start_brk--;
    EXPECT(vmarea_mm_create(space, &wrong, &mm), -EINVAL);
    wrong = usual;
    wrong.capabilities = 8;
    EXPECT(vmarea_mm_create(space, &wrong, &mm), -EINVAL);
    wrong = usual;
    wrong.reserved = 1;
    EXPECT(vmarea_mm_create(space, &wrong, &mm), -EINVAL);
    EXPECT(mm, 0);
    for (int given = 0; given < 2; given++) {
        EXPECT(vmarea_mm_create(space, given ? &usual : NULL, &mm), 0);
        addr = (uint64_t)map(space, mm, 1);
        EXPECT(addr, TASK - PAGE);
        EXPECT(vmarea_exit(space, mm), 0);
    }
    EXPECT(vmarea_space_destroy(space), 0);
}

static void verdicts(void)
{
    struct plan plan = { 0 };
    struct vmarea_space *space = space_for(&plan);
    struct vmarea_mapping maps[3];
    uint64_t mm, addr;

    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    addr = (uint64_t)map(space, mm, 3);
    vmarea_syscall(space, mm, SYS_mprotect, addr + PAGE, PAGE,
                   PROT_READ | PROT_WRITE | PROT_EXEC, 0, 0, 0);
    EXPECT(vmarea_merge_verdict(space, mm, addr + PAGE), VMAREA_APART_PROTECTION);
    EXPECT(vmarea_merge_verdict(space, mm, addr + 2 * PAGE), VMAREA_APART_PROTECTION);
    /* The outer pages get different anon_vmas, because they are written while they are apart. */
    vmarea_syscall(space, mm, SYS_munmap, addr + PAGE, PAGE, 0, 0, 0, 0);
    EXPECT(vmarea_merge_verdict(space, mm, addr + PAGE), -ENOENT);
    EXPECT(vmarea_fault(space, mm, addr, VMAREA_WRITE), VMAREA_FAULT_DONE);
    EXPECT(vmarea_fault(space, mm, addr + 2 * PAGE, VMAREA_WRITE), VMAREA_FAULT_DONE);
    EXPECT(vmarea_syscall(space, mm, SYS_mremap, addr + 2 * PAGE, PAGE, PAGE,
                          MREMAP_MAYMOVE | MREMAP_FIXED, addr + PAGE, 0), (int64_t)addr + PAGE);
    EXPECT(vmarea_merge_verdict(space, mm, addr + PAGE), VMAREA_APART_ANON_VMA);
    EXPECT(vmarea_maps(space, mm, 0, maps, 3), 2);
    EXPECT(maps[0].anon_vma != maps[1].anon_vma, 1);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(vmarea_space_destroy(space), 0);
}

static void failing_callbacks(void)
{
    struct plan plan = { .mm_created = -ENOMEM };
    struct vmarea_space *space = space_for(&plan);
    uint64_t mm = 0, child = 0;
    int64_t addr;

    EXPECT(vmarea_mm_create(space, NULL, &mm), -ENOMEM);
    plan.mm_created = 0;
    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    plan.mm_created = 1; /* neither 0 nor a negative errno */
    EXPECT(vmarea_fork(space, mm, &child), -EIO);
    addr = map(space, mm, 2);
    plan.set_entry = -ENOMEM;
    EXPECT(vmarea_fault(space, mm, (uint64_t)addr, VMAREA_WRITE), VMAREA_FAULT_OUT_OF_MEMORY);
    plan.set_entry = 0;
    EXPECT(vmarea_fault(space, mm, (uint64_t)addr, VMAREA_WRITE), VMAREA_FAULT_SPURIOUS);
    EXPECT(vmarea_validate(space, NULL, 0), 0);
    plan.zero = -ENOMEM;
    EXPECT(vmarea_fault(space, mm, (uint64_t)addr + PAGE, VMAREA_WRITE), VMAREA_FAULT_OUT_OF_MEMORY);
    plan.zero = -EAGAIN;
    EXPECT(vmarea_fault(space, mm, (uint64_t)addr + PAGE, VMAREA_WRITE), VMAREA_FAULT_RETRY);
    plan.zero = 1; /* neither 0 nor a negative errno */
    EXPECT(vmarea_fault(space, mm, (uint64_t)addr + PAGE, VMAREA_WRITE), VMAREA_FAULT_NO_PAGE);
    plan.zero = 0;
    EXPECT(vmarea_fault(space, mm, (uint64_t)addr + PAGE, VMAREA_WRITE), VMAREA_FAULT_DONE);
    EXPECT(vmarea_validate(space, NULL, 0), 0);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(vmarea_space_destroy(space), 0);
}

static void hardware(void)
{
    struct plan plan = { 0 };
    struct vmarea_space *space = space_for(&plan);
    uint64_t mm, addr;

    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    addr = (uint64_t)map(space, mm, 2);
    EXPECT(vmarea_fault(space, mm, addr, VMAREA_READ), VMAREA_FAULT_DONE);
    EXPECT(plan.shown.kind, VMAREA_PAGE_ZERO);
    EXPECT(plan.shown.prot, PROT_READ);
    EXPECT(vmarea_fault(space, mm, addr, VMAREA_WRITE), VMAREA_FAULT_DONE);
    EXPECT(plan.shown.kind, VMAREA_PAGE_FRAME);
    EXPECT(plan.shown.prot, PROT_READ | PROT_WRITE);
    EXPECT(vmarea_syscall(space, mm, SYS_mprotect, addr, PAGE, PROT_READ, 0, 0, 0), 0);
    EXPECT(plan.protected_to, PROT_READ);
    plan.cleared = plan.flushed = 0;
    EXPECT(vmarea_syscall(space, mm, SYS_munmap, addr, 2 * PAGE, 0, 0, 0, 0), 0);
    EXPECT(plan.cleared > 0, 1);
    EXPECT(plan.flushed, 1);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(plan.gone, 1);
    EXPECT(vmarea_space_destroy(space), 0);
}

/* A mapping that allows any access allows loads. */
static void loads(void)
{
    struct plan plan = { 0 };
    struct vmarea_space *space = space_for(&plan);
    struct vmarea_page page;
    uint64_t mm, addr;

    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    addr = (uint64_t)vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0);
    EXPECT(vmarea_fault(space, mm, addr, VMAREA_READ), VMAREA_FAULT_DONE);
    EXPECT(plan.shown.prot, PROT_READ);
    EXPECT(vmarea_fault(space, mm, addr, VMAREA_WRITE), VMAREA_FAULT_DONE);
    EXPECT(plan.shown.prot, PROT_READ | PROT_WRITE);
    EXPECT(vmarea_page_at(space, mm, addr, &page), 0);
    EXPECT(page.prot, PROT_READ | PROT_WRITE);
    EXPECT(vmarea_syscall(space, mm, SYS_mprotect, addr, PAGE, PROT_EXEC, 0, 0, 0), 0);
    EXPECT(plan.protected_to, PROT_READ | PROT_EXEC);
    EXPECT(vmarea_page_at(space, mm, addr, &page), 0);
    EXPECT(page.prot, PROT_READ | PROT_EXEC);
    EXPECT(vmarea_syscall(space, mm, SYS_mprotect, addr, PAGE, PROT_NONE, 0, 0, 0), 0);
    EXPECT(vmarea_page_at(space, mm, addr, &page), 0);
    EXPECT(page.prot, 0);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(vmarea_space_destroy(space), 0);
}

/* A reference keeps the file of shared memory after its last mapping. */
static void references(void)
{
    struct plan plan = { 0 };
    struct vmarea_space *space = space_for(&plan);
    struct vmarea_file_counts counts;
    struct vmarea_mapping mapping;
    uint64_t mm;

    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    int64_t at = vmarea_syscall(space, mm, SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, (uint64_t)-1, 0);
    EXPECT(vmarea_maps(space, mm, 0, &mapping, 1), 1);
    EXPECT(vmarea_file_mappings(space, mapping.inode, &counts), 0);
    EXPECT(counts.all, 1);
    EXPECT(counts.writable, 1);
    EXPECT(vmarea_file_get(space, mapping.inode), 0);
    EXPECT(vmarea_syscall(space, mm, SYS_munmap, (uint64_t)at, PAGE, 0, 0, 0, 0), 0);
    EXPECT(plan.released, 0);
    EXPECT(vmarea_file_is_used(space, mapping.inode), 1);
    EXPECT(vmarea_file_put(space, mapping.inode), 0);
    EXPECT(plan.released, (long long)mapping.inode);
    EXPECT(vmarea_file_is_used(space, mapping.inode), 0);
    EXPECT(vmarea_file_put(space, mapping.inode), -EINVAL);
    EXPECT(vmarea_file_mappings(space, mapping.inode, NULL), -EFAULT);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(vmarea_space_destroy(space), 0);
}

/* Of AddressSanitizer, without which the memory is not measured. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static long long allocated(void)
{
    return __sanitizer_get_current_allocated_bytes ? (long long)__sanitizer_get_current_allocated_bytes() : 0;
}

/* A process with many mappings has ended, and its memory is given back. */
static void shrinks(void)
{
    struct plan plan = { 0 };
    struct vmarea_space *space = space_for(&plan);
    uint64_t mm;

    long long before = allocated();
    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    int64_t at = vmarea_syscall(space, mm, SYS_mmap, 0, 2000 * PAGE, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0);
    for (uint64_t page = 0; page < 2000; page += 2)
        EXPECT(vmarea_syscall(space, mm, SYS_mprotect, (uint64_t)at + page * PAGE, PAGE, PROT_READ, 0, 0, 0), 0);
    EXPECT(vmarea_exit(space, mm), 0);
    long long kept = allocated() - before;
    EXPECT(vmarea_space_shrink(space), 0);
    EXPECT((allocated() - before) * 10 <= kept, 1);
    EXPECT(vmarea_mm_create(space, NULL, &mm), 0);
    EXPECT(vmarea_exit(space, mm), 0);
    EXPECT(vmarea_space_destroy(space), 0);
    EXPECT(vmarea_space_shrink(NULL), -EFAULT);
}

int main(void)
{
    shrinks();
    references();
    refused_options();
    missing_callbacks();
    refused_handles();
    refused_arguments();
    refused_processes();
    verdicts();
    failing_callbacks();
    hardware();
    loads();
    EXPECT(strlen(vmarea_version()) > 4, 1);
    return failures != 0;
}
