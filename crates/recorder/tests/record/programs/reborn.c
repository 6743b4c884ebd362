/* Files that are mapped and deleted one after the other under one name: the file system may give
 * the inode number of one to the next. The second half has two at a time. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    for (int i = 0; i < 20; i++) {
        int fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || ftruncate(fd, (i + 1) * 4096))
            return 1;
        char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        p[0] = 1;
        unlink(argv[1]);
        close(fd);
        if (i < 10)
            munmap(p, 4096);
    }
    return 0;
}
