/*
 * Thousands of threads that live at the same time, with small stacks, each of which allocates a block; then
 * half of them end and as many new ones start in their place, as in servers with a thread per connection.
 * usage: many_threads [THREADS]
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK = 64 << 10, THREADS_MOST = 30000 };

struct worker {
	pthread_t thread;
	sem_t end;
};

static struct worker *workers;

static void *wait_for_end(void *argument)
{
	struct worker *own = argument;
	size_t size = 64 + (size_t)(own - workers) % 4096;
	char *block = malloc(size);
	if (block)
		memset(block, 1, size);
	while (sem_wait(&own->end))
		;
	free(block);
	return NULL;
}

static void start(long at, const pthread_attr_t *attributes)
{
	if (sem_init(&workers[at].end, 0, 0) ||
	    pthread_create(&workers[at].thread, attributes, wait_for_end, &workers[at])) {
		fprintf(stderr, "many_threads: thread %ld cannot be started\n", at);
		exit(1);
	}
}

static void stop(long at)
{
	sem_post(&workers[at].end);
	pthread_join(workers[at].thread, NULL);
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 4000;
	if (threads < 1 || threads > THREADS_MOST) {
		fprintf(stderr, "usage: many_threads [THREADS (1 to %d)]\n", THREADS_MOST);
		return 2;
	}
	workers = calloc((size_t)threads, sizeof *workers);
	pthread_attr_t attributes;
	if (!workers || pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, STACK)) {
		fprintf(stderr, "many_threads: no memory\n");
		return 1;
	}
	for (long at = 0; at < threads; at++)
		start(at, &attributes);
	for (long at = 0; at < threads; at += 2)
		stop(at);
	for (long at = 0; at < threads; at += 2)
		start(at, &attributes);
	for (long at = 0; at < threads; at++)
		stop(at);
	puts("done");
	return 0;
}
