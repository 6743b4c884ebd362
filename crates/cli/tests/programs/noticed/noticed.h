/* What the parts of the program share: a row, and children to learn something about. */
#ifndef NOTICED_H
#define NOTICED_H

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

/* A row of the tables; its body prints what the program has found. A row without a name ends a list. */
struct row {
    const char *name;
    void (*body)(void);
};
#define ROW(name) {#name, name}

extern const struct row CHILDREN[], PARENTS[], JOBS[], PROCESS[], TRACING[], SIGNALS[];
/* What a program prints that `timer_over_exec` has executed. */
void executed(void);

/* The process that started the program, and the program's parent at its start. */
extern pid_t starter, first_parent;
/* Number of signals that `on_signal` has handled. */
extern volatile sig_atomic_t arrived;
/* Pipes of `open_pipes`: to children, and from them. */
extern int ends[2], says[2];

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the name of the error of a call that has failed, "0" for any other result. */
const char *error(long result);
/* Ends the row unless a call has succeeded. */
void check(int good, const char *what);
/* Returns the first word of a line of /proc/PID/status. */
const char *field(pid_t pid, const char *name);
void nap(long ms);
void block(int signal);
siginfo_t signal_info(int signal);
void on_signal(int signal);
/* Creates a child that exits with status 7 after `body`. */
pid_t born(void (*body)(void));
void exits(void);
void stops(void);
void stops_and_sleeps(void);
void *sleeps(void *unused);
/* Creates a thread, whose argument is the thread that creates it. */
pthread_t thread(void *(*body)(void *));
void has_threads(void);
/* Creates a child and waits until it stops. */
pid_t stopped_child(void (*body)(void));
int pidfd_of(pid_t child);
/* Sleeps until the kernel says that a child has ended. */
void await_end(pid_t child);
void say_status(int status);
/* Says what `waitpid` tells about a child. */
void say_waited(pid_t child, int flags);
/* Says what a signal tells that a child sends. */
void say_info(int signal, pid_t child);
void open_pipes(void);
/* Sends a number to the parent. */
void tell(int value);
int told(void);

#endif
