#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Number of the next step; true if a result has differed from the recorded one. */
static volatile int *turn;
static int me;
static sigjmp_buf back;
static int files[7];
static int uffd = -1;
static int segments[2];
struct range { unsigned long start, end; char perms[5]; };
static uintptr_t heap, special;

/* Result of a step: a value, an error number, or a signal with its code. */
enum kind { VALUE, ERROR, SIGNAL };
static volatile enum kind came_to;
static volatile uint64_t came;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)context;
	came_to = SIGNAL;
	came = signal << 8 | info->si_code;
	printf("signal %d code %d\n", signal, info->si_code);
	siglongjmp(back, 1);
}

static __attribute__((unused)) void result(long value)
{
	came_to = value == -1 ? ERROR : VALUE;
	came = value == -1 ? errno : value;
	if (value == -1)
		printf("%s\n", strerror(errno));
	else
		printf("%#lx\n", value);
}

static __attribute__((unused)) void load(uintptr_t at)
{
	if (!sigsetjmp(back, 1))
		result(*(volatile uint64_t *)at);
}

static __attribute__((unused)) void store(uintptr_t at, uint64_t value)
{
	if (!sigsetjmp(back, 1)) {
		*(volatile uint64_t *)at = value;
		result(0);
	}
}

/* Checks the result against that of the kernel that recorded the steps. */
static __attribute__((unused)) void expect(enum kind kind, uint64_t value)
{
	if (came_to == kind && came == value)
		return;
	printf("# not as it was: %s %#llx\n", kind == VALUE ? "value" : kind == ERROR ? "error" : "signal",
	       (unsigned long long)value);
	turn[1] = 1;
}

static int a_file(int fd, uint64_t number)
{
	for (uint64_t page = 0; page < FILE_PAGES; page++) {
		uint64_t stamp = number << 32 | 0x5eed0000 | page;
		if (pwrite(fd, &stamp, sizeof(stamp), page * 4096) < 0)
			perror("pwrite");
	}
	if (ftruncate(fd, FILE_PAGES * 4096L) < 0)
		perror("ftruncate");
	return fd;
}

static void open_files(void)
{
	char one[] = "/tmp/conform-XXXXXX", two[] = "/tmp/conform-XXXXXX";

	files[0] = a_file(mkstemp(one), 1);
	files[1] = open(one, O_RDWR);
	a_file(mkstemp(two), 2);
	files[2] = open(two, O_RDONLY);
	files[3] = a_file(memfd_create("conform", 0), 3);
	files[4] = open("/dev/zero", O_RDWR);
	files[5] = syscall(447 /* memfd_secret */, O_CLOEXEC);
	files[6] = memfd_create("conform-huge", MFD_HUGETLB);
	if (ftruncate(files[5], FILE_PAGES * 4096L) < 0 || ftruncate(files[6], 8 << 20) < 0)
		perror("memfd_secret or MFD_HUGETLB");
	unlink(one);
	unlink(two);
}

/* Shared memory segments, which end with the last process, and a userfaultfd that raises SIGBUS. */
static void open_others(void)
{
	size_t lengths[2] = { 6 * 4096, 4096 + 100 };
	uint64_t api[3] = { 0xaa, 1 << 7 | 1 << 17, 0 };

	for (int n = 0; n < 2; n++) {
		segments[n] = shmget(IPC_PRIVATE, lengths[n], 0700);
		shmat(segments[n], (void *)(KEEP + n * 0x10000), 0);
		shmctl(segments[n], IPC_RMID, NULL);
	}
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0 || ioctl(uffd, 0xc018aa3fUL, api) == 0)
		return;
	/* Without mode RWP, which came with Linux 7.3. */
	api[0] = 0xaa, api[1] = 1 << 7;
	if (ioctl(uffd, 0xc018aa3fUL, api) < 0)
		perror("UFFDIO_API");
}

/* Creates mappings outside of the arena, until the process can create only a few more. */
static __attribute__((unused)) void fill(unsigned long leave)
{
	unsigned long limit = 0, count = 0, pages;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	int c;

	if (!file || fscanf(file, "%lu", &limit) != 1)
		limit = 65530;
	if (file)
		fclose(file);
	file = fopen("/proc/self/maps", "r");
	while (file && (c = fgetc(file)) != EOF)
		count += c == '\n';
	if (file)
		fclose(file);
	/* The vsyscall page is listed but does not count. */
	pages = limit - (count - 1) - leave;
	if (mmap((void *)FILL, pages * 4096, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		perror("mmap");
	for (unsigned long n = 0; n < pages / 2; n++)
		if (mprotect((void *)(FILL + (2 * n + 1) * 4096), 4096, PROT_READ))
			perror("mprotect");
	puts("filled");
}

/* Reads the next line of a file, without malloc: the steps may have unmapped the heap. */
static int next_line(int fd, char *line, size_t size)
{
	static char text[4096];
	static ssize_t at, end;
	size_t length = 0;

	while (length + 1 < size) {
		if (at == end) {
			at = 0;
			end = read(fd, text, sizeof(text));
			if (end <= 0) {
				end = 0;
				break;
			}
		}
		line[length++] = text[at++];
		if (line[length - 1] == '\n')
			break;
	}
	line[length] = 0;
	return length > 0;
}

/* Start of the kernel's own mappings. */
static uintptr_t find_special(void)
{
	static char line[4096];
	int maps = open("/proc/self/maps", O_RDONLY);
	uintptr_t found = 0;

	while (next_line(maps, line, sizeof(line)))
		if (!found && (strstr(line, "[vvar") || strstr(line, "[vdso]")))
			found = strtoul(line, NULL, 16);
	close(maps);
	return found;
}

/* Prints the mappings, and compares them with those of the kernel that recorded the steps. */
static void show_mappings(const struct range *expected, int count)
{
	static char line[4096];
	int maps = open("/proc/self/maps", O_RDONLY);
	int found = 0, same = 1;

	while (next_line(maps, line, sizeof(line))) {
		char *rest, perms[5];
		unsigned long start = strtoul(line, &rest, 16), end = strtoul(rest + 1, &rest, 16);

		snprintf(perms, sizeof(perms), "%s", rest + 1);
		if (start >= ARENA_START && start < ARENA_END) {
			const struct range *range = &expected[found++];

			if (found > count || range->start != start || range->end != end ||
			    strcmp(range->perms, perms))
				same = 0;
		} else if (!strstr(line, "[heap]")) {
			continue;
		}
		fputs(line, stdout);
	}
	if (count >= 0 && (found != count || !same)) {
		puts("# not as it was: mappings");
		turn[1] = 1;
	}
}
