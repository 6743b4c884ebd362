/* Checks that a thread never reads what another process wrote to its own copy of a page. A reader thread keeps the
 * pages in its TLB while the parent's writes copy them and the child writes to the old frames. If the kernel let the
 * child write to a frame that another CPU still has in its TLB, the reader would see the child's data.
 * usage: isolation [FORKS] */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 128
#define WORDS 1024
#define SECRET 777

static volatile int *pages;
static volatile int stop;
static volatile long leaks, scans;
static volatile struct {
	int may_write, runs;
} *control;

static void *reader(void *unused)
{
	(void)unused;
	while (!stop) {
		for (int i = 0; i < PAGES; i++)
			if (pages[i * WORDS] == SECRET)
				leaks++;
		scans++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	int forks = argc > 1 ? atoi(argv[1]) : 100;
	pthread_t thread;

	pages = mmap(0, PAGES * WORDS * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	control = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < PAGES; i++)
		pages[i * WORDS] = 1;
	pthread_create(&thread, 0, reader, 0);
	for (int k = 0; k < forks; k++) {
		int status;

		control->may_write = control->runs = 0;
		pid_t child = fork();
		if (child < 0) {
			perror("fork");
			return 2;
		}
		if (child == 0) {
			control->runs = 1;
			while (!control->may_write)
				;
			for (int i = 0; i < PAGES; i++)
				pages[i * WORDS] = SECRET;
			_exit(0);
		}
		while (!control->runs)
			;
		control->may_write = 1;
		for (int i = 0; i < PAGES; i++)
			pages[i * WORDS + 8] = k;
		waitpid(child, &status, 0);
	}
	stop = 1;
	pthread_join(thread, 0);
	fprintf(stderr, "vmarea: %ld scans\n", scans);
	printf("%d forks, %ld leaked reads\n", forks, leaks);
	return leaks != 0;
}
