// Maps memory in an inlined method, and makes the first page of each mapping a guard.
#include <sys/mman.h>
struct Arena {
    int chunks = 0;
    void grow(unsigned long size);
    __attribute__((always_inline)) void add(unsigned long size) {
        void *chunk = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(chunk, 4096, PROT_NONE);
        chunks++;
    }
};
__attribute__((noinline)) void Arena::grow(unsigned long size) { add(size); }
int main() {
    Arena arena;
    for (int i = 0; i < 300; i++) arena.grow(8192);
    return arena.chunks != 300;
}
