/* malloc: the allocation functions of masu.h, and their slow paths. */
#ifndef MASU_API_MALLOC_H
#define MASU_API_MALLOC_H

#include "heap/heap.h"
#include "masu.h"

/* The hand of the size's class is empty. size <= TABLE_MAX. */
internal void *malloc_slow(size_t size);
/* Above TABLE_MAX. */
internal void *malloc_larger(size_t size);
/* Memory ran out. Waits for what is on its way back and gives back whatever is idle anywhere, that
 * of h, the thread's heap or NULL, too. Inside a slow path. True: worth another try. */
internal bool malloc_reclaim(heap *h);
/* At a multiple of align, a power of two. NULL with errno ENOMEM. */
internal void *malloc_aligned(size_t align, size_t size);
/* *dirty: so many bytes at the start may not be zero. */
internal void *malloc_aligned_dirty(size_t align, size_t size, size_t *dirty);
/* p is NULL, foreign, large, or another heap's. e: its entry in the page map. */
internal void free_slow(void *p, map_entry e);
/* Inside a slow path: a block of any slab; h is the thread's heap, or NULL. */
internal void free_entered(heap *h, void *p);
/* The countdown of an own slab has reached 0 with b, and the short cut is none. free_back_some: it may be one, to this hand,
 * with others of the slab. */
internal void free_event(block *b, slab *s);
internal void free_back_some(block *b, slab *s, block **hand);
/* The same in a signal handler inside masu, of any slab whose blocks the thread frees itself: undoes the free, and does it later. */
internal void free_event_nested(block *b, slab *s);

#endif
