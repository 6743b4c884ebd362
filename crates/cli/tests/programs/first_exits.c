// A process whose first thread exits, while another one maps and unmaps memory until standard input ends.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEN = 4096 };

static void *map_and_unmap(void *unused) {
    for (;;) {
        munmap(mmap(0, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), LEN);
        usleep(1000);
    }
    return unused;
}

static void *end(void *unused) {
    char byte;
    _exit(read(0, &byte, 1) != 0);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, map_and_unmap, 0);
    pthread_create(&thread, 0, end, 0);
    pthread_exit(0);
}
