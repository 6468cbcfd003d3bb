/* pool: blocks of one size (masu/pool.h).
 *
 * Blocks lie in up to CHUNKS chunks, which are blocks of the pool's heap. The first `made` of
 * a chunk were made ready, the rest is untouched. Free blocks are known in one of three ways:
 *
 *     plain:   by runs, which the inline functions take from and give to (masu/pool.h). What was never
 *              used is a run as well. made == bytes in use + in all runs
 *     numbers: `top` holds the number of the first, each holds the number of the next, in 4 bytes: number =
 *              chunk << NUMBER_SHIFT | index, plus 1, so that 0 is none. The upper half
 *              of top counts the changes: who compares and swaps with an old one fails.
 *     hands:   each thread has runs of its own, and what is too much for it is on that list of numbers,
 *              many blocks at a time (forms/hands.h)
 *
 * Plain are pools of one thread; hands have those that are shared; numbers those that are checked, or whose
 * blocks are too small: for an address or, shared, for 16 bytes. Only plain pools have runs of their own; of
 * the others every call comes to the library. Chunks are added under LOCK_POOLS and never removed
 * while the pool is shared. The list is modelled in models/pool.pml.
 */
#ifndef MASU_FORMS_POOL_H
#define MASU_FORMS_POOL_H

#include "base/atomic.h"
#include "forms/named.h"
#include "forms/runs.h"

enum { CHUNKS = 64, NUMBER_SHIFT = 26 };

/* Atomic is what other threads look at while one adds a chunk. */
typedef struct chunk {
  _Atomic(char *) start;
  atomic_u32 capacity, made;
  atomic_u64 *live; /* checked pools: one bit a block */
} chunk;

typedef struct pool_hands {
  uint64_t id; /* no other pool ever has the same; 0: there are no hands */
  size_t known; /* where the hot part of a thread's heap has which is its own */
  size_t most; /* bytes that a thread's runs come to before they go */
  _Atomic(struct pool_hand *) first;
  atomic_word waiting; /* bytes on the list */
} pool_hands;

typedef struct pool {
  masu_pool head;
  pool_hands hands;
  uint32_t flags;
  uint32_t link; /* where in a block the number of the next one is */
  size_t align;
  uint32_t current; /* chunks before this one are made entirely */
  atomic_u32 slots; /* chunk[0 .. slots) were ever in use */
  size_t held;
  tenant tenant;
  _Alignas(64) atomic_u64 top;
  atomic_word shared_live; /* blocks in use, where there are numbers */
  chunk chunk[CHUNKS];
} pool;

/* Every call of the pool goes there. */
static inline void guide(masu_pool *head, void *(*alloc)(masu_pool *), void (*give)(masu_pool *, void *)) {
  head->free = (masu_runs){.ready = MASU_POOL_GUIDED};
  head->alloc = alloc;
  head->give = give;
}

typedef uint32_t __attribute__((may_alias)) number_link;

internal char *block_at(const pool *p, uint32_t number);
/* The number of a block; 0: b isn't one. Other threads may add chunks meanwhile. */
internal uint32_t number_of(const pool *p, const char *b);

internal uint32_t next_of(const pool *p, const char *b);
static inline void set_next(const pool *p, char *b, uint32_t number) { *(number_link *)(void *)(b + p->link) = number; }
/* Of a chain, whose blocks are linked already. */
internal void push_numbers(pool *p, uint32_t first, char *last);
/* NULL: the list is empty. */
internal char *pop_number(pool *p);

/* Puts blocks on the list, unless there are some by now. False: out of memory. */
internal bool make_some_shared(pool *p);

#endif
