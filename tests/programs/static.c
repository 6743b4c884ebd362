/* A static binary: there is no loader, so only the kernel creates its first mappings, and brk creates its heap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(void)
{
	unsigned long sum = 0;
	for (size_t i = 1; i <= 400; i++) {
		/* Above 128 KiB malloc uses mmap, below it brk. */
		char *block = malloc(i * 1024);
		if (!block)
			return 1;
		memset(block, (int)i, i * 1024);
		sum += (unsigned char)block[i];
		if (i % 3)
			free(block);
	}
	char *pages = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || mprotect(pages + 4 * 4096, 4 * 4096, PROT_READ) != 0)
		return 1;
	pages[0] = 1;
	printf("%lu\n", sum + (unsigned long)pages[5 * 4096]);
	return munmap(pages, 16 * 4096) != 0;
}
