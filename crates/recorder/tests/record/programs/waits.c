/* One thread fills memory by a call that waits, at each page, for another thread, which must change the
 * address space first. Exits with 77 if userfaultfd is not available. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define PAGES 3L
static int fd;

static void *handler(void *unused) {
    for (int i = 0; i < PAGES; i++) {
        struct uffd_msg message;
        if (read(fd, &message, sizeof message) != sizeof message) abort();
        char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) abort();
        *page = 1;
        struct uffdio_copy copy = {message.arg.pagefault.address & ~4095ull,
                                   (unsigned long)page, 4096, 0, 0};
        if (ioctl(fd, UFFDIO_COPY, &copy)) abort();
        munmap(page, 4096);
    }
    return unused;
}

int main(void) {
    alarm(20);
    fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {UFFD_API, 0, 0};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) return 77;
    char *area = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {{(unsigned long)area, PAGES * 4096},
                                    UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(fd, UFFDIO_REGISTER, &range)) return 77;
    pthread_t thread;
    pthread_create(&thread, 0, handler, 0);
    if (madvise(area, PAGES * 4096, MADV_POPULATE_WRITE)) return 2;
    pthread_join(thread, 0);
    return area[4096] == 1 ? 0 : 3;
}
