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

/* ends KIND PAGES ROUNDS FLAGS: exec, exit or a kill at some point of each merge */
static int scenario_ends(char **v) {
    size_t n = atol(v[1]);
    long rounds = atol(v[2]), failed = 0;
    late.flags = atol(v[3]);
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

/* keep SECONDS PAGES WRITERS: waits until the collector has merged the mappings, although it could open no
 * descriptor for a while */
static int scenario_keep(char **v) {
    int n_taken = take_descriptors();
    usleep(200000);
    give_descriptors(n_taken);
    double mremaps = one_page_mappings(atol(v[1]));
    int writers = atoi(v[2]);
    struct writer w[8];
    double worst = 0, begun = now();
    start_writers(w, writers);
    printf("ready %d %p %zu\n", getpid(), (void *)area, pages * PAGE);
    fflush(stdout);
    long n;
    while ((n = mappings(area, pages * PAGE)) > 1 && now() - begun < atof(v[0]))
        usleep(20000);
    usleep(20000);
    long lost = stop_writers(w, writers, &worst);
    printf("mremap_ms %.2f\nafter %ld\nseconds %.2f\nworst_ms %.2f\nwrong %ld\nlost %ld\nwrites %ld\n",
           mremaps * 1e3, n, now() - begun, worst * 1e3, wrong_pages(), lost, (long)writes);
    return wrong_pages() || lost || n != 1;
}

/* churn PAGES SECONDS OURS THREADS: threads change the mappings continuously; every page holds the last
 * written value or zeros. Each page belongs to one thread, which knows the expected value. OURS is 0 if the
 * collector merges the mappings. */
static unsigned *expected;
static _Atomic long churn_wrong;

struct churner {
    pthread_t thread;
    unsigned seed;
    size_t first, count; /* pages of the thread */
    char *aside;         /* four pages reserved for the thread: others could map memory in a hole */
};

static void *churn_checked(void *argument) {
    struct churner *c = argument;
    unsigned seed = c->seed;
    while (!stop) {
        seed = seed * 1103515245 + 12345;
        size_t i = c->first + (seed >> 8) % (c->count - 8), n = 1 + (seed >> 24) % 8;
        char *p = area + i * PAGE;
        for (size_t k = 0; k < n; k++)
            churn_wrong += *(volatile unsigned *)(p + k * PAGE + 64) != expected[i + k];
        switch (seed >> 5 & 7) {
        case 0:
            madvise(p, n * PAGE, MADV_DONTNEED);
            memset(expected + i, 0, n * sizeof *expected);
            break;
        case 1:
            mprotect(p, n * PAGE, PROT_READ);
            for (size_t k = 0; k < n; k++)
                churn_wrong += *(volatile unsigned *)(p + k * PAGE + 64) != expected[i + k];
            mprotect(p, n * PAGE, PROT_READ | PROT_WRITE);
            break;
        case 2:
            if (mmap(p, n * PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0) != p)
                die("mmap over");
            memset(expected + i, 0, n * sizeof *expected);
            break;
        case 3: {
            char *q = mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, c->aside);
            if (q == MAP_FAILED)
                break;
            churn_wrong += *(volatile unsigned *)(q + 64) != expected[i];
            if (mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) != p)
                die("mremap back");
            break;
        }
        case 4: { /* a page that is not watched replaces a page, together with its content */
            char *q = c->aside + 3 * PAGE;
            if (mmap(q, PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0) != q)
                die("mmap aside");
            *(unsigned *)(q + 64) = expected[i] = seed;
            if (mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) != p)
                die("mremap over");
            churn_wrong += *(volatile unsigned *)(p + 64) != seed;
            break;
        }
        case 5: { /* a page is moved away permanently, grows there, and is discarded */
            char *q = c->aside + PAGE;
            if (mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) != q)
                die("mremap elsewhere");
            churn_wrong += *(volatile unsigned *)(q + PAGE + 64) != 0;
            madvise(q, PAGE, MADV_DONTNEED);
            churn_wrong += *(volatile unsigned *)(q + 64) != 0;
            if (mmap(p, PAGE, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0) != p)
                die("mmap anew");
            expected[i] = 0;
            break;
        }
        case 6: { /* the content of a page is moved away, and its mapping remains */
            char *q = c->aside + PAGE;
            if (mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, q) != q)
                die("mremap of what it holds");
            churn_wrong += *(volatile unsigned *)(q + 64) != expected[i];
            churn_wrong += *(volatile unsigned *)(p + 64) != 0;
            expected[i] = 0;
            break;
        }
        default:
            for (size_t k = 0; k < n; k++)
                *(volatile unsigned *)(p + k * PAGE + 64) = expected[i + k] = seed + k;
        }
        atomic_fetch_add_explicit(&writes, 1, memory_order_relaxed);
    }
    return 0;
}

static int scenario_churn(char **v) {
    struct churner churners[8];
    size_t threads = atol(v[3]);
    room_behind = 4 * threads;
    one_page_mappings(atol(v[0]));
    expected = malloc(pages * sizeof *expected);
    for (size_t i = 0; i < pages; i++)
        expected[i] = i;
    for (size_t t = 0; t < threads; t++) {
        struct churner *c = &churners[t];
        *c = (struct churner){.seed = 7 + t, .first = t * (pages / threads), .count = pages / threads};
        c->aside = area + (pages + 4 * t) * PAGE;
        if (pthread_create(&c->thread, 0, churn_checked, c))
            die("pthread_create");
    }
    long merges = 0;
    for (double until = now() + atof(v[1]); now() < until; merges++) {
        if (atol(v[2]))
            merge((struct vmarea_merge_options){.flags = VMAREA_MERGE_MAY_CHANGE, .max_pause_us = 5000});
        else
            usleep(10000);
    }
    stop = 1;
    for (size_t t = 0; t < threads; t++)
        pthread_join(churners[t].thread, 0);
    for (size_t i = 0; i < pages; i++)
        churn_wrong += *(volatile unsigned *)(area + i * PAGE + 64) != expected[i];
    printf("merges %ld\ncalls %ld\nwrong %ld\nmappings %ld\n", merges, (long)writes, (long)churn_wrong,
           mappings(area, pages * PAGE));
    return churn_wrong != 0;
}

/* mappers ROUNDS PAGES THREADS FLAGS: ROUNDS merges while threads map and unmap other memory */
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
        /* If all threads must be stopped, one of them may not stop in time. */
        long after = 0;
        for (int tries = 0; after != 1 && tries < 10; tries++)
            after = merge((struct vmarea_merge_options){.flags = atol(v[3])}).after;
        joined += after == 1;
        lost += stop_writers(w, 1, &worst);
        wrong += wrong_pages();
        munmap(area, pages * PAGE);
    }
    wrong += stop_mappers(m, threads);
    printf("joined %ld\nlost %ld\nwrong %ld\nworst_ms %.2f\n", joined, lost, wrong, worst * 1e3);
    return wrong || lost || joined != rounds;
}

static _Atomic int mapped_all;

static void *map_chunks_aside(void *chunks) {
    map_chunks((size_t)chunks);
    mapped_all = 1;
    return 0;
}

/* arena CHUNKS: the whole heap is merged repeatedly while one thread maps chunk after chunk */
static int scenario_arena(char **v) {
    pthread_t thread;
    long merges = 0;
    struct vmarea_merge_options options = {.flags = VMAREA_MERGE_MAY_CHANGE, .max_pause_us = 5000};
    if (pthread_create(&thread, 0, map_chunks_aside, (void *)atol(v[0])))
        die("pthread_create");
    for (; !mapped_all; merges++) {
        int answer = vmarea_merge_range(0, 1UL << 47, &options, 0);
        if (answer) {
            errno = -answer;
            die(vmarea_last_error());
        }
    }
    pthread_join(thread, 0);
    printf("merges %ld\nwrong %ld\n", merges, wrong_pages());
    return wrong_pages() != 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        int (*run)(char **);
    } scenarios[] = {
        {"pages", 4, scenario_pages}, {"rounds", 4, scenario_rounds}, {"regions", 3, scenario_regions},
        {"forks", 4, scenario_forks}, {"ends", 4, scenario_ends},    {"keep", 3, scenario_keep},
        {"churn", 4, scenario_churn}, {"mappers", 4, scenario_mappers},
        {"arena", 1, scenario_arena},
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && !strcmp(argv[1], scenarios[i].name) && argc == 2 + scenarios[i].arguments)
            return scenarios[i].run(argv + 2);
    fprintf(stderr, "usage: see the scenarios\n");
    return 2;
}
