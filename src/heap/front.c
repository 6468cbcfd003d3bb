#include "heap/front.h"

#include "os/bell.h"

static size_t front_slices(const heap_hot *hot) {
  size_t slices = 0;
  for (unsigned i = 0; i < FRONT_COUNT; i++)
    slices += load_relaxed(&hot->front[i]) & 0xffff;
  return slices;
}

internal bool front_give(heap *h, slab *s) {
  atomic_u64 *place = &h->hot.front[s->slices % FRONT_COUNT];
  if (s->slices > FRONT_SLICES || load_relaxed(&s->reserve) != h->hot.tag || s->kind == SLAB_NESTED ||
      load_relaxed(place) || front_slices(&h->hot) + s->slices > FRONT_SLICES)
    return false;
  store_release(place, (uint64_t)(uintptr_t)s << 16 | s->slices);
  bell_ring();
  return true;
}

internal size_t front_give_back(heap *h) {
  size_t bytes = 0;
  for (unsigned i = 0; i < FRONT_COUNT; i++) {
    uint64_t entry = load_relaxed(&h->hot.front[i]);
    if (entry && cas_acq_rel(&h->hot.front[i], &entry, 0)) {
      slab *s = (slab *)(uintptr_t)(entry >> 16);
      bytes += s->slices * SLICE_SIZE;
      large_give(s);
    }
  }
  return bytes;
}
