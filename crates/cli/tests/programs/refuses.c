/* Programs whose memory the kernel sometimes refuses to move: they fork continuously, have buffers registered with
 * an io_uring, or do direct I/O. They check every byte, and end after SECONDS or at SIGTERM.
 * usage: refuses forks|ring|direct SECONDS PAGES   Exits with 1 if a byte is wrong. */
#define _GNU_SOURCE
#include "memory.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <sys/uio.h>

#define BUFFERS 32
#define SECTOR 512
#define OFFSET 2048 /* within each page: nobody else writes there */

static long failed, wrong_io, done_io;
static int file;
static volatile sig_atomic_t told_to_end;

static void end(int signal) { told_to_end = signal; }

static char *place(size_t n) { return area + n * 9973 % pages * PAGE + OFFSET; }

static void open_file(int flags) {
    char name[] = "refuses.XXXXXX";
    int made = mkstemp(name);
    file = made < 0 ? -1 : open(name, O_RDWR | flags);
    unlink(name);
    if (made >= 0)
        close(made);
    if (file < 0)
        die("a file");
}

/* Reads the written data back into the same memory, which contains other data at that time. */
static void there_and_back(size_t n, long (*io)(int write, size_t n)) {
    char *p = place(n), value = n * 31 + done_io;
    memset(p, value, SECTOR);
    failed += io(1, n) != SECTOR;
    memset(p, ~value, SECTOR);
    failed += io(0, n) != SECTOR;
    for (size_t i = 0; i < SECTOR; i++)
        wrong_io += p[i] != value;
    done_io++;
}

static long by_call(int write, size_t n) {
    return write ? pwrite(file, place(n), SECTOR, 0) : pread(file, place(n), SECTOR, 0);
}

static struct {
    int fd;
    _Atomic unsigned *sq_tail, *cq_head, *cq_tail;
    unsigned *sq_mask, *sq_array, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} ring;

static char *map_ring(size_t len, off_t at) {
    char *p = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, at);
    if (p == MAP_FAILED)
        die("a ring");
    return p;
}

static void make_ring(void) {
    struct io_uring_params p = {0};
    struct iovec buffers[BUFFERS];
    ring.fd = syscall(SYS_io_uring_setup, 4, &p);
    if (ring.fd < 0) {
        puts("skipped: no io_uring here");
        exit(77);
    }
    char *sq = map_ring(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    char *cq = map_ring(p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring.sqes = (void *)map_ring(p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring.sq_tail = (void *)(sq + p.sq_off.tail);
    ring.sq_mask = (void *)(sq + p.sq_off.ring_mask);
    ring.sq_array = (void *)(sq + p.sq_off.array);
    ring.cq_head = (void *)(cq + p.cq_off.head);
    ring.cq_tail = (void *)(cq + p.cq_off.tail);
    ring.cq_mask = (void *)(cq + p.cq_off.ring_mask);
    ring.cqes = (void *)(cq + p.cq_off.cqes);
    for (size_t n = 0; n < BUFFERS; n++)
        buffers[n] = (struct iovec){place(n), SECTOR};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, buffers, BUFFERS))
        die("buffers");
}

static long by_ring(int write, size_t n) {
    unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;
    ring.sqes[at] = (struct io_uring_sqe){
        .opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
        .fd = file,
        .addr = (unsigned long)place(n),
        .len = SECTOR,
        .buf_index = n,
    };
    ring.sq_array[at] = at;
    *ring.sq_tail = tail + 1;
    int submit = 1;
    while (*ring.cq_head == *ring.cq_tail)
        if (syscall(SYS_io_uring_enter, ring.fd, submit, 1, IORING_ENTER_GETEVENTS, 0, 0) >= 0)
            submit = 0;
        else if (errno != EINTR)
            die("a ring");
    long result = ring.cqes[*ring.cq_head & *ring.cq_mask].res;
    *ring.cq_head = *ring.cq_head + 1;
    return result;
}

int main(int argc, char **v) {
    struct writer w[2];
    double worst = 0;
    if (argc != 4)
        return 2;
    one_page_mappings(atol(v[3]));
    int forks = !strcmp(v[1], "forks"), by_rings = !strcmp(v[1], "ring");
    if (!forks)
        open_file(by_rings ? 0 : O_DIRECT);
    if (by_rings)
        make_ring();
    signal(SIGTERM, end);
    start_writers(w, 2);
    printf("ready %p %zu\n", (void *)area, pages * PAGE);
    fflush(stdout);
    double until = now() + atof(v[2]);
    for (size_t n = 0; now() < until && !told_to_end; n = (n + 1) % BUFFERS) {
        if (!forks) {
            there_and_back(n, by_rings ? by_ring : by_call);
            continue;
        }
        int status = 1;
        pid_t child = fork_as("fork");
        waitpid(child, &status, 0);
        failed += status != 0;
        usleep(5000);
    }
    long lost = stop_writers(w, 2, &worst), wrong = wrong_pages();
    printf("after %ld\nlost %ld\nwrong %ld\nfailed %ld\nio %ld\nwrong_io %ld\n", mappings(area, pages * PAGE), lost, wrong,
           failed, done_io, wrong_io);
    return lost || wrong || failed || wrong_io;
}
