/* A parent, a child and a grandchild that share memory until one of them writes to it. ci/run pictures draws a
 * recording of this program. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL

int main(void)
{
    char *memory = mmap((void *)0x100000000000, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    memory[0] = 'p';
    if (fork() == 0) {
        /* The child copies the page that it writes to. */
        memory[0] = 'c';
        if (fork() == 0) {
            memory[PAGE] = 'g';
            _exit(0);
        }
        wait(NULL);
        _exit(0);
    }
    wait(NULL);
    return 0;
}
