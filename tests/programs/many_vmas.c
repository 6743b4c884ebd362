/*
 * Many live VMAs in one address space, and calls that split, merge, remove and find them at random.
 * The cost of a replayed call shows how the index behaves as it grows.
 *
 * usage: many_vmas VMAS [CALLS [SEED]]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, PIECE = 4 * PAGE };

static uint64_t dice;

static uint32_t roll(uint32_t sides)
{
	dice ^= dice >> 12;
	dice ^= dice << 25;
	dice ^= dice >> 27;
	return (uint32_t)((dice * 2685821657736338717ull) >> 33) % sides;
}

static void need(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	uint32_t pieces = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1000;
	uint32_t calls = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 20000;
	dice = (argc > 3 ? strtoull(argv[3], NULL, 0) : 1) * 0x9e3779b97f4a7c15ull | 1;
	if (pieces < 2) {
		fprintf(stderr, "usage: %s VMAS [CALLS [SEED]]\n", argv[0]);
		return 2;
	}

	/* Every other piece is writable, so that no two neighbours are equal. */
	size_t length = (size_t)pieces * PIECE;
	char *arena = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	need(arena != MAP_FAILED, "mmap");
	for (uint32_t i = 0; i < pieces; i += 2)
		need(mprotect(arena + (size_t)i * PIECE, PIECE, PROT_READ | PROT_WRITE) == 0, "mprotect");

	for (uint32_t i = 0; i < calls; i++) {
		char *at = arena + (size_t)roll(pieces / 2) * 2 * PIECE;
		switch (roll(3)) {
		case 0: /* split in the middle, then merged again */
			need(mprotect(at + PAGE, PAGE, PROT_READ) == 0, "mprotect");
			need(mprotect(at + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
			break;
		case 1: /* unmapped and mapped again */
			need(munmap(at, PIECE) == 0, "munmap");
			need(mmap(at, PIECE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at, "mmap");
			break;
		default:
			at[roll(PIECE)] = 1;
		}
	}
	return 0;
}
