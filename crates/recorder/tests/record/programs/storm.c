/* Maps and unmaps a page for the given number of seconds, as fast as possible. */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int main(int count, char **words) {
    (void)count;
    time_t end = time(0) + atoi(words[1]);
    while (time(0) < end) {
        void *page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || munmap(page, 4096)) return 1;
    }
    return 0;
}
