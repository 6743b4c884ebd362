/* Eight pairs of neighbours, each apart for another reason, and one that became a single mapping. The book explains the pairs one by one;
 * ci/run pictures draws a recording of this program. Each pair has a place of its own, so that only the
 * boundary within the pair is of interest. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define PLACES 0x100000000000UL /* far from everything else, so that addresses are equal in every run */

static void must(int ok)
{
    if (!ok)
        abort();
}

/* The address of page `page` of pair `pair`; pairs are 64 KiB apart. */
static char *at(int pair, int page)
{
    return (char *)(PLACES + pair * 16 * PAGE + page * PAGE);
}

static void map(char *at, int pages, int prot, int flags, int fd, off_t offset)
{
    must(mmap(at, pages * PAGE, prot, flags | MAP_FIXED, fd, offset) == at);
}

static void map_memory(char *at, int pages)
{
    map(at, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
    int file = open("/bin/sh", O_RDONLY);
    must(file >= 0);

    /* protection: the second page is read-only. */
    map_memory(at(0, 0), 2);
    must(mprotect(at(0, 1), PAGE, PROT_READ) == 0);

    /* guard: a page without access in the middle of other memory. */
    map_memory(at(1, 0), 9);
    must(mprotect(at(1, 4), PAGE, PROT_NONE) == 0);

    /* flags: the child of a fork shall not have the second page. */
    map_memory(at(2, 0), 2);
    must(madvise(at(2, 1), PAGE, MADV_DONTFORK) == 0);

    /* anon_vma: two pages were written while a third one was between them; then the third one became
     * usable, too, and merged with only one of its neighbours. */
    map(at(3, 0), 3, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page <= 2; page += 2) {
        must(mprotect(at(3, page), PAGE, PROT_READ | PROT_WRITE) == 0);
        *at(3, page) = 1;
    }
    must(mprotect(at(3, 1), PAGE, PROT_READ | PROT_WRITE) == 0);

    /* page offset: two written pages of one mapping; what lies between them goes, and the upper page moves down. */
    map_memory(at(4, 0), 5);
    *at(4, 0) = 1;
    *at(4, 4) = 1;
    must(munmap(at(4, 1), 3 * PAGE) == 0);
    must(mremap(at(4, 4), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(4, 1)) == at(4, 1));

    /* file: a page of a file next to anonymous memory. */
    map(at(5, 0), 1, PROT_READ, MAP_PRIVATE, file, 0);
    map(at(5, 1), 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    /* file offset: the first page of a file next to its third one. */
    map(at(6, 0), 1, PROT_READ, MAP_PRIVATE, file, 0);
    map(at(6, 1), 1, PROT_READ, MAP_PRIVATE, file, 2 * PAGE);

    /* Shared memory: each call creates a file without a name. */
    for (int page = 0; page < 2; page++)
        map(at(7, page), 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    /* Nothing keeps these two apart: they are one mapping. */
    map_memory(at(8, 0), 1);
    map_memory(at(8, 1), 1);
    return 0;
}
