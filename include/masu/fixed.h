/* Fixed-capacity pools, and ladders of growing ones: malloc, realloc and free for the part
 * of a program that must not wait.
 *
 * A fixed pool has a given number of equal blocks and never more. It is made entirely when it is
 * created: an allocation that fits and a free make no system call, take no lock, take no
 * page fault and have no loop. What doesn't fit, or comes when all blocks are out, gets NULL, or,
 * with MASU_FIXED_FALLBACK, a block of the general memory; free and realloc tell the two
 * apart by their address.
 *
 *     masu_fixed *f = masu_fixed_create(10000, 10000, MASU_FIXED_FALLBACK);
 *     void *p = masu_fixed_alloc(f, 300);
 *     p = masu_fixed_realloc(f, p, 9000);       the same p: it fits in its block
 *     p = masu_fixed_realloc(f, p, 20000);      moved out, its block is free again
 *     masu_fixed_free(f, p);
 *
 * Threads: a pool belongs to one thread at a time. Not for signal handlers.
 * Contract: as for pools (pool.h); code compiled with MASU_CHECKED=1 finds frees and
 * reallocs of addresses inside a block, and of free blocks. Sizes are bytes; errors are NULL with ENOMEM.
 */
#ifndef MASU_FIXED_H
#define MASU_FIXED_H

#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MASU_FIXED_FALLBACK = 1 /* to the heap that the pool lives in, or the general memory */
};

typedef struct masu_fixed {
  masu_runs free;
  char *start;   /* of the first block */
  size_t span;   /* bytes of all blocks */
  size_t block;  /* usable bytes of a block */
  size_t missed; /* allocations that got NULL or fell back */
  masu_heap *heap;
  unsigned flags;
} masu_fixed;

/* size: of a block; rounded up to a multiple of 16 (of 8 below 16). count: how many, at
 * least 1. Blocks are aligned to 16 (8 below 16). Every page is touched. flags: 0 or
 * MASU_FIXED_FALLBACK. NULL with EINVAL or ENOMEM. */
MASU_API masu_fixed *masu_fixed_create_in(masu_heap *heap, const char *name, size_t size,
                                          size_t count, unsigned flags);
static inline masu_fixed *masu_fixed_create(size_t size, size_t count, unsigned flags) {
  return masu_fixed_create_in(NULL, NULL, size, count, flags);
}
/* Over memory of the caller's: a static array, shared memory, a huge page. As many
 * blocks as fit into `bytes` at `memory`, which must be aligned to 16. The pool itself is
 * *pool, the caller's; it needs no destroy. Only this process can use it. Returns the
 * number of blocks, or 0 with EINVAL (misaligned, not one block fits). */
MASU_API size_t masu_fixed_init(masu_fixed *pool, void *memory, size_t bytes, size_t size,
                                unsigned flags);
/* Ends one that masu_fixed_create made. NULL: nothing happens. Blocks that fell back stay. */
MASU_API void masu_fixed_destroy(masu_fixed *pool);
/* All blocks of the pool are free again, at a cost that does not depend on their number; those that fell back stay. */
MASU_API void masu_fixed_reset(masu_fixed *pool);

MASU_API void *masu_fixed_alloc_slow(masu_fixed *pool, size_t size);
MASU_API void masu_fixed_free_slow(masu_fixed *pool, void *p);
MASU_API void *masu_fixed_realloc_slow(masu_fixed *pool, void *p, size_t size);

/* Is p one of the pool's own blocks? p may be anything. */
static inline int masu_fixed_owns(const masu_fixed *pool, const void *p) {
  return (size_t)((uintptr_t)p - (uintptr_t)pool->start) < pool->span;
}

static inline void *masu_fixed_alloc(masu_fixed *pool, size_t size) {
  char *p = pool->free.ready;
  if (__builtin_expect(size > pool->block, 0))
    return masu_fixed_alloc_slow(pool, size);
  if (p) {
    pool->free.ready = NULL;
    return p;
  }
  p = masu_runs_take(&pool->free, pool->block, 1);
  return __builtin_expect(p != NULL, 1) ? p : masu_fixed_alloc_slow(pool, size);
}

/* p: a block of masu_fixed_alloc or _realloc of this pool, or NULL. */
static inline void masu_fixed_free(masu_fixed *pool, void *p) {
  if (__builtin_expect(!masu_fixed_owns(pool, p) || MASU_CHECKED_HERE != 0, 0))
    masu_fixed_free_slow(pool, p);
  else if (pool->free.ready)
    masu_runs_give(&pool->free, (char *)p, pool->block, 1);
  else
    pool->free.ready = (char *)p;
}

/* p NULL: as alloc. A block of the pool stays where it is if the size fits in it; else it is
 * copied to a block that fell back, and is free again. One that fell back stays outside of the
 * pool. Size 0 frees nothing. On failure p stays as it was. */
static inline void *masu_fixed_realloc(masu_fixed *pool, void *p, size_t size) {
  if (__builtin_expect(masu_fixed_owns(pool, p) && size <= pool->block && MASU_CHECKED_HERE == 0, 1))
    return p;
  return p ? masu_fixed_realloc_slow(pool, p, size) : masu_fixed_alloc(pool, size);
}

/* Blocks in use. */
static inline size_t masu_fixed_live(const masu_fixed *pool) {
  return (pool->span - masu_runs_bytes(&pool->free, pool->block)) / pool->block;
}

/* ---- Ladders ---- */

/* A ladder is a list of growing pools, 4, 16, 64, 256 B ... 256 KB say, behind one
 * malloc, realloc and free. A size takes the first step that it fits in; what is larger than
 * all, a block of the heap that the ladder lives in, or of the general memory, which takes whole
 * slices of 64 KiB of address space and of that heap's budget. Memory grows
 * in chunks of 1 MiB of address space a step, of which only what is used is touched; the
 * budget of a heap that the ladder lives in is charged with whole chunks: with the usual steps, of
 * which there are 52, up to 52 MiB before a step has its second one. For a small budget give few steps.
 *
 * Threads: a ladder belongs to one thread at a time. */
typedef struct masu_ladder masu_ladder;

/* steps: sizes in bytes, rising, each at most 256 KiB; a step below 8 is 8. count: 1 to 64.
 * steps NULL: 16, 32, 48, 64 and from there four in each doubling up to 256 KiB, whatever count
 * is. Blocks are aligned to 16 (8 for a step of 8). NULL with EINVAL or ENOMEM. */
MASU_API masu_ladder *masu_ladder_create_in(masu_heap *heap, const char *name,
                                            const size_t *steps, size_t count);
static inline masu_ladder *masu_ladder_create(const size_t *steps, size_t count) {
  return masu_ladder_create_in(NULL, NULL, steps, count);
}
/* Its blocks are gone, those above the last step excepted. NULL: nothing happens. */
MASU_API void masu_ladder_destroy(masu_ladder *ladder);

MASU_API void *masu_ladder_alloc(masu_ladder *ladder, size_t size);
/* p NULL: as alloc. Stays in place while the size fits in the step's block; a block above the
 * last step that is now small enough for a step moves there, if there is room. */
MASU_API void *masu_ladder_realloc(masu_ladder *ladder, void *p, size_t size);
/* p: a block of this ladder, or NULL. */
MASU_API void masu_ladder_free(masu_ladder *ladder, void *p);
/* Gives back the chunks in which no block is live; returns bytes. */
MASU_API size_t masu_ladder_trim(masu_ladder *ladder);

#ifdef __cplusplus
}
#endif
#endif
