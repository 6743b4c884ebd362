/*
 * Uses up one kind of memory, named by the argument, until a call fails; without an argument it allocates pages,
 * until the kernel kills it. A call that fails ends the program with status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PART (1 << 20)
#define PAGE 4096
#define THREAD_STACK (16 * PAGE)

static void fail(const char *call)
{
	perror(call);
	exit(1);
}

static char *allocate(size_t size)
{
	char *part = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (part == MAP_FAILED)
		fail("mmap");
	return part;
}

static void eat_pages(void)
{
	memset(allocate(PART), 1, PART);
}

/* Each child uses one page more. */
static void eat_processes(void)
{
	allocate(PART)[0] = 1;
	if (fork() < 0)
		fail("fork");
}

/* Every second page becomes a VMA, and so does every page between; children go on at the limit of a process. */
static void eat_vmas(void)
{
	char *part = allocate(PART);

	for (size_t at = 0; at < PART; at += 2 * PAGE) {
		part[at] = 1;
		if (mprotect(part + at, PAGE, PROT_READ) == 0)
			continue;
		if (errno != ENOMEM || fork() < 0)
			fail("mprotect");
	}
}

static void *sleep_on(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void eat_threads(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, THREAD_STACK);
	errno = pthread_create(&thread, &attributes, sleep_on, 0);
	if (errno)
		fail("pthread_create");
}

/* Pipes with a byte each; children go on at the limit of a process. */
static void eat_pipes(void)
{
	int ends[2];

	if (pipe(ends) == 0) {
		if (write(ends[1], "", 1) != 1)
			fail("write");
		return;
	}
	if (errno != EMFILE)
		fail("pipe");
	if (fork() < 0)
		fail("fork");
	for (int end = 3; end < 1024; end += 2)
		if (fork() == 0)
			close(end);
}

static void eat_files(void)
{
	static int number;
	char name[32];
	int file;

	snprintf(name, sizeof(name), "/tmp/%d.%d", getpid(), number++);
	file = open(name, O_CREAT | O_WRONLY, 0600);
	if (file < 0)
		fail("open");
	if (write(file, name, PAGE < sizeof(name) ? PAGE : sizeof(name)) < 0)
		fail("write");
	close(file);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*eat)(void);
	} kinds[] = {
		{"pages", eat_pages}, {"processes", eat_processes}, {"vmas", eat_vmas},
		{"threads", eat_threads}, {"pipes", eat_pipes}, {"files", eat_files},
	};
	const char *wanted = argc > 1 ? argv[1] : "pages";

	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++)
		if (strcmp(wanted, kinds[kind].name) == 0)
			for (;;)
				kinds[kind].eat();
	fprintf(stderr, "hungry: no kind %s\n", wanted);
	return 2;
}
