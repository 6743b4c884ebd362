/* Calls of many kinds, for the importers' tests: built and recorded by capture.sh. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *area;

static void *thread(void *arg)
{
	for (int i = 0; i < 5; i++) {
		char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		p[0] = 1;
		mprotect(p, 4096, PROT_READ);
		munmap(p, 8192);
	}
	area[4096 * (long)arg] = 1;
	return NULL;
}

static void files(const char *self)
{
	int fd = open(self, O_RDONLY);
	char *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
	int twin = dup(fd);
	char *q = mmap(NULL, 4096, PROT_READ, MAP_SHARED, twin, 4096);
	close(fd);
	close(twin);
	printf("%d\n", p[0] + q[0]);
	int mem = memfd_create("heap", MFD_CLOEXEC);
	ftruncate(mem, 16384);
	char *r = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	r[5000] = 1;
	if (mmap((void *)1, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) != MAP_FAILED || errno == 0)
		abort();
}

static void calls(void)
{
	area = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	area[0] = 1;
	madvise(area, 8192, MADV_DONTFORK);
	madvise(area + 8192, 8192, MADV_DONTNEED);
	mlock(area, 4096);
	mlock2(area + 4096, 4096, MLOCK_ONFAULT);
	munlock(area, 4096);
	char *moved = mremap(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, 65536, MREMAP_MAYMOVE);
	munmap(moved, 65536);
	int id = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600);
	char *shm = shmat(id, NULL, 0);
	shm[1] = 1;
	shmdt(shm);
	shmctl(id, IPC_RMID, NULL);
	struct rlimit limit = { 4 << 20, RLIM_INFINITY };
	setrlimit(RLIMIT_MEMLOCK, &limit);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	mlockall(MCL_FUTURE | MCL_ONFAULT);
	munlockall();
	syscall(SYS_mbind, area, 4096, 0, NULL, 0, 0);
	sbrk(0x21000);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		/* The second run, after execve. */
		char *p = malloc(300000);
		memset(p, 1, 300000);
		free(p);
		return 7;
	}
	calls();
	files(argv[0]);
	pthread_t t[2];
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, thread, (void *)(i + 10));
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < 2; i++) {
		if (fork() == 0) {
			area[4096 * 20] = 2;
			if (i == 0)
				_exit(3);
			execl(argv[0], argv[0], "again", NULL);
		}
	}
	int status;
	while (wait(&status) > 0)
		;
	return 0;
}
