// A program whose stack has a template and an inlined function, and that waits in the innermost one.
#include <stdio.h>
#include <unistd.h>
struct Arena {
    int calls = 0;
    void grow(unsigned long size);
    __attribute__((always_inline)) void add(unsigned long size) {
        char byte;
        calls += read(0, &byte, size) > 0;
        asm volatile("" ::: "memory");
    }
};
__attribute__((noinline)) void Arena::grow(unsigned long size) { add(size); calls++; }
namespace pool {
template <class T> __attribute__((noinline)) void fill(T &arena, int count) {
    for (int i = 0; i < count; i++) arena.grow(1);
}
}
int main() {
    Arena arena; puts("ready"); fflush(stdout); pool::fill(arena, 2);
    return arena.calls;
}
