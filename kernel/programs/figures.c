/* Measures, in a kernel, what papers about VMAs measure. Prints a line for each figure: its name, counts of the
 * time stamp counter, and a number that shows what happened. Under `qemu -icount shift=0`, a count is an instruction.
 *
 * spacing  "VMA merging in Linux" (Jakub Matena), tables 4.2 and 4.3: mappings with gaps between them are moved
 *          together. Only the moves are measured. `same`: the mappings share an anon_vma; `different`: each has its
 *          own. The number is that of the mappings afterwards.
 * faults   page faults of one thread, and of two threads with a VMA each or with one VMA; the number is that of the
 *          pages.
 * usage: figures spacing|faults N ROUNDS
 *        The best of the rounds counts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

#define PAGE 4096L
#define BASE ((char *)0x100000000000)

static int rounds;

static char *map(char *at, long len, int flags)
{
	char *mapped = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (mapped == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return mapped;
}

/* Returns the number of mappings from BASE on, in `len` bytes. */
static int mappings(long len)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long start;
	int found = 0;

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-", &start) == 1)
			found += start - (unsigned long)BASE < (unsigned long)len;
	if (maps)
		fclose(maps);
	return found;
}

static void spacing(const char *name, int different, long count)
{
	unsigned long best = ~0UL;
	int left = 0;

	for (int round = 0; round < rounds; round++) {
		long span = 2 * count * PAGE;

		if (!different)
			map(BASE, span, MAP_FIXED);
		for (long i = 0; i < count; i++) {
			if (different)
				map(BASE + 2 * i * PAGE, PAGE, MAP_FIXED);
			BASE[2 * i * PAGE] = 1;
		}
		for (long i = 0; i < count && !different; i++)
			munmap(BASE + (2 * i + 1) * PAGE, PAGE);
		unsigned long begun = __rdtsc();

		for (long i = 1; i < count; i++)
			if (mremap(BASE + 2 * i * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, BASE + i * PAGE) ==
			    MAP_FAILED) {
				perror("mremap");
				exit(1);
			}
		unsigned long took = __rdtsc() - begun;

		best = took < best ? took : best;
		left = mappings(span);
		munmap(BASE, span);
	}
	printf("%s %lu %d\n", name, best, left);
}

struct part {
	char *at;
	long pages;
	unsigned long begun, ended;
};

static pthread_barrier_t barrier;

static void *touch(void *argument)
{
	struct part *part = argument;

	pthread_barrier_wait(&barrier);
	part->begun = __rdtsc();
	for (long i = 0; i < part->pages; i++)
		part->at[i * PAGE] = 1;
	part->ended = __rdtsc();
	return 0;
}

/* Each thread touches `pages` pages: in one VMA, or in VMAs of their own. Measures from the begin of the first one to
 * the end of the last one. */
static void faults(const char *name, int threads, int own, long pages)
{
	unsigned long best = ~0UL;

	for (int round = 0; round < rounds; round++) {
		struct part parts[2];
		pthread_t ids[2];
		char *all = map(BASE, (threads * pages + 1) * PAGE, MAP_FIXED);

		/* A page of another protection separates two VMAs. */
		for (int t = 0; t < threads; t++)
			parts[t] = (struct part){ .at = all + t * (pages + own) * PAGE, .pages = pages };
		if (own)
			mprotect(all + pages * PAGE, PAGE, PROT_NONE);
		pthread_barrier_init(&barrier, 0, threads);
		for (int t = 0; t < threads; t++)
			pthread_create(&ids[t], 0, touch, &parts[t]);
		unsigned long begun = ~0UL, ended = 0;

		for (int t = 0; t < threads; t++) {
			pthread_join(ids[t], 0);
			begun = parts[t].begun < begun ? parts[t].begun : begun;
			ended = parts[t].ended > ended ? parts[t].ended : ended;
		}
		best = ended - begun < best ? ended - begun : best;
		munmap(all, (threads * pages + 1) * PAGE);
	}
	printf("%s %lu %ld\n", name, best, threads * pages);
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 1000;

	rounds = argc > 3 ? atoi(argv[3]) : 1;
	if (argc > 1 && !strcmp(argv[1], "spacing")) {
		spacing("same", 0, count);
		spacing("different", 1, count);
	} else {
		faults("one_thread", 1, 0, count);
		faults("two_own", 2, 1, count);
		faults("two_shared", 2, 0, count);
	}
	return 0;
}
