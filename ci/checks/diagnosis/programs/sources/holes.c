// Blocks mapped one after another; every second one is unmapped again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words) {
    (void)count;
    int number = atoi(words[1]);
    char **all = calloc(number, sizeof *all);
    size_t *sizes = calloc(number, sizeof *sizes);
    srand(5);
    for (int i = 0; i < number; i++) {
        sizes[i] = (1 + rand() % 60) * 4096L;
        all[i] = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all[i] == MAP_FAILED) return perror("mmap"), 1;
        memset(all[i], 1, 4096);
    }
    for (int i = 0; i < number; i += 2) munmap(all[i], sizes[i]);
    puts("ready"), fflush(stdout);
    pause();
}
