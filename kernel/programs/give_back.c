/*
 * Takes one kind of memory, named by the first argument, and gives it back, until it has taken more than the machine
 * has. The second argument is the number of times. A kernel that keeps some of it fails a call, kills the program, or
 * has less free memory at the end: then the status is 1.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define PART (64UL << 10)
#define SPARSE (40UL << 30)
/* As many VMAs as a process may have, but for those of the program itself. */
#define MANY_VMAS 65000
#define MANY_COPIES 8
#define FEW_VMAS 1000
/* What a kernel may keep for later: lists of free objects for each CPU, and the like. */
#define SLACK_KB (16L << 10)

static void fail(const char *call)
{
	perror(call);
	exit(1);
}

static char *map(unsigned long at, size_t size, int prot, int flags)
{
	char *part = mmap((void *)at, size, prot, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (part == MAP_FAILED)
		fail("mmap");
	return part;
}

static void unmap(char *part, size_t size)
{
	if (munmap(part, size))
		fail("munmap");
}

/* The value of a line of /proc/meminfo in kB, or 0. */
static long line_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? atol(line + strlen(name)) : 0;
}

/*
 * Memory in kB that is free, less what the kernel uses for its own objects. In kernel/, these have memory of their own,
 * so that MemFree does not tell; in Linux they count twice, which does no harm.
 */
static long free_memory(void)
{
	char text[4096];
	int file = open("/proc/sys/vm/drop_caches", O_WRONLY);
	ssize_t len;

	/* What the kernel keeps for later is free, too. */
	if (write(file, "2", 1) != 1)
		fail("/proc/sys/vm/drop_caches");
	close(file);
	file = open("/proc/meminfo", O_RDONLY);
	len = read(file, text, sizeof(text) - 1);
	if (len < 0)
		fail("/proc/meminfo");
	close(file);
	text[len] = 0;
	return line_of(text, "MemFree:") - line_of(text, "Slab:");
}

/* Shared anonymous memory is freed with its last mapping. */
static void shared(long unused)
{
	char *part = map(0, PART, PROT_READ | PROT_WRITE, MAP_SHARED);

	memset(part, 1, PART);
	unmap(part, PART);
}

/* A page is read in each 2 MiB, so that each needs a page table. */
static void touch_each_table(char *part, size_t size)
{
	volatile char read;

	for (size_t at = 0; at < size; at += HUGE)
		read = part[at];
	(void)read;
}

static void sparse(long unused)
{
	char *part = map(0, SPARSE, PROT_READ | PROT_WRITE, MAP_PRIVATE);

	touch_each_table(part, SPARSE);
	unmap(part, SPARSE);
}

/* Always at another address, so that no page table is used twice. */
static void tables(long turn)
{
	unsigned long size = 1UL << 30;
	char *part = map((1UL << 40) + turn * size, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED);

	touch_each_table(part, size);
	unmap(part, size);
}

/* Makes `count` VMAs of a page each, every second of them with a page. */
static void make_vmas(long count)
{
	char *part = map(0, count * PAGE, PROT_READ, MAP_PRIVATE);

	for (long page = 0; page < count; page += 2) {
		if (mprotect(part + page * PAGE, PAGE, PROT_READ | PROT_WRITE))
			fail("mprotect");
		part[page * PAGE] = 1;
	}
}

static void wait_for(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) < 0)
		fail("waitpid");
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "a child ended with %#x\n", status);
		exit(1);
	}
}

/* A process after the other. */
static void process(long count)
{
	pid_t child = fork();

	if (child < 0)
		fail("fork");
	if (child == 0) {
		make_vmas(count);
		_exit(0);
	}
	wait_for(child);
}

static void processes(long unused)
{
	process(FEW_VMAS);
}

/* Copies of a large process, until there are enough or a fork fails; each ends with the pipe. */
static void copy_often(void)
{
	int copies = 0, ends[2];
	char byte;

	if (pipe(ends))
		fail("pipe");
	while (copies < MANY_COPIES) {
		pid_t copy = fork();

		if (copy < 0)
			break;
		if (copy == 0) {
			close(ends[1]);
			_exit(read(ends[0], &byte, 1));
		}
		copies++;
	}
	close(ends[1]);
	while (copies--)
		wait_for(-1);
}

/* Afterwards there is enough memory for a file. */
static void forks(long unused)
{
	pid_t child = fork();
	int file;

	if (child < 0)
		fail("fork");
	if (child == 0) {
		make_vmas(MANY_VMAS);
		copy_often();
		_exit(0);
	}
	wait_for(child);
	file = open("/dev/null", O_RDONLY);
	if (file < 0)
		fail("open");
	close(file);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*turn)(long turn);
	} kinds[] = {
		{"shared", shared}, {"sparse", sparse}, {"tables", tables}, {"processes", processes}, {"forks", forks},
	};
	const char *wanted = argc > 1 ? argv[1] : "";
	long turns = argc > 2 ? atol(argv[2]) : 1;
	long before, lost;
	size_t kind = 0;

	while (kind < sizeof(kinds) / sizeof(*kinds) && strcmp(wanted, kinds[kind].name))
		kind++;
	if (kind == sizeof(kinds) / sizeof(*kinds)) {
		fprintf(stderr, "give_back: no kind %s\n", wanted);
		return 2;
	}
	/* The first turn fills what the kernel keeps. */
	kinds[kind].turn(0);
	before = free_memory();
	for (long turn = 1; turn < turns; turn++)
		kinds[kind].turn(turn);
	lost = before - free_memory();
	if (lost > SLACK_KB) {
		fprintf(stderr, "give_back: %s: %ld kB are not free again\n", wanted, lost);
		return 1;
	}
	printf("%s: ok\n", wanted);
	return 0;
}
