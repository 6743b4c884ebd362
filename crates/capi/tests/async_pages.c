/*
 * Page faults whose pages come later: the platform does not have the page of the file yet, the
 * program reads it, and goes on with the ticket.
 *
 * Prints nothing if everything is as expected.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <vmarea.h>

enum { PAGE = 4096, PAGES = 8, LEN = PAGES * PAGE, FILES = 3 };

#define BASE UINT64_C(0x1000000000)

static atomic_int failures;

#define EXPECT(expression, expected)                                                               \
    do {                                                                                           \
        long long got = (expression), want = (expected);                                           \
        if (got != want) {                                                                         \
            printf("line %d: %s is %lld, not %lld\n", __LINE__, #expression, got, want);           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* A machine with one address space. `missing` is 0 for a page in the page cache, or the error that
 * the platform answers. A descriptor is the inode number of its file. */
struct machine {
    struct vmarea_space *space;
    uint64_t mm;
    atomic_int missing[FILES][PAGES], frames;
};

static int need(void *context, uint64_t inode, uint64_t index)
{
    return ((struct machine *)context)->missing[inode][index];
}

static int zero(void *context, uint64_t frame)
{
    (void)frame;
    ((struct machine *)context)->frames++;
    return 0;
}

static int copy(void *context, uint64_t to, uint64_t from)
{
    (void)from;
    return zero(context, to);
}

static int copy_file(void *context, uint64_t to, uint64_t inode, uint64_t index)
{
    int error = need(context, inode, index);

    return error ? error : zero(context, to);
}

static void free_frame(void *context, uint64_t frame)
{
    (void)frame;
    ((struct machine *)context)->frames--;
}

static int describe_file(void *context, int fd, struct vmarea_file *file)
{
    (void)context;
    *file = (struct vmarea_file){ .id = (uint64_t)fd, .inode = (uint64_t)fd,
                                  .kind = VMAREA_FILE_SHMEM,
                                  .flags = VMAREA_FILE_READABLE | VMAREA_FILE_WRITABLE };
    return 0;
}

static void drop_all(struct machine *machine)
{
    for (int inode = 0; inode < FILES; inode++)
        for (int index = 0; index < PAGES; index++)
            machine->missing[inode][index] = -EAGAIN;
}

static int64_t call(struct machine *machine, uint64_t number, uint64_t c, uint64_t d, uint64_t e)
{
    return vmarea_syscall(machine->space, machine->mm, number, BASE, LEN, c, d, e, 0);
}

static void map(struct machine *machine, int flags, int inode)
{
    EXPECT(call(machine, SYS_mmap, PROT_READ | PROT_WRITE, (uint64_t)(flags | MAP_FIXED),
                (uint64_t)inode), (int64_t)BASE);
}

/* Creates a machine with a mapping of file 1 at BASE and an empty page cache. */
static void begin(struct machine *machine, int flags)
{
    struct vmarea_platform platform = { .size = sizeof platform, .context = machine, .zero = zero,
                                        .copy = copy, .copy_file = copy_file, .free = free_frame,
                                        .file_bring = need, .describe_file = describe_file };
    struct vmarea_options options = { .size = sizeof options, .platform = &platform };

    drop_all(machine);
    machine->frames = 0;
    EXPECT(vmarea_space_create(&options, &machine->space), 0);
    EXPECT(vmarea_mm_create(machine->space, NULL, &machine->mm), 0);
    map(machine, flags, 1);
}

static void end(struct machine *machine)
{
    EXPECT(vmarea_validate(machine->space, NULL, 0), 0);
    EXPECT(vmarea_exit(machine->space, machine->mm), 0);
    EXPECT(machine->frames, 0);
    EXPECT(vmarea_space_destroy(machine->space), 0);
}

static int fault(struct machine *machine, uint64_t addr, uint32_t access)
{
    return vmarea_fault(machine->space, machine->mm, addr, access);
}

static int again(struct machine *machine, uint64_t addr, uint32_t access,
                 const struct vmarea_needed *page)
{
    return vmarea_fault_again(machine->space, machine->mm, addr, access, page->ticket);
}

static int needed(struct machine *machine, uint64_t addr, struct vmarea_needed *page)
{
    return vmarea_needed_page(machine->space, machine->mm, addr, page);
}

/* Faults at an address whose page is missing, and returns which page that is. */
static struct vmarea_needed miss(struct machine *machine, uint64_t addr, uint32_t access)
{
    struct vmarea_needed page = { 0 };

    EXPECT(fault(machine, addr, access), VMAREA_FAULT_NEED_PAGE);
    EXPECT(needed(machine, addr, &page), 0);
    EXPECT(page.inode, 1);
    EXPECT(page.index, (int64_t)((addr - BASE) / PAGE));
    EXPECT(page.ticket != 0, 1);
    EXPECT(machine->frames, 0);
    return page;
}

static void bring(struct machine *machine, const struct vmarea_needed *page)
{
    machine->missing[page->inode][page->index] = 0;
}

static void faults_go_on(void)
{
    static const struct {
        int flags;
        uint32_t access, kind;
    } cases[] = { { MAP_SHARED, VMAREA_READ, VMAREA_PAGE_FILE },
                  { MAP_SHARED, VMAREA_WRITE, VMAREA_PAGE_FILE },
                  { MAP_PRIVATE, VMAREA_READ, VMAREA_PAGE_FILE },
                  { MAP_PRIVATE, VMAREA_WRITE, VMAREA_PAGE_FRAME } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t addr = BASE + 3 * PAGE + 5;
        struct machine machine;
        struct vmarea_page mapped;

        begin(&machine, cases[i].flags);
        struct vmarea_needed page = miss(&machine, addr, cases[i].access);
        /* The page has not come: it is needed still. */
        EXPECT(again(&machine, addr, cases[i].access, &page), VMAREA_FAULT_NEED_PAGE);
        EXPECT(vmarea_page_at(machine.space, machine.mm, addr, &mapped), 0);
        EXPECT(mapped.kind, VMAREA_PAGE_NONE);
        bring(&machine, &page);
        EXPECT(again(&machine, addr, cases[i].access, &page), VMAREA_FAULT_DONE);
        EXPECT(vmarea_page_at(machine.space, machine.mm, addr, &mapped), 0);
        EXPECT(mapped.kind, cases[i].kind);
        if (mapped.kind == VMAREA_PAGE_FILE) {
            EXPECT(mapped.inode, 1);
            EXPECT(mapped.index, 3);
        }
        EXPECT(fault(&machine, addr, cases[i].access), VMAREA_FAULT_SPURIOUS);
        EXPECT(again(&machine, addr, cases[i].access, &page), VMAREA_FAULT_SPURIOUS);
        end(&machine);
    }
}

/* What other threads may do until the page has come. */
enum change { UNMAPPED, FORBIDDEN, LOW_FORBIDDEN, HIGH_FORBIDDEN, MOVED, MAPPED_AGAIN, ANONYMOUS };

static void change(struct machine *machine, enum change change)
{
    switch (change) {
    case UNMAPPED:
        EXPECT(call(machine, SYS_munmap, 0, 0, 0), 0);
        break;
    case FORBIDDEN:
        EXPECT(call(machine, SYS_mprotect, PROT_NONE, 0, 0), 0);
        break;
    case LOW_FORBIDDEN:
    case HIGH_FORBIDDEN:
        EXPECT(vmarea_syscall(machine->space, machine->mm, SYS_mprotect,
                              BASE + (change == HIGH_FORBIDDEN ? LEN / 2 : 0), LEN / 2, PROT_NONE,
                              0, 0, 0), 0);
        break;
    case MOVED:
        EXPECT(call(machine, SYS_mremap, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, BASE + 4 * LEN),
               (int64_t)BASE + 4 * LEN);
        break;
    case MAPPED_AGAIN:
        map(machine, MAP_SHARED, 1);
        break;
    default:
        map(machine, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    }
}

static void stale_tickets(void)
{
    static const struct {
        enum change what;
        int index, needed, answer;
    } cases[] = {
        { UNMAPPED, 0, -ENOENT, VMAREA_FAULT_NO_MAPPING },
        { FORBIDDEN, 0, 0, VMAREA_FAULT_NO_ACCESS },
        { LOW_FORBIDDEN, 0, 0, VMAREA_FAULT_NO_ACCESS },
        { LOW_FORBIDDEN, PAGES - 1, 0, VMAREA_FAULT_DONE },
        { HIGH_FORBIDDEN, 0, 0, VMAREA_FAULT_DONE },
        { HIGH_FORBIDDEN, PAGES - 1, 0, VMAREA_FAULT_NO_ACCESS },
        { MOVED, 0, -ENOENT, VMAREA_FAULT_NO_MAPPING },
        { MAPPED_AGAIN, 0, 0, VMAREA_FAULT_DONE },
        { ANONYMOUS, 0, -ENOENT, VMAREA_FAULT_DONE },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t addr = BASE + (uint64_t)cases[i].index * PAGE;
        struct machine machine;
        struct vmarea_needed other;

        begin(&machine, MAP_SHARED);
        struct vmarea_needed page = miss(&machine, addr, VMAREA_READ);
        bring(&machine, &page);
        change(&machine, cases[i].what);
        EXPECT(needed(&machine, addr, &other), cases[i].needed);
        EXPECT(again(&machine, addr, VMAREA_READ, &page), cases[i].answer);
        end(&machine);
    }
}

/* A page of file 1 is not the page of the file that is now mapped in its place. */
static void another_file(void)
{
    struct machine machine;
    struct vmarea_needed other = { 0 };
    struct vmarea_page mapped;

    begin(&machine, MAP_SHARED);
    struct vmarea_needed page = miss(&machine, BASE, VMAREA_READ);
    bring(&machine, &page);
    map(&machine, MAP_SHARED, 2);
    EXPECT(again(&machine, BASE, VMAREA_READ, &page), VMAREA_FAULT_NEED_PAGE);
    EXPECT(needed(&machine, BASE, &other), 0);
    EXPECT(other.inode, 2);
    EXPECT(other.index, 0);
    EXPECT(other.ticket != page.ticket, 1);
    bring(&machine, &other);
    EXPECT(again(&machine, BASE, VMAREA_READ, &other), VMAREA_FAULT_DONE);
    EXPECT(vmarea_page_at(machine.space, machine.mm, BASE, &mapped), 0);
    EXPECT(mapped.inode, 2);
    end(&machine);
}

/* Reading fails: the fault ends with an error, and a later access tries again. */
static void pages_that_never_come(void)
{
    static const int errors[][2] = { { -EIO, VMAREA_FAULT_NO_PAGE },
                                     { -ENOMEM, VMAREA_FAULT_OUT_OF_MEMORY } };

    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (uint32_t access = VMAREA_READ; access <= VMAREA_WRITE; access++) {
            struct machine machine;

            begin(&machine, MAP_PRIVATE);
            struct vmarea_needed page = miss(&machine, BASE + PAGE, access);
            machine.missing[page.inode][page.index] = errors[i][0];
            EXPECT(again(&machine, BASE + PAGE, access, &page), errors[i][1]);
            EXPECT(fault(&machine, BASE + PAGE, access), errors[i][1]);
            EXPECT(machine.frames, 0);
            EXPECT(vmarea_syscall(machine.space, machine.mm, SYS_madvise, BASE, PAGE,
                                  MADV_POPULATE_READ, 0, 0, 0), -EAGAIN);
            bring(&machine, &page);
            EXPECT(again(&machine, BASE + PAGE, access, &page), VMAREA_FAULT_DONE);
            end(&machine);
        }
}

static void refused_arguments(void)
{
    struct machine machine;
    struct vmarea_needed page, child_page;
    uint64_t child;

    begin(&machine, MAP_SHARED);
    page = miss(&machine, BASE, VMAREA_READ);
    EXPECT(needed(&machine, BASE, NULL), -EFAULT);
    EXPECT(needed(&machine, BASE - 1, &page), -ENOENT);
    EXPECT(needed(&machine, -1ull, &page), -ENOENT);
    EXPECT(vmarea_needed_page(NULL, machine.mm, BASE, &page), -EFAULT);
    EXPECT(vmarea_needed_page(machine.space, 0, BASE, &page), -ESRCH);
    EXPECT(vmarea_fault_again(NULL, machine.mm, BASE, VMAREA_READ, page.ticket), -EFAULT);
    EXPECT(again(&machine, BASE, 3, &page), -EINVAL);
    /* A number that is no ticket, or that of another address space, is a stale one. */
    bring(&machine, &page);
    EXPECT(vmarea_fork(machine.space, machine.mm, &child), 0);
    EXPECT(vmarea_needed_page(machine.space, child, BASE, &child_page), 0);
    EXPECT(child_page.ticket != page.ticket, 1);
    map(&machine, MAP_SHARED, 2);
    EXPECT(again(&machine, BASE, VMAREA_READ, &child_page), VMAREA_FAULT_NEED_PAGE);
    map(&machine, MAP_SHARED, 1);
    for (unsigned bit = 0; bit < 64; bit++) {
        page.ticket = UINT64_C(1) << bit;
        EXPECT(again(&machine, BASE, VMAREA_READ, &page),
               bit ? VMAREA_FAULT_SPURIOUS : VMAREA_FAULT_DONE);
    }
    page.ticket = 0;
    EXPECT(again(&machine, BASE, VMAREA_READ, &page), VMAREA_FAULT_SPURIOUS);
    EXPECT(vmarea_exit(machine.space, child), 0);
    EXPECT(vmarea_needed_page(machine.space, child, BASE, &page), -ESRCH);
    EXPECT(vmarea_fault_again(machine.space, child, BASE, VMAREA_READ, child_page.ticket), -ESRCH);
    end(&machine);
}

struct reader {
    struct machine *machine;
    uint32_t access;
};

static void *read_pages(void *argument)
{
    struct reader *reader = argument;
    struct machine *machine = reader->machine;

    for (int round = 0; round < 2000; round++) {
        uint64_t addr = BASE + (uint64_t)(round % PAGES) * PAGE;
        int result = fault(machine, addr, reader->access);

        while (result == VMAREA_FAULT_NEED_PAGE) {
            struct vmarea_needed page;
            int gone = needed(machine, addr, &page);

            if (gone) {
                EXPECT(gone, -ENOENT);
                result = fault(machine, addr, reader->access);
                continue;
            }
            EXPECT(page.index, round % PAGES);
            bring(machine, &page);
            result = again(machine, addr, reader->access, &page);
        }
        EXPECT(result == VMAREA_FAULT_DONE || result == VMAREA_FAULT_SPURIOUS ||
               result == VMAREA_FAULT_NO_MAPPING, 1);
    }
    return NULL;
}

/* Threads fault and go on while the mapping is replaced and pages leave the page cache. */
static void mappings_change_while_pages_come(void)
{
    struct machine machine;
    struct reader readers[2] = { { &machine, VMAREA_READ }, { &machine, VMAREA_WRITE } };
    pthread_t threads[2];

    begin(&machine, MAP_PRIVATE);
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&threads[i], NULL, read_pages, &readers[i]), 0);
    for (int round = 0; round < 1000; round++) {
        EXPECT(call(&machine, SYS_munmap, 0, 0, 0), 0);
        drop_all(&machine);
        map(&machine, MAP_PRIVATE, 1 + round % 2);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    end(&machine);
}

int main(void)
{
    faults_go_on();
    stale_tickets();
    another_file();
    pages_that_never_come();
    refused_arguments();
    mappings_change_while_pages_come();
    return failures != 0;
}
