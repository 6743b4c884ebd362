// Allocations of random sizes, half of which are freed again in random order. The allocator decides what that becomes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    int number = atoi(words[1]), rounds = count > 2 ? atoi(words[2]) : 6;
    char **all = calloc(number, sizeof *all);
    srand(11);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < number; i++) {
            free(all[i]);
            all[i] = NULL;
            if (rand() % 2) continue;
            size_t size = rand() % 8 ? 9000 + rand() % 50000 : 200000 + rand() % 300000;
            all[i] = memset(malloc(size), 1, size);
        }
    puts("ready"), fflush(stdout);
    pause();
}
