/* Some threads map, write, protect and unmap memory, while others write to memory that the process forks again and
 * again. Each child checks that its copy of that memory does not change. usage: stress [SECONDS] */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 200
#define SHARED 64
#define THREADS 2

static volatile int stop;
static int bad;
static unsigned char *shared;

static void wrong(const char *what)
{
	__atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
	printf("wrong: %s\n", what);
}

static void *map_and_unmap(void *argument)
{
	unsigned char mark = 1 + (long)argument;

	for (int round = 0; !stop; round++) {
		unsigned char *p = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED) {
			wrong("mmap");
			return 0;
		}
		for (int i = 0; i < PAGES; i++) {
			if (p[i * PAGE])
				wrong("a new page is not zero");
			p[i * PAGE] = mark;
		}
		if (round % 3 == 0)
			mprotect(p + PAGE, PAGE, PROT_READ);
		if (round % 5 == 0)
			p = mremap(p, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE);
		for (int i = 0; i < PAGES; i++)
			if (p[i * PAGE] != mark)
				wrong("a page has another thread's byte");
		munmap(p, PAGES * PAGE);
	}
	return 0;
}

static void *write_pages(void *argument)
{
	while (!stop)
		for (int i = (long)argument; i < SHARED; i += THREADS) {
			volatile unsigned *page = (unsigned *)(shared + i * PAGE);

			page[0]++;
			page[1]++;
		}
	return 0;
}

/* Checks the copy in a child: a page's two counters may differ by one if the fork came between their updates. */
static int check_copy(void)
{
	unsigned seen[SHARED];

	for (int i = 0; i < SHARED; i++) {
		unsigned *page = (unsigned *)(shared + i * PAGE);

		seen[i] = page[0];
		if (page[0] - page[1] > 1)
			return 1;
	}
	for (int k = 0; k < 20; k++)
		for (int i = 0; i < SHARED; i++)
			if (*(volatile unsigned *)(shared + i * PAGE) != seen[i])
				return 2;
	for (int i = 0; i < SHARED; i++)
		*(unsigned *)(shared + i * PAGE) = 0xdead0000;
	return 0;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 5;
	pthread_t threads[2 * THREADS];
	time_t end = time(0) + seconds;
	int forks = 0;

	shared = mmap(0, SHARED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(shared, 0, SHARED * PAGE);
	for (long i = 0; i < THREADS; i++) {
		pthread_create(&threads[i], 0, map_and_unmap, (void *)i);
		pthread_create(&threads[THREADS + i], 0, write_pages, (void *)i);
	}
	for (; time(0) < end; forks++) {
		int status;
		pid_t child = fork();

		if (child == 0)
			_exit(check_copy());
		if (waitpid(child, &status, 0) != child || status)
			wrong(status == 0x100 ? "a copy is torn" : status == 0x200 ? "a copy changes" : "a child died");
	}
	stop = 1;
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(threads[i], 0);
	for (int i = 0; i < SHARED; i++)
		if (*(unsigned *)(shared + i * PAGE) >= 0xdead0000)
			wrong("a child's write is in the parent");
	fprintf(stderr, "vmarea: %d forks\n", forks);
	printf("%s\n", bad ? "failed" : forks ? "passed" : "no forks");
	return bad != 0;
}
