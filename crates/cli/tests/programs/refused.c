/* Makes calls that the kernel refuses, each for the reason that the argument names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGE 4096UL
#define GIB (1UL << 30)
#define TIB (1UL << 40)
#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static char *map(size_t len, int prot, int flags)
{
	char *at = mmap(NULL, len, prot, flags, -1, 0);

	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

/* The call must have failed with this error. */
static void must(int failed, int wanted)
{
	if (!failed || errno != wanted) {
		fprintf(stderr, "no error %d, but %d\n", wanted, errno);
		exit(2);
	}
}

static void limit(int resource, rlim_t bytes)
{
	struct rlimit both = { bytes, bytes };

	if (setrlimit(resource, &both))
		die("setrlimit");
}

/* Splits mappings until no mapping is left; returns three pages that are one mapping. */
static char *fill(void)
{
	char *whole = map(3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS);
	size_t pages = 1 << 21;
	char *many = map(pages * PAGE, PROT_NONE, RESERVED);
	size_t n;

	for (n = 1; n < pages; n += 2)
		if (mprotect(many + n * PAGE, PAGE, PROT_READ))
			return whole;
	exit(3);
}

__attribute__((noinline)) static void make_hole(char *whole)
{
	must(munmap(whole + PAGE, PAGE), ENOMEM);
}

static void mappings(void)
{
	char *whole = fill();

	make_hole(whole);
	must(madvise(whole + PAGE, PAGE, MADV_DONTFORK), EAGAIN);
	must(mlock(whole + PAGE, PAGE), ENOMEM);
}

static void sizes(void)
{
	limit(RLIMIT_DATA, GIB);
	must(mmap(NULL, 2 * GIB, PROT_READ | PROT_WRITE, RESERVED, -1, 0) == MAP_FAILED, ENOMEM);
	limit(RLIMIT_AS, 4 * GIB);
	must(mmap(NULL, 8 * GIB, PROT_NONE, RESERVED, -1, 0) == MAP_FAILED, ENOMEM);
}

static void gaps(void)
{
	map(64 * TIB, PROT_NONE, RESERVED);
	must(mmap(NULL, 100 * TIB, PROT_NONE, RESERVED, -1, 0) == MAP_FAILED, ENOMEM);
	map(GIB / 2, PROT_NONE, RESERVED | MAP_32BIT);
	must(mmap(NULL, 600UL << 20, PROT_NONE, RESERVED | MAP_32BIT, -1, 0) == MAP_FAILED, ENOMEM);
}

static void moves(void)
{
	char *at = map(4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS);

	if (mprotect(at + PAGE, PAGE, PROT_NONE))
		die("mprotect");
	must(mremap(at, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED, EFAULT);
	if (munmap(at + 3 * PAGE, PAGE))
		die("munmap");
	must(mprotect(at, 4 * PAGE, PROT_READ), ENOMEM);
	must(mmap(at, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED,
	     EEXIST);
}

/* Each half could be written, but a copy of the whole is more than the machine's memory. */
static void forks(void)
{
	struct sysinfo all;
	size_t half;
	char *whole;

	if (sysinfo(&all))
		die("sysinfo");
	half = (all.totalram + all.totalswap) / 4 * 3 / PAGE * all.mem_unit * PAGE;
	whole = map(2 * half, PROT_NONE, RESERVED);
	for (int n = 0; n < 2; n++)
		if (mmap(whole + n * half, half, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			die("mmap");
	must(fork() < 0, ENOMEM);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "mappings"))
		mappings();
	else if (!strcmp(what, "sizes"))
		sizes();
	else if (!strcmp(what, "gaps"))
		gaps();
	else if (!strcmp(what, "moves"))
		moves();
	else if (!strcmp(what, "forks"))
		forks();
	else
		return 4;
	return 0;
}
