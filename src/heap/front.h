/* front: the large blocks that a heap keeps ready, of those that its thread took and freed.
 *
 *     it was taken for the heap, and is its `claimed`
 *     it has been charged to the budget (budget.h), or is due for a look, and marked: then only who asks takes it
 *     front_given - front_taken slices are kept, or less; what others took out is in there
 *
 * To take one and to give it back its descriptor isn't written: what is kept stands in the front only, as the start of
 * the block. So the address need not come from there, nor the entry from the address, and the processor
 * doesn't wait for one after the other; nor does it for the slices, where the same block comes back.
 *
 * Threads: who uses the heap puts them in; anybody may take one out, by exchange.
 */
#ifndef MASU_HEAP_FRONT_H
#define MASU_HEAP_FRONT_H

#include "heap/budget.h"
#include "os/os.h"

enum {
  FRONT_SLICES = 128,   /* at most, of all together */
  FRONT_DUE = 1 << 15,  /* in an entry, beside its slices */
};
_Static_assert(FRONT_DUE < SLICE_SIZE, "both stand in the low bits of an address");

static inline size_t front_entry_slices(uint64_t entry) { return entry & (FRONT_DUE - 1); }
static inline char *front_entry_start(uint64_t entry) { return (char *)(uintptr_t)(entry & ~(uint64_t)(SLICE_SIZE - 1)); }

/* The block of that many slices, marked or not. NULL: there is none. */
static ALWAYS_INLINE char *front_take_marked(heap_hot *hot, size_t slices, size_t mark) {
  atomic_u64 *place = &hot->front[slices % FRONT_COUNT];
  uint64_t entry = load_relaxed(place), found = entry;
  if ((entry & (SLICE_SIZE - 1)) != slices + mark)
    return NULL;
  if (LIKELY(os_is_single_threaded())) {
    if (!cas_alone(place, &found, 0))
      return NULL;
  } else if (!cas_acq_rel(place, &found, 0)) {
    return NULL;
  }
  hot->front_taken += (uint32_t)slices;
  return front_entry_start(entry);
}
/* A large block of that many slices, at most FRONT_SLICES and not 0, that was freed a moment ago, and that nobody wants
 * to see; NULL: there is none. hot: the caller's. */
static ALWAYS_INLINE char *front_take(heap_hot *hot, size_t slices) { return front_take_marked(hot, slices, 0); }
/* One that is to be looked at, which counts as a look; *interval is what that was drawn for. An observer gets none. */
internal slab *front_take_due(heap *h, size_t slices, uint64_t *interval);
/* A large block was taken for h, and may wait in its front when it is freed. */
static inline void front_claim(heap *h, slab *s) { store_relaxed(&s->claimed, h); }
/* Was it taken for that heap? */
static ALWAYS_INLINE bool front_is_claimed(const heap_hot *hot, const slab *s) {
  return load_relaxed(&s->claimed) == (const heap *)hot;
}
static ALWAYS_INLINE bool front_has_place(const heap *h, size_t slices) {
  return !load_relaxed(&h->hot.front[slices % FRONT_COUNT]) &&
         h->front_given + (uint32_t)slices - h->hot.front_taken <= FRONT_SLICES;
}
static ALWAYS_INLINE void front_put(heap *h, uint64_t entry) {
  size_t slices = front_entry_slices(entry);
  h->front_given += (uint32_t)slices;
  store_release(&h->hot.front[slices % FRONT_COUNT], entry);
}
/* Keeps a freed large block that was taken for h; false: there is no place for it, or the budget has to be asked. The
 * bell is to be rung afterwards. p: in its first slice. */
static ALWAYS_INLINE bool front_give_ready(heap *h, const slab *s, const void *p) {
  uintptr_t start = (uintptr_t)front_entry_start((uintptr_t)p);
  uint64_t entry = heap_guessed(&h->front_guess, start | load_relaxed(&s->slices));
  size_t slices = front_entry_slices(entry);
  if (UNLIKELY(!front_has_place(h, slices) || !budget_covers_large(h, slices * SLICE_SIZE)))
    return false;
  front_put(h, entry);
  return true;
}
/* The same of any large block. False: no place for it, or it was taken for another
 * heap, whose thread would not find it here. */
internal bool front_give(heap *h, slab *s);
/* They all go back to the supply. Any thread; returns their bytes. */
internal size_t front_give_back(heap *h);

/* The heap in whose front a large block is kept now; NULL: none. Any thread, of any descriptor that isn't a slab's. */
static inline const heap *front_keeper(const slab *s) {
  const heap *h = load_relaxed(&s->claimed);
  uint64_t entry = h ? load_relaxed(&h->hot.front[load_relaxed(&s->slices) % FRONT_COUNT]) : 0;
  return entry && map_entry_descriptor(map_get(front_entry_start(entry))) == s ? h : NULL;
}

#endif
