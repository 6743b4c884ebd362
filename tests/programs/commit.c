/*
 * A heap of regions in one reservation: 256 KiB at a time are committed by mprotect and written to,
 * in one region after the other, until all are full; then every other region is released and
 * committed again in the same way, as runtimes with region heaps do.
 * usage: commit [REGIONS [STEPS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static const size_t STEP = 256 << 10;

static void commit(char *at)
{
	if (mprotect(at, STEP, PROT_READ | PROT_WRITE)) {
		perror("commit: mprotect");
		exit(1);
	}
	for (size_t byte = 0; byte < STEP; byte += 4096)
		at[byte] = 1;
}

static void decommit(char *at, size_t length)
{
	if (madvise(at, length, MADV_DONTNEED) || mprotect(at, length, PROT_NONE)) {
		perror("commit: decommit");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	size_t regions = argc > 1 ? strtoul(argv[1], NULL, 10) : 80;
	size_t steps = argc > 2 ? strtoul(argv[2], NULL, 10) : 8;
	if (!regions || regions > 4096 || !steps || steps > 1024) {
		fprintf(stderr, "usage: commit [REGIONS (1 to 4096) [STEPS (1 to 1024)]]\n");
		return 2;
	}
	size_t region = steps * STEP;
	char *heap = mmap(NULL, regions * region, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (heap == MAP_FAILED) {
		perror("commit: mmap");
		return 1;
	}
	for (size_t step = 0; step < steps; step++)
		for (size_t at = 0; at < regions; at++)
			commit(heap + at * region + step * STEP);
	for (size_t at = 0; at < regions; at += 2)
		decommit(heap + at * region, region);
	for (size_t step = 0; step < steps; step++)
		for (size_t at = 0; at < regions; at += 2)
			commit(heap + at * region + step * STEP);
	puts("done");
	return 0;
}
