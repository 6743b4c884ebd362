/*
 * A toy emulator's memory: vmarea decides what is mapped where, the emulator keeps the bytes.
 *
 * Physical memory is an array of frames. A load or store of the emulated program asks which page
 * is at the address, faults until the access is allowed, and then copies bytes. System calls of
 * the program go to vmarea_syscall as they are.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <vmarea.h>

/* Frame numbers are small, but not contiguous, so the table has room for more than are used. */
enum { PAGE = 4096, FRAMES = 64, NUMBERS = 4096 };

struct machine {
    unsigned char *frame[NUMBERS];
    int frames_in_use;
};

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror((int)-result));
        exit(1);
    }
}

/* The callbacks: physical memory. */

static int zero(void *context, uint64_t frame)
{
    struct machine *machine = context;

    if (frame >= NUMBERS || machine->frames_in_use == FRAMES ||
        !(machine->frame[frame] = calloc(1, PAGE)))
        return -ENOMEM;
    machine->frames_in_use++;
    return 0;
}

static int copy(void *context, uint64_t to, uint64_t from)
{
    struct machine *machine = context;
    int error = zero(machine, to);

    if (!error)
        memcpy(machine->frame[to], machine->frame[from], PAGE);
    return error;
}

static int copy_file(void *context, uint64_t to, uint64_t inode, uint64_t index)
{
    struct machine *machine = context;
    int error = zero(machine, to);

    if (!error)
        snprintf((char *)machine->frame[to], PAGE, "page %" PRIu64 " of file %" PRIu64, index, inode);
    return error;
}

static void free_frame(void *context, uint64_t frame)
{
    struct machine *machine = context;

    free(machine->frame[frame]);
    machine->frame[frame] = NULL;
    machine->frames_in_use--;
}

static int describe_file(void *context, int fd, struct vmarea_file *file)
{
    (void)context;
    if (fd != 3)
        return -EBADF;
    *file = (struct vmarea_file){ .id = 1, .inode = 77, .flags = VMAREA_FILE_READABLE };
    return 0;
}

/* The processor: an access to one byte. Returns 0, or the result of the fault that stopped it. */
static int access_byte(struct vmarea_space *space, struct machine *machine, uint64_t mm,
                       uint64_t addr, uint32_t kind, unsigned char *byte)
{
    int needed = kind == VMAREA_WRITE ? PROT_WRITE : PROT_READ;
    struct vmarea_page page;

    for (;;) {
        check(vmarea_page_at(space, mm, addr, &page), "page_at");
        if (page.prot & needed)
            break;
        int fault = vmarea_fault(space, mm, addr, kind);
        check(fault, "fault");
        if (fault != VMAREA_FAULT_DONE && fault != VMAREA_FAULT_SPURIOUS)
            return fault;
    }
    if (page.kind == VMAREA_PAGE_FILE)
        return VMAREA_FAULT_NO_PAGE; /* this emulator has no page cache */
    if (kind == VMAREA_WRITE)
        machine->frame[page.frame][addr % PAGE] = *byte;
    else if (page.kind == VMAREA_PAGE_FRAME)
        *byte = machine->frame[page.frame][addr % PAGE];
    else
        *byte = 0; /* the zero page */
    return 0;
}

static void store(struct vmarea_space *space, struct machine *machine, uint64_t mm, uint64_t addr,
                  const char *text)
{
    for (; *text; text++, addr++) {
        unsigned char byte = (unsigned char)*text;
        if (access_byte(space, machine, mm, addr, VMAREA_WRITE, &byte))
            exit(1);
    }
}

static void show(struct vmarea_space *space, struct machine *machine, uint64_t mm, uint64_t addr,
                 const char *who)
{
    char text[20];

    for (size_t i = 0; i < sizeof text; i++)
        if (access_byte(space, machine, mm, addr + i, VMAREA_READ, (unsigned char *)&text[i]))
            exit(1);
    printf("%s reads \"%.20s\"\n", who, text);
}

static void print_maps(struct vmarea_space *space, uint64_t mm)
{
    struct vmarea_mapping maps[4];
    int64_t count;

    for (uint64_t from = 0; (count = vmarea_maps(space, mm, from, maps, 4)) > 0;) {
        for (int64_t i = 0; i < count; i++)
            printf("  %" PRIx64 "-%" PRIx64 " %c%c%c\n", maps[i].start, maps[i].end,
                   maps[i].flags & 1 ? 'r' : '-', maps[i].flags & 2 ? 'w' : '-',
                   maps[i].flags & 4 ? 'x' : '-');
        from = maps[count - 1].end;
    }
    check(count, "maps");
}

int main(void)
{
    struct machine machine = { .frames_in_use = 0 };
    struct vmarea_platform platform = { .size = sizeof platform, .context = &machine, .zero = zero,
                                        .copy = copy, .copy_file = copy_file, .free = free_frame,
                                        .describe_file = describe_file };
    struct vmarea_options options = { .size = sizeof options, .policy = "linux",
                                      .platform = &platform };
    struct vmarea_space *space;
    uint64_t parent, child;

    check(vmarea_space_create(&options, &space), "space_create");
    check(vmarea_mm_create(space, NULL, &parent), "mm_create");

    /* Two mappings, the lower one from the file that descriptor 3 stands for. */
    int64_t high = vmarea_syscall(space, parent, SYS_mmap, 0, 4 * PAGE, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0);
    check(high, "mmap");
    uint64_t low = (uint64_t)high - 2 * PAGE;
    check(vmarea_syscall(space, parent, SYS_mmap, low, 2 * PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_FIXED, 3, PAGE), "mmap of a file");
    store(space, &machine, parent, (uint64_t)high, "written before");
    store(space, &machine, parent, low, "P");
    show(space, &machine, parent, low, "the program");

    /* Copy-on-write: the child's store is not the parent's. */
    check(vmarea_fork(space, parent, &child), "fork");
    store(space, &machine, child, (uint64_t)high, "changed");
    show(space, &machine, child, (uint64_t)high, "the child");
    show(space, &machine, parent, (uint64_t)high, "the parent");
    printf("%d frames with the child, ", machine.frames_in_use);
    check(vmarea_exit(space, child), "exit");
    printf("%d without\n", machine.frames_in_use);

    /* A change of protection splits the mapping; the verdict says what keeps the parts apart. */
    check(vmarea_syscall(space, parent, SYS_mprotect, (uint64_t)high + PAGE, 3 * PAGE, PROT_READ,
                         0, 0, 0), "mprotect");
    print_maps(space, parent);
    printf("apart because of: %s, %s\n",
           vmarea_verdict_name(vmarea_merge_verdict(space, parent, (uint64_t)high)),
           vmarea_verdict_name(vmarea_merge_verdict(space, parent, (uint64_t)high + PAGE)));
    unsigned char byte = 1;
    int fault = access_byte(space, &machine, parent, (uint64_t)high + PAGE, VMAREA_WRITE, &byte);
    printf("a store to read-only memory: %s\n",
           fault == VMAREA_FAULT_NO_ACCESS ? "SIGSEGV" : "allowed");

    check(vmarea_syscall(space, parent, SYS_munmap, low, 6 * PAGE, 0, 0, 0, 0), "munmap");
    printf("%d frames after munmap\n", machine.frames_in_use);
    check(vmarea_exit(space, parent), "exit");
    check(vmarea_space_destroy(space), "space_destroy");
    return 0;
}
