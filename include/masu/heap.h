/* Named heaps: the memory of one part of a program, with a name, a budget and figures of
 * its own, which can be given back as a whole.
 *
 *     masu_heap *sounds = masu_heap_create("sounds");
 *     masu_heap_set_budget(sounds, 0, 64 << 20);
 *     float *wave = masu_heap_malloc(sounds, bytes);   NULL beyond 64 MiB
 *     free(wave);                                      or masu_heap_free
 *     masu_heap_destroy(sounds);                       everything that is left
 *
 * A heap may be used from any thread at any time, without locking: each thread
 * allocates from a part of its own. Its blocks are blocks like malloc's: they are freed,
 * resized and measured by free, realloc and malloc_usable_size, from any thread, and
 * realloc leaves them in their heap. Pools, fixed pools, arenas and ladders can live in a
 * heap; they and their blocks count for it and end with it.
 *
 * Every function that takes a heap takes NULL for the program's general memory, which
 * has no budget and can't be destroyed. Sizes are bytes; alignment and errors are those
 * of malloc (masu.h): NULL with ENOMEM, also when the budget is used up. A thread past
 * its last thread-specific destructor, and a signal handler that interrupts the
 * allocator, get no memory from a named heap.
 * Use of a heap that was destroyed, or of a block of it, is undefined; a checked library reports it in
 * one line and aborts, as it does of what malloc's blocks may not.
 */
#ifndef MASU_HEAP_H
#define MASU_HEAP_H

#include "../masu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct masu_heap masu_heap;

/* name: what tools show; at most 31 characters are kept, NULL is "". NULL with ENOMEM
 * when there is no memory. The heap itself counts for nobody. */
MASU_API masu_heap *masu_heap_create(const char *name);
/* Gives back every block of the heap and everything that lives in it. No thread may use
 * the heap or a block of it from then on. Pools, fixed pools, arenas and ladders in it are
 * destroyed, no destructor is called. Scopes that take memory from it (scope.h) must be closed
 * before. NULL: nothing happens. Threads may otherwise go on. */
MASU_API void masu_heap_destroy(masu_heap *heap);

MASU_API void *masu_heap_malloc(masu_heap *heap, size_t size);
MASU_API void *masu_heap_calloc(masu_heap *heap, size_t count, size_t size);
/* p NULL: as masu_heap_malloc. Otherwise as masu_realloc: p stays in the heap it is in,
 * whatever `heap` says. */
MASU_API void *masu_heap_realloc(masu_heap *heap, void *p, size_t size);
/* alignment: a power of two, or EINVAL. */
MASU_API void *masu_heap_aligned_alloc(masu_heap *heap, size_t alignment, size_t size);
/* As free; some instructions less when p is of `heap` and this thread allocated it. */
MASU_API void masu_heap_free(masu_heap *heap, void *p);

/* The heap that p is a block of; NULL: none, p belongs to the general memory, is not
 * masu's, or is NULL. p must not have been freed. */
MASU_API masu_heap *masu_heap_of(const void *p);
MASU_API const char *masu_heap_name(const masu_heap *heap);

/* The budget counts the memory that the heap has touched: blocks in use and freed
 * blocks that it keeps for reuse, in steps of pages; blocks above 256 KiB, and the chunks of
 * pools, fixed pools, arenas and ladders, in full. hard: no allocation goes beyond it.
 * soft: allocation goes on, but calls what masu_heap_on_soft set. 0: no limit. A heap
 * that is beyond a new limit already stays there. */
MASU_API void masu_heap_set_budget(masu_heap *heap, size_t soft, size_t hard);
/* Called by the thread whose allocation made the heap grow beyond the soft limit, after
 * the allocation is done, once until the heap was below it again. It may use the heap.
 * callback NULL: none. Set it before the heap is used by other threads. */
MASU_API void masu_heap_on_soft(masu_heap *heap,
                                void (*callback)(masu_heap *heap, size_t used, void *context),
                                void *context);

/* Gives back the free memory that the calling thread's part of the heap, and the parts
 * of ended threads, keep ready. Returns the bytes by which the heap's use fell. */
MASU_API size_t masu_heap_trim(masu_heap *heap);

typedef struct masu_heap_figures {
  size_t used;         /* bytes that the heap has touched: what the budget counts */
  size_t peak;         /* the most that `used` ever was */
  size_t live;         /* bytes of blocks in use, and of blocks that other threads, and the heap
                          profiler while it runs, hold ready: for each of them and each size
                          class at most those of one slab */
  size_t blocks;       /* their number */
  size_t soft, hard;   /* the budget; 0: no limit */
  uint64_t refused;    /* allocations that the hard limit turned away */
} masu_heap_figures;

/* Stops nobody: while other threads use the heap the figures are of slightly different
 * moments. size: sizeof *figures; others as in masu/stats.h. Returns 0, EINVAL (also: heap
 * NULL), or EAGAIN from a signal handler that interrupted the allocator. */
MASU_API int masu_heap_read(const masu_heap *heap, masu_heap_figures *figures, size_t size);
/* Calls visit for each heap that there is. visit may use heaps, not create or destroy
 * one. */
MASU_API void masu_heap_for_each(void (*visit)(masu_heap *heap, void *context), void *context);

#ifdef __cplusplus
}
#endif
#endif
