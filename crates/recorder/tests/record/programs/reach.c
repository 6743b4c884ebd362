/* Memory that is accessed without a page fault: by another process, and by direct I/O. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char *there = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ready[2], done[2];
    char byte;
    if (argc < 2 || pipe(ready) || pipe(done)) return 1;
    pid_t child = fork();
    if (child == 0) {
        if (read(done[0], &byte, 1) != 1) _exit(1);
        _exit(there[8192] == 7 ? 0 : 2);
    }
    char seven[100];
    memset(seven, 7, sizeof seven);
    struct iovec from = {seven, 100}, to[2] = {{there + 4096, 10}, {there + 8192, 90}};
    if (process_vm_writev(child, &from, 1, to, 2, 0) != 100) return 2;
    if (write(done[1], "x", 1) != 1) return 3;
    int status;
    waitpid(child, &status, 0);
    if (status) return 4;
    int fd = open(argv[1], O_RDONLY | O_DIRECT);
    if (fd < 0) { printf("no O_DIRECT\n"); return 0; }
    char *buffer = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pread(fd, buffer, 8192, 0) != 8192) return 5;
    printf("child %d there %lu buffer %lu\n", child, (unsigned long)there, (unsigned long)buffer);
    return 0;
}
