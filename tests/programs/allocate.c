/*
 * Allocation stress: threads that allocate, grow, shrink and free blocks of 16 bytes to 4 MiB, each
 * with a separate table and sometimes with a block of another thread, and write to the blocks. The
 * allocator is the C library's, or another one through LD_PRELOAD. The sequence is the same in every run,
 * except for the interleaving of the threads.
 * usage: allocate [THREADS [STEPS]]
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 2048, THREADS_MOST = 64 };

struct shared_block {
	pthread_mutex_t lock;
	void *block;
};

static struct shared_block exchange[64];
static long steps = 60000;

static uint64_t next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Mostly small sizes, a few large enough for separate mappings. */
static size_t size_of(uint64_t *state)
{
	uint64_t kind = next(state) % 1000;
	if (kind < 900)
		return 16 + next(state) % 2048;
	if (kind < 990)
		return 4096 + next(state) % (128 << 10);
	return (256 << 10) + next(state) % (4 << 20);
}

static void *obtain(void *old, size_t size)
{
	char *block = realloc(old, size);
	if (!block) {
		fprintf(stderr, "allocate: no memory for %zu bytes\n", size);
		exit(1);
	}
	for (size_t at = 0; at < size; at += 4096)
		block[at] = 1;
	block[size - 1] = 1;
	return block;
}

static void *work(void *argument)
{
	uint64_t state = (uintptr_t)argument * 977 + 5;
	void **blocks = calloc(BLOCKS, sizeof *blocks);
	for (long step = 0; step < steps; step++) {
		void **block = &blocks[next(&state) % BLOCKS];
		switch (next(&state) % 8) {
		case 0:
		case 1:
			free(*block);
			*block = NULL;
			break;
		case 2: {
			/* Freed by another thread than the one that allocated it. */
			struct shared_block *other = &exchange[next(&state) % 64];
			pthread_mutex_lock(&other->lock);
			void *theirs = other->block;
			other->block = *block;
			pthread_mutex_unlock(&other->lock);
			*block = theirs;
			break;
		}
		default:
			*block = obtain(*block, size_of(&state));
		}
		/* End of a phase: most blocks are freed. */
		if (step % (steps / 4 + 1) == steps / 4)
			for (int at = 0; at < BLOCKS; at++)
				if (next(&state) % 4) {
					free(blocks[at]);
					blocks[at] = NULL;
				}
	}
	for (int at = 0; at < BLOCKS; at++)
		free(blocks[at]);
	free(blocks);
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 8;
	if (argc > 2)
		steps = atol(argv[2]);
	if (threads < 1 || threads > THREADS_MOST || steps < 1) {
		fprintf(stderr, "usage: allocate [THREADS (1 to %d) [STEPS]]\n", THREADS_MOST);
		return 2;
	}
	pthread_t ids[THREADS_MOST];
	for (int at = 0; at < 64; at++)
		pthread_mutex_init(&exchange[at].lock, NULL);
	for (long at = 0; at < threads; at++)
		if (pthread_create(&ids[at], NULL, work, (void *)(at + 1))) {
			perror("allocate: pthread_create");
			return 1;
		}
	for (long at = 0; at < threads; at++)
		pthread_join(ids[at], NULL);
	puts("done");
	return 0;
}
