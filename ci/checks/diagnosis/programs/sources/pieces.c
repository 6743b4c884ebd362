// One range of memory, every second piece of which is treated in one way, or all.   usage: pieces COUNT lock|huge|dump|track [whole]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **words) {
    int number = atoi(words[1]);
    const char *way = words[2];
    size_t piece = strcmp(way, "huge") ? 4 * 4096L : 2L << 20;
    char *all = mmap(NULL, number * piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return perror("mmap"), 1;
    for (int i = 0; i < number; i++) {
        char *here = all + i * piece;
        *here = 1;
        if (i % 2 && count < 4) continue;
        int failed = !strcmp(way, "lock") ? mlock(here, piece)
                     : !strcmp(way, "dump") ? madvise(here, piece, MADV_DONTDUMP)
                     : !strcmp(way, "track") ? mprotect(here, piece, PROT_READ)
                                             : madvise(here, piece, MADV_HUGEPAGE);
        if (failed) return perror(way), 1;
    }
    puts("ready"), fflush(stdout);
    pause();
}
