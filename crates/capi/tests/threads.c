/*
 * Threads of an emulator that map, store, protect and unmap in one address space and in its forks
 * at the same time, on memory with real bytes.
 *
 * Each thread has a TLB, which only `flush` empties, so a frame that is freed or copied too early
 * is a use after free or a data race. Each page holds the name of its owner, and each thread
 * checks that its own pages have its own bytes.
 *
 * Prints nothing if everything is as expected.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <vmarea.h>

enum {
    PAGE = 4096,
    WORDS = PAGE / sizeof(uint64_t),
    TASK_PAGES = 1024, /* size of an address space */
    PAGES = 8,         /* of an arena, in which only one thread maps */
    PARENTS = 3,       /* threads in the first address space */
    CHILDREN = 2,      /* threads in a fork of it */
    FORKING = PARENTS + CHILDREN, /* the thread that forks */
    OBSERVER,                     /* its second processor */
    SPY,                          /* a thread that reads the others' arenas */
    THREADS,
    ROUNDS = 150,
    FORKS = 12,
    FRAMES = 1 << 16,
    PROCESSES = 4,
    TLB = 16,
};

#define ARENA(owner) ((uint64_t)(64 + (owner) * PAGES) * PAGE)

/* The name of the owner in the words of a page. */
#define OWNER(owner) ((uint64_t)((owner) + 1) << 56)

static atomic_int failures;

#define EXPECT(expression, expected)                                                               \
    do {                                                                                           \
        long long got = (expression), want = (expected);                                           \
        if (got != want) {                                                                         \
            printf("line %d: %s is %lld, not %lld\n", __LINE__, #expression, got, want);           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* A translation, in a page table or in a TLB. */
struct entry {
    uint64_t mm, page;
    const uint64_t *zeros; /* the zero page, or NULL */
    uint64_t *bytes;       /* a frame, or NULL */
    uint32_t prot;
};

/* A page table. Its `mm` is 0 while no address space uses it. */
struct process {
    pthread_mutex_t lock;
    _Atomic uint64_t mm;
    struct entry entries[TASK_PAGES];
};

struct tlb {
    pthread_mutex_t lock;
    struct entry entries[TLB];
};

static struct vmarea_space *space;
static struct process processes[PROCESSES];
static struct tlb tlbs[THREADS];
static uint64_t *frames[FRAMES];
static atomic_int frames_in_use;
static const uint64_t zeros[WORDS];

/* The callbacks: frames. */

static int zero(void *context, uint64_t frame)
{
    (void)context;
    if (frame >= FRAMES || !(frames[frame] = calloc(1, PAGE)))
        return -ENOMEM;
    atomic_fetch_add_explicit(&frames_in_use, 1, memory_order_relaxed);
    return 0;
}

static int copy(void *context, uint64_t to, uint64_t from)
{
    int error = zero(context, to);

    if (!error)
        memcpy(frames[to], frames[from], PAGE);
    return error;
}

static int copy_file(void *context, uint64_t to, uint64_t inode, uint64_t index)
{
    (void)inode, (void)index;
    return zero(context, to);
}

static void free_frame(void *context, uint64_t frame)
{
    (void)context;
    memset(frames[frame], 0xdd, PAGE);
    free(frames[frame]);
    frames[frame] = NULL;
    atomic_fetch_sub_explicit(&frames_in_use, 1, memory_order_relaxed);
}

/* The callbacks: page tables and TLBs. */

static struct process *process_of(uint64_t mm)
{
    for (struct process *process = processes; process < processes + PROCESSES; process++)
        if (atomic_load_explicit(&process->mm, memory_order_relaxed) == mm)
            return process;
    printf("no page table of address space %llx\n", (unsigned long long)mm);
    abort();
}

static int mm_created(void *context, uint64_t mm)
{
    (void)context;
    for (struct process *process = processes; process < processes + PROCESSES; process++) {
        uint64_t unused = 0;

        if (atomic_compare_exchange_strong_explicit(&process->mm, &unused, mm, memory_order_relaxed,
                                                    memory_order_relaxed))
            return 0;
    }
    return -ENOMEM;
}

static void mm_gone(void *context, uint64_t mm)
{
    struct process *process = process_of(mm);

    (void)context;
    pthread_mutex_lock(&process->lock);
    for (int page = 0; page < TASK_PAGES; page++)
        EXPECT(process->entries[page].prot, 0);
    pthread_mutex_unlock(&process->lock);
    atomic_store_explicit(&process->mm, 0, memory_order_relaxed);
}

static int set_entry(void *context, uint64_t mm, uint64_t addr, const struct vmarea_page *to)
{
    struct process *process = process_of(mm);
    uint64_t page = addr / PAGE;
    struct entry entry = { .mm = mm, .page = page, .prot = to->prot };

    (void)context;
    if (to->kind == VMAREA_PAGE_FRAME)
        entry.bytes = frames[to->frame];
    else
        entry.zeros = zeros;
    pthread_mutex_lock(&process->lock);
    process->entries[page] = entry;
    pthread_mutex_unlock(&process->lock);
    return 0;
}

static void restrict_to(uint64_t mm, uint64_t start, uint64_t end, uint32_t prot)
{
    struct process *process = process_of(mm);

    pthread_mutex_lock(&process->lock);
    for (uint64_t page = start / PAGE; page < end / PAGE && page < TASK_PAGES; page++)
        process->entries[page].prot &= prot;
    pthread_mutex_unlock(&process->lock);
}

static void clear(void *context, uint64_t mm, uint64_t start, uint64_t end)
{
    (void)context;
    restrict_to(mm, start, end, 0);
}

static void protect(void *context, uint64_t mm, uint64_t start, uint64_t end, uint32_t prot)
{
    (void)context;
    restrict_to(mm, start, end, prot);
}

static void flush(void *context, uint64_t mm, uint64_t start, uint64_t end)
{
    (void)context;
    for (struct tlb *tlb = tlbs; tlb < tlbs + THREADS; tlb++) {
        pthread_mutex_lock(&tlb->lock);
        for (struct entry *entry = tlb->entries; entry < tlb->entries + TLB; entry++)
            if (entry->mm == mm && entry->page >= start / PAGE && entry->page < end / PAGE)
                entry->prot = 0;
        pthread_mutex_unlock(&tlb->lock);
    }
}

/* The processors. */

struct thread {
    uint64_t mm;
    int owner; /* of an arena and of a TLB */
};

/* Loads or stores the word at `addr` if the TLB has the page. */
static int hit(struct tlb *tlb, uint64_t mm, uint64_t addr, uint32_t access, uint64_t *word)
{
    struct entry *entry = &tlb->entries[addr / PAGE % TLB];
    uint64_t at = addr % PAGE / sizeof *word;

    if (entry->mm != mm || entry->page != addr / PAGE ||
        !(entry->prot & (access == VMAREA_WRITE ? PROT_WRITE : PROT_READ)))
        return 0;
    if (access == VMAREA_WRITE)
        __atomic_store_n(&entry->bytes[at], *word, __ATOMIC_RELAXED);
    else
        *word = entry->bytes ? __atomic_load_n(&entry->bytes[at], __ATOMIC_RELAXED)
                             : entry->zeros[at];
    return 1;
}

/* Copies the entry of a page to the TLB, and loads or stores the word if it allows that. */
static int walk(struct tlb *tlb, uint64_t mm, uint64_t addr, uint32_t access, uint64_t *word)
{
    struct process *process = process_of(mm);
    int done;

    pthread_mutex_lock(&process->lock);
    pthread_mutex_lock(&tlb->lock);
    tlb->entries[addr / PAGE % TLB] = process->entries[addr / PAGE];
    done = hit(tlb, mm, addr, access, word);
    pthread_mutex_unlock(&tlb->lock);
    pthread_mutex_unlock(&process->lock);
    return done;
}

/* Loads or stores a word. Returns 0, or the result of the fault that stopped the program. */
static int touch(const struct thread *thread, uint64_t addr, uint32_t access, uint64_t *word)
{
    struct tlb *tlb = &tlbs[thread->owner];

    for (int attempt = 0; attempt < 1000; attempt++) {
        pthread_mutex_lock(&tlb->lock);
        int done = hit(tlb, thread->mm, addr, access, word);
        pthread_mutex_unlock(&tlb->lock);
        if (done || walk(tlb, thread->mm, addr, access, word))
            return 0;
        int fault = vmarea_fault(space, thread->mm, addr, access);
        if (fault != VMAREA_FAULT_DONE && fault != VMAREA_FAULT_SPURIOUS &&
            fault != VMAREA_FAULT_RETRY)
            return fault;
    }
    return VMAREA_FAULT_RETRY;
}

static void store(const struct thread *thread, uint64_t addr, uint64_t value)
{
    EXPECT(touch(thread, addr, VMAREA_WRITE, &value), 0);
    EXPECT(touch(thread, addr + PAGE - sizeof value, VMAREA_WRITE, &value), 0);
}

static void expect(const struct thread *thread, uint64_t addr, uint64_t value)
{
    uint64_t first = ~value, last = ~value;

    EXPECT(touch(thread, addr, VMAREA_READ, &first), 0);
    EXPECT(touch(thread, addr + PAGE - sizeof value, VMAREA_READ, &last), 0);
    EXPECT((long long)first, (long long)value);
    EXPECT((long long)last, (long long)value);
}

static int64_t call(const struct thread *thread, uint64_t number, uint64_t addr, uint64_t pages,
                    uint64_t c, uint64_t d)
{
    return vmarea_syscall(space, thread->mm, number, addr, pages * PAGE, c, d, (uint64_t)-1, 0);
}

/* Maps pages of zeros, stores to them, protects the middle, and unmaps everything again. */
static void use_memory(const struct thread *thread, uint64_t addr, uint64_t value)
{
    const uint64_t middle = addr + 2 * PAGE, both = PROT_READ | PROT_WRITE;
    uint64_t word = 0;

    for (uint64_t page = 0; page < PAGES; page++) {
        expect(thread, addr + page * PAGE, 0);
        store(thread, addr + page * PAGE, value + page);
    }
    EXPECT(call(thread, SYS_mprotect, middle, 2, PROT_READ, 0), 0);
    EXPECT(touch(thread, middle, VMAREA_WRITE, &word), VMAREA_FAULT_NO_ACCESS);
    for (uint64_t page = 0; page < PAGES; page++)
        expect(thread, addr + page * PAGE, value + page);
    EXPECT(call(thread, SYS_mprotect, middle, 2, both, 0), 0);
    store(thread, middle, value);
    expect(thread, middle, value);
    EXPECT(call(thread, SYS_madvise, middle + PAGE, 1, MADV_DONTNEED, 0), 0);
    expect(thread, middle + PAGE, 0);
    for (uint64_t page = 4; page < PAGES; page++)
        expect(thread, addr + page * PAGE, value + page);
    EXPECT(call(thread, SYS_munmap, addr, PAGES, 0, 0), 0);
}

/* Works in the thread's arena, and where the address space has room. */
static void *run(void *argument)
{
    const struct thread *thread = argument;
    const uint64_t arena = ARENA(thread->owner), both = PROT_READ | PROT_WRITE;
    uint64_t word;

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t value = OWNER(thread->owner) | (thread->mm & 0xffff) << 32 | round << 16;
        int64_t anywhere;

        EXPECT(call(thread, SYS_mmap, arena, PAGES, both,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE), (int64_t)arena);
        use_memory(thread, arena, value);
        EXPECT(touch(thread, arena, VMAREA_READ, &word), VMAREA_FAULT_NO_MAPPING);
        anywhere = call(thread, SYS_mmap, 0, PAGES, both, MAP_PRIVATE | MAP_ANONYMOUS);
        EXPECT(anywhere > 0, 1);
        use_memory(thread, (uint64_t)anywhere, value + PAGE);
    }
    return NULL;
}

static void start(pthread_t *id, void *(*what)(void *), struct thread *thread)
{
    if (pthread_create(id, NULL, what, thread))
        abort();
}

/* In the eyes of another thread, and in a child, the pages of a thread have its bytes, or none yet. */
static void expect_owners(const struct thread *thread)
{
    for (int owner = 0; owner < PARENTS; owner++)
        for (uint64_t page = 0; page < PAGES; page++) {
            uint64_t word = 0;
            int stopped = touch(thread, ARENA(owner) + page * PAGE, VMAREA_READ, &word);

            EXPECT(stopped == 0 || stopped == VMAREA_FAULT_NO_MAPPING, 1);
            EXPECT(word == 0 || word >> 56 == OWNER(owner) >> 56, 1);
        }
}

static atomic_int finished;

static void *spy(void *argument)
{
    while (!atomic_load_explicit(&finished, memory_order_relaxed))
        expect_owners(argument);
    return NULL;
}

/* Forks while the parent's threads run, and runs threads in the child. What the parent stored in
 * its arena before the fork is the child's, too, until one of them stores again. */
static void forks(const struct thread *parent)
{
    const struct thread observer = { .mm = parent->mm, .owner = OBSERVER };
    const uint64_t addr = ARENA(parent->owner);

    EXPECT(call(parent, SYS_mmap, addr, 2, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED), (int64_t)addr);
    for (uint64_t round = 1; round <= FORKS; round++) {
        struct thread children[CHILDREN];
        pthread_t ids[CHILDREN];
        uint64_t child;

        store(parent, addr, round);
        store(parent, addr + PAGE, round);
        EXPECT(vmarea_fork(space, parent->mm, &child), 0);
        for (int i = 0; i < CHILDREN; i++) {
            children[i] = (struct thread){ .mm = child, .owner = PARENTS + i };
            start(&ids[i], run, &children[i]);
        }
        expect(&observer, addr, round);
        store(parent, addr, ~round);
        expect(&observer, addr, ~round);
        struct thread here = { .mm = child, .owner = parent->owner };
        expect(&here, addr, round);
        expect_owners(&here);
        store(&here, addr + PAGE, ~round);
        expect(parent, addr, ~round);
        expect(parent, addr + PAGE, round);
        for (int i = 0; i < CHILDREN; i++)
            pthread_join(ids[i], NULL);
        expect(&here, addr + PAGE, ~round);
        EXPECT(vmarea_exit(space, child), 0);
    }
}

int main(void)
{
    struct vmarea_platform platform = { .size = sizeof platform, .zero = zero, .copy = copy,
                                        .copy_file = copy_file, .free = free_frame };
    struct vmarea_mmu mmu = { .size = sizeof mmu, .mm_created = mm_created, .mm_gone = mm_gone,
                              .set_entry = set_entry, .clear = clear, .protect = protect,
                              .flush = flush };
    struct vmarea_system system;
    struct vmarea_options options = { .size = sizeof options, .system = &system,
                                      .platform = &platform, .mmu = &mmu };
    struct thread threads[PARENTS], forking = { .owner = FORKING }, spying = { .owner = SPY };
    pthread_t ids[PARENTS], spy_id;
    char message[200] = "";

    for (int i = 0; i < PROCESSES; i++)
        pthread_mutex_init(&processes[i].lock, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_mutex_init(&tlbs[i].lock, NULL);
    EXPECT(vmarea_system_init(&system), 0);
    system.task_size = TASK_PAGES * PAGE;
    EXPECT(vmarea_space_create(&options, &space), 0);
    EXPECT(vmarea_mm_create(space, NULL, &forking.mm), 0);
    for (int i = 0; i < PARENTS; i++) {
        threads[i] = (struct thread){ .mm = forking.mm, .owner = i };
        start(&ids[i], run, &threads[i]);
    }
    spying.mm = forking.mm;
    start(&spy_id, spy, &spying);
    forks(&forking);
    for (int i = 0; i < PARENTS; i++)
        pthread_join(ids[i], NULL);
    atomic_store_explicit(&finished, 1, memory_order_relaxed);
    pthread_join(spy_id, NULL);
    EXPECT(vmarea_validate(space, message, sizeof message), 0);
    EXPECT(strcmp(message, ""), 0);
    EXPECT(vmarea_exit(space, forking.mm), 0);
    EXPECT(frames_in_use, 0);
    EXPECT(vmarea_space_destroy(space), 0);
    return failures != 0;
}
