/* Checks that nobody changes a thread's registers, while it computes and across system calls. x86-64. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "hazards.h"

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, FLAGS, STACK, ALL };
#define CARRY 1UL
#define DIRECTION 0x400UL

/* Loads the registers, sets the carry and direction flags, spins or makes a system call, and stores the registers. */
void hold_registers(const uint64_t before[ALL], uint64_t after[ALL], uint64_t count);
void hold_over_call(const uint64_t before[ALL], uint64_t after[ALL], uint64_t count);

#define SAVE "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %rsi\n push %rdx\n mov %rsp,128(%rsi)\n"
#define LOAD \
    "mov 0(%rdi),%rax\n mov 8(%rdi),%rbx\n mov 16(%rdi),%rcx\n mov 24(%rdi),%rdx\n mov 32(%rdi),%rsi\n" \
    "mov 48(%rdi),%rbp\n mov 56(%rdi),%r8\n mov 64(%rdi),%r9\n mov 72(%rdi),%r10\n mov 80(%rdi),%r11\n" \
    "mov 88(%rdi),%r12\n mov 96(%rdi),%r13\n mov 104(%rdi),%r14\n mov 112(%rdi),%r15\n mov 40(%rdi),%rdi\n"
#define STORE \
    "pushfq\n cld\n push %rdi\n mov 24(%rsp),%rdi\n" \
    "mov %rax,0(%rdi)\n mov %rbx,8(%rdi)\n mov %rcx,16(%rdi)\n mov %rdx,24(%rdi)\n mov %rsi,32(%rdi)\n" \
    "mov %rbp,48(%rdi)\n mov %r8,56(%rdi)\n mov %r9,64(%rdi)\n mov %r10,72(%rdi)\n mov %r11,80(%rdi)\n" \
    "mov %r12,88(%rdi)\n mov %r13,96(%rdi)\n mov %r14,104(%rdi)\n mov %r15,112(%rdi)\n" \
    "pop %rax\n mov %rax,40(%rdi)\n pop %rax\n mov %rax,120(%rdi)\n sub %rsp,128(%rdi)\n"
#define RESTORE "add $16,%rsp\n pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"

__asm__(".text\n"
        ".globl hold_registers\n hold_registers:\n" SAVE LOAD "std\n stc\n 1: decq (%rsp)\n jnz 1b\n" STORE RESTORE
        ".globl hold_over_call\n hold_over_call:\n" SAVE LOAD "std\n stc\n syscall\n" STORE RESTORE);

static const char *const names[ALL] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",    "r9",
                                       "r10", "r11", "r12", "r13", "r14", "r15", "flags", "stack"};

static void compare(const char *when, const uint64_t *before, const uint64_t *after, unsigned skipped)
{
    for (unsigned i = 0; i < FLAGS; i++)
        if (!(skipped >> i & 1) && before[i] != after[i])
            broken("register %s %s: %#lx, was %#lx", names[i], when, after[i], before[i]);
    if (after[STACK])
        broken("stack pointer %s: off by %ld", when, after[STACK]);
    if ((after[FLAGS] & DIRECTION) == 0 || (after[FLAGS] & CARRY) == 0)
        broken("flags %s: %#lx", when, after[FLAGS]);
}

static void check_over_call(struct worker *worker, uint64_t *before, uint64_t *after)
{
    struct timespec time = {0, (long)below(worker, 3000000)}, left;
    bool sleeps = below(worker, 2);
    before[RAX] = sleeps ? SYS_nanosleep : SYS_getppid;
    if (sleeps) {
        before[RDI] = (uintptr_t)&time;
        before[RSI] = (uintptr_t)&left;
    }
    hold_over_call(before, after, 1);
    /* The system call instruction changes rcx and r11. */
    compare("across a call", before, after, 1 << RAX | 1 << RCX | 1 << R11);
    int64_t result = (int64_t)after[RAX];
    if (sleeps ? result != 0 && result != -EINTR : result <= 0)
        broken("result of call %lu: %ld", before[RAX], result);
}

void check_registers(struct worker *worker)
{
    uint64_t before[ALL], after[ALL];
    for (unsigned i = 0; i < ALL; i++)
        before[i] = next_random(&worker->random);
    if (below(worker, 3) == 0) {
        check_over_call(worker, before, after);
    } else {
        hold_registers(before, after, 1 + below(worker, 200000));
        compare("while it spins", before, after, 0);
    }
}

/* Holds values in the x87 and vector registers, with unusual control words. */
__attribute__((target("avx"))) static void hold_vectors(const uint64_t *before, uint64_t *after, uint64_t count)
{
#define EACH(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
#define LOAD_ONE(n) "vmovdqu " #n "*32(%0),%%ymm" #n "\n"
#define STORE_ONE(n) "vmovdqu %%ymm" #n "," #n "*32(%1)\n"
    __asm__ volatile(EACH(LOAD_ONE) "fldpi\n fldl2e\n fld1\n 1: dec %2\n jnz 1b\n" EACH(STORE_ONE)
                     "fstpt 512(%1)\n fstpt 528(%1)\n fstpt 544(%1)\n vzeroupper\n"
                     : "+&r"(before), "+&r"(after), "+&r"(count)
                     :
                     : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "st", "st(1)", "st(2)");
}

static uint64_t set_controls(uint32_t vector, uint16_t x87)
{
    uint32_t vector_before;
    uint16_t x87_before;
    __asm__ volatile("stmxcsr %0\n fnstcw %1\n" : "=m"(vector_before), "=m"(x87_before));
    __asm__ volatile("ldmxcsr %0\n fldcw %1\n" : : "m"(vector), "m"(x87));
    return (uint64_t)vector_before << 16 | x87_before;
}

void check_vector_registers(struct worker *worker)
{
    if (!__builtin_cpu_supports("avx"))
        return;
    uint64_t before[64], after[72] = {0};
    for (unsigned i = 0; i < 64; i++)
        before[i] = next_random(&worker->random);
    /* Rounding up and down instead of to the nearest. */
    const uint32_t vector = 0x5f80;
    const uint16_t x87 = 0x067f;
    set_controls(vector, x87);
    hold_vectors(before, after, 1 + below(worker, 200000));
    uint64_t controls = set_controls(0x1f80, 0x037f);
    /* Sticky exception flags may have been set. */
    if ((controls >> 16 & ~0x3fUL) != vector || (controls & 0xffff) != x87)
        broken("control words of floating point: %#lx", controls);
    if (memcmp(before, after, sizeof before))
        broken("vector registers changed");
    long double one, log2_e, pi;
    memcpy(&one, &after[64], 10);
    memcpy(&log2_e, &after[66], 10);
    memcpy(&pi, &after[68], 10);
    if (one != 1 || log2_e < 1.44L || log2_e > 1.45L || pi < 3.14L || pi > 3.15L)
        broken("x87 registers changed");
}

static bool begin(struct worker *worker)
{
    (void)worker;
    return true;
}

static void step(struct worker *worker)
{
    check_registers(worker);
    check_vector_registers(worker);
}

const struct activity fpu_activity = {.name = "registers", .threads = 1, .begin = begin, .step = step};
