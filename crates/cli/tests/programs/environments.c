/* A program whose neighbouring mappings are merged in unusual environments (ci/run live-environments).
 * Neighbours that could be one mapping, and threads that write and check them.
 * usage: target [-n PARTS] [-k PAGES] [-m] ... */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define PAGE 4096UL
#define HUGE (2UL << 20)
static unsigned long parts = 64, pages = 4, total, moved, huge, equal;
static char *base, **args;
static uint32_t *written;                       // shared memory, which is not merged
static volatile sig_atomic_t stop, execs, execs_in_thread, wrong;
static pthread_mutex_t locks[64];

static void on_term(int signal) { (void)signal, stop = 1; }
static void on_usr1(int signal) { (void)signal, execs = 1; }
static void on_usr2(int signal) { (void)signal, execs_in_thread = 1; }
static void die(const char *what) { perror(what), exit(3); }
static uint64_t word(unsigned long page, unsigned at)
{
    uint64_t x = (equal ? page / 8 : page) * 0x9e3779b97f4a7c15 + at * 0xbf58476d1ce4e5b9 + 1;
    return x ^ x >> 29;
}
static volatile uint64_t *page_at(unsigned long page) { return (void *)(base + page * PAGE); }
static void check(unsigned long page, unsigned step)
{
    for (unsigned at = 1; at < 512; at += step)
        if (page_at(page)[at] != word(page, at) && !wrong++)
            dprintf(1, "wrong word %u of page %lu\n", at, page);
}
static void *work(void *which)
{
    unsigned seed = (uintptr_t)which;
    sigset_t all;
    sigfillset(&all), pthread_sigmask(SIG_BLOCK, &all, NULL);
    while (!stop) {
        unsigned long page = rand_r(&seed) % total;
        if (!equal) {
            pthread_mutex_lock(&locks[page % 64]);
            if (page_at(page)[0] != written[page] && !wrong++) dprintf(1, "lost a write to page %lu\n", page);
            page_at(page)[0] = ++written[page];
            pthread_mutex_unlock(&locks[page % 64]);
        }
        check(page, 73);
        if (execs_in_thread && which == (void *)1) execv("/proc/self/exe", args);
        usleep(1000);
    }
    return NULL;
}
static void make(void)
{
    unsigned long size = parts * pages * PAGE, part = pages * PAGE;
    char *room = mmap(NULL, size + 16 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base = (char *)(((uintptr_t)room + 2 * HUGE) & ~(HUGE - 1));
    if (huge && madvise(base, size, MADV_HUGEPAGE)) die("MADV_HUGEPAGE");
    if (moved == 0)                             // every other part is used first: two anon_vmas never meet
        for (unsigned long i = 0; i < 2 * parts; i += 2) {
            char *at = base + (i < parts ? i : i - parts + 1 - parts % 2) * part;
            if (mprotect(at, part, 3)) die("mprotect");
            *at = 1;
        }
    for (unsigned long i = 0; moved && i < parts; i++) {     // moved here: page offsets do not follow
        uintptr_t far = (uintptr_t)mmap(NULL, part + 3 * HUGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        far = (far + HUGE - 1) & ~(HUGE - 1);
        if (huge) madvise((void *)far, part + HUGE, MADV_HUGEPAGE);
        far += huge ? 32 * PAGE : PAGE;         // a part of a huge page
        memset((void *)far, 1, part);
        if (mremap((void *)far, part, part, 3, base + i * part) == MAP_FAILED) die("mremap");
    }
    if (equal && madvise(base, size, MADV_MERGEABLE)) die("MADV_MERGEABLE");
    for (unsigned long page = 0; page < total; page++)
        for (unsigned at = equal ? 0 : 1; at < 512; at++) page_at(page)[at] = word(page, at);
    for (unsigned long page = 0; page < total && !equal; page++) page_at(page)[0] = 0;
}
static void seal(const char *name, char *at, unsigned long len)
{
    char line[512];
    FILE *maps = name ? fopen("/proc/self/maps", "r") : NULL;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, name)) {
            unsigned long start, end;
            sscanf(line, "%lx-%lx", &start, &end);
            at = (char *)start, len = end - start;
        }
    if (syscall(462, at, len, 0)) die("mseal");
}
static int is_right(void)
{
    for (unsigned long page = 0; page < total; page++) {
        if (!equal && page_at(page)[0] != written[page]) wrong++;
        check(page, 1);
    }
    return !wrong;
}
int main(int argc, char **argv)
{
    static long threads = 2, user = -1, limit = -1, undumpable, out, hugetlb;     // static: vfork
    static const char *sealed = "", *does = "";
    for (int c; (c = getopt(argc, argv, "n:k:mhes:a:u:l:dot:T:")) != -1;) switch (c) {
        case 'n': parts = atol(optarg); break;
        case 'k': pages = atol(optarg); break;
        case 'm': moved = 1; break;
        case 'h': huge = 1; break;
        case 'e': equal = 1; break;
        case 's': sealed = optarg; break;
        case 'a': does = optarg; break;
        case 'u': user = atol(optarg); break;
        case 'l': limit = atol(optarg); break;
        case 'd': undumpable = 1; break;
        case 'o': out = 1; break;
        case 't': threads = atol(optarg); break;
        case 'T': hugetlb = atol(optarg); break;
        default: return 2;
    }
    args = argv, total = parts * pages;
    sigset_t none;
    sigemptyset(&none), sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGTERM, on_term), signal(SIGUSR1, on_usr1), signal(SIGUSR2, on_usr2);
    if (user >= 0 && (setgid(user) || setuid(user))) die("setuid");
    prctl(PR_SET_DUMPABLE, !undumpable);
    written = mmap(NULL, total * 4, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64; i++) pthread_mutex_init(&locks[i], NULL);
    make();
    unsigned long size = total * PAGE;
    char *above = (char *)(((uintptr_t)base + size + HUGE - 1) & ~(HUGE - 1));
    for (long i = 0; i < hugetlb; i++)
        if (mmap(above + i * HUGE, HUGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0) == MAP_FAILED) die("hugetlb");
    if (!strcmp(sealed, "vdso") || !strcmp(sealed, "both")) seal("[vdso]", NULL, 0);
    if (!strcmp(sealed, "data") || !strcmp(sealed, "both")) seal(NULL, base, size / 2);
    if (out) madvise(base, size, MADV_PAGEOUT);
    pid_t child = !strcmp(does, "child") ? fork() : -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (!stop) usleep(10000);
        for (unsigned long page = 0; page < total; page++) check(page, 1);
        _exit(wrong != 0);
    }
    struct rlimit most = {limit, limit};
    if (limit >= 0 && setrlimit(RLIMIT_NPROC, &most)) die("setrlimit");
    pthread_t ids[64];
    for (long i = 0; i < threads; i++) if (pthread_create(&ids[i], NULL, work, (void *)(i + 1))) die("thread");
    dprintf(1, "ready %d\n", getpid());
    unsigned seed = getpid();
    for (int status = 0; !stop; usleep(rand_r(&seed) % 3000)) {
        if (execs && !strcmp(does, "exit")) _exit(!is_right());
        if (execs) execv("/proc/self/exe", args);
        if (!strcmp(does, "pageout")) madvise(base, rand_r(&seed) % size & -PAGE, MADV_PAGEOUT);
        pid_t forked = !strcmp(does, "fork") ? fork() : !strcmp(does, "vfork") ? vfork() : -1;
        if (forked == 0 && !strcmp(does, "vfork")) _exit(0);
        if (forked == 0) {
            for (unsigned long page = 0; page < total; page++) check(page, 73);
            _exit(wrong != 0);
        }
        while (forked > 0 && waitpid(forked, &status, 0) < 0) continue;
        wrong += status != 0;
    }
    for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    int status = 0;
    if (child > 0) kill(child, SIGTERM), waitpid(child, &status, 0);
    int right = is_right() && status == 0;
    dprintf(1, "%s\n", right ? "right" : "wrong");
    return !right;
}
