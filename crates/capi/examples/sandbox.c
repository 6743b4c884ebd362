/*
 * A sandbox whose host brings the pages: vmarea decides what is mapped where, and the host maps it.
 *
 * Memory calls of the guest go to vmarea_syscall; vmarea tells which ranges that changed, and the sandbox makes
 * the same changes with the host's calls. The guest loads and stores directly, so vmarea never sees a fault.
 * Shared memory is a memfd, which is closed when its last mapping has gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vmarea.h>

enum { PAGE = 4096, PAGES = 64, FILES = 4096 };
static const uint64_t WINDOW = 0x40000000, NAMELESS = (uint64_t)1 << 62;

struct sandbox {
    struct vmarea_space *space;
    uint64_t mm;
    int memfd[FILES], open;
};

#define must(works, what) ((works) ? (void)0 : (perror(what), exit(1)))

/* Makes a change in the host. A change cannot fail: a sandbox without memory ends. */
static void changed(void *context, uint64_t mm, const struct vmarea_change *change)
{
    struct sandbox *sandbox = context;
    char *at = (char *)change->start;
    size_t length = change->end - change->start;
    int flags = MAP_FIXED_NOREPLACE | MAP_NORESERVE | (change->shared ? MAP_SHARED : MAP_PRIVATE);
    int fd = change->has_file ? sandbox->memfd[change->inode - NAMELESS] : -1;

    (void)mm;
    switch (change->kind) {
    case VMAREA_CHANGE_MAPPED:
        must(mmap(at, length, (int)change->prot, flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd,
                  (off_t)(change->index * PAGE)) == at, "mmap");
        break;
    case VMAREA_CHANGE_UNMAPPED:
        must(!munmap(at, length), "munmap");
        break;
    case VMAREA_CHANGE_PROTECTED:
        must(!mprotect(at, length, (int)change->prot), "mprotect");
        break;
    case VMAREA_CHANGE_MOVED: /* page by page, because one mapping of vmarea may be several of the host */
        for (size_t page = 0; page < length; page += PAGE)
            must(mremap(at + page, PAGE, PAGE, 3 /* to this address */, change->to + page) != MAP_FAILED, "mremap");
        break;
    case VMAREA_CHANGE_EMPTIED:
        must(!madvise(at, length, MADV_DONTNEED), "madvise");
        break;
    }
}

static int shared_anon(void *context, uint64_t inode, uint64_t pages)
{
    int fd = inode - NAMELESS < FILES ? memfd_create("guest", 0) : -1;

    if (fd < 0 || ftruncate(fd, (off_t)(pages * PAGE)))
        return -ENOMEM;
    ((struct sandbox *)context)->memfd[inode - NAMELESS] = fd;
    return ((struct sandbox *)context)->open++, 0;
}

static void file_released(void *context, uint64_t inode)
{
    close(((struct sandbox *)context)->memfd[inode - NAMELESS]);
    ((struct sandbox *)context)->open--;
}

/* Only calls that fault pages in would need these. */
static int zero(void *c, uint64_t frame) { return (void)c, (void)frame, -ENOMEM; }
static int copy(void *c, uint64_t to, uint64_t from) { return (void)c, (void)to, (void)from, -ENOMEM; }
static int copy_file(void *c, uint64_t to, uint64_t i, uint64_t n) { return (void)i, (void)n, copy(c, to, 0); }
static void free_frame(void *c, uint64_t frame) { (void)c, (void)frame; }

static int64_t call(struct sandbox *s, uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return vmarea_syscall(s->space, s->mm, number, a, b, c, d, e, 0);
}

/* Counts the pages of the window that the host and vmarea do not map alike. */
static int differences(struct sandbox *sandbox)
{
    char host[PAGES][5] = { "" }, guest[PAGES][5] = { "" }, line[512], prot[5];
    struct vmarea_mapping maps[PAGES];
    unsigned long start, end;
    int64_t count = vmarea_maps(sandbox->space, sandbox->mm, WINDOW, maps, PAGES);
    FILE *list = fopen("/proc/self/maps", "r");
    int wrong = 0;

    while (list && fgets(line, sizeof line, list))
        if (sscanf(line, "%lx-%lx %4s", &start, &end, prot) == 3 && start >= WINDOW)
            for (; start < end && start < WINDOW + PAGES * PAGE; start += PAGE)
                strcpy(host[(start - WINDOW) / PAGE], prot);
    must(list && !fclose(list), "/proc/self/maps");
    for (int64_t i = 0; i < count; i++)
        for (start = maps[i].start; start < maps[i].end; start += PAGE)
            for (int bit = 0; bit < 4; bit++)
                guest[(start - WINDOW) / PAGE][bit] = (maps[i].flags >> bit & 1 ? "rwxs" : "---p")[bit];
    for (int page = 0; page < PAGES; page++)
        wrong += strcmp(host[page], guest[page]) != 0;
    return wrong;
}

int main(void)
{
    static struct sandbox sandbox;
    struct vmarea_platform platform = { .size = sizeof platform, .context = &sandbox, .zero = zero, .copy = copy,
                                        .copy_file = copy_file, .free = free_frame, .shared_anon = shared_anon,
                                        .file_released = file_released };
    struct vmarea_changes changes = { .size = sizeof changes, .context = &sandbox, .changed = changed };
    struct vmarea_options options = { .size = sizeof options, .platform = &platform, .changes = &changes };
    int wrong = 0;

    must(!vmarea_space_create(&options, &sandbox.space) && !vmarea_mm_create(sandbox.space, NULL, &sandbox.mm),
         "space_create");

    /* The guest stores to four pages, moves them and reads them. */
    call(&sandbox, SYS_mmap, WINDOW, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, 0);
    strcpy((char *)WINDOW + PAGE, "moved by the guest");
    call(&sandbox, SYS_mremap, WINDOW, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, WINDOW + 20 * PAGE);
    puts((char *)WINDOW + 21 * PAGE);

    for (int i = 0; i < 5000; i++) {
        static const uint64_t calls[] = { SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise };
        uint64_t number = calls[rand() % 5], from = (uint64_t)rand() % PAGES, to = (uint64_t)rand() % PAGES;
        uint64_t length = 1 + (uint64_t)rand() % (PAGES - from), grown = 1 + (uint64_t)rand() % (PAGES - to);
        uint64_t flags = (rand() % 2 ? MAP_PRIVATE : MAP_SHARED) | MAP_FIXED | MAP_ANONYMOUS;
        uint64_t third = number == SYS_mremap ? grown * PAGE : number == SYS_madvise ? 4 : (uint64_t)rand() % 8;

        if (number == SYS_mremap)
            flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        call(&sandbox, number, WINDOW + from * PAGE, length * PAGE, third, flags, WINDOW + to * PAGE);
        wrong += differences(&sandbox);
    }
    must(!vmarea_exit(sandbox.space, sandbox.mm) && !vmarea_space_destroy(sandbox.space), "exit");
    printf("%d pages differed, %d files are open at the end\n", wrong, sandbox.open);
    return 0;
}
