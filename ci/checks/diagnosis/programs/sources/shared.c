// Shared memory objects, each mapped once.   usage: shared COUNT system-v|memfd|posix
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
static void *one(int number, const char *way) {
    size_t size = (1 + number % 7) * 4096L;
    if (!strcmp(way, "system-v")) {
        int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
        void *memory = shmat(id, NULL, 0);
        shmctl(id, IPC_RMID, NULL);
        return memory;
    }
    char name[80];
    snprintf(name, sizeof name, "/bench_%d_%d", getpid(), number);
    int file = strcmp(way, "memfd") ? shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600) : memfd_create("frame", 0);
    if (strcmp(way, "memfd")) shm_unlink(name);
    if (file < 0 || ftruncate(file, size)) return MAP_FAILED;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory;
}
int main(int count, char **words) {
    (void)count;
    for (int i = 0; i < atoi(words[1]); i++) {
        char *memory = one(i, words[2]);
        if (memory == MAP_FAILED) return perror(words[2]), 1;
        *memory = 1;
    }
    puts("ready"), fflush(stdout);
    pause();
}
