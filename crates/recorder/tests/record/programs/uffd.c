/* Fills registered memory with UFFDIO_COPY; exits with 77 if that is not permitted. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) return 77;
    char *at = mmap(0, 64 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static char page[4096] __attribute__((aligned(4096)));
    struct uffdio_register range = {.range = {(long)at, 64 * 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(fd, UFFDIO_REGISTER, &range)) return 1;
    for (int i = 0; i < 64; i++) {
        struct uffdio_copy copy = {.dst = (long)at + i * 4096, .src = (long)page, .len = 4096};
        if (ioctl(fd, UFFDIO_COPY, &copy)) return 2;
    }
    return ioctl(fd, UFFDIO_UNREGISTER, &range.range) ? 3 : 0;
}
