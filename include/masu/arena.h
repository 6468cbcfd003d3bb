/* Arenas: linear memory for work that ends all at once. Allocation moves a pointer; single
 * blocks are not freed.
 *
 *     masu_arena *frame = masu_arena_create(1 << 20);
 *     for (;;) {
 *       star *s = masu_arena_alloc(frame, sizeof *s);
 *       ...
 *       masu_arena_reset(frame);       everything at once, the memory is kept
 *     }
 *     masu_arena_destroy(frame);
 *
 * An arena grows by runs, each at least as large as the one before, or has a fixed
 * capacity and says NULL at its end. It lies in a heap, in the general memory, or in
 * memory of the caller's.
 *
 * Threads: an arena belongs to one thread at a time. Not for signal handlers. Sizes are
 * bytes, alignments powers of two; blocks are aligned to 16 unless another alignment is
 * asked for; size 0 gives a block that may be shared with the next. Errors: NULL with ENOMEM,
 * nothing changed. Blocks are not zeroed, but for masu_arena_calloc. Use after destroy and marks that
 * are another arena's, or of a run that is not in use any more, are undefined; a checked library reports
 * them in one line and aborts.
 */
#ifndef MASU_ARENA_H
#define MASU_ARENA_H

#include "heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct masu_run masu_run; /* a piece of memory in a chain, the library's */

typedef struct masu_arena {
  char *at, *end; /* what is free of the current run */
  char *last;     /* the block allocated last */
  masu_run *run;  /* the current one */
} masu_arena;

/* size: bytes that can be allocated before the arena grows for the first time; 0: 64
 * KiB. heap: where it lives, or NULL. name: what tools show, or NULL. */
MASU_API masu_arena *masu_arena_create_in(masu_heap *heap, const char *name, size_t size);
static inline masu_arena *masu_arena_create(size_t size) {
  return masu_arena_create_in(NULL, NULL, size);
}
/* Never grows beyond `capacity` bytes, at least 1. */
MASU_API masu_arena *masu_arena_create_fixed(masu_heap *heap, const char *name, size_t capacity);
/* In memory of the caller's, of any alignment: `bytes` at `memory`, of which up to 128
 * are the arena's own. Never grows and needs no destroy. NULL with EINVAL: too few bytes. */
MASU_API masu_arena *masu_arena_init(void *memory, size_t bytes);
/* NULL: nothing happens. One of masu_arena_init just ends. */
MASU_API void masu_arena_destroy(masu_arena *arena);

MASU_API void *masu_arena_alloc_slow(masu_arena *arena, size_t size, size_t alignment);

static inline void *masu_arena_alloc(masu_arena *arena, size_t size) {
  char *p = (char *)(((uintptr_t)arena->at + 15) & ~(uintptr_t)15);
  if (__builtin_expect(p > arena->end || size > (size_t)(arena->end - p), 0))
    return masu_arena_alloc_slow(arena, size, 16);
  arena->last = p;
  arena->at = p + size;
  return p;
}

/* alignment: 1 is fine for text. Not a power of two: NULL with EINVAL. */
static inline void *masu_arena_aligned_alloc(masu_arena *arena, size_t alignment, size_t size) {
  char *p = (char *)(((uintptr_t)arena->at + (alignment - 1)) & ~(uintptr_t)(alignment - 1));
  if (__builtin_expect((alignment & (alignment - 1)) || p < arena->at || p > arena->end ||
                           size > (size_t)(arena->end - p), 0))
    return masu_arena_alloc_slow(arena, size, alignment);
  arena->last = p;
  arena->at = p + size;
  return p;
}

/* count * size zero bytes; what is known to be zero is not cleared. ENOMEM when the product
 * overflows. */
MASU_API void *masu_arena_calloc(masu_arena *arena, size_t count, size_t size);
/* old_size: what p was allocated with. The last block is resized in place where the run has
 * room; others are copied, if they grow. p NULL: as alloc. */
MASU_API void *masu_arena_realloc(masu_arena *arena, void *p, size_t old_size, size_t size);
/* A copy of a string, without alignment. */
MASU_API char *masu_arena_strdup(masu_arena *arena, const char *text);

/* A moment in the arena's life. Rewinding to it frees what was allocated since, and what the
 * block that was the last one has grown by since; marks taken since then are void. */
typedef struct masu_mark {
  masu_run *run;
  char *at;
} masu_mark;

static inline masu_mark masu_arena_mark(const masu_arena *arena) {
  masu_mark mark = {arena->run, arena->at};
  return mark;
}
MASU_API void masu_arena_rewind(masu_arena *arena, masu_mark mark);
/* Everything is free again; the memory is kept. Costs the same however much it was. */
MASU_API void masu_arena_reset(masu_arena *arena);
/* Gives back the runs after the one that is in use; returns their bytes. */
MASU_API size_t masu_arena_trim(masu_arena *arena);

typedef struct masu_arena_figures {
  size_t used; /* bytes allocated, gaps included */
  size_t held; /* bytes of all runs */
  size_t runs;
} masu_arena_figures;
/* size: sizeof *figures; others as in masu/stats.h. Returns 0 or EINVAL. */
MASU_API int masu_arena_read(const masu_arena *arena, masu_arena_figures *figures, size_t size);

#ifdef __cplusplus
}
#endif
#endif
