#include "heap/sparse.h"

#include "os/os.h"

enum { UNITS = 64 };

/* ---- Units ---- */

static size_t slab_bytes(const slab *s) { return s->slices * SLICE_SIZE; }

static size_t unit_size(const slab *s) {
  size_t size = os_page();
  while (size * UNITS < slab_bytes(s))
    size *= 2;
  return size;
}

/* The first block that starts in unit u or after it, of those that were threaded. */
static uint32_t first_of(const slab *s, size_t unit, unsigned u) {
  return (uint32_t)min_size((u * unit + s->block_size - 1) / s->block_size, s->threaded);
}

static uint32_t blocks_of(const slab *s, size_t unit, unsigned u) {
  return first_of(s, unit, u + 1) - first_of(s, unit, u);
}

internal uint32_t sparse_blocks(const slab *s) {
  size_t unit = unit_size(s);
  uint32_t count = 0;
  for (uint64_t left = load_relaxed(&s->purged); left; left &= left - 1)
    count += blocks_of(s, unit, bit_low64(left));
  return count;
}

static unsigned unit_of(const slab *s, size_t unit, const block *b) {
  return (unsigned)((size_t)((const char *)b - s->start) / unit);
}

internal bool sparse_is_purged(const slab *s, const block *b) {
  return load_relaxed(&s->purged) >> unit_of(s, unit_size(s), b) & 1;
}

/* ---- Purging ---- */

/* Adds the bytes from `from` to `to` to what is free in each unit. */
static void cover(size_t *free, size_t unit, size_t from, size_t to) {
  while (from < to) {
    size_t end = min_size((from / unit + 1) * unit, to);
    free[from / unit] += end - from;
    from = end;
  }
}

static uint64_t full_units(const slab *s, size_t unit, const size_t *free) {
  uint64_t full = 0;
  for (unsigned u = 0; u * unit < slab_bytes(s); u++)
    if (free[u] == unit)
      full |= (uint64_t)1 << u;
  return full;
}

/* Units that hold nothing but free blocks, and of them not only such as are purged. */
static uint64_t empty_units(const slab *s, size_t unit, const block *list) {
  size_t free[UNITS] = {0}, size = s->block_size;
  for (uint64_t left = load_relaxed(&s->purged); left; left &= left - 1) {
    unsigned u = bit_low64(left);
    cover(free, unit, first_of(s, unit, u) * size, first_of(s, unit, u + 1) * size);
  }
  uint64_t before = full_units(s, unit, free);
  for (const block *b = list; b; b = b->next) {
    size_t at = (size_t)((const char *)b - s->start);
    cover(free, unit, at, at + size);
  }
  if (s->threaded == s->capacity)
    cover(free, unit, s->capacity * size, slab_bytes(s));
  return full_units(s, unit, free) & ~before;
}

/* Those of the units in which a block starts, which has to be threaded again. */
static uint64_t starting(const slab *s, size_t unit, uint64_t units) {
  uint64_t found = 0;
  for (uint64_t left = units; left; left &= left - 1)
    if (blocks_of(s, unit, bit_low64(left)))
      found |= left & -left;
  return found;
}

/* The list without the blocks that start in these units. */
static block *without(const slab *s, size_t unit, uint64_t units, block *list) {
  block *kept = NULL, **end = &kept;
  for (block *b = list; b; b = b->next)
    if (!(units >> unit_of(s, unit, b) & 1)) {
      *end = b;
      end = &b->next;
    }
  *end = NULL;
  return kept;
}

/* Checked builds look for what was written into a freed block. */
static void forget_pattern(slab *s, size_t from, size_t to) {
  for (size_t i = from / s->block_size; i * s->block_size < to && i < s->threaded; i++)
    atomic_fetch_and(&s->bits->poisoned[i / 64], ~((uint64_t)1 << i % 64));
}

/* A signal handler may free a block of s meanwhile: the list is taken off before. */
internal size_t sparse_purge(slab *s) {
  size_t unit = unit_size(s), bytes = 0;
  block *list = s->free;
  s->free = NULL;
  uint64_t units = empty_units(s, unit, list);
  s->free = without(s, unit, units, list);
  store_relaxed(&s->purged, s->purged | starting(s, unit, units));
  if (units)
    supply_split(s->page);
  while (units) {
    unsigned first = bit_low64(units), count = bit_ones_low64(units >> first);
    char *start = s->start + first * unit;
    if (CHECKED)
      forget_pattern(s, first * unit, (first + count) * unit);
    if (os_purge(start, count * unit))
      bytes += count * unit;
    units &= ~(UINT64_MAX >> (UNITS - count) << first);
  }
  return bytes;
}

/* ---- Threading again ---- */

internal uint32_t sparse_step(const slab *s) {
  return blocks_of(s, unit_size(s), bit_low64(load_relaxed(&s->purged)));
}

internal block *sparse_thread(slab *s) {
  size_t unit = unit_size(s);
  unsigned u = bit_low64(load_relaxed(&s->purged));
  uint32_t count = blocks_of(s, unit, u);
  store_relaxed(&s->purged, s->purged & (s->purged - 1));
  return slab_chain(s, first_of(s, unit, u), count);
}
