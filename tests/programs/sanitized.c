/*
 * For AddressSanitizer: threads and child processes that allocate and free memory.
 * usage: sanitized [STEPS]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int steps = 20000;

static void *work(void *seed)
{
	unsigned dice = (unsigned)(size_t)seed;
	char *kept[64] = { 0 };
	for (int i = 0; i < steps; i++) {
		unsigned at = rand_r(&dice) % 64, size = 1 + rand_r(&dice) % 65536;
		free(kept[at]);
		kept[at] = malloc(size);
		memset(kept[at], i, size);
	}
	for (int i = 0; i < 64; i++)
		free(kept[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		steps = atoi(argv[1]);
	pthread_t threads[4];
	for (size_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++)
		if (fork() == 0) {
			work((void *)(size_t)(i + 9));
			return 0;
		}
	int status, failed = 0;
	while (wait(&status) > 0)
		failed |= status;
	puts(failed ? "a child failed" : "all freed");
	return failed != 0;
}
