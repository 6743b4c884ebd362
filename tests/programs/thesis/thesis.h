// What the tests of "VMA merging in Linux" (3.1 and 3.3) have in common: an arena of pages at a fixed
// address, calls by page number, a child that shares pages, and the count of the arena's mappings.
//
// usage of each test: NAME [shared]     prints how many mappings the arena has at the end
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ARENA_PAGES = 1 << 18 };
static char *const ARENA = (char *)0x100000000000;

static char *at(long page)
{
	return ARENA + page * PAGE;
}

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(2);
	}
}

// Private anonymous memory, written so that each page exists.
static void map_written(long page, long pages)
{
	void *got = mmap(at(page), pages * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	check(got == at(page), "mmap");
	for (long n = 0; n < pages; n++)
		*(long *)at(page + n) = page + n + 1;
}

static void unmap(long page, long pages)
{
	check(munmap(at(page), pages * PAGE) == 0, "munmap");
}

static void protect(long page, long pages, int prot)
{
	check(mprotect(at(page), pages * PAGE, prot) == 0, "mprotect");
}

static void grow(long page, long pages, long to)
{
	check(mremap(at(page), pages * PAGE, to * PAGE, 0) == at(page), "mremap in place");
}

// Moves pages; their contents must arrive.
static void move_to(long page, long pages, long to)
{
	long first = *(long *)at(page);
	void *got = mremap(at(page), pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(to));
	check(got == at(to), "mremap");
	check(*(long *)at(to) == first, "the contents of a moved page");
}

static pid_t child;
static int child_ends[2];

// With the argument "shared", forks a child that keeps its copies of all pages until the test ends.
static void share(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "shared"))
		return;
	check(pipe(child_ends) == 0, "pipe");
	child = fork();
	check(child >= 0, "fork");
	if (child == 0) {
		char end;
		close(child_ends[1]);
		_exit(read(child_ends[0], &end, 1) != 0);
	}
	close(child_ends[0]);
}

// Prints the number of mappings in the arena, and lets the child go.
static int finish(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0;
	check(maps != NULL, "/proc/self/maps");
	while (fgets(line, sizeof line, maps)) {
		unsigned long start = strtoul(line, NULL, 16);
		count += start >= (unsigned long)ARENA && start < (unsigned long)at(ARENA_PAGES);
	}
	fclose(maps);
	printf("%d\n", count);
	if (child) {
		int status;
		close(child_ends[1]);
		check(waitpid(child, &status, 0) == child && status == 0, "the child");
	}
	return 0;
}
