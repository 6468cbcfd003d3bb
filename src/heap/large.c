#include "heap/large.h"

#include <string.h>

#include "base/options.h"
#include "os/bell.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/purge.h"

enum { CACHE_ENTRIES = 32 };
#define CACHE_BYTES (32 * MIB)

typedef struct cached {
  char *start;
  size_t slices; /* 0: the entry is free */
  uint64_t since; /* ms */
} cached;

/* Guarded by LOCK_LARGE. */
static struct {
  cached entries[CACHE_ENTRIES];
  size_t bytes;
} cache;

static size_t slices_for(size_t size) {
  return ROUND_UP(size, SLICE_SIZE) >> SLICE_SHIFT;
}

/* ---- The cache of mappings ---- */

static cached entry_take(cached *entry) {
  cached taken = *entry;
  cache.bytes -= taken.slices * SLICE_SIZE;
  entry->slices = 0;
  return taken;
}

/* The smallest mapping that is large enough, and not by more than a quarter. */
static cached cache_find(size_t slices, size_t align) {
  cached *best = NULL;
  cached found = {0};
  lock_take(LOCK_LARGE);
  for (cached *e = cache.entries; e < cache.entries + CACHE_ENTRIES; e++)
    if (e->slices >= slices && e->slices <= slices + slices / 4 &&
        !((uintptr_t)e->start & (align - 1)) && (!best || e->slices < best->slices))
      best = e;
  if (best)
    found = entry_take(best);
  lock_drop(LOCK_LARGE);
  return found;
}

/* Puts a mapping in; what has to leave for it is returned to be unmapped. */
static cached cache_put(char *start, size_t slices, uint64_t now) {
  cached out = {start, slices, now};
  if (slices * SLICE_SIZE > CACHE_BYTES)
    return out;
  lock_take(LOCK_LARGE);
  cached *oldest = &cache.entries[0];
  for (cached *e = cache.entries; e < cache.entries + CACHE_ENTRIES; e++)
    if (!e->slices) {
      oldest = e;
      break;
    } else if (e->since < oldest->since) {
      oldest = e;
    }
  if (cache.bytes + (slices - oldest->slices) * SLICE_SIZE <= CACHE_BYTES) {
    cached in = out;
    out = oldest->slices ? entry_take(oldest) : (cached){0};
    *oldest = in;
    cache.bytes += slices * SLICE_SIZE;
  }
  lock_drop(LOCK_LARGE);
  return out;
}

static size_t unmap_cached(cached c) {
  size_t size = c.slices * SLICE_SIZE;
  if (size) {
    os_unmap(c.start, size);
    supply_count_returned(size);
  }
  return size;
}

/* Returns mappings unused for `delay`, until `most` bytes are returned. */
static size_t cache_purge(uint64_t now, uint64_t delay, size_t most) {
  size_t returned = 0;
  for (cached *e = cache.entries; e < cache.entries + CACHE_ENTRIES && returned < most; e++) {
    cached out = {0};
    lock_take(LOCK_LARGE);
    if (e->slices && purge_is_due(e->since, now, delay))
      out = entry_take(e);
    lock_drop(LOCK_LARGE);
    returned += unmap_cached(out);
  }
  return returned;
}

internal size_t large_purge(uint64_t now, bool all) {
  return cache_purge(now, all ? 0 : option_get(OPTION_purge_delay), SIZE_MAX);
}

internal size_t large_cached(void) {
  lock_take(LOCK_LARGE);
  size_t bytes = cache.bytes;
  lock_drop(LOCK_LARGE);
  return bytes;
}

/* ---- Blocks ---- */

/* Checked builds enter all slices into the map, to know pointers into blocks. */
static size_t mapped_slices(const slab *s) { return CHECKED ? s->slices : 1; }

static void describe(slab *s, char *start, size_t slices) {
  s->start = start;
  s->slices = (uint32_t)slices;
  s->block_size = slices * SLICE_SIZE;
  s->capacity = 1;
  s->threaded = 1;
  store_relaxed(&s->need, 1);
}

static bool take_run(slab *s, size_t size, size_t align, bool *zeroed) {
  run r;
  unsigned align_slices = (unsigned)max_size(align >> SLICE_SHIFT, 1);
  if (!supply_take((unsigned)slices_for(size), align_slices, &r))
    return false;
  s->kind = SLAB_RUN;
  s->page = r.page;
  *zeroed = r.zeroed;
  describe(s, r.start, r.slices);
  return true;
}

static bool take_mapping(slab *s, size_t size, size_t align, bool *zeroed) {
  cached c = cache_find(slices_for(size), align);
  *zeroed = false;
  if (!c.slices) {
    c.slices = slices_for(size);
    cache_purge(os_now_ms(), 0, c.slices * SLICE_SIZE);
    supply_make_room(c.slices * SLICE_SIZE);
    c.start = os_map(c.slices * SLICE_SIZE, align);
    *zeroed = true;
    if (!c.start)
      return false;
    if (!map_prepare(c.start, c.slices * SLICE_SIZE)) {
      os_unmap(c.start, c.slices * SLICE_SIZE);
      return false;
    }
  }
  s->kind = SLAB_DIRECT;
  describe(s, c.start, c.slices);
  supply_count_direct(s->block_size, 0);
  return true;
}

internal slab *large_take(size_t size, size_t align, bool *zeroed) {
  if (size > LARGE_MOST || align > LARGE_MOST / 2)
    return NULL;
  slab *s = slab_descriptor_take(SLAB_RUN);
  if (!s)
    return NULL;
  align = max_size(align, SLICE_SIZE);
  bool done = size <= HUGE_SIZE && align <= HUGE_SIZE
                  ? take_run(s, size, align, zeroed)
                  : take_mapping(s, size, align, zeroed);
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
    supply_count_direct(0, slices * SLICE_SIZE);
    slab_descriptor_give(s);
    cached out = cache_put(start, slices, os_now_ms());
    unmap_cached(out);
    bell_ring();
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
static char *move_mapping(slab *s, size_t slices) {
  size_t old_size = s->block_size, new_size = slices * SLICE_SIZE;
  char *target = os_reserve(new_size, SLICE_SIZE);
  if (!target)
    return NULL;
  map_set(s->start, 1, MAP_NONE);
  if (!map_prepare(target, SLICE_SIZE) ||
      !os_move(s->start, old_size, target, new_size)) {
    /* Some kernels unmap the target before they refuse, and then it may be somebody
     * else's by now: the reservation, address space only, is given up. */
    target = s->start;
    slices = s->slices;
  }
  map_set(target, 1, map_entry_of(s, TAG_SHARED));
  bool moved = target != s->start;
  describe(s, target, slices);
  return moved ? target : NULL;
}

static char *resize_mapping(slab *s, size_t slices) {
  size_t old_size = s->block_size, new_size = slices * SLICE_SIZE;
  if (new_size <= HUGE_SIZE / 2)
    return NULL; /* small enough for a run */
  if (new_size < old_size) {
    os_unmap(s->start + new_size, old_size - new_size);
    describe(s, s->start, slices);
  } else if (os_grow_in_place(s->start, old_size, new_size)) {
    describe(s, s->start, slices);
  } else if (!move_mapping(s, slices)) {
    return NULL;
  }
  supply_count_direct(new_size, old_size);
  return s->start;
}

internal char *large_resize(slab *s, size_t size) {
  if (size > LARGE_MOST)
    return NULL;
  size_t slices = slices_for(size);
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
  s->kind = SLAB_NESTED;
  s->start = base + align;
  s->block_size = total - align;
  s->capacity = 1;
  s->threaded = 1;
  s->slices = (uint32_t)(total >> SLICE_SHIFT);
  map_set(base, 1, map_entry_of(s, TAG_SHARED));
  return s->start;
}
