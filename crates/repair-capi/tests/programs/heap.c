/* Heaps of many mappings, merged by vmarea_merge_range while threads write to every page.
 * usage: heap SCENARIO ...   Prints "name value" lines; exits with 1 if a byte is wrong. */
#define _GNU_SOURCE
#include "mappers.h"
#include "vmarea_repair.h"
#include <errno.h>

static struct vmarea_merge_report merge(struct vmarea_merge_options options) {
    struct vmarea_merge_report report = {0};
    int answer = vmarea_merge_range(area, pages * PAGE, &options, &report);
    if (answer && !(were_taken && answer == -EMFILE)) {
        errno = -answer;
        die(vmarea_last_error());
    }
    return report;
}

static int show(struct vmarea_merge_report r, long lost) {
    printf("before %lu\nafter %lu\ntotal_ms %.2f\npause_ms %.2f\ncopied %lu\nforks %lu\n", (long)r.before,
           (long)r.after, r.total_ns * 1e-6, r.longest_pause_ns * 1e-6, (long)r.copied, (long)r.forks);
    printf("wrong %ld\nlost %ld\n", wrong_pages(), lost);
    return wrong_pages() || lost;
}

/* pages PAGES PAUSE_US WRITERS FLAGS */
static int scenario_pages(char **v) {
    int writers = atoi(v[2]);
    double mremaps = one_page_mappings(atol(v[0]));
    struct writer w[8];
    start_writers(w, writers);
    usleep(50000);
    double calm = 0, worst = 0;
    for (int i = 0; i < writers; i++) {
        calm = w[i].worst > calm ? w[i].worst : calm;
        w[i].worst = 0;
    }
    struct vmarea_merge_report r =
        merge((struct vmarea_merge_options){.max_pause_us = atol(v[1]), .flags = atol(v[3])});
    long lost = stop_writers(w, writers, &worst);
    printf("mremap_ms %.2f\nratio %.2f\ncalm_ms %.2f\nworst_ms %.2f\n", mremaps * 1e3,
           r.total_ns * 1e-9 / mremaps, calm * 1e3, worst * 1e3);
    return show(r, lost);
}

/* The first thread's list of mappings is empty, or cannot be opened, when it has exited. */
static int first_thread_runs(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    int c = maps ? fgetc(maps) : EOF;
    if (maps)
        fclose(maps);
    return c != EOF;
}

static void *pages_aside(void *v) {
    while (first_thread_runs())
        sched_yield();
    exit(scenario_pages(v));
}

/* alone PAGES PAUSE_US WRITERS FLAGS: like pages, after the first thread of the process has exited */
static int scenario_alone(char **v) {
    pthread_t thread;
    pthread_create(&thread, 0, pages_aside, v);
    syscall(SYS_exit, 0);
    return 0;
}

/* future PAGES FLAGS: memory that is mapped from now on, also by the merge, is locked */
static int scenario_future(char **v) {
    one_page_mappings(atol(v[0]));
    if (mlockall(MCL_FUTURE))
        die("mlockall");
    return show(merge((struct vmarea_merge_options){.flags = atol(v[1])}), 0);
}

/* rounds ROUNDS PAGES WRITERS FLAGS: ROUNDS merges of ranges that writers write to */
static int scenario_rounds(char **v) {
    long rounds = atol(v[0]), lost = 0, wrong = 0, after = 0;
    int writers = atoi(v[2]);
    struct writer w[8];
    double worst = 0;
    for (long i = 0; i < rounds; i++) {
        one_page_mappings(atol(v[1]));
        start_writers(w, writers);
        after += merge((struct vmarea_merge_options){.flags = atol(v[3])}).after;
        lost += stop_writers(w, writers, &worst);
        wrong += wrong_pages();
        munmap(area, pages * PAGE);
    }
    printf("rounds %ld\nafter %ld\nlost %ld\nwrong %ld\nwrites %ld\nworst_ms %.2f\n", rounds, after, lost, wrong,
           (long)writes, worst * 1e3);
    return lost || wrong || after != rounds;
}

/* regions REGIONS MIB FLAGS */
static int scenario_regions(char **v) {
    double begun = now();
    commit_in_turn(atol(v[0]), atol(v[1]) << 20);
    printf("build_ms %.2f\n", (now() - begun) * 1e3);
    struct vmarea_merge_report r = merge((struct vmarea_merge_options){.flags = atol(v[2])});
    return show(r, 0);
}

static _Atomic int merging;
static struct vmarea_merge_options late;
static struct vmarea_merge_report result;

static void *merge_aside(void *unused) {
    while (!merging)
        sched_yield();
    result = merge(late);
    merging = 2;
    return unused;
}

/* Duration of an undisturbed merge. */
static double calm_merge(size_t n) {
    one_page_mappings(n);
    double begun = now();
    merge(late);
    double took = now() - begun;
    munmap(area, pages * PAGE);
    return took;
}

/* forks KIND PAGES ROUNDS FLAGS: a fork at some point of each merge; parent and child check every byte */
static int scenario_forks(char **v) {
    size_t n = atol(v[1]);
    long rounds = atol(v[2]), midway = 0, failed = 0, wrong = 0, forks = 0;
    late.flags = atol(v[3]);
    late.copy_pages = 1 << 30;
    double calm = calm_merge(n);
    for (long round = 0; round < rounds; round++) {
        one_page_mappings(n);
        if (!strcmp(v[0], "clone-wiped"))
            madvise(area, n * PAGE, MADV_WIPEONFORK);
        pthread_t thread;
        merging = 0;
        pthread_create(&thread, 0, merge_aside, 0);
        merging = 1;
        some_moment(calm);
        pid_t child = fork_as(v[0]);
        if (child < 0)
            die(v[0]);
        int status = 1;
        midway += merging == 1;
        waitpid(child, &status, 0);
        pthread_join(thread, 0);
        failed += status != 0;
        wrong += wrong_pages();
        forks += result.forks;
        munmap(area, pages * PAGE);
    }
    printf("midway %ld\ncompleted %ld\nchildren_failed %ld\nwrong %ld\n", midway, forks, failed, wrong);
    return failed || wrong;
}

static void end_midway(const char *kind, size_t n, double calm) {
    one_page_mappings(n);
    pthread_t thread;
    pthread_create(&thread, 0, merge_aside, 0);
    merging = 1;
    some_moment(calm);
    if (!strcmp(kind, "exec"))
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)0);
    if (!strcmp(kind, "kill"))
        raise(SIGKILL);
    exit(7);
}

/* ends KIND PAGES ROUNDS: exec, exit or a kill at some point of each merge */
static int scenario_ends(char **v) {
    size_t n = atol(v[1]);
    long rounds = atol(v[2]), failed = 0;
    late.flags = VMAREA_MERGE_PLAIN;
    double calm = calm_merge(n);
    for (long round = 0; round < rounds; round++) {
        pid_t child = fork();
        if (child == 0)
            end_midway(v[0], n, calm * round / rounds);
        int status = 0;
        waitpid(child, &status, 0);
        failed += !strcmp(v[0], "kill") ? status != SIGKILL : !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    }
    printf("rounds %ld\nfailed %ld\n", rounds, failed);
    return failed != 0;
}

/* mappers ROUNDS PAGES THREADS: ROUNDS merges while threads map and unmap other memory */
static int scenario_mappers(char **v) {
    long rounds = atol(v[0]), joined = 0, wrong = 0, lost = 0;
    int threads = atoi(v[2]);
    struct mapper m[8];
    struct writer w[1];
    double worst = 0;
    pages = atol(v[1]);
    start_mappers(m, threads);
    for (long round = 0; round < rounds; round++) {
        commit_out_of_order(atol(v[1]));
        start_writers(w, 1);
        joined += merge((struct vmarea_merge_options){.flags = VMAREA_MERGE_PLAIN}).after == 1;
        lost += stop_writers(w, 1, &worst);
        wrong += wrong_pages();
        munmap(area, pages * PAGE);
    }
    wrong += stop_mappers(m, threads);
    printf("joined %ld\nlost %ld\nwrong %ld\nworst_ms %.2f\n", joined, lost, wrong, worst * 1e3);
    return wrong || lost || joined != rounds;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        int (*run)(char **);
    } scenarios[] = {
        {"pages", 4, scenario_pages}, {"rounds", 4, scenario_rounds}, {"regions", 3, scenario_regions},
        {"forks", 4, scenario_forks}, {"ends", 3, scenario_ends},    {"mappers", 3, scenario_mappers},
        {"alone", 4, scenario_alone},   {"future", 2, scenario_future},
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && !strcmp(argv[1], scenarios[i].name) && argc == 2 + scenarios[i].arguments)
            return scenarios[i].run(argv + 2);
    fprintf(stderr, "usage: see the scenarios\n");
    return 2;
}
