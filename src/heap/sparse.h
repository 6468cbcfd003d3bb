/* sparse: the pages of a slab in which little is left in use.
 *
 * A slab is cut into at most 64 units, each a page or some. A unit in which every block
 * is on the local list can be purged: the blocks that start in it leave the list,
 * since their links are gone, and count as never threaded until a refill threads
 * them again. A block that only ends in it stays on the list.
 *
 *     purged: bit i: unit i was purged and not threaded again; 0 unless OPEN
 *     sparse_blocks(s) == blocks that start in purged units, all below `threaded`
 *
 * When, is heap.c's business. Threads: the slab's owner, while no sender can end it.
 */
#ifndef MASU_HEAP_SPARSE_H
#define MASU_HEAP_SPARSE_H

#include "heap/slab.h"

/* Purges the units that are empty now. Returns their bytes. */
internal size_t sparse_purge(slab *s);
/* 0 if s->purged is 0. */
internal uint32_t sparse_blocks(const slab *s);
/* Does the block start in a purged unit? */
internal bool sparse_is_purged(const slab *s, const block *b);

/* What is threaded again next, with s->purged != 0: how many blocks, and their chain.
 * They must be in need already. */
internal uint32_t sparse_step(const slab *s);
internal block *sparse_thread(slab *s);

/* Bytes of the blocks that were threaded and are in no purged page: what an account is
 * charged for s. */
static inline size_t sparse_charged(const slab *s) {
  return (load_relaxed(&s->threaded) - (load_relaxed(&s->purged) ? sparse_blocks(s) : 0)) * s->block_size;
}

#endif
