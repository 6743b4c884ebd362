/* Kills 300 children, each while it creates children of its own. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGCHLD, SIG_IGN);
            for (;;)
                if (fork() == 0) _exit(0);
        }
        usleep(rand() % 3000);
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
    return 0;
}
