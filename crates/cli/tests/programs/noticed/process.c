/* What a program can learn about itself. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "noticed.h"

static void tracer_pid(void) { say("%s", strcmp(field(getpid(), "TracerPid"), "0") ? "not 0" : "0"); }
static void seccomp_field(void) { say("%s", field(getpid(), "Seccomp")); }
static void seccomp_prctl(void) { say("%d", prctl(PR_GET_SECCOMP)); }
static void no_new_privs(void) { say("%d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); }
static void dumpable(void) { say("%d", prctl(PR_GET_DUMPABLE)); }
static void parent(void) {
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", first_parent);
    FILE *file = fopen(path, "r");
    check(file && fgets(name, sizeof name, file), "comm");
    name[strcspn(name, "\n")] = 0;
    say("%s", first_parent == starter ? "the starter" : name);
}
static void group_and_session(void) {
    say("%s, %s", getpgrp() == getpgid(starter) ? "the starter's" : "another",
        getsid(0) == getsid(starter) ? "the starter's" : "another");
}
static void capabilities(void) {
    say("%s ", field(getpid(), "CapEff"));
    say("%s ", field(getpid(), "CapBnd"));
    say("%s", field(getpid(), "CapAmb"));
}
static void identity(void) {
    say("%d %d %d %d %s", getuid(), geteuid(), getgid(), getegid(), field(getpid(), "Groups"));
}
static void signal_masks(void) {
    say("%s ", field(getpid(), "SigBlk"));
    say("%s", field(getpid(), "SigIgn"));
}
static void open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    check(!!folder, "opendir");
    struct dirent *entry;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder)) say("%s ", entry->d_name);
}
static void limits(void) {
    for (int n = 0; n < RLIM_NLIMITS; n++) {
        struct rlimit limit;
        getrlimit(n, &limit);
        say("%lld ", (long long)limit.rlim_cur);
    }
}
static void scheduling(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    say("%d CPUs, policy %d, nice %d, slack %d", CPU_COUNT(&set), sched_getscheduler(0),
        getpriority(PRIO_PROCESS, 0), prctl(PR_GET_TIMERSLACK));
}
static void file_context(void) {
    char folder[4096];
    mode_t mask = umask(0);
    say("%o %s", mask, getcwd(folder, sizeof folder));
}
static void process_personality(void) { say("%#x", personality(0xffffffff)); }
extern char **environ;
static void environment(void) {
    unsigned long count = 0, sum = 0;
    for (char **at = environ; *at; at++, count++)
        for (char *byte = *at; *byte; byte++) sum = sum * 31 + *byte;
    say("%lu %lx", count, sum);
}
static void context_switches(void) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    FILE *file = fopen("/proc/self/exe", "r");
    check(!!file, "open");
    for (int i = 0; i < 200; i++)
        munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0), 4096);
    getrusage(RUSAGE_SELF, &after);
    say("%s", after.ru_nvcsw - before.ru_nvcsw >= 200 ? "many" : "few");
}

const struct row PROCESS[] = {
    ROW(tracer_pid), ROW(seccomp_field), ROW(seccomp_prctl), ROW(no_new_privs), ROW(dumpable),
    ROW(parent), ROW(group_and_session), ROW(capabilities), ROW(identity), ROW(signal_masks),
    ROW(open_files), ROW(limits), ROW(scheduling), ROW(file_context), ROW(process_personality),
    ROW(environment), ROW(context_switches), {0, 0},
};
