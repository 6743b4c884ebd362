/* Counts, in a kernel, the instructions of single memory calls and page faults, and the TLB flushes that they cause.
 * Prints a line for each: its name, and the median and the least of its counts, or with `flushes` the entries that
 * were flushed from TLBs one by one and the whole flushes, both as averages of a call. A row that begins with `=` is
 * for comparison only.
 *
 * Under `qemu -icount shift=0`, the time stamp counter counts instructions.
 * usage: paths instructions|flushes
 * `flushes` reads Linux's tracepoint tlb:tlb_flush, or the counters that another kernel has in /proc/vmstat. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096L
#define PAGES 256L
#define SPAN (PAGES * PAGE)
#define TRACING "/sys/kernel/tracing/"

typedef volatile char *memory;

static int flushes;
static int rounds;

/* A call without what a C library adds to it. */
static inline long call(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = f;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}

static inline unsigned long counter(void)
{
	unsigned low, high;

	asm volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high)::"memory");
	return (unsigned long)high << 32 | low;
}

/* Checks a result outside of what is counted. */
static long must(const char *what, long result)
{
	if (result < 0 && result > -4096) {
		printf("%s failed with error %ld\n", what, -result);
		exit(1);
	}
	return result;
}

static memory map(long len)
{
	return (memory)must("mmap", call(SYS_mmap, 0, len, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

/* Reads a file without a buffer of its own: the flushes of its own allocations would count. */
static const char *contents(const char *path)
{
	static char text[1 << 18];
	int file = open(path, O_RDONLY);
	long len = 0, part;

	if (file < 0)
		return 0;
	while (len < (long)sizeof(text) - 1 && (part = read(file, text + len, sizeof(text) - 1 - len)) > 0)
		len += part;
	close(file);
	text[len] = 0;
	return text;
}

static void put(const char *path, const char *value)
{
	int file = open(path, O_WRONLY | O_TRUNC);

	if (file < 0 || write(file, value, strlen(value)) < 0) {
		perror(path);
		exit(1);
	}
	close(file);
}

struct flushed {
	long entries, whole;
};

static long field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? atol(at + strlen(name)) : -1;
}

/* The flushes since the trace was emptied, or since the machine started. */
static struct flushed flushed_so_far(void)
{
	const char *text = contents("/proc/vmstat");
	struct flushed sum = { field(text, "nr_tlb_local_flush_one "), field(text, "nr_tlb_local_flush_all ") };

	if (sum.entries >= 0)
		return sum;
	sum = (struct flushed){ 0, 0 };
	put(TRACING "tracing_on", "0");
	for (text = contents(TRACING "trace"); (text = strstr(text, "tlb_flush: pages:")); text++) {
		long pages = atol(text + strlen("tlb_flush: pages:"));

		if (pages < 0)
			sum.whole++;
		else
			sum.entries += pages;
	}
	put(TRACING "trace", "");
	put(TRACING "tracing_on", "1");
	return sum;
}

static void begin_tracing(void)
{
	if (strstr(contents("/proc/vmstat"), "nr_tlb_local_flush_one "))
		return;
	mount("tracefs", TRACING, "tracefs", 0, 0);
	put(TRACING "events/tlb/tlb_flush/enable", "1");
	put(TRACING "tracing_on", "1");
	/* What reading a trace does for the first time is over before anything counts. */
	flushed_so_far();
}

/* The counts of one row. */
static unsigned long counts[512];
static int made;
static struct flushed sum, before;
static unsigned long begun;

static inline void start(void)
{
	if (flushes)
		before = flushed_so_far();
	begun = counter();
}

static inline void stop(void)
{
	counts[made++] = counter() - begun;
	if (flushes) {
		struct flushed now = flushed_so_far();
		int traced = strstr(contents("/proc/vmstat"), "nr_tlb_local_flush_one ") == 0;

		sum.entries += now.entries - (traced ? 0 : before.entries);
		sum.whole += now.whole - (traced ? 0 : before.whole);
	}
}

#define COUNT(statement) \
	do { \
		start(); \
		statement; \
		stop(); \
	} while (0)

static int compare(const void *one, const void *other)
{
	unsigned long a = *(const unsigned long *)one, b = *(const unsigned long *)other;

	return a < b ? -1 : a > b;
}

static void row(const char *name)
{
	if (flushes) {
		printf("%s: %.2f %.2f\n", name, (double)sum.entries / made, (double)sum.whole / made);
	} else {
		qsort(counts, made, sizeof(*counts), compare);
		printf("%s: %lu %lu\n", name, counts[made / 2], counts[0]);
	}
	fflush(stdout);
	made = 0;
	sum = (struct flushed){ 0, 0 };
}

static void touch(memory at, long from)
{
	for (long i = from; i < PAGES; i++)
		at[i * PAGE] = 1;
}

static void end_of(long child)
{
	int status;

	must("wait4", call(SYS_wait4, child, (long)&status, 0, 0, 0, 0));
}

static void calls(void)
{
	long i, result;
	memory at;

	for (i = 0; i < 16; i++)
		COUNT();
	row("= reading the counter");
	for (i = 0; i < rounds; i++)
		COUNT(call(SYS_getpid, 0, 0, 0, 0, 0, 0));
	row("= getpid");
	for (i = 0; i < rounds; i++) {
		COUNT(at = (memory)call(SYS_mmap, 0, 4 * PAGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
		must("mmap", (long)at);
		must("munmap", call(SYS_munmap, (long)at, 4 * PAGE, 0, 0, 0, 0));
	}
	row("mmap 4 pages");
	for (i = 0; i < rounds; i++) {
		at = map(4 * PAGE);
		COUNT(result = call(SYS_munmap, (long)at, 4 * PAGE, 0, 0, 0, 0));
		must("munmap", result);
	}
	row("munmap, untouched");
	for (i = 0; i < rounds; i++) {
		at = map(4 * PAGE);
		at[0] = 1;
		COUNT(result = call(SYS_munmap, (long)at, 4 * PAGE, 0, 0, 0, 0));
		must("munmap", result);
	}
	row("munmap, one page touched");
}

static void faults(void)
{
	long count = flushes ? rounds : PAGES;
	memory at = map(SPAN);

	at[0] = 1;
	for (long i = 1; i < count; i++)
		COUNT(at[i * PAGE] = 1);
	row("anonymous write fault");
	munmap((void *)at, SPAN);
	at = map(SPAN);
	at[0];
	for (long i = 1; i < count; i++)
		COUNT((void)at[i * PAGE]);
	row("read fault, zero page");
	munmap((void *)at, SPAN);
}

static long protect(memory at, long pages, int prot)
{
	return call(SYS_mprotect, (long)at, pages * PAGE, prot, 0, 0, 0);
}

static void protection(memory at)
{
	memory page = at + 16 * PAGE;
	long i, result;

	for (i = 0; i < rounds; i++) {
		COUNT(result = protect(page, 1, PROT_READ));
		must("mprotect", result);
		must("mprotect", protect(page, 1, PROT_READ | PROT_WRITE));
	}
	row("mprotect that splits");
	for (i = 0; i < rounds; i++) {
		must("mprotect", protect(page, 1, PROT_READ));
		COUNT(result = protect(page, 1, PROT_READ | PROT_WRITE));
		must("mprotect", result);
	}
	row("mprotect that merges");
	for (i = 0; i < rounds; i++) {
		COUNT(result = protect(at, PAGES, PROT_READ));
		must("mprotect", result);
		must("mprotect", protect(at, PAGES, PROT_READ | PROT_WRITE));
	}
	row("mprotect of 256 pages to read-only");
	for (i = 0; i < rounds; i++) {
		must("mprotect", protect(at, PAGES, PROT_READ));
		COUNT(result = protect(at, PAGES, PROT_READ | PROT_WRITE));
		must("mprotect", result);
	}
	row("mprotect of 256 pages to writable");
	must("mprotect", protect(at, PAGES, PROT_READ));
	must("mprotect", protect(at, PAGES, PROT_READ | PROT_WRITE));
	for (i = 0; i < (flushes ? rounds : PAGES); i++)
		COUNT(at[i * PAGE] = 3);
	row("write after mprotect");
}

/* In the child, whose counts go through a pipe: the parent's pages are copied when it writes. */
static void copied(memory at, int to)
{
	/* The pages that counting itself writes to are copied before anything counts. */
	COUNT();
	made = 0;
	sum = (struct flushed){ 0, 0 };
	for (long i = 0; i < (flushes ? rounds : PAGES); i++)
		COUNT(at[i * PAGE] = 4);
	must("write", write(to, &made, sizeof(made)));
	must("write", write(to, counts, made * sizeof(*counts)));
	must("write", write(to, &sum, sizeof(sum)));
	_exit(0);
}

static void forks(memory at)
{
	long child, i, some = flushes ? rounds : 8;
	int ends[2];

	for (i = 0; i < some; i++) {
		COUNT(child = call(SYS_fork, 0, 0, 0, 0, 0, 0); if (!child) _exit(0));
		end_of(must("fork", child));
		touch(at, 0);
	}
	row("fork of 256 pages");
	for (i = 0; i < some; i++) {
		COUNT(child = call(SYS_fork, 0, 0, 0, 0, 0, 0); if (!child) {
			touch(at, 0);
			_exit(0);
		} end_of(child));
		must("fork", child);
		touch(at, 0);
	}
	row("fork, child writes 256 pages and ends");
	must("pipe", pipe(ends));
	child = must("fork", call(SYS_fork, 0, 0, 0, 0, 0, 0));
	if (!child)
		copied(at, ends[1]);
	must("read", read(ends[0], &made, sizeof(made)));
	must("read", read(ends[0], counts, made * sizeof(*counts)));
	must("read", read(ends[0], &sum, sizeof(sum)));
	end_of(child);
	row("copy-on-write fault");
	for (i = 0; i < (flushes ? rounds : PAGES); i++)
		COUNT(at[i * PAGE] = 4);
	row("write fault, page reused");
}

static void moves(memory at)
{
	for (long i = 0; i < rounds; i++) {
		memory to = map(SPAN);

		COUNT(at = (memory)call(SYS_mremap, (long)at, SPAN, SPAN, 3, (long)to, 0));
		must("mremap", (long)at);
	}
	row("mremap of 256 pages over a mapping");
	for (long i = 0; i < (flushes ? rounds : PAGES); i++)
		COUNT(at[i * PAGE] = 5);
	row("write after mremap");
}

int main(int argc, char **argv)
{
	memory at;

	flushes = argc > 1 && !strcmp(argv[1], "flushes");
	rounds = flushes ? 16 : 64;
	if (flushes)
		begin_tracing();
	/* The shell may not have begun to wait yet, and would run in the middle of a row. */
	usleep(50000);
	calls();
	faults();
	at = map(SPAN);
	touch(at, 0);
	protection(at);
	forks(at);
	touch(at, 0);
	moves(at);
	return 0;
}
