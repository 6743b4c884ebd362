/*
 * Threads that allocate memory, search in it and free it, like the threads of a web server.
 *
 * Ten chunks of sorted numbers are created first. Each thread repeatedly copies a part of a chunk into newly
 * allocated memory, searches the copy for a number, and frees the copy. The C library is told not to map
 * allocations separately: each thread works in an arena of its own (or shares one if there are many
 * threads), which returns its pages to the kernel and faults them in again each time.
 *
 * usage: searcher THREADS COPIES      COPIES is per thread; prints how many numbers were found
 */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 10, NUMBERS = 256 * 1024 / sizeof(uint64_t), MOST_THREADS = 1024 };

static uint64_t *chunks[CHUNKS];
static unsigned long copies;

struct worker {
	pthread_t thread;
	uint64_t dice;
	unsigned long found;
};

static uint64_t throw(uint64_t *dice)
{
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return *dice;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void *work(void *argument)
{
	struct worker *self = argument;

	for (unsigned long n = 0; n < copies; n++) {
		const uint64_t *chunk = chunks[throw(&self->dice) % CHUNKS];
		/* Half a chunk or more, so that sizes differ. */
		size_t count = NUMBERS / 2 + throw(&self->dice) % (NUMBERS / 2);
		uint64_t *copy = malloc(count * sizeof *copy);
		uint64_t wanted = throw(&self->dice) % (NUMBERS * 2);

		if (!copy) {
			perror("searcher: malloc");
			exit(1);
		}
		memcpy(copy, chunk, count * sizeof *copy);
		if (bsearch(&wanted, copy, count, sizeof *copy, compare))
			self->found++;
		free(copy);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct worker workers[MOST_THREADS];
	unsigned long threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 2, found = 0;

	copies = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
	if (threads < 1 || threads > MOST_THREADS) {
		fprintf(stderr, "searcher: 1 to %d threads\n", MOST_THREADS);
		return 2;
	}
	mallopt(M_MMAP_MAX, 0);
	for (int c = 0; c < CHUNKS; c++) {
		chunks[c] = malloc(NUMBERS * sizeof(uint64_t));
		if (!chunks[c]) {
			perror("searcher: malloc");
			return 1;
		}
		for (size_t n = 0; n < NUMBERS; n++)
			chunks[c][n] = n * 2;
	}
	for (unsigned long n = 0; n < threads; n++) {
		workers[n].dice = 0x9e3779b97f4a7c15u * (n + 1);
		if (pthread_create(&workers[n].thread, NULL, work, &workers[n])) {
			fprintf(stderr, "searcher: no thread %lu\n", n);
			return 1;
		}
	}
	for (unsigned long n = 0; n < threads; n++) {
		pthread_join(workers[n].thread, NULL);
		found += workers[n].found;
	}
	printf("%lu\n", found);
	return 0;
}
