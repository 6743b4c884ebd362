/* Tests signal handlers and the information that they get: SIGSEGV and SIGBUS with their addresses, an alternate
 * stack, masks, children, interrupted and restarted calls. Prints a line for each test. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile char *page;
static volatile int caught;
static char handler_stack[65536];

static void on_fault(int number, siginfo_t *info, void *context)
{
	int here;

	(void)context;
	printf("signal %d code %d offset %ld%s\n", number, info->si_code, (long)((char *)info->si_addr - page),
	       (char *)&here >= handler_stack && (char *)&here < handler_stack + sizeof(handler_stack) ? " own stack" : "");
	siglongjmp(back, 1);
}

static void count(int number)
{
	(void)number;
	caught++;
}

static void touch(const char *what, volatile char *at, int write)
{
	printf("%s: ", what);
	if (sigsetjmp(back, 1) == 0) {
		if (write)
			*at = 1;
		else
			(void)*at;
		printf("no signal\n");
	}
}

static void faults(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	stack_t stack = { .ss_sp = handler_stack, .ss_size = sizeof(handler_stack) };
	FILE *file = tmpfile();
	int fd = memfd_create("short", 0);

	(void)file;
	sigaction(SIGSEGV, &action, 0);
	sigaction(SIGBUS, &action, 0);
	page = mmap(0, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	touch("write to a read-only page", page + 10, 1);
	touch("read of a read-only page", page + 10, 0);
	munmap((void *)(page + 8192), 4096);
	touch("read of a hole", page + 8192 + 5, 0);
	mprotect((void *)page, 4096, PROT_NONE);
	touch("read of a page without access", page, 0);
	if (ftruncate(fd, 100))
		perror("ftruncate");
	page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	touch("write to a file", page + 99, 1);
	touch("write beyond the end of a file", page + 4096, 1);
	sigaltstack(&stack, 0);
	action.sa_flags |= SA_ONSTACK;
	sigaction(SIGSEGV, &action, 0);
	munmap((void *)page, 8192);
	touch("read on another stack", page, 0);
}

static void waits(void)
{
	struct sigaction action = { .sa_handler = count };
	struct itimerval soon = { .it_value = { .tv_usec = 20000 } };
	int pipes[2];
	char byte;
	sigset_t set, old;

	sigaction(SIGALRM, &action, 0);
	if (pipe(pipes))
		perror("pipe");
	setitimer(ITIMER_REAL, &soon, 0);
	ssize_t got = read(pipes[0], &byte, 1);
	printf("read: %zd %s, caught %d\n", got, got < 0 ? strerror(errno) : "", caught);
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, 0);
	if (fork() == 0) {
		usleep(100000);
		if (write(pipes[1], "x", 1) != 1)
			_exit(1);
		_exit(7);
	}
	setitimer(ITIMER_REAL, &soon, 0);
	got = read(pipes[0], &byte, 1);
	printf("read again: %zd %c, caught %d\n", got, byte, caught);
	int status;
	wait(&status);
	printf("child: %d\n", WEXITSTATUS(status));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &old);
	signal(SIGUSR1, count);
	raise(SIGUSR1);
	printf("blocked: caught %d\n", caught);
	sigprocmask(SIG_SETMASK, &old, 0);
	printf("unblocked: caught %d\n", caught);
	pid_t child = fork();
	if (child == 0)
		abort();
	siginfo_t info = { 0 };
	waitid(P_PID, child, &info, WEXITED);
	printf("waitid: signal %d code %d status %d\n", info.si_signo, info.si_code, info.si_status);
	child = wait(&status);
	printf("no child: %d %s\n", child, strerror(errno));
}

int main(void)
{
	setvbuf(stdout, 0, _IONBF, 0);
	faults();
	waits();
	return 0;
}
