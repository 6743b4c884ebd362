/*
 * Pools of memory that are made, guarded, used, moved and dropped in turn, so that a recording has
 * many events of every kind: faults, merges, splits and refusals.
 *
 * usage: churn ROUNDS [PAGES]
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, KEPT = 1000 };

static void need(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

/* Neighbouring pools merge until one of them is written to or guarded. */
__attribute__((noinline)) static char *make_pool(size_t length)
{
	char *pool = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(pool != MAP_FAILED, "mmap");
	return pool;
}

__attribute__((noinline)) static void use_pool(char *pool, size_t length)
{
	for (size_t at = 0; at < length; at += PAGE)
		pool[at] = 1;
}

__attribute__((noinline)) static void guard_pool(char *pool)
{
	need(mprotect(pool, PAGE, PROT_NONE) == 0, "mprotect");
}

__attribute__((noinline)) static char *move_pool(char *pool, size_t length)
{
	char *moved = mremap(pool, length, 2 * length, MREMAP_MAYMOVE);
	need(moved != MAP_FAILED, "mremap");
	need(munmap(moved + length, length) == 0, "munmap");
	return moved;
}

__attribute__((noinline)) static void drop_pool(char *pool, size_t length)
{
	need(munmap(pool, length) == 0, "munmap");
}

int main(int argc, char **argv)
{
	size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 2000;
	size_t length = (argc > 2 ? strtoul(argv[2], NULL, 0) : 32) * PAGE;
	static char *pools[KEPT];

	for (size_t round = 0; round < rounds; round++) {
		char **place = &pools[round * 37 % KEPT];
		if (*place)
			drop_pool(*place, length);
		*place = make_pool(length);
		use_pool(*place, length);
		if (round % 3 == 0)
			guard_pool(*place);
		else if (round % 50 == 1)
			*place = move_pool(*place, length);
	}
	return 0;
}
