/* Activity `rseq`: counters per processor, incremented in restartable sequences. The sum of the counters must equal
 * the number of sequences that were committed. Uses the registration of the C library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "hazards.h"

#define THREADS 3
#define PROCESSORS 512

static volatile uint64_t *counters;
static uint64_t committed[THREADS];
static pthread_barrier_t barrier;

static void prepare(void)
{
    /* Shared memory is never merged, so that a lost update is not lost by a wrong page. */
    counters = mmap(NULL, PROCESSORS * 64, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrier_init(&barrier, NULL, THREADS);
}

/* Increments this processor's counter, with a pause between the load and the store. Returns false if the sequence
 * was aborted. */
static bool increment(uint64_t pause)
{
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    __asm__ goto(".pushsection __rseq_descriptors, \"aw\"\n"
                 ".balign 32\n"
                 "3: .long 0, 0\n"
                 ".quad 1f, 2f - 1f, 4f\n"
                 ".popsection\n"
                 "leaq 3b(%%rip), %%rax\n"
                 "movq %%rax, 8(%[area])\n"
                 "1:\n"
                 "movl 4(%[area]), %%ecx\n"
                 "shlq $6, %%rcx\n"
                 "addq %[counters], %%rcx\n"
                 "movq (%%rcx), %%rdx\n"
                 "incq %%rdx\n"
                 "movq %[pause], %%rax\n"
                 "5: decq %%rax\n"
                 "jnz 5b\n"
                 "movq %%rdx, (%%rcx)\n"
                 "2:\n"
                 "jmp 6f\n"
                 ".long 0x53053053\n"
                 "4: jmp %l[aborted]\n"
                 "6:\n"
                 : : [area] "r"(area), [counters] "r"(counters), [pause] "r"(pause)
                 : "rax", "rcx", "rdx", "memory", "cc" : aborted);
    return true;
aborted:
    return false;
}

static bool begin(struct worker *worker)
{
    (void)worker;
    return __rseq_size > 0;
}

static void check_sum(void)
{
    uint64_t sum = 0, successes = 0;
    for (unsigned i = 0; i < PROCESSORS; i++)
        sum += counters[i * 8];
    for (unsigned i = 0; i < THREADS; i++)
        successes += committed[i];
    if (sum != successes)
        broken("rseq: %lu sequences were committed, %ld updates are lost", successes, (long)(successes - sum));
}

static void step(struct worker *worker)
{
    for (double until = now() + 0.1; now() < until;)
        for (unsigned i = 0; i < 50; i++)
            if (increment(1 + below(worker, 20000)))
                committed[worker->index]++;
}

static void end(struct worker *worker)
{
    (void)worker;
    pthread_barrier_wait(&barrier);
    check_sum();
}

const struct activity rseq_activity = {
    .name = "rseq", .threads = THREADS, .prepare = prepare, .begin = begin, .step = step, .end = end};
