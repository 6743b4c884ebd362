// Maps pieces of open files side by side, and checks in its own list which of them the kernel merged.
//
//   files        does so once
//   files PAUSE  says that it is ready, and does so until its standard input ends, with pauses in
//                microseconds
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PIECES = 8 };
static char *const AT = (char *)0x300000000000;

static void check(int right) {
    if (!right) {
        perror("files");
        abort();
    }
}

static int open_anew(const char *name) {
    int fd = open(name, O_RDWR);
    check(fd >= 0);
    return fd;
}

static void map(int fd, int piece, int flags) {
    char *at = AT + piece * PAGE;
    check(mmap(at, PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, piece * PAGE) == at);
}

static int mappings(void) {
    char line[300];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    check(maps != NULL);
    while (fgets(line, sizeof line, maps)) count += strtoul(line, NULL, 16) >> 40 == 0x30;
    fclose(maps);
    return count;
}

static void rounds(const char *name) {
    // One description; its descriptor is closed before the last piece is gone.
    int fd = open_anew(name), other = open_anew(name), copy = dup(fd);
    for (int piece = 0; piece < PIECES; piece++) map(piece % 2 ? fd : copy, piece, MAP_SHARED);
    check(mappings() == 1);
    // Another description of the same file in between.
    map(other, 3, MAP_SHARED);
    check(mappings() == 3);
    map(fd, 3, MAP_SHARED);
    check(mappings() == 1);
    check(munmap(AT + PAGE, (PIECES - 1) * PAGE) == 0);
    close(fd);
    close(copy);
    // The first is still mapped; the others come and go, so that the kernel uses their memory again.
    for (int n = 0; n < 20; n++) {
        int next = open_anew(name);
        map(next, 1, n % 3 ? MAP_SHARED : MAP_PRIVATE);
        map(next, 2, n % 2 ? MAP_SHARED : MAP_PRIVATE);
        close(next);
        check(mappings() >= 2);
        if (n % 4) check(munmap(AT + PAGE, 2 * PAGE) == 0);
    }
    close(other);
    check(munmap(AT, PIECES * PAGE) == 0);
}

int main(int count, char **words) {
    char name[] = "/dev/shm/files-XXXXXX";
    int fd = mkstemp(name);
    check(fd >= 0 && ftruncate(fd, PIECES * PAGE) == 0);
    int pause_us = count > 1 ? atoi(words[1]) : 0;
    if (pause_us) puts("ready");
    fflush(stdout);
    struct pollfd end = {.fd = 0, .events = POLLIN};
    do {
        rounds(name);
        usleep(pause_us);
    } while (pause_us && poll(&end, 1, 0) == 0);
    unlink(name);
    return 0;
}
