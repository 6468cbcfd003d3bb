/* meta: masu's own memory, for descriptors, heaps and region tables.
 *
 * A bump allocator over chunks from the system. Nothing is ever given back: who
 * recycles objects keeps a list of its own, so an object keeps its type forever
 * and a stale pointer to it stays readable. Memory is zero. Thread-safe (LOCK_META,
 * held over the rare mmap of a chunk).
 */
#ifndef MASU_PAGES_META_H
#define MASU_PAGES_META_H

#include "base/attr.h"

/* Aligned to 128 bytes (two cache lines, which processors fetch together).
 * NULL: the system refused. */
internal void *meta_alloc(size_t size);
/* Makes the newest chunk resident, after making sure that `size` bytes of it are left. */
internal bool meta_prewarm(size_t size);
/* All chunks, as os_lock_memory. */
internal int meta_lock(bool lock);
/* Calls visit for each chunk. */
internal void meta_for_each(void (*visit)(void *start, size_t size, void *context), void *context);
/* Bytes of all chunks that are resident. */
internal size_t meta_resident(void);
/* Bytes handed out so far. */
internal size_t meta_used(void);

#endif
