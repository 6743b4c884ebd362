/* Makes calls with ranges that wrap around, with pointers into the kernel or to unmapped memory, and with damaged
 * executable files. Each must fail with an error or a signal, and the machine must keep running. Prints a line for
 * each call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned long bad[] = {
	0, 1, 0xfff, 0x1000, 0x7fffffffefff, 0x7ffffffff000, 0x800000000000, 0xffff7fffffffffff, 0xffff800000000000,
	0xffffffff80000000, 0xffffffff80100000, 0xfffffffffffff000, 0xffffffffffffffff,
};
#define COUNT (sizeof(bad) / sizeof(*bad))

static void print(const char *what, long result)
{
	printf(" %s=%ld/%d", what, result, result == -1 ? errno : 0);
}

static void pointers(void)
{
	int pipes[2], zero = open("/dev/zero", O_RDWR);

	if (pipe(pipes) || write(pipes[1], "abcdef", 6) != 6)
		perror("pipe");
	for (unsigned i = 0; i < COUNT; i++) {
		unsigned long at = bad[i];

		printf("%lx:", at);
		print("read", syscall(SYS_read, zero, at, 8));
		print("write", syscall(SYS_write, pipes[1], at, 8));
		print("open", syscall(SYS_open, at, 0));
		print("stat", syscall(SYS_stat, "/", at));
		print("pipe", syscall(SYS_pipe, at));
		print("wait", syscall(SYS_wait4, -1, at, 0, at));
		print("futex", syscall(SYS_futex, at & ~3UL, 0, 5, 0));
		print("action", syscall(SYS_rt_sigaction, SIGUSR1, at ? at : 8, 0, 8));
		print("exec", syscall(SYS_execve, at, at, at));
		print("argv", syscall(SYS_execve, "/bin/busybox", at ? at : 8, 0));
		print("mincore", syscall(SYS_mincore, (unsigned long)bad & ~0xfffUL, 1, at));
		print("time", syscall(SYS_nanosleep, at, 0));
		print("poll", syscall(SYS_poll, at, 1, 0));
		print("uname", syscall(SYS_uname, at));
		print("getcwd", syscall(SYS_getcwd, at, 100));
		puts("");
	}
}

static void ranges(void)
{
	for (unsigned i = 0; i < COUNT; i++)
		for (unsigned j = 0; j < COUNT; j++) {
			unsigned long at = bad[i] & ~0xfffUL, len = bad[j];

			/* Leaves out ranges that contain the program itself. */
			if (at < 0x7ffffffff000 && at + len > 0x10000)
				continue;
			printf("%lx+%lx:", at, len);
			print("munmap", syscall(SYS_munmap, at, len));
			print("mprotect", syscall(SYS_mprotect, at, len, PROT_READ));
			print("madvise", syscall(SYS_madvise, at, len, MADV_DONTNEED));
			print("mremap", syscall(SYS_mremap, at, len, len, MREMAP_MAYMOVE));
			print("mlock", syscall(SYS_mlock, at, len));
			print("msync", syscall(SYS_msync, at, len, MS_SYNC));
			puts("");
		}
}

static void run(const char *what, const void *bytes, size_t len)
{
	char *const arguments[] = { "torn", 0 };
	int fd = open("/tmp/torn", O_CREAT | O_TRUNC | O_WRONLY, 0755), status;

	if (write(fd, bytes, len) != (ssize_t)len)
		perror("write");
	close(fd);
	pid_t child = fork();
	if (child == 0) {
		execv("/tmp/torn", arguments);
		_exit(errno);
	}
	waitpid(child, &status, 0);
	printf("%s: status %x\n", what, status);
}

static void torn_programs(void)
{
	static unsigned char file[1 << 16], copy[1 << 16];
	int fd = open("/proc/self/exe", O_RDONLY);
	ssize_t len = read(fd, file, sizeof(file));

	run("nothing", file, 0);
	run("four bytes", file, 4);
	run("half a header", file, 32);
	run("a header", file, 64);
	run("text", "hello\n", 6);
	run("script without interpreter", "#!\n", 3);
	run("script of nobody", "#!/bin/nobody\n", 14);
	for (int at = 16; at < 64; at += 2) {
		char name[32];

		memcpy(copy, file, len);
		memset(copy + at, 0xff, 2);
		snprintf(name, sizeof(name), "header byte %d", at);
		/* Leaves out the offset and size of the section headers and the flags, which execution ignores. */
		if ((at < 40 || at >= 52) && at < 58)
			run(name, copy, 4096);
	}
}

static void signals(void)
{
	for (unsigned i = 0; i < COUNT; i++) {
		int status;
		pid_t child = fork();

		if (child == 0) {
			unsigned long at = bad[i];
			/* The stack pointer is invalid, so the signal frame cannot be written. */
			asm volatile("mov %0, %%rsp\n\tud2" : : "r"(at));
		}
		waitpid(child, &status, 0);
		printf("stack %lx: status %x\n", bad[i], status & 0x7f);
		child = fork();
		if (child == 0) {
			asm volatile("jmp *%0" : : "r"(bad[i]));
		}
		waitpid(child, &status, 0);
		printf("jump %lx: status %x\n", bad[i], status & 0x7f);
	}
}

int main(void)
{
	setvbuf(stdout, 0, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	pointers();
	ranges();
	torn_programs();
	signals();
	return 0;
}
