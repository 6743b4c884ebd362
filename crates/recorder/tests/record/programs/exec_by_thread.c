/* A thread that is not the leader executes /bin/true while other threads run. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static void *busy(void *unused) {
    for (;;) munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    return unused;
}
static void *turn(void *unused) {
    usleep(20000);
    execl("/bin/true", "true", (char *)0);
    return unused;
}
int main(void) {
    pthread_t a, b;
    pthread_create(&a, 0, busy, 0);
    pthread_create(&b, 0, turn, 0);
    pthread_join(b, 0);
    return 9;
}
