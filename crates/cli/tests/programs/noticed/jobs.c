/* What a program can learn about children that stop and continue. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "noticed.h"

static void stops_as_terminal(void) { raise(SIGTSTP); }
static void stopped(void) { kill(stopped_child(stops), SIGKILL); }
static void stopped_by_terminal(void) { kill(stopped_child(stops_as_terminal), SIGKILL); }
static void stop_info(void) {
    block(SIGCHLD);
    pid_t child = born(stops_and_sleeps);
    say_info(SIGCHLD, child);
    kill(child, SIGCONT);
    say(", ");
    say_info(SIGCHLD, child);
    kill(child, SIGKILL);
}
static void stays_stopped(void) {
    pid_t child = stopped_child(stops_and_sleeps);
    nap(30);
    say(", ");
    say_waited(child, WNOHANG);
    kill(child, SIGCONT);
    say(", ");
    say_waited(child, WCONTINUED);
    kill(child, SIGKILL);
}
static void tells_then_stops(void) {
    signal(SIGUSR1, on_signal);
    raise(SIGSTOP);
    _exit(arrived ? 3 : 4);
}
static void signal_while_stopped(void) {
    pid_t child = stopped_child(tells_then_stops);
    kill(child, SIGUSR1);
    nap(10);
    say(", ");
    say_waited(child, WNOHANG);
    kill(child, SIGCONT);
    say(", ");
    say_waited(child, 0);
}
static void killed_while_stopped(void) {
    pid_t child = stopped_child(stops);
    kill(child, SIGKILL);
    await_end(child);
    say(", ");
    say_waited(child, WNOHANG);
}
static void stops_with_threads(void) {
    has_threads();
    stops();
}
static void stopped_threads(void) {
    pid_t child = stopped_child(stops_with_threads);
    kill(child, SIGCONT);
    say(", ");
    say_waited(child, 0);
}
static void state_of_stopped(void) {
    pid_t child = stopped_child(stops);
    say(", %s", field(child, "State"));
    kill(child, SIGKILL);
}

const struct row JOBS[] = {
    ROW(stopped), ROW(stopped_by_terminal), ROW(stop_info), ROW(stays_stopped),
    ROW(signal_while_stopped), ROW(killed_while_stopped), ROW(stopped_threads), ROW(state_of_stopped),
    {0, 0},
};
