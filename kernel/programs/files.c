/*
 * Memory of files that is given back with its last mapping, and pipes at memory that is not mapped.
 *
 * Prints the same on every Linux. Of memory that was not given back, a machine with less than a gigabyte dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, VMAS = 65000 };

static int result(long value)
{
    return value < 0 ? -errno : (int)value;
}

static char *map(size_t pages, int flags, int fd)
{
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);

    if (at == MAP_FAILED)
        printf("mmap: %s\n", strerror(errno));
    return at;
}

/* Shared anonymous memory, and memfds whose descriptor is closed first: each has one mapping. */
static void last_mappings(void)
{
    for (int i = 0; i < 14000; i++) {
        int fd = i % 2 ? memfd_create("m", 0) : -1;
        if (fd >= 0 && ftruncate(fd, 16 * PAGE))
            printf("ftruncate: %s\n", strerror(errno));
        char *at = map(16, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd);
        if (fd >= 0)
            close(fd);
        memset(at, 1, 16 * PAGE);
        /* A part of it, and the rest by another mapping. */
        munmap(at, 8 * PAGE);
        if (i % 7 == 0)
            mmap(at + 8 * PAGE, 8 * PAGE, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(at + 8 * PAGE, 8 * PAGE);
    }
    puts("mapped and unmapped");
}

/* A child that ends maps them last. */
static void last_process(void)
{
    for (int i = 0; i < 60; i++) {
        char *at = map(2048, MAP_SHARED | MAP_ANONYMOUS, -1);
        pid_t child = fork();
        if (!child) {
            memset(at, 1, 2048 * PAGE);
            _exit(0);
        }
        munmap(at, 2048 * PAGE);
        waitpid(child, NULL, 0);
    }
    puts("mapped by a child");
}

static void seals(void)
{
    int fd = memfd_create("s", MFD_ALLOW_SEALING);
    char *at;

    printf("ftruncate %d\n", result(ftruncate(fd, 2 * PAGE)));
    at = map(2, MAP_SHARED, fd);
    mprotect(at, 2 * PAGE, PROT_READ);
    printf("seal while mapped: %d\n", result(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)));
    munmap(at, PAGE);
    printf("half of it: %d\n", result(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)));
    munmap(at + PAGE, PAGE);
    printf("none of it: %d\n", result(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)));
    close(fd);
}

/* Writes from and reads to memory of which the third page is missing. */
static void pipes(void)
{
    static const int lengths[] = { 1, 100, 4096, 5000, 8192, 12000 };
    static char bytes[1 << 16];
    char *at = map(4, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    int ends[2];

    munmap(at + 2 * PAGE, PAGE);
    for (int offset = 0; offset < 2 * PAGE; offset += 1111)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            int length = lengths[i], wrote, had, got, left;
            if (pipe2(ends, O_NONBLOCK))
                return;
            wrote = result(write(ends[1], at + offset, length));
            had = result(read(ends[0], bytes, sizeof bytes));
            memset(bytes, 'a' + i, sizeof bytes);
            if (write(ends[1], bytes, length) != length)
                puts("a pipe without room");
            got = result(read(ends[0], at + offset, length));
            left = result(read(ends[0], bytes, sizeof bytes));
            printf("%d at %d: wrote %d had %d got %d left %d\n", length, offset, wrote, had, got, left);
            close(ends[0]);
            close(ends[1]);
        }
}

/* A process with nearly all the VMAs that it may have forks, and files can be opened then. */
static void many(void)
{
    char *at = map(2 * VMAS, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    int ends[2], status = 0;

    for (long i = 0; i < VMAS / 2; i++)
        if (mprotect(at + 2 * i * PAGE, PAGE, PROT_READ))
            printf("mprotect %ld: %s\n", i, strerror(errno));
    pid_t child = fork();
    if (!child)
        _exit(pipe2(ends, 0) ? errno : 0);
    waitpid(child, &status, 0);
    printf("fork of many: %s, status %d, pipe %d\n", child > 0 ? "done" : strerror(errno), status,
           result(pipe2(ends, 0)));
}

int main(void)
{
    last_mappings();
    last_process();
    seals();
    pipes();
    many();
    return 0;
}
