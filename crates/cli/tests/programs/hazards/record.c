/* Reads what an agent has noted of itself in the target. The mark at the end of the vDSO leads to the scratch area,
 * whose table is shared memory: it is mapped here, and read without a call, so that nothing is held up.
 * See crates/repair/src/remote/mark.rs and scratch.rs, and the header in crates/linux-sys/src/agent/mod.rs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bully.h"

#define PAGE 4096UL
#define TABLE_BYTES (1UL << 20)
#define VDSO_PAGES 4
#define AT_SYSINFO_EHDR 33
/* Flag of a worker of an io_uring in /proc/PID/task/TID/stat. */
#define IO_WORKER 0x10

struct mark {
    char magic[16];
    int32_t process, owner;
    uint64_t owner_start, namespace, unused, start, end;
};

struct header {
    uint32_t go, free, step, unused;
    uint64_t parts, count, extents[2], to_temporary, to_fresh, prepare[2], join[2], finish[2], ended_at, not_prepared;
    uint64_t out_end;
    int64_t out_error, join_error;
    uint64_t watch, clone_flags;
    int64_t reader;
};
_Static_assert(sizeof(struct mark) == 64 && offsetof(struct header, out_end) == 0x80 &&
                   offsetof(struct header, reader) == 0xa8,
               "the layout is that of the Rust code");

static const char magic[16] = "vmarea at work\0\x01";
static uint64_t vdso, place;
static struct mark mark;
static const volatile struct header *table;

static uint64_t find_vdso(void)
{
    char path[40];
    uint64_t pair[2] = {1, 0};
    snprintf(path, sizeof path, "/proc/%d/auxv", (int)target);
    FILE *vector = fopen(path, "re");
    while (vector && pair[0] != AT_SYSINFO_EHDR && fread(pair, sizeof pair, 1, vector) == 1)
        ;
    if (vector)
        fclose(vector);
    return pair[0] == AT_SYSINFO_EHDR ? pair[1] : 0;
}

/* Reads as many of the pages as there are. */
static size_t read_vdso(char *pages)
{
    struct iovec here = {pages, VDSO_PAGES * PAGE}, there[VDSO_PAGES];
    for (unsigned i = 0; i < VDSO_PAGES; i++)
        there[i] = (struct iovec){(void *)(vdso + i * PAGE), PAGE};
    ssize_t got = process_vm_readv(target, &here, 1, there, VDSO_PAGES, 0);
    return got > 0 ? (size_t)got : 0;
}

/* Finds the place of the mark, which is the same for every merge. */
static bool find_mark(void)
{
    static char pages[VDSO_PAGES * PAGE];
    vdso = vdso ? vdso : find_vdso();
    size_t length = vdso ? read_vdso(pages) : 0;
    for (size_t at = 0; at + sizeof mark <= length; at += 16)
        if (memcmp(pages + at, magic, sizeof magic) == 0)
            place = vdso + at;
    return place != 0;
}

bool record_open(void)
{
    struct mark seen;
    struct iovec here = {&seen, sizeof seen}, there = {(void *)place, sizeof seen};
    if (!place && !find_mark())
        return false;
    there.iov_base = (void *)place;
    bool is_marked = process_vm_readv(target, &here, 1, &there, 1, 0) == sizeof seen &&
                     memcmp(seen.magic, magic, sizeof magic) == 0 && seen.process == target;
    if (is_marked && table && memcmp(&seen, &mark, sizeof mark) == 0)
        return true;
    if (table)
        munmap((void *)table, TABLE_BYTES);
    table = NULL;
    if (!is_marked)
        return false;
    char path[80];
    snprintf(path, sizeof path, "/proc/%d/map_files/%lx-%lx", (int)target, seen.end - TABLE_BYTES, seen.end);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, TABLE_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (file >= 0)
        close(file);
    table = mapped == MAP_FAILED ? NULL : mapped;
    mark = seen;
    return table != NULL;
}

pid_t record_tracer(void)
{
    return table ? mark.owner : 0;
}

/* State, flags and program counter of a thread. The kernel tells the last one only of a thread that is ending. */
struct thread {
    char state;
    unsigned flags;
    unsigned long pc;
};

static bool read_file(pid_t tid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", (int)target, (int)tid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, size - 1);
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

static bool read_thread(pid_t tid, struct thread *thread)
{
    char text[1024];
    const char *rest = read_file(tid, "stat", text, sizeof text) ? strrchr(text, ')') : NULL;
    return rest && sscanf(rest + 1,
                          " %c %*s %*s %*s %*s %*s %u %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                          "%*s %*s %*s %*s %lu",
                          &thread->state, &thread->flags, &thread->pc) == 3;
}

bool record_is_alive(pid_t agent)
{
    struct thread thread;
    return agent && read_thread(agent, &thread) && thread.state != 'Z' && thread.state != 'X';
}

/* True if the thread is about to execute, or executes, the code of a merge. */
static bool is_in_code(pid_t tid, unsigned long pc)
{
    char text[256];
    if (!pc && read_file(tid, "syscall", text, sizeof text) && strrchr(text, ' '))
        pc = strtoul(strrchr(text, ' '), NULL, 0);
    return (pc >= mark.start && pc < mark.start + PAGE) || (pc > place && pc < (place | (PAGE - 1)));
}

pid_t record_agent(void)
{
    pid_t tids[512];
    unsigned found = 0;
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/task", (int)target);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (atoi(entry->d_name) && found < sizeof tids / sizeof *tids)
            tids[found++] = atoi(entry->d_name);
    if (folder)
        closedir(folder);
    /* The kernel lists threads in the order of their birth, and no other thread runs that could start one. */
    while (table && found-- > 1) {
        struct thread thread;
        if (tids[found] == table->reader || !read_thread(tids[found], &thread) || (thread.flags & IO_WORKER) ||
            thread.state == 'Z' || thread.state == 'X')
            continue;
        bool is_at_work = table->go == 1 && !table->free;
        return is_at_work || is_in_code(tids[found], thread.pc) ? tids[found] : 0;
    }
    return 0;
}

struct record record_read(pid_t agent)
{
    struct record record = {.agent = table ? agent : 0};
    if (!record.agent)
        return record;
    record.step = table->step;
    record.goes = table->go == 1;
    record.frees = table->free;
    uint64_t parts = table->parts - (mark.end - TABLE_BYTES);
    if (table->count && record.step >= 1 && record.step <= 3 && parts <= TABLE_BYTES - 32)
        record.is_out = table->out_end > *(const volatile uint64_t *)((const volatile char *)table + parts);
    return record;
}

bool record_is_fresh(void)
{
    return table && table->go == 0 && table->free == 0 && table->prepare[0] != 0;
}

const char *record_name(const struct record *record)
{
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "0+", "1+", "2+", "3+", "4+", "5+"};
    if (!record->agent || record->step > 5)
        return "none";
    return record->goes ? names[record->step + (record->is_out ? 6 : 0)] : "born";
}
