/* Programs whose mappings are merged by another process while they check every byte.
 * usage: target SCENARIO ...   Prints "name value" lines; exits with 1 if a byte is wrong. */
#define _GNU_SOURCE
#include "mappers.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

/* Waits until the mappings are merged; returns how many are left. */
static long wait_for(long few, double seconds) {
    double until = now() + seconds;
    long n;
    while ((n = mappings(area, pages * PAGE)) > few && now() < until)
        usleep(5000);
    return n;
}

/* hammer ROUNDS PAGES WRITERS: writes to a range until it is one mapping, then to the next */
static int scenario_hammer(char **v) {
    long rounds = atol(v[0]), writers = atol(v[2]), lost = 0, wrong = 0, joined = 0;
    double worst = 0, mremaps = 0;
    for (long i = 0; i < rounds; i++) {
        struct writer w[8];
        mremaps += one_page_mappings(atol(v[1]));
        start_writers(w, writers);
        if (i == 0) {
            printf("ready %p %zu\n", (void *)area, pages * PAGE);
            fflush(stdout);
        }
        joined += wait_for(1, 30) == 1;
        lost += stop_writers(w, writers, &worst);
        wrong += wrong_pages();
        munmap(area, pages * PAGE);
    }
    usleep(300000); /* so that the last merge can report its result */
    printf("joined %ld\nlost %ld\nwrong %ld\nwrites %ld\nmremap_ms %.2f\nworst_ms %.2f\n", joined, lost, wrong,
           (long)writes, mremaps * 1e3, worst * 1e3);
    return lost || wrong || joined != rounds;
}

/* mappers ROUNDS PAGES THREADS: like hammer, while threads map and unmap other memory */
static int scenario_mappers(char **v) {
    long rounds = atol(v[0]), wrong = 0, joined = 0;
    int threads = atoi(v[2]);
    struct mapper m[8];
    pages = atol(v[1]);
    puts("ready 0 0");
    fflush(stdout);
    start_mappers(m, threads);
    for (long i = 0; i < rounds; i++) {
        commit_out_of_order(atol(v[1]));
        joined += wait_for(1, 30) == 1;
        wrong += wrong_pages();
        munmap(area, pages * PAGE);
    }
    wrong += stop_mappers(m, threads);
    usleep(300000); /* so that the last merge can report its result */
    printf("joined %ld\nwrong %ld\n", joined, wrong);
    return wrong || joined != rounds;
}

/* arena CHUNKS: the start of an allocator: pages committed out of order, then chunks, each followed by a guard, until
 * the limit of mappings is reached; never waits for a merge */
static int scenario_arena(char **v) {
    size_t n = atol(v[0]);
    puts("ready 0 0");
    fflush(stdout);
    commit_out_of_order(2 * n);
    for (size_t i = 0; i < n; i++) {
        char *p = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
        if (p == MAP_FAILED)
            break;
        *p = 1;
        if (mprotect(p + 2 * PAGE, PAGE, PROT_NONE))
            break;
    }
    return wrong_pages() != 0;
}

/* regions REGIONS MIB FEW: commits a heap region by region, until it has FEW mappings */
static int scenario_regions(char **v) {
    commit_in_turn(atol(v[0]), atol(v[1]) << 20);
    printf("ready %p %zu\nbefore %ld\n", (void *)area, pages * PAGE, mappings(area, pages * PAGE));
    fflush(stdout);
    long left = wait_for(atol(v[2]), 60);
    printf("after %ld\nwrong %ld\n", left, wrong_pages());
    return left > atol(v[2]) || wrong_pages();
}

/* forks KIND SECONDS PAGES: forks in a loop; parent and child check every byte */
static int scenario_forks(char **v) {
    long rounds = 0, failed = 0, wrong = 0;
    puts("ready 0 0");
    fflush(stdout);
    for (double until = now() + atof(v[1]); now() < until; rounds++) {
        one_page_mappings(atol(v[2]));
        for (int i = 0; i < 3; i++) {
            some_moment(0.03);
            pid_t child = fork_as(v[0]);
            if (child < 0)
                die(v[0]);
            int status = 1;
            waitpid(child, &status, 0);
            failed += status != 0;
            wrong += wrong_pages();
        }
        munmap(area, pages * PAGE);
    }
    printf("rounds %ld\nfailed %ld\nwrong %ld\n", rounds, failed, wrong);
    return failed || wrong;
}

/* lives PAGES ROUNDS: checks its memory for a while, executes itself ROUNDS times, and finally exits */
static int scenario_lives(char **v) {
    char rounds[32];
    long left = atol(v[1]);
    one_page_mappings(atol(v[0]));
    for (int i = 0; i < 3; i++) {
        some_moment(0.03);
        if (wrong_pages()) {
            puts("wrong 1");
            return 1;
        }
    }
    if (left == 0) {
        puts("wrong 0");
        return 0;
    }
    snprintf(rounds, sizeof rounds, "%ld", left - 1);
    execl("/proc/self/exe", "target", "lives", v[0], rounds, (char *)0);
    die("exec");
    return 2;
}

/* like hammer, in a sandbox that kills the process if it opens a userfaultfd */
static int scenario_sandboxed(char **v) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        die("seccomp");
    return scenario_hammer(v);
}

/* reserve SECONDS: commits parts of a reservation in random order after priming, or when time is up */
static int scenario_reserve(char **v) {
    size_t step = 16 * PAGE, n = 1000;
    char *p = reserve(n * step);
    printf("ready %p %zu\n", (void *)p, n * step);
    fflush(stdout);
    usleep(atof(v[0]) * 1e6);
    for (size_t i = 0; i < n; i++) {
        char *q = p + i * 619 % n * step;
        if (mprotect(q, step, PROT_READ | PROT_WRITE))
            die("mprotect");
        *q = 1;
    }
    printf("after %ld\n", mappings(p, n * step));
    return 0;
}

/* guards, flags, empties: creates N boundaries that the repair of the same name removes; checks until told to end */
static int scenario_places(char **v) {
    size_t n = atol(v[1]);
    area = mmap(0, 2 * n * PAGE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    memset(area, 7, 2 * n * PAGE);
    for (size_t i = 0; i < n; i++) {
        char *page = area + (2 * i + 1) * PAGE;
        if (!strcmp(v[0], "flags")) {
            madvise(page, PAGE, MADV_DONTFORK);
            continue;
        }
        madvise(page, PAGE, MADV_DONTNEED);
        mprotect(page, PAGE, PROT_NONE);
    }
    if (!strcmp(v[0], "empties")) {
        /* all pages are decommitted: one half was used before, the other never */
        char *fresh = mmap(0, 2 * n * PAGE, PROT_NONE, FLAGS, -1, 0);
        for (size_t i = 0; i < n; i++) {
            char *page = fresh + (2 * i + 1) * PAGE;
            mprotect(page, PAGE, PROT_READ | PROT_WRITE);
            *page = 1;
            madvise(page, PAGE, MADV_DONTNEED);
            mprotect(page, PAGE, PROT_NONE);
        }
        munmap(area, 2 * n * PAGE);
        area = fresh;
    }
    printf("ready %p %zu\nbefore %ld\n", (void *)area, 2 * n * PAGE, mappings(area, 2 * n * PAGE));
    fflush(stdout);
    getchar();
    printf("after %ld\n", mappings(area, 2 * n * PAGE));
    long wrong = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        int there = !strcmp(v[0], "flags") || (!strcmp(v[0], "guards") && i % 2 == 0), ends[2];
        /* a guard still faults: this call reports the fault without killing the process */
        if (pipe(ends))
            die("pipe");
        wrong += (write(ends[1], area + i * PAGE, 1) == 1) != there;
        wrong += there && area[i * PAGE] != 7;
        close(ends[0]);
        close(ends[1]);
    }
    printf("wrong %ld\n", wrong);
    return wrong != 0;
}

static void *waits(void *argument) {
    for (;;)
        pause();
    return argument;
}

/* starts many threads, and then creates guards */
static int scenario_crowd(char **v) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < atol(v[0]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, waits, 0))
            die("pthread_create");
    }
    char *guards[] = {"guards", v[1]};
    return scenario_places(guards);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        int (*run)(char **);
    } scenarios[] = {
        {"hammer", 3, scenario_hammer},
        {"mappers", 3, scenario_mappers},
        {"arena", 1, scenario_arena},
        {"regions", 3, scenario_regions},
        {"forks", 3, scenario_forks},
        {"lives", 2, scenario_lives},
        {"sandboxed", 3, scenario_sandboxed},
        {"reserve", 1, scenario_reserve},
        {"places", 2, scenario_places},
        {"crowd", 2, scenario_crowd},
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && !strcmp(argv[1], scenarios[i].name) && argc == 2 + scenarios[i].arguments)
            return scenarios[i].run(argv + 2);
    fprintf(stderr, "usage: see the scenarios\n");
    return 2;
}
