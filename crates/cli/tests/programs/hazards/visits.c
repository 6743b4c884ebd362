/* Reads and writes of another process's memory, for a child of the target and for the bully. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "board.h"

/* The second half of a page has a word for each writer; the first half never changes. */
#define CONSTANT_WORDS 256

static uint64_t random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

static ssize_t transfer(int pid, int memory, uint64_t *word, uint64_t at, int writes)
{
    if (memory >= 0)
        return writes ? pwrite(memory, word, 8, (off_t)at) : pread(memory, word, 8, (off_t)at);
    struct iovec here = {word, 8}, there = {(void *)at, 8};
    return writes ? process_vm_writev(pid, &here, 1, &there, 1, 0) : process_vm_readv(pid, &here, 1, &there, 1, 0);
}

/* Checks one page; writes to it if the last value is still there. Returns 1 on failure. */
static int visit_page(struct board *board, int pid, int memory, unsigned writer, uint64_t *random)
{
    struct slot *slot = &board->slots[random_of(random) % SLOTS];
    uint64_t page = slot->page, word = 0;
    if (!page)
        return 0;
    uint64_t constant = random_of(random) % CONSTANT_WORDS;
    if (transfer(pid, memory, &word, page + constant * 8, 0) != 8)
        return 0;
    if (word != (page ^ constant) && slot->page == page) {
        printf("BROKEN another process reads %#lx at %#lx, word %lu\n", word, page, constant);
        return 1;
    }
    uint64_t at = page + (CONSTANT_WORDS + writer) * 8, last = slot->written[writer];
    if (transfer(pid, memory, &word, at, 0) != 8)
        return 0;
    /* A writer that was killed may have written one more value. */
    if (word != last && word != last + 1 && slot->page == page) {
        printf("BROKEN another process reads %#lx at %#lx, but wrote %#lx\n", word, at, last);
        return 1;
    }
    board->reads[writer]++;
    uint64_t next = word + 1;
    if (slot->page == page && transfer(pid, memory, &next, at, 1) == 8) {
        slot->written[writer] = next;
        board->acknowledged[writer]++;
    }
    return 0;
}

int visit_pages(struct board *board, int pid, int memory, unsigned writer, uint64_t *random)
{
    int failures = 0;
    for (int i = 0; i < 64; i++)
        failures += visit_page(board, pid, random_of(random) % 4 ? -1 : memory, writer, random);
    if (failures) {
        fflush(stdout);
        board->failed = 1;
    }
    return failures;
}
