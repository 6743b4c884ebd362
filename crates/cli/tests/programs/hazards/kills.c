/* Kills a merge, its tracer or both, at a random moment, or at a step of an agent that is waited for. Prints, for
 * example, `kill-tracer 1 3+ 3+ 3+`: the number of killed processes, the step that was waited for or `random`, and what
 * the agent's record showed immediately before and after. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bully.h"

#define MOST_CHILDREN 8
#define REST_US 10
/* Number of looks at a running agent without a rest, and of rests without a look at the merge. */
#define LOOKS 20000
#define RESTS 20
/* Seconds after which any step will do in which an agent works, and after which the merge is left alone. */
#define LATE_S 15
#define GIVE_UP_S 25

enum victims { MERGE = 1, TRACER = 2 };

/* The steps that are waited for, as record.c names them. Pages are out in half of them. The shortest are often over
 * before the kill. */
static const char *const aims[] = {"born", "0",  "0",  "1",  "1+", "1+", "2+", "2+",
                                   "2+",   "3+", "3+", "3+", "4",  "4",  "4",  "5"};

static pid_t children[MOST_CHILDREN];
static unsigned child_count;

/* Lists the children of the merge, which has only one thread. */
static void list_children(void)
{
    char path[64];
    int child;
    child_count = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)vmarea, (int)vmarea);
    FILE *list = fopen(path, "re");
    while (list && child_count < MOST_CHILDREN && fscanf(list, "%d", &child) == 1)
        children[child_count++] = child;
    if (list)
        fclose(list);
}

/* Returns the agent of this merge; 0 if there is none, or one of another merge. */
static pid_t find_agent(void)
{
    list_children();
    for (unsigned i = 0; i < child_count; i++)
        if (children[i] == record_tracer())
            return record_agent();
    return 0;
}

static void kill_these(enum victims victims)
{
    if (victims & MERGE)
        count += kill(vmarea, SIGKILL) == 0;
    for (unsigned i = 0; (victims & TRACER) && i < child_count; i++)
        count += kill(children[i], SIGKILL) == 0;
}

/* An agent and the tracer must not keep the processor from this process. */
static void be_prompt(void)
{
    struct sched_param first = {.sched_priority = 2};
    sched_setscheduler(0, SCHED_RR, &first);
    prctl(PR_SET_TIMERSLACK, 1UL);
}

static void spin(double seconds)
{
    for (double end = now() + seconds; now() < end;)
        ;
}

/* Returns how many agents in the step to let pass. The first agents of a merge have no piece. */
static uint64_t choose_passes(const char *aim)
{
    return strchr("123", aim[0]) || below(4) ? below(3) : 5 + below(6);
}

/* Polls until an agent is in the step, or in any if that takes long. Returns the agent; 0 if the merge ends before. */
static pid_t await(const char *aim)
{
    const double late = now() + LATE_S, give_up = now() + GIVE_UP_S;
    uint64_t passes = choose_passes(aim);
    pid_t agent = 0, passed = 0;
    for (unsigned looks = 0, rests = 0; now() < give_up;) {
        /* Any id will do to see whether there is an agent. */
        struct record seen = record_read(agent ? agent : target);
        if (!agent && ((seen.goes && !seen.frees) || record_is_fresh())) {
            agent = find_agent();
            seen = record_read(agent);
        }
        bool is_late = now() > late && seen.goes, is_wanted = is_late || strcmp(record_name(&seen), aim) == 0;
        if (agent && agent != passed && is_wanted && (!seen.frees || record_is_alive(agent))) {
            if (is_late || passes-- == 0)
                return agent;
            passed = agent;
        }
        if (agent && !seen.frees && ++looks % LOOKS)
            continue;
        usleep(REST_US);
        agent = record_is_alive(agent) ? agent : 0;
        if (rests++ % RESTS == 0) {
            record_open();
            if (kill(vmarea, 0))
                return 0;
        }
    }
    return 0;
}

static void print(const char *mode, const char *aim, const struct record *before, const struct record *after)
{
    printf("%s %lu %s %s %s\n", mode, count, aim, record_name(before), record_name(after));
}

/* Kills the victims, one after the other if there is a second time. */
static void shoot(const char *mode, const char *aim, pid_t agent, enum victims first, enum victims second)
{
    struct record before = record_read(agent);
    kill_these(first);
    if (second && strcmp(aim, "random") == 0 && below(2))
        wait_for_moment();
    kill_these(second);
    struct record after = record_read(agent);
    if (agent && !record_is_alive(agent))
        after.agent = 0;
    if (!agent && record_open())
        after = record_read(record_agent());
    print(mode, aim, &before, &after);
}

static void kill_at_moment(const char *mode, enum victims first, enum victims second)
{
    const char *aim = below(4) ? aims[below(sizeof aims / sizeof *aims)] : "random";
    pid_t agent = 0;
    be_prompt();
    if (strcmp(aim, "random") == 0) {
        wait_for_moment();
        record_open();
        agent = find_agent();
    } else {
        agent = await(aim);
        if (!agent) {
            printf("%s 0\n", mode);
            return;
        }
        /* Not always at the beginning of the step. */
        bool is_short = strpbrk(aim, "024");
        if (below(is_short ? 4 : 2) == 0)
            spin((double)below(is_short ? 15 : 60) * 1e-6);
    }
    shoot(mode, aim, agent, first, second);
}

void kill_merge(void)
{
    kill_at_moment("kill-merge", MERGE, 0);
}

void kill_tracer(void)
{
    kill_at_moment("kill-tracer", TRACER, 0);
}

void kill_both(void)
{
    enum victims first = below(2) ? MERGE : TRACER;
    kill_at_moment("kill-both", first, first == MERGE ? TRACER : MERGE);
}
