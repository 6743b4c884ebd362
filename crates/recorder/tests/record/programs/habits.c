/* Threads that make memory calls as fast as possible while the program does something rare.
 *   killed   the program kills itself
 *   forks    it creates children, and exits while its threads are inside of calls
 *   drops    it gives up its privileges, and creates a child
 *   execs    it executes itself, which ends the threads inside of calls */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int storm(void) {
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 1;
    page[0] = 1;
    return mprotect(page + 4096, 4096, PROT_READ) || munmap(page, 8192);
}

static void *for_ever(void *unused) {
    while (!storm()) {}
    _exit(9);
    return unused;
}

static void child(void) {
    pid_t pid = fork();
    if (pid < 0) _exit(8);
    if (pid == 0) _exit(storm());
    int status;
    if (waitpid(pid, &status, 0) != pid || status) _exit(7);
}

int main(int count, char **words) {
    const char *habit = count > 1 ? words[1] : "";
    pthread_t threads[2];
    if (!strcmp(habit, "drops") && setresuid(65534, 65534, 65534)) return 6;
    for (int n = 0; n < 2; n++)
        if (pthread_create(&threads[n], 0, for_ever, 0)) return 5;
    for (int n = 0; n < 20; n++) {
        usleep(1000);
        if (strcmp(habit, "killed")) child();
    }
    if (!strcmp(habit, "killed")) kill(getpid(), SIGKILL);
    if (!strcmp(habit, "execs")) execl("/proc/self/exe", "habits", "forks", (char *)0);
    _exit(0);
}
