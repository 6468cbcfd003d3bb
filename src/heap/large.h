/* large: blocks above the size classes, each with a descriptor of its own.
 *
 * Up to a huge page a block is a run of the supply (SLAB_RUN); above, a mapping of
 * its own in whole slices (SLAB_DIRECT), which realloc can move without copying.
 * Only the first slice of a large
 * block stands in the pagemap: a pointer inside it is foreign to free.
 *
 * Threads: a block is handled by the one thread that allocates, resizes or frees
 * it; everything else is behind the locks.
 */
#ifndef MASU_HEAP_LARGE_H
#define MASU_HEAP_LARGE_H

#include "heap/slab.h"

/* No block is larger than half the address space: it is not worth asking. */
#define LARGE_MOST ((size_t)1 << (OS_ADDRESS_BITS - 1))

/* Could there be such a block? */
static inline bool large_is_possible(size_t size, size_t align) {
  return size <= LARGE_MOST && align <= LARGE_MOST / 2;
}

/* How many slices it takes. */
static inline size_t large_slices(size_t size) { return ROUND_UP(size, SLICE_SIZE) >> SLICE_SHIFT; }

/* size > 0. NULL: out of memory. *dirty: so many bytes at the start, or more than
 * size, may not be zero. */
internal slab *large_take(size_t size, size_t align, size_t *dirty);
/* The block is gone afterwards; its memory goes back to where it came from. */
internal void large_give(slab *s);
/* Makes the block `size` bytes long, in place or moved with its contents, and
 * returns its start; NULL: it cannot be done without copying, nothing changed. */
internal char *large_resize(slab *s, size_t size);

/* For a signal handler that interrupts masu itself: takes no lock. */
internal void *large_take_nested(size_t size, size_t align);

#endif
