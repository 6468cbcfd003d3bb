/* Pools: blocks of one size. Taking and giving one back is a handful of instructions, in
 * the caller's own code; a block costs exactly its size.
 *
 *     masu_pool *stars = masu_pool_create(sizeof(star), _Alignof(star), 0);
 *     star *s = masu_pool_alloc(stars);
 *     masu_pool_free(stars, s);
 *     masu_pool_destroy(stars);
 *
 * A pool belongs to one thread at a time, or is MASU_POOL_SHARED: then alloc and free may
 * be called from any thread. Each thread that uses it holds free blocks ready for itself, less than 32 KiB
 * and four blocks, until it ends; what is more than that goes from thread to thread without a lock. A lock that all
 * shared pools have in common is taken where alloc makes more blocks ready (see masu_pool_reserve), and
 * where a thread comes to the pool or ends. Shared pools of blocks below 16 bytes, and checked ones, hold nothing
 * ready for threads: each call is a compare-and-swap there. All other functions want
 * the pool for themselves in both kinds; a thread that ends does not use it. In a child of fork, masu_pool_reserve, trim
 * and for_each are for pools that no other thread was using. A pool may be handed from thread to thread with the
 * usual synchronisation. Not for signal handlers.
 *
 * Contract: a block goes back to the pool that it came from, once, and is not used after
 * that; a pool's block does not go to free(). Code compiled with MASU_CHECKED=1 makes
 * pools that find breaches (one line on stderr, then abort; of writes to a free block, most of those
 * to its first 4 bytes), and so does a checked library; all code that uses such a pool should be
 * compiled so. Otherwise a breach is undefined.
 *
 * Each pool knows how many blocks are live; in code compiled with MASU_NO_COUNTS=1 not.
 * Blocks are not zeroed. Sizes are bytes. Memory comes in up to 64 chunks, each at least a third
 * of what the pool has so far, and is touched page by page as blocks are first used. A chunk
 * has less than 2^26 blocks.
 */
#ifndef MASU_POOL_H
#define MASU_POOL_H

#include "heap.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MASU_POOL_SHARED = 1, /* alloc and free from any thread */
  /* Set by masu_pool_create and masu_pool_create_in where the macros of the same name are: */
  MASU_POOL_CHECKED = 2,
  MASU_POOL_UNCOUNTED = 4
};

#if defined(MASU_NO_COUNTS) && MASU_NO_COUNTS
#define MASU_UNCOUNTED_HERE MASU_POOL_UNCOUNTED
#define MASU_COUNTED_HERE 0
#else
#define MASU_UNCOUNTED_HERE 0
#define MASU_COUNTED_HERE 1
#endif
#if defined(MASU_CHECKED) && MASU_CHECKED
#define MASU_CHECKED_HERE MASU_POOL_CHECKED
#else
#define MASU_CHECKED_HERE 0
#endif

/* Free blocks of one size: one that is taken first, the others by runs of blocks that lie side by side.
 * Nothing is in the current run, which is in order of address; each other run holds the address of the
 * next and, unless it is one block alone, its own end. */
typedef struct masu_runs {
  char *ready;    /* the one, or NULL; MASU_POOL_GUIDED */
  char *at, *end; /* the current run */
  char *more;     /* the others, which are taken after it; lowest bit set: that one is a block alone */
  size_t listed;  /* bytes of those, if they are counted */
} masu_runs;

/* What the inline functions need of a pool. The library's own part follows. */
typedef struct masu_pool {
  masu_runs free;
  size_t size; /* from one block to the next */
  size_t made; /* bytes of the blocks that were ever free; of a checked or tiny one, not shared, that are in use */
  /* Of a guided pool: every call goes there, there are no runs, and MASU_POOL_GUIDED is ready. Else NULL. */
  void *(*alloc)(struct masu_pool *pool);
  void (*give)(struct masu_pool *pool, void *p);
} masu_pool;
#define MASU_POOL_GUIDED ((char *)1)

/* size: of a block, at least 1; rounded up to a multiple of 4 and of align. align: a power
 * of two up to 64 KiB; 0: the largest that divides the size, at most 16. Blocks of up to 4
 * bytes are possible: 4 bytes each, not 8, at the cost of a call. flags: 0 or
 * MASU_POOL_SHARED. heap: where it lives, or NULL. name: what tools show, or NULL.
 * NULL with EINVAL or ENOMEM. */
MASU_API masu_pool *masu_pool_create_in(masu_heap *heap, const char *name, size_t size,
                                        size_t align, unsigned flags);
/* How the caller is compiled, the library can't know. */
#define masu_pool_create_in(heap, name, size, align, flags) \
  masu_pool_create_in(heap, name, size, align, (flags) | MASU_UNCOUNTED_HERE | MASU_CHECKED_HERE)
static inline masu_pool *masu_pool_create(size_t size, size_t align, unsigned flags) {
  return masu_pool_create_in(NULL, NULL, size, align, flags);
}
/* All blocks are gone. NULL: nothing happens. */
MASU_API void masu_pool_destroy(masu_pool *pool);

/* The inline functions' other half: no block is free. */
MASU_API void *masu_pool_alloc_slow(masu_pool *pool);

#ifdef __GNUC__
typedef char *__attribute__((may_alias, aligned(4))) masu_link; /* in any block */
#else
typedef char *masu_link;
#endif

/* The next run of the list becomes the current one, which is empty; 0: there is none. */
static inline int masu_runs_next(masu_runs *runs, size_t size, int counted) {
  uintptr_t first = (uintptr_t)runs->more, alone = first & 1;
  masu_link *links = (masu_link *)(first - alone);
  if (!first)
    return 0;
  runs->more = links[0];
  runs->at = (char *)links;
  runs->end = alone ? (char *)links + size : links[1];
  if (counted)
    runs->listed -= (size_t)(runs->end - runs->at);
  return 1;
}

/* Puts a run on the list. */
static inline void masu_runs_list(masu_runs *runs, char *at, char *end, size_t size, int counted) {
  uintptr_t alone = (size_t)(end - at) == size;
  masu_link *links = (masu_link *)(void *)at;
  links[0] = runs->more;
  if (!alone)
    links[1] = end;
  runs->more = at + alone;
  if (counted)
    runs->listed += (size_t)(end - at);
}

/* One of the runs. NULL: there is none. */
static inline char *masu_runs_take(masu_runs *runs, size_t size, int counted) {
  if (__builtin_expect(runs->at == runs->end, 0) && !masu_runs_next(runs, size, counted))
    return NULL;
  char *p = runs->at;
  runs->at = p + size;
  __builtin_prefetch(runs->at, 1); /* writes alone don't tell the processor which is next */
  return p;
}

/* A block is free again, while another one is ready. Those that come back in the order they were taken in,
 * or in the opposite one, stay side by side. */
static inline void masu_runs_give(masu_runs *runs, char *p, size_t size, int counted) {
  if (p + size == runs->at) {
    runs->at = p;
  } else if (p == runs->end) {
    runs->end = p + size;
  } else {
    if (runs->at != runs->end)
      masu_runs_list(runs, runs->at, runs->end, size, counted);
    runs->at = p;
    runs->end = p + size;
  }
}

/* NULL with ENOMEM. */
static inline void *masu_pool_alloc(masu_pool *pool) {
  char *p = pool->free.ready;
  if ((uintptr_t)p > (uintptr_t)MASU_POOL_GUIDED) {
    pool->free.ready = NULL;
    return p;
  }
  if (pool->alloc)
    return pool->alloc(pool);
  p = masu_runs_take(&pool->free, pool->size, MASU_COUNTED_HERE);
  return __builtin_expect(p != NULL, 1) ? p : masu_pool_alloc_slow(pool);
}

/* p: a block of this pool, not NULL. */
static inline void masu_pool_free(masu_pool *pool, void *p) {
  if (!pool->free.ready)
    pool->free.ready = (char *)p;
  else if (pool->give)
    pool->give(pool, p);
  else
    masu_runs_give(&pool->free, (char *)p, pool->size, MASU_COUNTED_HERE);
}

/* Bytes of those that are counted. */
static inline size_t masu_runs_bytes(const masu_runs *runs, size_t size) {
  return runs->listed + (size_t)(runs->end - runs->at) + ((uintptr_t)runs->ready > (uintptr_t)MASU_POOL_GUIDED ? size : 0);
}

/* Blocks in use, of a pool of one thread, unless that isn't counted. */
static inline size_t masu_pool_live(const masu_pool *pool) {
  return MASU_COUNTED_HERE ? (pool->made - masu_runs_bytes(&pool->free, pool->size)) / pool->size : 0;
}

/* Makes n blocks ready, those that are free already included, and touches their pages: the
 * next n allocations make no system call and take no page fault (unless the memory is
 * given back meanwhile by trim; in a shared pool less what other threads come to hold ready, and but for a thread's first call). Returns 0 or ENOMEM, in which case some are ready. */
MASU_API int masu_pool_reserve(masu_pool *pool, size_t n);
/* All blocks are free again, at a cost that does not depend on their number. The memory
 * is kept. */
MASU_API void masu_pool_reset(masu_pool *pool);
/* Gives back the chunks in which no block is live. Returns their bytes. */
MASU_API size_t masu_pool_trim(masu_pool *pool);
/* Calls visit for each live block, in no order. visit must not use the pool. Returns 0 or
 * ENOMEM (it needs one bit a block). */
MASU_API int masu_pool_for_each(masu_pool *pool, void (*visit)(void *p, void *context),
                                void *context);

typedef struct masu_pool_figures {
  size_t block;  /* bytes from one block to the next */
  size_t live;   /* blocks in use; 0 if that isn't counted */
  size_t room;   /* blocks that all chunks have room for */
  size_t held;   /* bytes of all chunks; what was never used of them is not resident */
} masu_pool_figures;
/* size: sizeof *figures; others as in masu/stats.h. Returns 0 or EINVAL. */
MASU_API int masu_pool_read(const masu_pool *pool, masu_pool_figures *figures, size_t size);

#ifdef __cplusplus
}
#endif
#endif
