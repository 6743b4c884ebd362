/* What the files of the bully share. */
#ifndef HAZARDS_BULLY_H
#define HAZARDS_BULLY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The disturbed process, and the merge. */
extern pid_t target, vmarea;
/* What the bully has done. */
extern unsigned long count;

double now(void);
uint64_t below(uint64_t limit);
/* Sleeps until a random moment of the time that is left. */
void wait_for_moment(void);

/* Modes kill-merge, kill-tracer and kill-both (kills.c). They print their line by themselves. */
void kill_merge(void);
void kill_tracer(void);
void kill_both(void);

/* What the agent has noted of itself (record.c). */
struct record {
    /* The agent's thread; 0 if there is no agent. */
    pid_t agent;
    /* The agent may begin, and parked threads may go. */
    bool goes, frees;
    unsigned step;
    /* Pages of a piece have left, and have not all returned. */
    bool is_out;
};

/* Finds the table of a merge, anew if the merge has moved it. Returns false if there is none. */
bool record_open(void);
/* Returns the process that has left the mark; 0 if there is none. */
pid_t record_tracer(void);
/* Returns the agent's thread; 0 if there is none. */
pid_t record_agent(void);
/* Reads the table without a call. */
struct record record_read(pid_t agent);
/* True if a program has been written to the table, and the agent has not been let begin. */
bool record_is_fresh(void);
bool record_is_alive(pid_t agent);
/* Returns the name of what a record shows: none, born, or the step, with a plus sign while pages are out. */
const char *record_name(const struct record *record);

#endif
