// Reservations of SIZE MiB until one fails.   usage: reserve SIZE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    size_t size = (size_t)atoi(words[1]) << 20;
    for (;;) {
        char *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) break;
        mprotect(memory, 8192, PROT_READ | PROT_WRITE);
    }
    puts("ready"), fflush(stdout);
    pause();
}
