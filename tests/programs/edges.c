/* Calls in edge cases: beyond the address space, below its lowest address, on the kernel's own mappings, on
 * memory that may not become executable, on secret memory, and settings that survive execve. The comparison
 * checks each result; the program itself only checks that it continues to run. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define LAST (-PAGE)

static void beyond(void)
{
	unsigned long ends[] = { -1UL, LAST, LAST - 1, 1UL << 63, 1UL << 47, (1UL << 47) - PAGE };
	void *heap = sbrk(0);

	for (unsigned n = 0; n < sizeof(ends) / sizeof(*ends); n++) {
		syscall(SYS_brk, ends[n]);
		syscall(SYS_munmap, ends[n], ends[n]);
		syscall(SYS_mprotect, heap, ends[n] - (unsigned long)heap, PROT_READ);
		syscall(SYS_mmap, ends[n], PAGE, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		syscall(SYS_mmap, 0, ends[n], 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
}

static void below(void)
{
	for (unsigned long hint = 1; hint < 0x20000; hint = hint * 3 + PAGE)
		mmap((void *)hint, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void vdso(void)
{
	unsigned long start = 0, end = 0;
	char line[256];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[vdso]"))
			sscanf(line, "%lx-%lx", &start, &end);
	fclose(maps);
	if (end - start < 2 * PAGE)
		return;
	munmap((void *)start, PAGE);
	mprotect((void *)start, PAGE, PROT_READ);
	madvise((void *)start, PAGE, MADV_RANDOM);
	mremap((void *)start, end - start, PAGE, 0);
	void *to = mmap(NULL, end - start, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mremap((void *)start, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

static void secret(void)
{
	int fd = syscall(447 /* memfd_secret */, 0);

	if (fd < 0 || ftruncate(fd, PAGE) < 0)
		return;
	char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return;
	at[0] = 1;
	munlock(at, PAGE);
	if (!fork())
		_exit(0);
	wait(NULL);
}

int main(int count, char **arguments)
{
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memory[0] = 1;
	if (count > 1) {
		/* The settings from before execve still apply: both calls are refused, and the memory is mergeable. */
		mprotect(memory, PAGE, PROT_READ | PROT_EXEC);
		munmap(memory, PAGE);
		return 0;
	}
	beyond();
	below();
	vdso();
	secret();
	prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0);
	prctl(65 /* PR_SET_MDWE */, 1, 0, 0, 0);
	mprotect(memory, PAGE, PROT_READ | PROT_EXEC);
	mmap(NULL, PAGE, PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!fork()) {
		execl("/proc/self/exe", arguments[0], "again", (char *)NULL);
		_exit(1);
	}
	int status = 1;
	wait(&status);
	return status != 0;
}
