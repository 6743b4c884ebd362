/* Features other than memory calls on which mappings depend: shared memory segments, memory policies,
 * userfaultfd contexts, files that cannot be mapped, and data about a program's own files. Writes the
 * results to a file, so that a native run and a recorded run can be compared. Exits with 77 if this
 * machine lacks a feature.
 * usage: beyond MODE OUTPUT FOLDER */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define HUGE (2L << 20)
#define RW (PROT_READ | PROT_WRITE)

static FILE *out;
static const char *folder;

static void say(const char *what, long result)
{
    fprintf(out, "%s: %ld %s\n", what, result, result == -1 ? strerror(errno) : "");
}

static void say_mapped(const char *what, void *at)
{
    fprintf(out, "%s: %s\n", what, at == MAP_FAILED ? strerror(errno) : "mapped");
}

static void need(int there)
{
    if (!there) {
        fclose(out);
        exit(77);
    }
}

static char *anonymous(long bytes)
{
    return mmap(0, bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int file(const char *name, int flags, long bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags, 0600);
    if (bytes && ftruncate(fd, bytes))
        say("ftruncate", -1);
    return fd;
}

static void policy(void)
{
    unsigned long node = 1, none = 0;
    char *p = anonymous(16 * PAGE);
    long r = syscall(SYS_mbind, p + 4 * PAGE, 4 * PAGE, 2 /* BIND */, &node, 64, 0);
    need(r == 0 || errno != ENOSYS);
    say("a part", r);
    say("its neighbour", syscall(SYS_mbind, p + 8 * PAGE, PAGE, 2, &node, 64, 0));
    say("another mode", syscall(SYS_mbind, p + 12 * PAGE, PAGE, 1 /* PREFERRED */, &node, 64, 0));
    say("back", syscall(SYS_mbind, p + 5 * PAGE, PAGE, 0, &none, 64, 0));
    say("no node", syscall(SYS_mbind, p, PAGE, 2, &none, 64, 0));
    say("a mask that is nowhere", syscall(SYS_mbind, p, PAGE, 2, (void *)8, 64, 0));
    say("a hole", syscall(SYS_mbind, 0x10000, PAGE, 2, &node, 64, 0));
    p[0] = p[9 * PAGE] = 1;
    munmap(p + 14 * PAGE, PAGE);
}

static void segments(void)
{
    int id = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
    need(id >= 0);
    char *a = shmat(id, 0, 0), *b = shmat(id, 0, SHM_RDONLY);
    a[0] = 5;
    say("the same", b[0]);
    say("misaligned", (long)shmat(id, a + 8, 0) == -1 ? -1 : 0);
    say("where something is", (long)shmat(id, a, 0) == -1 ? -1 : 0);
    say("rounded, over the other", (char *)shmat(id, b + 9, SHM_RND | SHM_REMAP) - b);
    say("a part of it", mprotect(a + PAGE, PAGE, PROT_READ));
    int small = shmget(IPC_PRIVATE, 56, IPC_CREAT | 0600);
    char *c = shmat(small, 0, 0);
    shmctl(small, IPC_RMID, 0);
    fflush(out);
    if (fork() == 0) {
        c[1] = 2;
        say("detached by the child", shmdt(b));
        fflush(out);
        _exit(0);
    }
    wait(0);
    say("what the child wrote", c[1]);
    say("detached", shmdt(a));
    say("again", shmdt(a));
    shmctl(id, IPC_RMID, 0);
    anonymous(PAGE)[0] = 1;
    /* The small segment and the second attachment remain until the end. */
}

static void file_pages(void)
{
    int fd = memfd_create("pages", 0);
    need(ftruncate(fd, 16 * PAGE) == 0);
    char *p = mmap(0, 16 * PAGE, RW, MAP_SHARED, fd, 0);
    say("in front", syscall(SYS_remap_file_pages, p, 4 * PAGE, 0, 8, 0));
    say("with a protection", syscall(SYS_remap_file_pages, p, PAGE, 1, 8, 0));
    say("put back", syscall(SYS_remap_file_pages, p + PAGE, PAGE, 0, 1, 0));
    close(fd);
    say("of what is closed", syscall(SYS_remap_file_pages, p + 9 * PAGE, PAGE, 0, 0, 0));
    int id = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
    char *last = shmat(id, 0, 0);
    say("with a protection", syscall(SYS_remap_file_pages, last, PAGE, 1, 0, 0));
    say("of a segment", syscall(SYS_remap_file_pages, last, PAGE, 0, 0, 0));
    shmctl(id, IPC_RMID, 0);
    say("of one to be removed", syscall(SYS_remap_file_pages, last, PAGE, 0, 0, 0));
    say("which has gone", shmdt(last));
}

static int context(void)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    need(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
    return fd;
}

static void watch(int fd, char *at, long bytes)
{
    struct uffdio_register r = {
        .range = {(unsigned long)at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    say("watched", ioctl(fd, UFFDIO_REGISTER, &r));
}

static void contexts(void)
{
    int fd = context(), other = context();
    char *p = anonymous(32 * PAGE), *page = anonymous(PAGE);
    page[0] = 7;
    watch(fd, p + 4 * PAGE, 4 * PAGE);
    watch(other, p + 8 * PAGE, 4 * PAGE);
    watch(other, p + 20 * PAGE, 4 * PAGE);
    struct uffdio_copy fill = {.dst = (unsigned long)p + 5 * PAGE, .src = (unsigned long)page, .len = PAGE};
    say("filled", ioctl(fd, UFFDIO_COPY, &fill));
    say("what is there", p[5 * PAGE]);
    struct uffdio_range range = {(unsigned long)p + 6 * PAGE, PAGE};
    say("a part no more", ioctl(fd, UFFDIO_UNREGISTER, &range));
    p[0] = p[25 * PAGE] = 1;
    say("protected", mprotect(p + 7 * PAGE, PAGE, PROT_READ));
    close(other);
    anonymous(PAGE)[0] = 1;
}

static void huge(void)
{
    char *p = mmap(0, 2 * HUGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    need(p != MAP_FAILED);
    p[0] = 1;
    say("a small part", munmap(p, PAGE));
    say("one of two", mprotect(p, HUGE, PROT_READ));
    anonymous(1L << 20)[0] = 1;
    char *s = mmap(0, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    say_mapped("shared and small", s);
    say("gone", munmap(p + HUGE, HUGE));
    say_mapped("more than there are",
               mmap(0, 1L << 40, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
    int id = shmget(IPC_PRIVATE, HUGE, IPC_CREAT | SHM_HUGETLB | 0600);
    char *a = id < 0 ? (char *)-1 : shmat(id, 0, 0);
    if (a != (char *)-1) {
        a[0] = 1;
        say("segment", shmdt(a));
    }
    shmctl(id, IPC_RMID, 0);
}

static void try(const char *what, int fd, int prot, int flags, off_t offset)
{
    say_mapped(what, mmap(0, PAGE, prot, flags, fd, offset));
}

static void refused(void)
{
    int both[2];
    need(pipe(both) == 0);
    char *p = anonymous(4 * PAGE);
    p[0] = 1;
    try("directory", open(folder, O_RDONLY | O_DIRECTORY), PROT_READ, MAP_PRIVATE, 0);
    try("directory, shared", open(folder, O_RDONLY | O_DIRECTORY), PROT_READ, MAP_SHARED, 0);
    int path = open("/proc/self/exe", O_PATH);
    try("path", path, PROT_READ, MAP_PRIVATE, 0);
    try("path, odd offset", path, PROT_READ, MAP_PRIVATE, 1);
    try("proc", open("/proc/self/status", O_RDONLY), PROT_READ, MAP_PRIVATE, 0);
    try("proc, to write", open("/proc/self/status", O_RDONLY), RW, MAP_SHARED, 0);
    try("sysfs", open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY), PROT_READ, MAP_PRIVATE, 0);
    try("pipe", both[0], PROT_READ, MAP_PRIVATE, 0);
    try("pipe, the other end", both[1], PROT_READ, MAP_PRIVATE, 0);
    try("null", open("/dev/null", O_RDWR), PROT_READ, MAP_PRIVATE, 0);
    try("null, shared", open("/dev/null", O_RDWR), RW, MAP_SHARED, 0);
    try("zero", open("/dev/zero", O_RDWR), RW, MAP_SHARED, 0);
    try("nothing", 999, PROT_READ, MAP_PRIVATE, 0);
    say_mapped("directory over memory",
               mmap(p + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED,
                    open(folder, O_RDONLY | O_DIRECTORY), 0));
    int no_pool = memfd_create("huge", MFD_HUGETLB | 34u << 26 /* 16 GiB */);
    if (no_pool < 0)
        no_pool = memfd_create("huge", MFD_HUGETLB);
    if (ftruncate(no_pool, 1L << 40) == 0)
        say_mapped("more huge pages than there are", mmap(0, 1L << 40, RW, MAP_SHARED, no_pool, 0));
    anonymous(PAGE)[0] = 1;
}

/* Locks and leases of an open file description after it was mapped, unmapped and closed. */
static void locks(void)
{
    for (int which = 0; which < 3; which++) {
        int fd = file("locked", O_RDWR | O_CREAT, 2 * PAGE);
        struct flock all = {.l_type = F_WRLCK};
        if (which == 0)
            flock(fd, LOCK_EX);
        if (which == 1)
            fcntl(fd, F_OFD_SETLK, &all);
        char *p = mmap(0, 2 * PAGE, RW, MAP_SHARED, fd, 0);
        p[0] = 1;
        close(fd);
        if (which == 0) {
            /* The file is locked as long as it is mapped. */
            int again = file("locked", O_RDWR, 0);
            say("while mapped", flock(again, LOCK_EX | LOCK_NB));
            close(again);
            char *q = mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
            munmap(q, PAGE);
            again = file("locked", O_RDWR, 0);
            say("a part is left", flock(again, LOCK_EX | LOCK_NB));
            close(again);
            p = q + PAGE;
        }
        if (which == 1)
            mmap(p, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        munmap(p, which == 0 ? 63 * PAGE : 2 * PAGE);
        fd = file("locked", which == 2 ? O_RDONLY : O_RDWR, 0);
        long r = which == 0   ? flock(fd, LOCK_EX | LOCK_NB)
                 : which == 1 ? fcntl(fd, F_OFD_SETLK, &all)
                              : fcntl(fd, F_SETLEASE, F_RDLCK);
        say(which == 0 ? "flock" : which == 1 ? "range lock" : "lease", r);
        close(fd);
    }
    /* A child that exits and a child that executes a program also release the lock. */
    int fd = file("locked", O_RDWR, 0);
    flock(fd, LOCK_EX);
    char *p = mmap(0, PAGE, RW, MAP_SHARED, fd, 0);
    close(fd);
    int go[2];
    need(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char c;
        munmap(p, PAGE);
        if (read(go[0], &c, 1) != 1)
            _exit(1);
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    munmap(p, PAGE);
    fd = file("locked", O_RDWR, 0);
    usleep(50000);
    say("both have unmapped", flock(fd, LOCK_EX | LOCK_NB));
    say("go", write(go[1], "", 1));
    waitpid(child, 0, 0);
}

/* Deleted files free their space, and an unused file system can be unmounted. */
static void space(void)
{
    char dir[4096], path[8192];
    snprintf(dir, sizeof dir, "%s/mnt", folder);
    snprintf(path, sizeof path, "%s/f", dir);
    mkdir(dir, 0755);
    need(unshare(CLONE_NEWNS) == 0 && mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) == 0);
    need(mount("x", dir, "tmpfs", 0, "size=8m") == 0);
    for (int i = 0; i < 6; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        say("room", posix_fallocate(fd, 0, 4 << 20));
        char *p = mmap(0, 4 << 20, RW, MAP_SHARED, fd, 0);
        unlink(path);
        close(fd);
        p[0] = 1;
        munmap(p, 4 << 20);
    }
    say("unmounted", umount(dir));
}

/* Two mappings of one open file description merge; those of two descriptions do not. */
static void neighbours(void)
{
    int a = file("data", O_RDWR | O_CREAT, 8 * PAGE), b = file("data", O_RDWR, 0), c = dup(a);
    char *room = mmap(0, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int order[] = {a, c, b, a, a, b, c, b};
    for (int i = 0; i < 8; i++)
        say_mapped("page", mmap(room + i * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, order[i], i * PAGE));
    munmap(room, 8 * PAGE);
    /* A deleted file, and a new file that may get its inode number. */
    for (int i = 0; i < 20; i++) {
        int fd = file("short", O_RDWR | O_CREAT, PAGE);
        char *p = mmap(0, PAGE, RW, MAP_SHARED, fd, 0), path[4096];
        snprintf(path, sizeof path, "%s/short", folder);
        unlink(path);
        close(fd);
        p[0] = 1;
        if (i != 7)
            munmap(p, PAGE);
    }
}

/* More files than the recorder has descriptors; each is mapped again after all were mapped. */
static void many(void)
{
    static char *rooms[120];
    static int fds[120];
    for (int i = 0; i < 120; i++) {
        fds[i] = memfd_create("many", 0);
        need(fds[i] >= 0 && ftruncate(fds[i], 2 * PAGE) == 0);
        rooms[i] = mmap(0, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say_mapped("page", mmap(rooms[i], PAGE, RW, MAP_SHARED | MAP_FIXED, fds[i], 0));
    }
    for (int i = 0; i < 120; i++)
        say_mapped("page", mmap(rooms[i] + PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, fds[i], PAGE));
}

static void advice(void)
{
    char *p = anonymous(16 * PAGE);
    struct iovec ranges[] = {{p + 2 * PAGE, PAGE}, {p + 4 * PAGE, 2 * PAGE}};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    need(self >= 0);
    p[0] = p[5 * PAGE] = 1;
    say("cold", syscall(SYS_process_madvise, self, ranges, 2, 20 /* COLD */, 0));
    say("with flags", syscall(SYS_process_madvise, self, ranges, 2, 20, 1));
    long r = syscall(SYS_process_madvise, self, ranges, 2, MADV_DONTFORK, 0);
    say("kept from children", r);
    munmap(p + 10 * PAGE, PAGE);
}

/* A write to memory that is not writable, which the kernel makes without a fault. */
static void forced(void)
{
    char *p = mmap(0, 3 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int memory = open("/proc/self/mem", O_RDWR);
    need(memory >= 0);
    say("written", pwrite(memory, "x", 1, (long)p + PAGE));
    say("protected", mprotect(p + 2 * PAGE, PAGE, PROT_NONE));
}

/* Rings of asynchronous I/O, which the kernel maps, and a child that inherits them. */
static void rings(void)
{
    unsigned long small = 0, large = 0;
    say("small ring", syscall(SYS_io_setup, 1, &small));
    say("large ring", syscall(SYS_io_setup, 1000, &large));
    need(small && large);
    say("no place for the context", syscall(SYS_io_setup, 1, 0));
    anonymous(PAGE);
    if (!fork()) {
        anonymous(300 * PAGE);
        _exit(syscall(SYS_io_destroy, small) == 0);
    }
    int status;
    wait(&status);
    say("the child's context ends", status);
    say("part unmapped", munmap((char *)large + PAGE, PAGE));
    say("the large one ends", syscall(SYS_io_destroy, large));
    say("it ends again", syscall(SYS_io_destroy, large));
    anonymous(20 * PAGE);
}

/* A write to a setting of the machine, which leaves its value as it is. */
static void setting(void)
{
    char value[32];
    int fd = open("/proc/sys/vm/max_map_count", O_RDWR);
    need(fd >= 0);
    long length = pread(fd, value, sizeof value, 0);
    need(length > 0 && pwrite(fd, value, length, 0) == length);
    say_mapped("page", anonymous(PAGE));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {
        {"policy", policy},   {"segments", segments},     {"file_pages", file_pages},
        {"contexts", contexts}, {"huge", huge},           {"refused", refused},
        {"locks", locks},     {"space", space},           {"neighbours", neighbours},
        {"advice", advice},   {"many", many},          {"forced", forced},
        {"rings", rings},     {"setting", setting},
    };
    if (argc != 4)
        return 2;
    out = fopen(argv[2], "w");
    folder = argv[3];
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, argv[1])) {
            modes[i].run();
            fclose(out);
            return 0;
        }
    return 2;
}
