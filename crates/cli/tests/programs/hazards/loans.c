/* Memory that is lent to whoever merges it: until its owner has recalled it, nobody changes its mappings or discards
 * its pages. This is what `vmarea_merge_range` demands of its caller. Everything else goes on: the owner, other threads,
 * children and other processes read and write it. */
#define _GNU_SOURCE
#include <pthread.h>

#include "hazards.h"

#define MOST_LOANS 256

static struct loan loans[MOST_LOANS];
/* Held while a loan begins. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void lend(char *base, size_t pages, bool is_plain)
{
    if (!options.library)
        return;
    pthread_mutex_lock(&lock);
    struct loan *loan = loans;
    while (loan < loans + MOST_LOANS && loan->base)
        loan++;
    if (loan == loans + MOST_LOANS)
        broken("more than %d loans", MOST_LOANS);
    loan->pages = pages;
    loan->is_plain = is_plain;
    loan->base = base;
    pthread_mutex_unlock(&lock);
}

void recall(const char *base)
{
    for (struct loan *loan = loans; loan < loans + MOST_LOANS; loan++) {
        if (loan->base != base || !base)
            continue;
        for (unsigned use = 0; use < USES; use++)
            pthread_mutex_lock(&loan->uses[use]);
        loan->base = NULL;
        for (unsigned use = 0; use < USES; use++)
            pthread_mutex_unlock(&loan->uses[use]);
    }
}

struct loan *borrow(enum use use, uint64_t *random)
{
    size_t first = next_random(random) % MOST_LOANS;
    for (size_t i = 0; i < MOST_LOANS; i++) {
        struct loan *loan = &loans[(first + i) % MOST_LOANS];
        if (!loan->base || pthread_mutex_trylock(&loan->uses[use]))
            continue;
        if (loan->base)
            return loan;
        pthread_mutex_unlock(&loan->uses[use]);
    }
    return NULL;
}

void give_back(struct loan *loan, enum use use)
{
    pthread_mutex_unlock(&loan->uses[use]);
}
