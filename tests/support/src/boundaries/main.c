// Creates exactly N boundaries of one kind, prints their range, and waits.
//
// usage: boundaries CASE N FOLDER
// Prints `PID START END COUNT` (addresses hexadecimal) and waits for the end of standard input; exits with
// 77 if this kernel or user cannot create the case. COUNT is N, except for mappings that exist only once in
// a process. There is free space around the range, except for the stack, the heap and the kernel's mappings.
#include "range.h"

#include "attributes.h"

// parts that are committed and written separately, then the parts between them
static void anon_vma_committed(void) {
    used = 2 * (n + 1) * PAGE;
    map(at, used, PROT_NONE, ANON, -1, 0);
    for (long i = 0; i <= n; i++) {
        must(mprotect(at + 2 * i * PAGE, PAGE, RW) == 0, "mprotect");
        touch(at + 2 * i * PAGE);
    }
    for (long i = 0; i <= n; i++) must(mprotect(at + (2 * i + 1) * PAGE, PAGE, RW) == 0, "mprotect");
}
static void anon_vma_mapped(void) {
    used = 2 * (n + 1) * PAGE;
    for (long i = 0; i <= n; i++) touch(map(at + 2 * i * PAGE, PAGE, RW, ANON, -1, 0));
    for (long i = 0; i <= n; i++) map(at + (2 * i + 1) * PAGE, PAGE, RW, ANON, -1, 0);
}
// written separately and moved next to each other: page offsets also differ, but anon_vmas are compared first
static void anon_vma_moved(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++) {
        char *far = mmap(0, 3 * PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
        must(far != MAP_FAILED, "mmap");
        must(mprotect(far + PAGE, PAGE, RW) == 0, "mprotect");
        touch(far + PAGE);
        must(mremap(far + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + i * PAGE) != MAP_FAILED, "mremap");
    }
}
static void page_offset(void) {
    used = (n + 1) * PAGE;
    char *far = mmap(0, used, RW, ANON, -1, 0);
    must(far != MAP_FAILED, "mmap");
    must(madvise(far, used, MADV_NOHUGEPAGE) == 0 || errno == EINVAL, "madvise");
    for (long i = 0; i <= n; i++) touch(far + i * PAGE);
    for (long i = 0; i <= n; i++)
        must(mremap(far + i * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + (n - i) * PAGE) != MAP_FAILED, "mremap");
}
static void page_offset_read_only(void) {
    page_offset();
    must(mprotect(at, used, PROT_READ) == 0, "mprotect");
}
// inherited pages of a child next to untouched pages
static void anon_vma_inherited(void) {
    advised(MADV_DONTDUMP, "MADV_DONTDUMP");
    for (long i = 0; i <= n; i += 2) touch(at + i * PAGE);
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child > 0) {
        int status;
        must(waitpid(child, &status, 0) == child, "waitpid");
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    for (long i = 1; i <= n; i += 2) must(madvise(at + i * PAGE, PAGE, MADV_DODUMP) == 0, "madvise");
}
static void special_perf(void) {
    used = (n + 1) * 2 * PAGE;
    for (long i = 0; i <= n; i++) {
        struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1};
        int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
        if (fd < 0) skip("perf_event_open");
        if (mmap(at + i * 2 * PAGE, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) skip("mmap of perf");
    }
}
// rings of packet sockets, whose pages a driver has inserted one by one
static void special_socket(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++) {
        int fd = socket(AF_PACKET, SOCK_RAW, 0);
        struct tpacket_req ring = {.tp_block_size = PAGE, .tp_block_nr = 1, .tp_frame_size = PAGE, .tp_frame_nr = 1};
        if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring)) skip("AF_PACKET");
        map(at + i * PAGE, PAGE, RW, MAP_SHARED, fd, 0);
    }
}
static void close_hook_sysv(void) {
    used = (n + 1) * PAGE;
    int id = shmget(IPC_PRIVATE, used, 0600 | IPC_CREAT);
    if (id < 0) skip("shmget");
    must(shmat(id, at, 0) == at, "shmat");
    shmctl(id, IPC_RMID, 0);
    for (long i = 1; i <= n; i += 2) {
        must(mprotect(at + i * PAGE, PAGE, PROT_READ) == 0, "mprotect");
        must(mprotect(at + i * PAGE, PAGE, RW) == 0, "mprotect");
    }
}
static void name_set(void) {
    plain(RW);
    for (long i = 1; i <= n; i += 2)
        if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at + i * PAGE, PAGE, "piece")) skip("PR_SET_VMA");
}
static void policy_bound(void) {
    plain(RW);
    unsigned long node = 1;
    for (long i = 1; i <= n; i += 2)
        if (syscall(SYS_mbind, at + i * PAGE, PAGE, 2 /* MPOL_BIND */, &node, 64, 0)) skip("mbind");
}
// each page has a memory policy, and neighbours have different ones
static void policy_modes(void) {
    plain(RW);
    unsigned long node = 1;
    for (long i = 0; i <= n; i++)
        if (syscall(SYS_mbind, at + i * PAGE, PAGE, i % 2 ? 2 /* MPOL_BIND */ : 3 /* MPOL_INTERLEAVE */, &node, 64, 0))
            skip("mbind");
}
static void pkey_flags(void) {
    plain(RW);
    int key = syscall(SYS_pkey_alloc, 0, 0);
    if (key < 0) skip("pkey_alloc");
    for (long i = 1; i <= n; i += 2)
        if (syscall(SYS_pkey_mprotect, at + i * PAGE, PAGE, RW, key)) skip("pkey_mprotect");
}

static void flags_growsdown(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, RW, ANON | (i % 2 ? 0 : MAP_GROWSDOWN), -1, 0);
}
static void locked_on_fault(long first) {
    plain(RW);
    for (long i = first; i <= n; i += 2)
        if (syscall(SYS_mlock2, at + i * PAGE, PAGE, 1 /* MLOCK_ONFAULT */)) skip("mlock2");
}
static void flags_locked_on_fault(void) {
    locked_on_fault(1);
    for (long i = 0; i <= n; i += 2)
        if (mlock(at + i * PAGE, PAGE)) skip("mlock");
}
static void flags_droppable(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++) {
        int kind = i % 2 ? 8 /* MAP_DROPPABLE */ : MAP_PRIVATE | MAP_NORESERVE;
        void *got = mmap(at + i * PAGE, PAGE, RW, kind | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (got == MAP_FAILED) skip("MAP_DROPPABLE");
    }
}
// the heap, page by page
static void heap(int advice, int prot) {
    sbrk(-(uintptr_t)sbrk(0) & (PAGE - 1));
    used = (n + 1) * PAGE;
    // A margin on both sides, so that the ends of the range do not count as boundaries of the case.
    sbrk(PAGE);
    at = sbrk(used + PAGE);
    must(at != (char *)-1, "sbrk");
    for (long i = 1; i <= n; i += 2)
        must(prot ? mprotect(at + i * PAGE, PAGE, prot) == 0 : madvise(at + i * PAGE, PAGE, advice) == 0, "heap");
}
static void heap_flags(void) { heap(MADV_DONTFORK, 0); }
static void heap_protection(void) { heap(0, PROT_READ); }
// pages of the stack, far below its top
static void stack(int advice, int prot) {
    used = (n + 1) * PAGE;
    char *deep = __builtin_alloca(used + 64 * PAGE);
    memset(deep, 1, used + 64 * PAGE);
    at = (char *)(((uintptr_t)deep + 32 * PAGE) & -PAGE);
    for (long i = 1; i <= n; i += 2)
        must(prot ? mprotect(at + i * PAGE, PAGE, prot) == 0 : madvise(at + i * PAGE, PAGE, advice) == 0, "stack");
}
static void report(void);
static void stack_flags(void) {
    stack(MADV_DONTFORK, 0);
    report();
}
static void stack_protection(void) {
    stack(0, PROT_READ);
    report();
}
// mappings that the kernel creates in every process: its data pages and its code
static void special_vdso(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    must(maps != 0, "maps");
    char line[512];
    char *first = 0, *end = 0;
    n = -1;
    while (fgets(line, sizeof line, maps)) {
        if (!strstr(line, "[vdso]") && !strstr(line, "[vvar")) continue;
        unsigned long low, high;
        must(sscanf(line, "%lx-%lx", &low, &high) == 2, "a line");
        if (end && end != (char *)low) continue;
        if (!first) first = (char *)low;
        end = (char *)high;
        n++;
    }
    fclose(maps);
    if (n < 1) skip("no vdso");
    at = first;
    used = end - first;
}
static void special_hugetlb(void) {
    const unsigned long huge = 2ul << 20;
    used = (n + 1) * huge;
    char *space = mmap(0, used + 3 * huge, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    must(space != MAP_FAILED, "mmap");
    at = (char *)(((uintptr_t)space + 2 * huge) & -huge);
    must(munmap(space, used + 3 * huge) == 0, "munmap");
    for (long i = 0; i <= n; i++) {
        // Without reservation, no huge page needs to be available.
        int flags = ANON | MAP_HUGETLB | MAP_NORESERVE | MAP_FIXED;
        if (mmap(at + i * huge, huge, RW, flags, -1, 0) == MAP_FAILED) skip("MAP_HUGETLB");
    }
}
// each page comes from a separate open of /dev/zero, but is anonymous memory
static void file_dev_zero(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++) {
        int fd = open("/dev/zero", O_RDWR);
        must(fd >= 0, "/dev/zero");
        map(at + i * PAGE, PAGE, RW, MAP_PRIVATE, fd, i * PAGE);
    }
}
// written pages of a private file mapping, so that they have separate anon_vmas
static void anon_vma_file(void) {
    used = 2 * (n + 1) * PAGE;
    int fd = file("written", 0, used);
    for (long i = 0; i <= n; i++) touch(map(at + 2 * i * PAGE, PAGE, RW, MAP_PRIVATE, fd, 2 * i * PAGE));
    for (long i = 0; i <= n; i++) map(at + (2 * i + 1) * PAGE, PAGE, RW, MAP_PRIVATE, fd, (2 * i + 1) * PAGE);
}
// a running child shares the parent's pages
static void anon_vma_shared_with_child(void) {
    anon_vma_committed();
    int way[2];
    must(pipe(way) == 0, "pipe");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child > 0) {
        close(way[0]);
        return;
    }
    close(way[1]);
    // Ends with its parent, which holds the other end of the pipe.
    must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
    close(0), close(1);
    char byte;
    while (read(way[0], &byte, 1) > 0) {
    }
    _exit(0);
}
// A fork clears locks, so the child has neighbours that could be merged.
static void nothing_after_fork(void) {
    locked_on_fault(1);
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child > 0) {
        int status;
        must(waitpid(child, &status, 0) == child, "waitpid");
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
}
// markers in the page table create no boundary
static void none_guard_markers(void) {
    plain(RW);
    for (long i = 1; i <= n; i += 2)
        if (madvise(at + i * PAGE, PAGE, 102 /* MADV_GUARD_INSTALL */)) skip("MADV_GUARD_INSTALL");
    n = 0;
}

// Mappings of several habits next to each other, so that one repair allows or prevents another: written
// separately, some not inherited by children, with guards between some of them, and released reservations.
static void several_habits(void) {
    used = 8 * (n + 1) * PAGE;
    map(at, used, PROT_NONE, ANON, -1, 0);
    for (long i = 0; i <= n; i++) {
        char *p = at + 8 * i * PAGE;
        must(mprotect(p, 2 * PAGE, RW) == 0, "mprotect");
        touch(p);
        if (i % 3 == 0) must(madvise(p, 2 * PAGE, MADV_DONTFORK) == 0, "madvise");
    }
    for (long i = 0; i <= n; i++) {
        char *p = at + (8 * i + 2) * PAGE;
        // a guard after one in four, a reservation that was used after another
        must(mprotect(p + (i % 4 == 0) * PAGE, (6 - (i % 4 == 0)) * PAGE, RW) == 0, "mprotect");
        if (i % 4 == 1) must(mprotect(p, 6 * PAGE, PROT_NONE) == 0, "mprotect");
        if (i % 4 == 2) touch(p + 5 * PAGE);
    }
}

// N is a seed: pages of many kinds in any order, so that a list has all pairs of neighbours
static unsigned long below(unsigned long most) {
    static unsigned long state;
    if (!state) state = n + 1;
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (state >> 33) % most;
}
static void random_layout(void) {
    static const int advice[] = {MADV_DONTFORK, MADV_DOFORK,    MADV_DONTDUMP,   MADV_DODUMP,   MADV_HUGEPAGE,
                                 MADV_RANDOM,   MADV_WIPEONFORK, MADV_MERGEABLE, MADV_DONTNEED, MADV_NORMAL};
    enum { PAGES = 160 };
    used = PAGES * PAGE;
    map(at, used, RW, ANON, -1, 0);
    int shared = file("random", n, used), zero = open("/dev/zero", O_RDONLY);
    must(zero >= 0, "/dev/zero");
    for (int step = 0; step < 150; step++) {
        unsigned long first = below(PAGES - 8), len = (1 + below(8)) * PAGE;
        char *p = at + first * PAGE, *from;
        // A refused call changes nothing, and any layout is acceptable.
        switch (below(14)) {
        case 0: mprotect(p, len, PROT_NONE); break;
        case 1: mprotect(p, len, PROT_READ); break;
        case 2: mprotect(p, len, RW); break;
        case 3: madvise(p, len, advice[below(sizeof advice / sizeof *advice)]); break;
        case 4: map(p, len, RW, ANON | (below(2) ? MAP_NORESERVE : 0), -1, 0); break;
        case 5: map(p, len, PROT_NONE, ANON | MAP_NORESERVE, -1, 0); break;
        case 6: map(p, len, RW, below(2) ? MAP_SHARED : MAP_PRIVATE, shared, first * PAGE); break;
        case 7:
            from = mmap(0, len, RW, ANON, -1, 0);
            must(from != MAP_FAILED, "mmap");
            touch(from);
            must(mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p, "mremap");
            break;
        case 8:
            if (below(3) == 0) munmap(p, len);
            break;
        case 9:
            if (below(3) == 0) mlock(p, PAGE);
            break;
        case 10:
            if (below(3) == 0) prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, len, "random");
            break;
        default:
            // Writes to the page if it is writable; fails instead of killing the process.
            if (read(zero, p, len) < 0) must(errno == EFAULT, "read");
        }
    }
}

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    void (*make)(void);
} cases[] = {
    CASE(gap), CASE(protection_read), CASE(protection_exec), CASE(protection_uncharged),
    CASE(protection_reserve), CASE(protection_shared), CASE(guard_protected), CASE(guard_reserved),
    CASE(guard_touched_apart), CASE(several_habits), CASE(random_layout),
    CASE(flags_dontfork), CASE(flags_dontdump), CASE(flags_hugepage), CASE(flags_nohugepage),
    CASE(flags_mergeable), CASE(flags_wipeonfork), CASE(flags_random), CASE(flags_sequential),
    CASE(flags_locked), CASE(flags_noreserve), CASE(flags_sealed), CASE(flags_decommitted),
    CASE(flags_file_once_writable), CASE(flags_file_random), CASE(flags_shared_private),
    CASE(flags_userfaultfd), CASE(userfaultfd_contexts), CASE(file_different),
    CASE(file_opened_twice_private), CASE(file_opened_twice_shared), CASE(file_and_anonymous),
    CASE(file_shared_anonymous), CASE(file_deleted), CASE(file_offset), CASE(file_offset_memfd),
    CASE(anon_vma_committed), CASE(anon_vma_mapped), CASE(anon_vma_moved), CASE(anon_vma_inherited),
    CASE(page_offset), CASE(page_offset_read_only), CASE(special_perf), CASE(special_socket), CASE(close_hook_sysv),
    CASE(name_set), CASE(policy_bound), CASE(policy_modes), CASE(pkey_flags),
    CASE(flags_growsdown), CASE(flags_locked_on_fault), CASE(flags_droppable), CASE(heap_flags),
    CASE(heap_protection), CASE(stack_flags), CASE(stack_protection), CASE(special_vdso),
    CASE(special_hugetlb), CASE(file_dev_zero), CASE(anon_vma_file), CASE(anon_vma_shared_with_child),
    CASE(nothing_after_fork), CASE(none_guard_markers),
};

static void report(void) {
    printf("%d %lx %lx %ld\n", getpid(), (long)at, (long)(at + used), n);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    exit(0);
}

int main(int argc, char **argv) {
    must(argc == 4, "usage: boundaries CASE N FOLDER");
    n = atol(argv[2]);
    folder = argv[3];
    // Free space around the range: reserved while the place is chosen, then released.
    unsigned long space = (8 * n + 512) * PAGE;
    char *reserved = mmap(0, space, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
    must(reserved != MAP_FAILED, "mmap");
    at = reserved + 64 * PAGE;
    must(munmap(reserved, space) == 0, "munmap");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1])) continue;
        cases[i].make();
        report();
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 1;
}
