#include "heap/front.h"

#include "os/bell.h"

/* What others took out is noticed only when it matters. */
static bool makes_room(heap *h, size_t slices) {
  size_t kept = 0;
  for (unsigned i = 0; i < FRONT_COUNT; i++)
    kept += front_entry_slices(load_relaxed(&h->hot.front[i]));
  h->front_given = h->hot.front_taken + (uint32_t)kept;
  return front_has_place(h, slices);
}

internal NOINLINE bool front_give(heap *h, slab *s) {
  uint32_t slices = load_relaxed(&s->slices);
  size_t bytes = slices * SLICE_SIZE;
  if (!front_is_claimed(&h->hot, s) || (!front_has_place(h, slices) && !makes_room(h, slices)))
    return false;
  uint64_t interval = budget_covers_large(h, bytes) ? 0 : budget_due_later(h, bytes);
  h->front_due[slices % FRONT_COUNT] = interval;
  front_put(h, (uintptr_t)s->start | slices | (interval ? FRONT_DUE : 0));
  bell_ring();
  return true;
}

internal slab *front_take_due(heap *h, size_t slices, uint64_t *interval) {
  if (LIKELY(!budget_looks(h)))
    return NULL;
  const char *start = front_take_marked(&h->hot, slices, FRONT_DUE);
  if (!start)
    return NULL;
  *interval = h->front_due[slices % FRONT_COUNT];
  budget_look_large(h);
  return map_entry_descriptor(map_get(start));
}

internal size_t front_give_back(heap *h) {
  size_t bytes = 0;
  for (unsigned i = 0; i < FRONT_COUNT; i++) {
    uint64_t entry = load_relaxed(&h->hot.front[i]);
    if (entry && cas_acq_rel(&h->hot.front[i], &entry, 0)) {
      slab *s = map_entry_descriptor(map_get(front_entry_start(entry)));
      bytes += s->slices * SLICE_SIZE;
      large_give(s);
    }
  }
  return bytes;
}
