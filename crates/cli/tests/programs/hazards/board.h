/* The shared file through which the hazards target, its helpers, the bully and the script know of each other. */
#ifndef HAZARDS_BOARD_H
#define HAZARDS_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#define BOARD_MAGIC 0x68617a61726473ULL
#define SLOTS 2048
/* Writers of other processes: a child of the target, and the bully. Each has its own word in each page. */
#define WRITERS 2
#define ERRNOS 134

/* A page of the target that other processes read and write. */
struct slot {
    /* Address; 0 if there is no page. Addresses are never used again. */
    _Atomic uint64_t page;
    /* Last value of each writer that the kernel acknowledged. Values only grow. */
    _Atomic uint64_t written[WRITERS];
};

struct board {
    /* The script reads these words by position. */
    _Atomic uint64_t magic, ready, beats, made, failed, over;
    /* Calls of vmarea_merge_range that joined something, that found nothing to join, and that failed, by errno. */
    _Atomic uint64_t joined, idle, refused[ERRNOS];
    /* Children that such a call gave the pages that they missed. */
    _Atomic uint64_t completed;
    /* Numbers of signals that were sent and handled. */
    _Atomic uint64_t sent[2], handled[2];
    /* Calls of writers that were acknowledged, and reads that were checked. */
    _Atomic uint64_t acknowledged[WRITERS], reads[WRITERS];
    struct slot slots[SLOTS];
};

/* Reads and writes a few pages of process `pid`, and checks what it reads. Returns the number of failures.
 * If `memory` is not negative, it is a descriptor of /proc/PID/mem, which is used now and then. */
int visit_pages(struct board *board, int pid, int memory, unsigned writer, uint64_t *random);

#endif
