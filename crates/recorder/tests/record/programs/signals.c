/* Sends itself ordinary, queued and stopping signals, and counts what arrives. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int usual, queued, alarms;
static void on_usual(int s) { (void)s; usual++; }
static void on_queued(int s) { (void)s; queued++; }
static void on_alarm(int s) { (void)s; alarms++; }

int main(void) {
    signal(SIGUSR1, on_usual);
    signal(SIGALRM, on_alarm);
    signal(SIGRTMIN + 3, on_queued);
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    for (int i = 0; i < 7; i++) {
        union sigval value = {i};
        sigqueue(getpid(), SIGRTMIN + 3, value);
    }
    int go[2];
    char byte;
    if (pipe(go)) return 1;
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(read(go[0], &byte, 1) == 1 ? 3 : 4);
    }
    int status, stopped = 0, continued = 0;
    if (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) stopped = 1;
    /* The process must remain stopped until SIGCONT. */
    struct timespec nap = {0, 50000000};
    nanosleep(&nap, 0);
    int still = waitpid(child, &status, WNOHANG) == 0;
    kill(child, SIGCONT);
    if (waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status)) continued = 1;
    if (write(go[1], "x", 1) != 1) return 1;
    waitpid(child, &status, 0);
    /* An interrupted sleep continues for the remaining time. */
    ualarm(10000, 0);
    struct timespec left, sleep = {0, 60000000};
    while (nanosleep(&sleep, &left) == -1 && errno == EINTR) sleep = left;
    printf("usual %d queued %d stopped %d still %d continued %d exit %d alarms %d\n", usual, queued,
           stopped, still, continued, WEXITSTATUS(status), alarms);
    fflush(stdout);
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
    return 0;
}
