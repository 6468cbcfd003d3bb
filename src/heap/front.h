/* front: the large blocks that a heap keeps ready, of those that its thread took and freed.
 *
 *     `reserve` of one: the tag of the heap that it was taken for, and FRONT_KEPT while it is kept
 *
 * Threads: who uses the heap puts them in; anybody may take one out, by exchange.
 */
#ifndef MASU_HEAP_FRONT_H
#define MASU_HEAP_FRONT_H

#include "heap/heap.h"
#include "os/os.h"

enum {
  FRONT_SLICES = 128, /* at most, of all together */
  FRONT_KEPT = TAG_LIMIT,
};

/* A large block of that many slices that was freed a moment ago; NULL: there is
 * none. Not zero. hot: the caller's. */
static inline slab *front_take(heap_hot *hot, size_t slices) {
  atomic_u64 *place = &hot->front[slices % FRONT_COUNT];
  uint64_t entry = load_relaxed(place);
  if ((entry & 0xffff) != slices)
    return NULL;
  if (!(LIKELY(os_is_single_threaded()) ? cas_alone(place, &entry, 0) : cas_acq_rel(place, &entry, 0)))
    return NULL;
  slab *s = (slab *)(uintptr_t)(entry >> 16);
  store_relaxed(&s->reserve, hot->tag);
  return s;
}
/* A large block was taken for h, and may wait in its front when it is freed. */
static inline void front_claim(const heap *h, slab *s) {
  store_relaxed(&s->reserve, h->hot.tag);
}
/* Keeps a freed large block in front; false: no place for it, or it was taken for another
 * heap, whose thread would not find it here. */
internal bool front_give(heap *h, slab *s);
/* They all go back to the supply. Any thread; returns their bytes. */
internal size_t front_give_back(heap *h);

/* Is a large block kept? By the heap of which tag. */
static inline bool front_keeps(const slab *s) { return load_relaxed(&s->reserve) & FRONT_KEPT; }
static inline map_tag front_keeper(const slab *s) { return (map_tag)load_relaxed(&s->reserve); }

#endif
