#include "heap/front.h"

#include "os/bell.h"

static size_t front_slices(const heap_hot *hot) {
  size_t slices = 0;
  for (unsigned i = 0; i < FRONT_COUNT; i++)
    slices += load_relaxed(&hot->front[i]) & 0xffff;
  return slices;
}

/* What was taken out meanwhile is noticed only when it matters. */
static bool has_room(heap *h, size_t slices) {
  if (h->fronted + slices > FRONT_SLICES)
    h->fronted = (uint32_t)front_slices(&h->hot);
  return h->fronted + slices <= FRONT_SLICES;
}

internal bool front_give(heap *h, slab *s) {
  uint32_t slices = load_relaxed(&s->slices);
  atomic_u64 *place = &h->hot.front[slices % FRONT_COUNT];
  if (load_relaxed(&s->reserve) != h->hot.tag || load_relaxed(place) ||
      !has_room(h, slices))
    return false;
  h->fronted += slices;
  store_relaxed(&s->reserve, h->hot.tag | FRONT_KEPT);
  store_release(place, (uint64_t)(uintptr_t)s << 16 | slices);
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
