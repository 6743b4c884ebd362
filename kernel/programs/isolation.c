/* Checks that a thread never reads what another process wrote to its own copy of a page. A reader thread keeps the
 * pages in its TLB while the parent's writes copy them and the child writes to the old frames. If the kernel let the
 * child write to a frame that another CPU still has in its TLB, the reader would see the child's data.
 *
 * With the word `busy`, more happens at the same time: another process asks the kernel without end to move all pages
 * to other frames and to merge equal pages (KSM), and between the forks, mappings with an anon_vma of their own move
 * next to the first one, with which some policies merge them.
 * usage: isolation [FORKS [busy]] */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_PAGES 128
/* Pages that move next to the first ones, one after another, before all of them go again. */
#define MOVED_PAGES 32
#define WORDS 1024
#define PAGE (WORDS * 4)
#define SECRET 777

static volatile int *pages;
/* Number of pages that the reader may read. */
static volatile int count = FIRST_PAGES;
static volatile int stop;
static volatile long leaks, scans;
static volatile struct {
	int may_write, runs;
} *control;

static void *reader(void *unused)
{
	(void)unused;
	while (!stop) {
		int end = count;

		for (int i = 0; i < end; i++)
			if (pages[i * WORDS] == SECRET)
				leaks++;
		scans++;
	}
	return 0;
}

static void *map(void *at, size_t len, int prot)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	void *mapped = mmap(at, len, prot, flags, -1, 0);

	if (mapped == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return mapped;
}

/* Asks the kernel to move and to merge pages, until it is killed. */
static pid_t keep_kernel_busy(void)
{
	pid_t child = fork();

	if (child)
		return child;
	for (;;) {
		static const char *const files[] = { "/proc/sys/vm/compact_memory", "/sys/kernel/mm/ksm/run" };

		for (int i = 0; i < 2; i++) {
			int fd = open(files[i], O_WRONLY);

			if (fd < 0 || write(fd, "1", 1) != 1) {
				perror(files[i]);
				_exit(2);
			}
			close(fd);
		}
	}
}

/* Moves a page that has an anon_vma of its own behind the others; when there are many, they go. */
static void move_a_page(void)
{
	if (count == FIRST_PAGES + MOVED_PAGES) {
		count = FIRST_PAGES;
		/* The reader may be in a round that began before. */
		for (long seen = scans; scans < seen + 2;)
			;
		map((void *)(pages + FIRST_PAGES * WORDS), MOVED_PAGES * PAGE, PROT_NONE);
	}
	/* A hole on both sides keeps it from the mappings that are there already. */
	char *apart = map(0, 3 * PAGE, PROT_READ | PROT_WRITE);

	munmap(apart, PAGE);
	munmap(apart + 2 * PAGE, PAGE);
	*(volatile int *)(apart + PAGE) = 1;
	madvise(apart + PAGE, PAGE, MADV_MERGEABLE);
	void *to = (void *)(pages + count * WORDS);

	if (mremap(apart + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) {
		perror("mremap");
		exit(2);
	}
	count++;
}

static void fork_once(int k)
{
	int status;
	pid_t child;

	control->may_write = control->runs = 0;
	child = fork();
	if (child < 0) {
		perror("fork");
		exit(2);
	}
	if (child == 0) {
		control->runs = 1;
		while (!control->may_write)
			;
		for (int i = 0; i < count; i++)
			pages[i * WORDS] = SECRET;
		_exit(0);
	}
	while (!control->runs)
		;
	control->may_write = 1;
	for (int i = 0; i < count; i++)
		pages[i * WORDS + 8] = k;
	waitpid(child, &status, 0);
}

/* Returns the number of mappings that the reader's pages consist of. */
static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, first = (unsigned long)pages;
	int found = 0;
	char line[256];

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2)
			found += start >= first && end <= first + (FIRST_PAGES + MOVED_PAGES) * PAGE;
	return found;
}

int main(int argc, char **argv)
{
	int forks = argc > 1 ? atoi(argv[1]) : 100, busy = argc > 2;
	pthread_t thread;
	pid_t worker = busy ? keep_kernel_busy() : 0;

	pages = map(0, (FIRST_PAGES + MOVED_PAGES) * PAGE, PROT_READ | PROT_WRITE);
	/* Keeps the place for the pages that move there. */
	map((void *)(pages + FIRST_PAGES * WORDS), MOVED_PAGES * PAGE, PROT_NONE);
	if (busy)
		madvise((void *)pages, FIRST_PAGES * PAGE, MADV_MERGEABLE);
	control = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < FIRST_PAGES; i++)
		pages[i * WORDS] = 1;
	pthread_create(&thread, 0, reader, 0);
	for (int k = 0; k < forks; k++) {
		if (busy)
			move_a_page();
		fork_once(k);
	}
	stop = 1;
	pthread_join(thread, 0);
	fprintf(stderr, "vmarea: %ld scans, %d pages in %d mappings\n", scans, count, mappings());
	if (busy) {
		int status;

		if (kill(worker, SIGKILL) || waitpid(worker, &status, 0) != worker || !WIFSIGNALED(status)) {
			puts("the kernel was not kept busy");
			return 2;
		}
	}
	printf("%d forks, %ld leaked reads\n", forks, leaks);
	return leaks != 0;
}
