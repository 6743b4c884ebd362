// Linux's maple tree as a library: the functions that crates/range-tree/benches/peers calls, and what the tree needs
// from a kernel. ci/checks/index/maple.sh compiles this file together with the kernel's lib/maple_tree.c; none of the kernel's text
// is in this repository.
//
// The benchmark has one thread, so the parts below are as cheap as in a kernel or cheaper: nodes come from a list of
// free ones, a lock is one atomic exchange, and a reader's section is only a barrier for the compiler. Freed nodes wait
// in a queue, which is emptied between two operations, when no reader can hold a node.

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Replaces the kernel's user-space <linux/spinlock.h>.
#define __LINUX_SPINLOCK_H_
typedef struct {
	int held;
} spinlock_t;
#define __SPIN_LOCK_UNLOCKED(name) ((spinlock_t){0})
#define DEFINE_SPINLOCK(name) spinlock_t name = {0}

static inline void spin_lock_init(spinlock_t *lock)
{
	lock->held = 0;
}

static inline void spin_lock(spinlock_t *lock)
{
	while (__atomic_exchange_n(&lock->held, 1, __ATOMIC_ACQUIRE))
		;
}

static inline void spin_unlock(spinlock_t *lock)
{
	__atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}

#define spin_lock_nested(lock, subclass) spin_lock(lock)
#define spin_lock_bh(lock) spin_lock(lock)
#define spin_unlock_bh(lock) spin_unlock(lock)
#define spin_lock_irq(lock) spin_lock(lock)
#define spin_unlock_irq(lock) spin_unlock(lock)
#define spin_lock_irqsave(lock, flags) ((void)(flags), spin_lock(lock))
#define spin_unlock_irqrestore(lock, flags) ((void)(flags), spin_unlock(lock))

// Replaces its <linux/rcupdate.h>.
#define _RCUPDATE_H
#include <linux/types.h>
#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_CONSUME)
#define rcu_dereference_raw(p) (*(volatile __typeof__(p) *)&(p))
#define rcu_dereference_check(p, held) rcu_dereference_raw(p)
#define rcu_dereference_protected(p, held) (p)
#define rcu_assign_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(p, v) ((p) = (v))
#define rcu_read_lock() __asm__ volatile("" ::: "memory")
#define rcu_read_unlock() __asm__ volatile("" ::: "memory")

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *);
};

static struct rcu_head *freed;
static unsigned int freed_count;

static inline void call_rcu(struct rcu_head *head, void (*free_it)(struct rcu_head *))
{
	head->func = free_it;
	head->next = freed;
	freed = head;
	freed_count++;
}

#include "shared.h"
#include <linux/init.h>
#include <linux/slab.h>
#include "maple_tree.c"

// The only cache of objects is the one of the tree's nodes.
struct kmem_cache {
	size_t size, align;
	void **free;
};

struct kmem_cache *kmem_cache_create(const char *name, unsigned int size, unsigned int align, unsigned int flags,
				     void (*constructor)(void *))
{
	struct kmem_cache *cache = calloc(1, sizeof(*cache));

	assert(cache && !constructor);
	cache->size = size;
	cache->align = align;
	return cache;
}

// Takes memory for 64 objects at once.
static void refill(struct kmem_cache *cache)
{
	char *slab = aligned_alloc(cache->align, 64 * cache->size);

	assert(slab);
	for (int i = 63; i >= 0; i--)
		kmem_cache_free(cache, slab + i * cache->size);
}

void *kmem_cache_alloc_lru(struct kmem_cache *cache, struct list_lru *lru, int flags)
{
	if (!cache->free)
		refill(cache);

	void **object = cache->free;

	cache->free = *object;
	return flags & __GFP_ZERO ? memset(object, 0, cache->size) : object;
}

int kmem_cache_alloc_bulk(struct kmem_cache *cache, gfp_t flags, size_t count, void **objects)
{
	for (size_t i = 0; i < count; i++)
		objects[i] = kmem_cache_alloc_lru(cache, NULL, flags);
	return count;
}

void kmem_cache_free(struct kmem_cache *cache, void *object)
{
	*(void **)object = cache->free;
	cache->free = object;
}

void kmem_cache_free_bulk(struct kmem_cache *cache, size_t count, void **objects)
{
	for (size_t i = 0; i < count; i++)
		kmem_cache_free(cache, objects[i]);
}

// Ends the grace period of freed nodes.
static void reclaim(void)
{
	while (freed) {
		struct rcu_head *head = freed;

		freed = head->next;
		head->func(head);
	}
	freed_count = 0;
}

// Called after each change. Empties the queue in batches, as RCU does.
static inline void quiescent(void)
{
	if (freed_count >= 64)
		reclaim();
}

// Only these functions are exported, so that calls within the tree are direct.
#pragma GCC visibility push(default)

struct maple_tree *peer_create(void)
{
	static bool initialized;
	struct maple_tree *tree = malloc(sizeof(*tree));

	if (!initialized)
		maple_tree_init();
	initialized = true;
	// Like the tree of an address space: it tracks gaps, and readers need no lock.
	if (tree)
		mt_init_flags(tree, MT_FLAGS_ALLOC_RANGE | MT_FLAGS_USE_RCU);
	return tree;
}

void peer_destroy(struct maple_tree *tree)
{
	mtree_destroy(tree);
	reclaim();
	free(tree);
}

// Stores a value in [start, last]. The value 0 empties the range.
int peer_store(struct maple_tree *tree, unsigned long start, unsigned long last, unsigned long value)
{
	int failed = mtree_store_range(tree, start, last, value ? xa_mk_value(value) : NULL, GFP_KERNEL);

	quiescent();
	return failed;
}

void peer_erase(struct maple_tree *tree, unsigned long addr)
{
	mtree_erase(tree, addr);
	quiescent();
}

// Returns the value of the range at or above an address, or 0.
unsigned long peer_find(struct maple_tree *tree, unsigned long addr)
{
	MA_STATE(state, tree, addr, addr);
	void *entry;

	rcu_read_lock();
	entry = mas_find(&state, ULONG_MAX);
	rcu_read_unlock();
	return entry ? xa_to_value(entry) : 0;
}

// Finds the last address at which `size` is free in [low, last].
int peer_gap_highest(struct maple_tree *tree, unsigned long low, unsigned long last, unsigned long size,
		     unsigned long *found)
{
	MA_STATE(state, tree, 0, 0);
	int failed;

	rcu_read_lock();
	failed = mas_empty_area_rev(&state, low, last, size);
	rcu_read_unlock();
	*found = state.last + 1 - size;
	return failed;
}

// Finds the first address at which `size` is free in [low, last].
int peer_gap_lowest(struct maple_tree *tree, unsigned long low, unsigned long last, unsigned long size,
		    unsigned long *found)
{
	MA_STATE(state, tree, 0, 0);
	int failed;

	rcu_read_lock();
	failed = mas_empty_area(&state, low, last, size);
	rcu_read_unlock();
	*found = state.index;
	return failed;
}

#pragma GCC visibility pop
