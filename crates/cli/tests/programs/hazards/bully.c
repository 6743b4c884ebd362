/* A process that disturbs a merge of the hazards target, and the target, from outside. Prints what it has done in
 * one line. A failed check prints one line that begins with BROKEN, and ends it with status 77.
 * usage: bully MODE PID BOARD SEED SECONDS [VMAREA]
 *   stop        one SIGSTOP at a random moment of the time, and no SIGCONT
 *   storm       SIGSTOP and SIGCONT at random moments
 *   terminal    SIGTSTP and SIGCONT at random moments
 *   continue    SIGCONT at random moments
 *   memory      reads and writes pages that are named on BOARD (process_vm_readv, /proc/PID/mem)
 *   attach      traces a thread for a moment, as a debugger does
 *   dump        reads all memory, as a core dumper does
 *   interrupt   sends SIGINT to the process VMAREA at a random moment
 *   kill-merge  kills the process VMAREA at a random moment, or in a step of the agent (kills.c)
 *   kill-tracer kills the children of VMAREA
 *   kill-both   kills both, sometimes at two moments
 *   freeze      freezes the process's control group
 *   shrink      limits the memory of the process's control group
 *   end         one SIGKILL to the process at a random moment
 * Whatever stops the process, except for `stop`, has ended when the bully ends. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "bully.h"

pid_t target, vmarea;
unsigned long count;
static struct board *board;
static uint64_t seed;
static double until;

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

uint64_t below(uint64_t limit)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % limit;
}

static int is_time_left(void)
{
    return now() < until && kill(target, 0) == 0;
}

void wait_for_moment(void)
{
    double left = until - now();
    if (left > 0)
        usleep((useconds_t)below((uint64_t)(left * 1e6) + 1));
}

static void stop_once(void)
{
    wait_for_moment();
    kill(target, SIGSTOP);
    count++;
}

static void stop_and_continue(int signal)
{
    /* Sometimes many in a short time. */
    uint64_t longest = below(2) ? 20000 : 1500;
    while (is_time_left()) {
        kill(target, signal);
        usleep((useconds_t)below(longest));
        kill(target, SIGCONT);
        usleep((useconds_t)below(longest * 2));
        count++;
    }
    kill(target, SIGCONT);
}

static void storm(void)
{
    stop_and_continue(SIGSTOP);
}

static void terminal(void)
{
    stop_and_continue(SIGTSTP);
}

static void continue_often(void)
{
    while (is_time_left()) {
        kill(target, SIGCONT);
        usleep((useconds_t)below(4000));
        count++;
    }
}

static void visit_memory(void)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/mem", target);
    int memory = open(path, O_RDWR | O_CLOEXEC);
    while (is_time_left()) {
        if (visit_pages(board, target, memory, 1, &seed))
            exit(77);
        usleep((useconds_t)below(200));
        count++;
    }
}

/* Returns a random thread of the target; 0 if it has ended. */
static pid_t choose_thread(void)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/task", (int)target);
    DIR *folder = opendir(path);
    pid_t chosen = 0;
    unsigned seen = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (atoi(entry->d_name) && below(++seen) == 0)
            chosen = atoi(entry->d_name);
    if (folder)
        closedir(folder);
    return chosen;
}

/* Traces a random thread for a moment. Fails with EPERM while a merge traces it. A thread that executes a program has
 * the number of the first one then, so that any thread may be the one that stops. */
static void attach(void)
{
    while (is_time_left()) {
        pid_t thread = choose_thread();
        int status;
        if (thread && ptrace(PTRACE_SEIZE, thread, NULL, NULL) == 0) {
            ptrace(PTRACE_INTERRUPT, thread, NULL, NULL);
            while ((thread = waitpid(-1, &status, __WALL)) > 0 && WIFSTOPPED(status)) {
                /* A signal that arrived before the stop is passed on. */
                int signal = status >> 16 ? 0 : WSTOPSIG(status);
                usleep((useconds_t)below(3000));
                if (ptrace(PTRACE_DETACH, thread, NULL, signal) == 0) {
                    count++;
                    break;
                }
            }
        }
        usleep((useconds_t)below(10000));
    }
}

/* Reads every mapping that can be read. */
static void dump(void)
{
    static char buffer[1 << 20];
    char path[40], line[512];
    while (is_time_left()) {
        snprintf(path, sizeof path, "/proc/%d/mem", target);
        int memory = open(path, O_RDONLY | O_CLOEXEC);
        snprintf(path, sizeof path, "/proc/%d/maps", target);
        FILE *maps = fopen(path, "re");
        unsigned long start, end;
        char rights[8];
        while (maps && is_time_left() && fgets(line, sizeof line, maps)) {
            if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || rights[0] != 'r')
                continue;
            for (; start < end; start += sizeof buffer)
                if (pread(memory, buffer, end - start < sizeof buffer ? end - start : sizeof buffer, (off_t)start) < 0)
                    break;
        }
        if (maps)
            fclose(maps);
        close(memory);
        count++;
        usleep((useconds_t)below(20000));
    }
}

static void interrupt(void)
{
    wait_for_moment();
    count += kill(vmarea, SIGINT) == 0;
}

static void end(void)
{
    wait_for_moment();
    count += kill(target, SIGKILL) == 0;
}

static int write_file(const char *folder, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t written = write(file, text, strlen(text));
    close(file);
    return written < 0 ? -1 : 0;
}

/* Finds the mount point of the second version of control groups, or of `controller` of the first. */
static int find_groups(const char *type, const char *option, char *path, size_t size)
{
    FILE *mounts = fopen("/proc/mounts", "re");
    char line[1024], at[512], kind[64], options[512];
    int is_found = 0;
    while (mounts && !is_found && fgets(line, sizeof line, mounts))
        if (sscanf(line, "%*s %511s %63s %511s", at, kind, options) == 3 && strcmp(kind, type) == 0 &&
            (!option || strstr(options, option)))
            is_found = 1;
    if (mounts)
        fclose(mounts);
    snprintf(path, size, "%s/hazards-%d", at, (int)getpid());
    return is_found && mkdir(path, 0700) == 0;
}

/* Moves the target to a group of its own and back. */
static int join_group(const char *path)
{
    char text[32];
    snprintf(text, sizeof text, "%d", (int)target);
    return write_file(path, "cgroup.procs", text);
}

static void leave_group(char *path)
{
    char parent[600];
    snprintf(parent, sizeof parent, "%s/..", path);
    for (int i = 0; i < 100; i++) {
        join_group(parent);
        /* Children of the target may still be in the group. */
        char member[32], list[700];
        snprintf(list, sizeof list, "%s/cgroup.procs", path);
        FILE *members = fopen(list, "re");
        while (members && fgets(member, sizeof member, members))
            write_file(parent, "cgroup.procs", member);
        if (members)
            fclose(members);
        if (rmdir(path) == 0)
            return;
        usleep(20000);
    }
}

static void freeze(void)
{
    char path[560];
    if (!find_groups("cgroup2", NULL, path, sizeof path))
        return;
    if (join_group(path) == 0)
        while (is_time_left()) {
            if (write_file(path, "cgroup.freeze", "1"))
                break;
            usleep((useconds_t)below(20000));
            write_file(path, "cgroup.freeze", "0");
            usleep((useconds_t)below(40000));
            count++;
        }
    write_file(path, "cgroup.freeze", "0");
    leave_group(path);
}

/* Lowers the limit to what is used, so that memory is taken back from the process, and raises it again. */
static void shrink(void)
{
    char path[560];
    int is_second = find_groups("cgroup2", "memory", path, sizeof path);
    if (!is_second && !find_groups("cgroup", "memory", path, sizeof path))
        return;
    const char *limit = is_second ? "memory.high" : "memory.soft_limit_in_bytes";
    const char *none = is_second ? "max" : "-1";
    if (join_group(path) == 0)
        while (is_time_left()) {
            write_file(path, limit, "20000000");
            write_file(path, is_second ? "memory.reclaim" : "memory.force_empty", "4000000");
            usleep((useconds_t)below(50000));
            write_file(path, limit, none);
            usleep((useconds_t)below(50000));
            count++;
        }
    write_file(path, limit, none);
    leave_group(path);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"stop", stop_once},         {"storm", storm},       {"terminal", terminal},       {"continue", continue_often},
    {"memory", visit_memory},    {"attach", attach},     {"dump", dump},               {"kill-merge", kill_merge},
    {"kill-tracer", kill_tracer}, {"kill-both", kill_both}, {"freeze", freeze},        {"shrink", shrink},
    {"interrupt", interrupt},    {"end", end},
};

int main(int argument_count, char **arguments)
{
    if (argument_count < 6)
        return 2;
    target = atoi(arguments[2]);
    int file = open(arguments[3], O_RDWR | O_CLOEXEC);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || board == MAP_FAILED)
        return 2;
    seed = strtoul(arguments[4], NULL, 0) * 2654435761 + 1;
    below(2);
    until = now() + strtod(arguments[5], NULL);
    vmarea = argument_count > 6 ? atoi(arguments[6]) : 0;
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(arguments[1], modes[i].name))
            continue;
        bool kills = strncmp(modes[i].name, "kill", 4) == 0;
        if (kills && vmarea <= 0)
            return 2;
        modes[i].run();
        if (!kills)
            printf("%s %lu\n", modes[i].name, count);
        return 0;
    }
    return 2;
}
