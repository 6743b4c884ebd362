/*
 * Eight threads that map, unmap, protect, move and touch memory at random for two seconds.
 *
 * Half of the steps are in an arena that all threads share, so that one thread's call splits, merges
 * or unmaps mappings that another thread has just created; the other half are in the thread's own mappings.
 * Calls may fail, and an access may hit a hole: both are intended, and the thread catches SIGSEGV and
 * SIGBUS. A step never accesses memory that this file did not map.
 *
 * usage: threads [SEED [SECONDS [THREADS]]]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, ARENA_PAGES = 2048, OWN = 16, OWN_PAGES = 64, MOST_THREADS = 64 };

struct worker {
	pthread_t thread;
	uint64_t dice;
	double until;
	unsigned long steps, refused, caught;
	struct { char *at; size_t pages; } own[OWN];
};

static char *arena;
/* Keeps the workers waiting until all stacks are mapped: a stack must not be placed in a hole of the arena. */
static pthread_barrier_t all_there;
static __thread sigjmp_buf landing;
static __thread volatile sig_atomic_t touching;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* xorshift64*: the same seed gives the same steps; the scheduler determines the interleaving. */
static uint32_t roll(struct worker *w, uint32_t sides)
{
	w->dice ^= w->dice >> 12;
	w->dice ^= w->dice << 25;
	w->dice ^= w->dice >> 27;
	return (uint32_t)((w->dice * 2685821657736338717ull) >> 33) % sides;
}

static void on_fault(int signal_number)
{
	if (touching)
		siglongjmp(landing, 1);
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

static void touch(struct worker *w, volatile char *at, int write)
{
	if (sigsetjmp(landing, 0)) {
		touching = 0;
		w->caught++;
		return;
	}
	touching = 1;
	if (write)
		*at = 1;
	else
		(void)*at;
	touching = 0;
}

static int some_protection(struct worker *w)
{
	static const int protections[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE };
	return protections[roll(w, 4)];
}

static void count(struct worker *w, int failed)
{
	w->steps++;
	w->refused += failed;
}

/* A step in the arena, where every thread may do anything to any page. */
static void step_shared(struct worker *w)
{
	size_t from = roll(w, ARENA_PAGES - 32);
	size_t pages = 1 + roll(w, 31);
	char *at = arena + from * PAGE;

	switch (roll(w, 8)) {
	case 0:
	case 1:
		count(w, mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
		break;
	case 2:
		count(w, munmap(at, pages * PAGE) != 0);
		break;
	case 3:
		count(w, mprotect(at, pages * PAGE, some_protection(w)) != 0);
		break;
	case 4: {
		char *to = arena + (size_t)roll(w, ARENA_PAGES - 32) * PAGE;
		count(w, mremap(at, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED);
		break;
	}
	case 5:
		count(w, madvise(at, pages * PAGE, roll(w, 2) ? MADV_DONTNEED : MADV_DONTFORK) != 0);
		break;
	default:
		touch(w, at + roll(w, (uint32_t)pages) * PAGE, roll(w, 4) != 0);
		w->steps++;
	}
}

/* A step with one of the thread's own mappings, placed by the kernel. */
static void step_own(struct worker *w)
{
	uint32_t which = roll(w, OWN);
	char **at = &w->own[which].at;
	size_t *pages = &w->own[which].pages;

	if (!*at) {
		*pages = 1 + roll(w, OWN_PAGES - 1);
		char *got = mmap(NULL, *pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (got != MAP_FAILED)
			*at = got;
		count(w, got == MAP_FAILED);
		return;
	}
	switch (roll(w, 5)) {
	case 0:
		count(w, munmap(*at, *pages * PAGE) != 0);
		*at = NULL;
		break;
	case 1: {
		size_t want = 1 + roll(w, OWN_PAGES - 1);
		char *got = mremap(*at, *pages * PAGE, want * PAGE, MREMAP_MAYMOVE);
		if (got != MAP_FAILED) {
			*at = got;
			*pages = want;
		}
		count(w, got == MAP_FAILED);
		break;
	}
	case 2:
		count(w, mprotect(*at, (1 + roll(w, (uint32_t)*pages)) * PAGE, some_protection(w)) != 0);
		break;
	default:
		touch(w, *at + roll(w, (uint32_t)*pages) * PAGE, 1);
		w->steps++;
	}
}

static void *work(void *argument)
{
	struct worker *w = argument;
	pthread_barrier_wait(&all_there);
	while (now() < w->until) {
		for (int i = 0; i < 16; i++) {
			if (roll(w, 2))
				step_shared(w);
			else
				step_own(w);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	double seconds = argc > 2 ? strtod(argv[2], NULL) : 2.0;
	long threads = argc > 3 ? strtol(argv[3], NULL, 0) : 8;
	static struct worker workers[MOST_THREADS];
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };

	if (threads < 1 || threads > MOST_THREADS || seconds < 0) {
		fprintf(stderr, "usage: %s [SEED [SECONDS [THREADS]]], at most %d threads\n", argv[0], MOST_THREADS);
		return 2;
	}
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);

	arena = mmap(NULL, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	pthread_barrier_init(&all_there, NULL, (unsigned)threads);
	double until = now() + seconds;
	for (long i = 0; i < threads; i++) {
		workers[i].dice = (seed + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)i * 0xbf58476d1ce4e5b9ull;
		workers[i].dice |= 1;
		workers[i].until = until;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
			perror("pthread_create");
			return 1;
		}
	}
	unsigned long steps = 0, refused = 0, caught = 0;
	for (long i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		steps += workers[i].steps;
		refused += workers[i].refused;
		caught += workers[i].caught;
	}
	printf("%ld threads, %lu steps, %lu calls refused, %lu faults caught\n", threads, steps, refused, caught);
	return 0;
}
