/* Uses more memory than there is, and checks every byte: threads, forks, locked pages, MADV_PAGEOUT. Or checks that a
 * process never sees the frames that were taken from it: a thread reads and writes pages while another process fills
 * memory again and again.
 * usage: swap MIB | swap isolation SECONDS MIB */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS 512
#define THREADS 4
#define LOCKED 256
#define SECRET 777777

typedef unsigned long word;

static word *pages;
static size_t count;
static long bad;

static void check(int right, const char *what)
{
	if (!right && __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED) < 10)
		printf("wrong: %s\n", what);
}

static word *map(size_t n)
{
	word *at = mmap(0, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return at;
}

static void fill(word *at, size_t page, word version)
{
	for (int i = 0; i < WORDS; i++)
		at[page * WORDS + i] = (page << 16 | version) * 0x9e3779b97f4a7c15 + i;
}

static void verify(word *at, size_t page, word version, const char *what)
{
	for (int i = 0; i < WORDS; i++)
		if (at[page * WORDS + i] != (page << 16 | version) * 0x9e3779b97f4a7c15 + i) {
			check(0, what);
			return;
		}
}

/* Each thread fills a share of the pages, then finds and refills it in another order. */
static void *share(void *argument)
{
	size_t part = count / THREADS, first = (size_t)argument * part;

	for (size_t i = 0; i < part; i++)
		fill(pages, first + i, 1);
	for (word version = 1; version <= 2; version++)
		for (size_t i = 0; i < part; i++) {
			size_t page = first + i * 1021 % part;

			verify(pages, page, version, "a thread's page");
			if (version == 1)
				fill(pages, page, 2);
		}
	return 0;
}

/* The page's word of /proc/self/pagemap. */
static word pagemap(const void *at)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	word found = 0;

	check(pread(fd, &found, 8, (word)at / 4096 * 8) == 8, "pagemap");
	close(fd);
	return found;
}

/* The sum of the numbers in the lines of a file that start with a name. */
static long sum_of(const char *path, const char *name)
{
	char line[256];
	long sum = 0;
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			sum += atol(line + strlen(name));
	if (file)
		fclose(file);
	return sum;
}

/* Children share swapped pages with the parent; each process changes its own copy. */
static void forks(size_t n)
{
	int status;

	for (word child = 0; child < 3; child++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			exit(2);
		}
		if (pid)
			continue;
		bad = 0;
		for (size_t page = child; page < n; page += 3)
			fill(pages, page, 10 + child);
		for (size_t page = 0; page < n; page++)
			verify(pages, page, page % 3 == child ? 10 + child : 2, "a child's page");
		_exit(bad != 0);
	}
	for (size_t page = 0; page < n; page += 2)
		fill(pages, page, 20);
	for (size_t page = 0; page < n; page++)
		verify(pages, page, page % 2 ? 2 : 20, "the parent's page");
	while (wait(&status) > 0)
		check(status == 0, "a child's status");
}

static void page_out(size_t n)
{
	unsigned char resident[n];
	long swapped = 0;

	for (size_t page = 0; page < n; page++)
		fill(pages, page, 30);
	check(madvise(pages, n * 4096, MADV_PAGEOUT) == 0, "MADV_PAGEOUT");
	mincore(pages, n * 4096, resident);
	for (size_t page = 0; page < n; page++)
		swapped += !resident[page] && pagemap(pages + page * WORDS) >> 62 == 1;
	check(swapped == (long)n, "MADV_PAGEOUT leaves pages in memory");
	check(sum_of("/proc/self/status", "VmSwap:") >= swapped * 4, "VmSwap");
	check(sum_of("/proc/self/smaps", "Swap:") >= swapped * 4, "smaps");
	for (size_t page = 0; page < n; page++)
		verify(pages, page, 30, "a page after MADV_PAGEOUT");
}

static int bytes(void)
{
	pthread_t threads[THREADS];
	unsigned char resident[LOCKED];
	word frames[LOCKED], *locked = map(LOCKED);

	for (size_t page = 0; page < LOCKED; page++)
		fill(locked, page, 3);
	check(mlock(locked, LOCKED * 4096) == 0, "mlock");
	for (size_t page = 0; page < LOCKED; page++)
		frames[page] = pagemap(locked + page * WORDS);
	pages = map(count);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], 0, share, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], 0);
	printf("threads: %s\n", bad ? "wrong" : "ok");
	forks(count / 4);
	printf("forks: %s\n", bad ? "wrong" : "ok");
	page_out(256);
	printf("page out: %s\n", bad ? "wrong" : "ok");
	mincore(locked, LOCKED * 4096, resident);
	for (size_t page = 0; page < LOCKED; page++) {
		check(resident[page] & 1, "a locked page went out");
		check(frames[page] == pagemap(locked + page * WORDS), "a locked page moved");
		verify(locked, page, 3, "a locked page");
	}
	printf("locked: %s\n", bad ? "wrong" : "ok");
	check(sum_of("/proc/vmstat", "pswpout ") > (long)count / 2, "hardly a page went out");
	return bad != 0;
}

static volatile int *stop;
static volatile long leaks, scans;

/* Finds in each page the number of the page, and what it wrote there in the last pass. */
static void *reader(void *unused)
{
	volatile word *own = pages;

	(void)unused;
	for (; !*stop; scans++)
		for (size_t page = 0; page < LOCKED; page++) {
			if (own[page * WORDS] != page || own[page * WORDS + 1] != (word)scans)
				leaks++;
			own[page * WORDS + 1] = scans + 1;
		}
	return 0;
}

/* Fills memory with a secret until told to stop; its own pages must not change either. */
static void fill_memory(void)
{
	while (!*stop) {
		volatile word *at = map(count);

		for (size_t page = 0; page < count && !*stop; page++)
			at[page * WORDS] = at[page * WORDS + 1] = SECRET;
		for (size_t page = 0; page < count && !*stop; page++)
			if (at[page * WORDS] != SECRET || at[page * WORDS + 1] != SECRET)
				_exit(1);
		munmap((void *)at, count * 4096);
	}
	_exit(0);
}

static int isolation(int seconds)
{
	pthread_t thread;
	int status;
	long out = sum_of("/proc/vmstat", "pswpout ");

	stop = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fork() == 0)
		fill_memory();
	pages = map(LOCKED);
	for (size_t page = 0; page < LOCKED; page++)
		pages[page * WORDS] = page;
	pthread_create(&thread, 0, reader, 0);
	sleep(seconds);
	*stop = 1;
	pthread_join(thread, 0);
	wait(&status);
	out = sum_of("/proc/vmstat", "pswpout ") - out;
	fprintf(stderr, "vmarea: %ld scans, %ld pages went out\n", scans, out);
	check(out > 1000, "hardly a page went out");
	check(status == 0, "the other process reads wrong bytes");
	printf("reclaim: %ld leaked reads\n", leaks);
	return leaks != 0 || bad != 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "isolation")) {
		count = atol(argv[3]) << 8;
		return isolation(atoi(argv[2]));
	}
	count = argc > 1 ? (size_t)atol(argv[1]) << 8 : 8192;
	return bytes();
}
