/* Allocates memory until none is left. With an argument, forks without end instead; each child uses one page more. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PART (1 << 20)

int main(int argc, char **argv)
{
	(void)argv;
	for (;;) {
		char *part = mmap(0, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (part == MAP_FAILED) {
			perror("mmap");
			return 1;
		}
		if (argc == 1) {
			memset(part, 1, PART);
			continue;
		}
		part[0] = 1;
		if (fork() < 0) {
			perror("fork");
			return 2;
		}
	}
}
