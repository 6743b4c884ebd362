// Small mappings below 2 GiB until there is no room for another one.
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    int number = 0;
    while (mmap(NULL, 1 << 20, number++ % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_NORESERVE, -1, 0) != MAP_FAILED) {}
    puts("ready"), fflush(stdout);
    pause();
}
