// The range in which a case creates its boundaries, and the calls that create them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static char *at;           // the range
static long n;             // boundaries to make
static const char *folder; // for files
static unsigned long used; // bytes of the range

static void skip(const char *what) {
    fprintf(stderr, "skipped: %s: %s\n", what, strerror(errno));
    exit(77);
}

static void must(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void *map(char *where, unsigned long len, int prot, int flags, int fd, off_t offset) {
    void *got = mmap(where, len, prot, flags | MAP_FIXED, fd, offset);
    must(got == where, "mmap");
    return got;
}

static void touch(char *where) { *(volatile char *)where = 1; }

static int file(const char *name, long number, unsigned long bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%ld", folder, name, number);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    must(fd >= 0, path);
    must(ftruncate(fd, bytes) == 0, "ftruncate");
    return fd;
}

// n + 1 pages of one mapping
static void plain(int prot) {
    used = (n + 1) * PAGE;
    map(at, used, prot, ANON, -1, 0);
}

// every other page is given advice
static void advised(int advice, const char *what) {
    plain(RW);
    for (long i = 1; i <= n; i += 2)
        if (madvise(at + i * PAGE, PAGE, advice)) skip(what);
}

static void protected(int prot) {
    plain(RW);
    for (long i = 1; i <= n; i += 2) must(mprotect(at + i * PAGE, PAGE, prot) == 0, "mprotect");
}
