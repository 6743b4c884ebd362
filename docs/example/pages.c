/* A program whose memory becomes hundreds of mappings: it makes the pages of a reservation usable one by one, in
 * no order, and writes to each at once. pages.py does the same with more pages; ci/run pictures draws a recording
 * of this program. */
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define PAGES 2048

int main(void)
{
    char *reservation = mmap((void *)0x100000000000, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reservation == MAP_FAILED)
        abort();
    unsigned state = 1;
    for (int n = 0; n < PAGES; n++) {
        /* A linear congruential generator with full period: each number below PAGES occurs once. */
        state = (state * 1229 + 3) % PAGES;
        char *page = reservation + state * PAGE;
        if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0)
            abort();
        *page = 1;
    }
    return 0;
}
