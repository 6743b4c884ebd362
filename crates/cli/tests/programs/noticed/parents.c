/* What a program can learn when its parent ends. */
#define _GNU_SOURCE
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "noticed.h"

static void on_death(int signal) {
    tell(signal);
    _exit(0);
}
static void lives_on(void) {
    signal(SIGUSR2, on_death);
    prctl(PR_SET_PDEATHSIG, SIGUSR2);
    tell(getpid());
    sleeps(0);
}
static void has_child(void) {
    born(lives_on);
    char byte;
    check(read(ends[0], &byte, 1) == 1, "read");
}
static void parent_death_signal(void) {
    open_pipes();
    pid_t parent = born(has_child);
    told();
    check(write(ends[1], "x", 1) == 1, "write");
    say("signal %s", told() == SIGUSR2 ? "SIGUSR2" : "another");
    waitpid(parent, 0, 0);
}
static void tells_parent(void) {
    tell(getpid());
    char byte;
    check(read(ends[0], &byte, 1) == 1, "read");
    tell(getppid());
}
static void leaves_child(void) { born(tells_parent); }
static void orphan(void) {
    open_pipes();
    pid_t parent = born(leaves_child);
    told();
    await_end(parent);
    check(write(ends[1], "x", 1) == 1, "write");
    pid_t new_parent = told();
    say("%s", new_parent == parent || new_parent == first_parent ? "the old one" : "another");
}
static void subreaper(void) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    open_pipes();
    pid_t parent = born(leaves_child), child = told();
    await_end(parent);
    check(write(ends[1], "x", 1) == 1, "write");
    say("%s, ", told() == getpid() ? "the subreaper" : "another");
    await_end(child);
    say_waited(child, WNOHANG);
}
static void stopped_job(void) {
    signal(SIGHUP, on_death);
    tell(getpid());
    raise(SIGSTOP);
    sleeps(0);
}
static void leaves_stopped_job(void) {
    setpgid(0, 0);
    pid_t child = born(stopped_job);
    waitpid(child, 0, WUNTRACED);
}
/* In a session of its own, so that the group has no parent in its session, whoever adopts the job. */
static void has_session(void) {
    setsid();
    waitpid(born(leaves_stopped_job), 0, 0);
}
static void orphaned_group(void) {
    open_pipes();
    waitpid(born(has_session), 0, 0);
    told();
    say("signal %s", told() == SIGHUP ? "SIGHUP" : "another");
}

const struct row PARENTS[] = {
    ROW(parent_death_signal), ROW(orphan), ROW(subreaper), ROW(orphaned_group), {0, 0},
};
