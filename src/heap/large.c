#include "heap/large.h"

#include <string.h>

#include "os/os.h"

/* ---- Blocks ---- */

/* Checked builds enter all slices into the map, to know pointers into blocks; but not into a signal handler's. */
static size_t mapped_slices(const slab *s) { return CHECKED && s->kind != SLAB_NESTED ? s->slices : 1; }

static void describe(slab *s, char *start, size_t slices) {
  s->start = start;
  store_relaxed(&s->slices, (uint32_t)slices);
  store_relaxed(&s->block_size, slices * SLICE_SIZE);
  store_relaxed(&s->capacity, 1);
  store_relaxed(&s->threaded, 1);
  store_relaxed(&s->need, 1);
}

static bool take_run(slab *s, size_t size, size_t align, size_t *dirty) {
  run r;
  unsigned align_slices = (unsigned)max_size(align >> SLICE_SHIFT, 1);
  if (!supply_take((unsigned)large_slices(size), align_slices, &r))
    return false;
  store_release(&s->kind, SLAB_RUN);
  s->page = r.page;
  *dirty = r.zeroed ? 0 : size;
  describe(s, r.start, r.slices);
  return true;
}

static bool take_mapping(slab *s, size_t size, size_t align, size_t *dirty) {
  size_t slices = large_slices(size);
  char *start = supply_map(slices, align, dirty);
  if (!start)
    return false;
  store_release(&s->kind, SLAB_DIRECT);
  describe(s, start, slices);
  return true;
}

internal slab *large_take(size_t size, size_t align, size_t *dirty) {
  if (!large_is_possible(size, align))
    return NULL;
  slab *s = slab_descriptor_take(SLAB_RUN);
  if (!s)
    return NULL;
  align = max_size(align, SLICE_SIZE);
  bool done = size <= HUGE_SIZE && align <= HUGE_SIZE
                  ? take_run(s, size, align, dirty)
                  : take_mapping(s, size, align, dirty);
  if (!done) {
    slab_descriptor_give(s);
    return NULL;
  }
  map_set(s->start, mapped_slices(s), map_entry_of(s, TAG_SHARED));
  return s;
}

internal void large_give(slab *s) {
  char *start = s->start;
  size_t slices = s->slices;
  map_set(start, mapped_slices(s), MAP_NONE);
  if (s->kind == SLAB_RUN) {
    supply_give(s->page, start, (unsigned)slices);
    slab_descriptor_give(s);
  } else if (s->kind == SLAB_DIRECT) {
    supply_unmap(start, slices);
    slab_descriptor_give(s);
  } else {
    os_unmap(s, (size_t)(start - (char *)s) + s->block_size);
  }
}

/* ---- Resizing ---- */

static char *resize_run(slab *s, size_t slices) {
  if (slices > HUGE_SLICES)
    return NULL;
  unsigned from = s->slices, to = (unsigned)slices;
  if (to > from && !supply_extend(s->page, s->start, from, to))
    return NULL;
  if (to < from)
    supply_give(s->page, s->start + to * SLICE_SIZE, from - to);
  describe(s, s->start, to);
  return s->start;
}

/* The old place is cleared in the map before it is given up, the new one is
 * ours before it is entered. */
static bool move_mapping(slab *s, size_t slices) {
  map_set(s->start, 1, MAP_NONE);
  char *moved = supply_move_mapping(s->start, s->slices, slices);
  if (moved)
    describe(s, moved, slices);
  map_set(s->start, 1, map_entry_of(s, TAG_SHARED));
  return moved != NULL;
}

static char *resize_mapping(slab *s, size_t slices) {
  if (slices <= HUGE_SLICES / 2)
    return NULL; /* small enough for a run */
  if (slices < s->slices) {
    supply_unmap(s->start + slices * SLICE_SIZE, s->slices - slices);
    describe(s, s->start, slices);
  } else if (supply_extend_mapping(s->start, s->slices, slices)) {
    describe(s, s->start, slices);
  } else if (!move_mapping(s, slices)) {
    return NULL;
  }
  return s->start;
}

internal char *large_resize(slab *s, size_t size) {
  if (size > LARGE_MOST)
    return NULL;
  size_t slices = large_slices(size);
  if (s->kind == SLAB_NESTED)
    return size <= s->block_size ? s->start : NULL;
  if (slices == s->slices)
    return s->start;
  if (CHECKED)
    return NULL; /* its pagemap entries stay with the place */
  return s->kind == SLAB_RUN ? resize_run(s, slices) : resize_mapping(s, slices);
}

/* ---- Nested ---- */

/* The descriptor stands at the start of the mapping, the block behind it. */
internal void *large_take_nested(size_t size, size_t align) {
  align = max_size(align, sizeof(slab));
  if (size > LARGE_MOST || align > SLICE_SIZE / 2)
    return NULL;
  size_t total = ROUND_UP(align + size, SLICE_SIZE);
  char *base = os_map(total, SLICE_SIZE);
  if (!base || !map_prepare(base, SLICE_SIZE)) {
    if (base)
      os_unmap(base, total);
    return NULL;
  }
  slab *s = (slab *)base;
  list_init(&s->avail);
  store_release(&s->kind, SLAB_NESTED);
  s->start = base + align;
  store_relaxed(&s->block_size, total - align);
  store_relaxed(&s->capacity, 1);
  store_relaxed(&s->threaded, 1);
  store_relaxed(&s->need, 1);
  store_relaxed(&s->slices, (uint32_t)(total >> SLICE_SHIFT));
  map_set(base, 1, map_entry_of(s, TAG_SHARED));
  return s->start;
}
