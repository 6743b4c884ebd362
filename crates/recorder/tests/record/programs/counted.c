/* Makes a known number of calls with known arguments, and prints their results. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <fcntl.h>
#include <unistd.h>

int main(void) {
    char *area = mmap(0, 400 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return 1;
    printf("area %lu\n", (unsigned long)area);
    for (int i = 0; i < 100; i++)
        if (mprotect(area + i * 4 * 4096, 4096, PROT_READ | PROT_WRITE)) return 2;
    for (int i = 0; i < 50; i++)
        area[i * 4 * 4096] = 1;
    for (int i = 0; i < 30; i++)
        if (munmap(area + (i * 4 + 1) * 4096, 4096)) return 3;
    if (munmap(area + 1, 4096) != -1) return 4;
    /* The same open file description twice, another one of the same file, and a memfd. */
    int a = open("/proc/self/exe", O_RDONLY), b = open("/proc/self/exe", O_RDONLY);
    int m = memfd_create("some", 0);
    if (ftruncate(m, 8192)) return 5;
    mmap(0, 4096, PROT_READ, MAP_PRIVATE, a, 0);
    mmap(0, 4096, PROT_READ, MAP_PRIVATE, b, 0);
    mmap(0, 4096, PROT_READ, MAP_PRIVATE, a, 0);
    mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, m, 0);
    struct rlimit limit = {1 << 20, 1 << 21};
    if (setrlimit(RLIMIT_MEMLOCK, &limit)) return 6;
    prctl(0x53564d41, 0, area, 4096, "a name");
    fflush(stdout);
    return 42;
}
