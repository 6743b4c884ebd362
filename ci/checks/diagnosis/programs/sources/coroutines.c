// Coroutines on one thread: each has a stack with a guard, has begun and waits.   usage: coroutines COUNT SIZE_IN_KIB
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
static ucontext_t self;
static ucontext_t *all;
static void work(int number) { swapcontext(&all[number], &self); }
int main(int count, char **words) {
    (void)count;
    int number = atoi(words[1]);
    size_t size = atoi(words[2]) * 1024L;
    all = calloc(number, sizeof *all);
    for (int i = 0; i < number; i++) {
        char *stack = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE)) return perror("mmap"), 1;
        getcontext(&all[i]);
        all[i].uc_stack.ss_sp = stack + 4096;
        all[i].uc_stack.ss_size = size;
        makecontext(&all[i], (void (*)(void))work, 1, i);
        swapcontext(&self, &all[i]);
    }
    puts("ready"), fflush(stdout);
    pause();
}
