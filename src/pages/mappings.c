#include "pages/mappings.h"

#include "os/lock.h"
#include "os/os.h"
#include "pages/pagemap.h"
#include "pages/purge.h"

enum { RANGES = 64 };
#define RANGE_MOST (64 * MIB) /* what is larger is not kept */

typedef struct range {
  char *start;    /* NULL if it is free: the leak checker searches masu's data as well */
  size_t slices;  /* 0: the entry is free */
  uint64_t since; /* ms */
} range;

/* Guarded by LOCK_MAPPINGS; anybody may read `kept`. */
static struct {
  range ranges[RANGES];
  atomic_word kept; /* bytes */
} mappings;

#define EACH_RANGE(r) \
  (range *r = mappings.ranges; r < mappings.ranges + RANGES; r++)

static size_t bytes_of(size_t slices) { return slices << SLICE_SHIFT; }
static char *range_end(const range *r) { return r->start + bytes_of(r->slices); }

/* ---- Entries; with the lock held ---- */

static range range_out(range *r) {
  range out = *r;
  sub_relaxed(&mappings.kept, bytes_of(out.slices));
  r->slices = 0;
  r->start = NULL;
  return out;
}

static range *range_oldest(void) {
  range *oldest = NULL;
  for EACH_RANGE(r)
    if (r->slices && (!oldest || r->since < oldest->since))
      oldest = r;
  return oldest;
}

/* The first `slices` of a range. */
static char *range_cut(range *r, size_t slices) {
  char *start = r->start;
  r->slices -= slices;
  r->start = r->slices ? start + bytes_of(slices) : NULL;
  sub_relaxed(&mappings.kept, bytes_of(slices));
  return start;
}

/* Takes the ranges next to `joined` into it. */
static void range_join(range *joined) {
  for EACH_RANGE(r)
    if (r->slices && range_end(r) == joined->start) {
      joined->start = r->start;
      joined->slices += range_out(r).slices;
    } else if (r->slices && range_end(joined) == r->start) {
      joined->slices += range_out(r).slices;
    }
}

/* Puts a range in; returns one that had to leave for it, empty if none had. */
static range range_in(range in) {
  range *place = mappings.ranges;
  while (place < mappings.ranges + RANGES && place->slices)
    place++;
  if (place == mappings.ranges + RANGES)
    place = range_oldest();
  range out = range_out(place);
  *place = in;
  add_relaxed(&mappings.kept, bytes_of(in.slices));
  return out;
}

/* ---- Giving to the system ---- */

/* Without the lock. Returns the bytes. */
static size_t range_unmap(range r) {
  if (r.slices)
    os_unmap(r.start, bytes_of(r.slices));
  return bytes_of(r.slices);
}

/* At most `slices` of the oldest range, if it is due. */
static range range_out_due(size_t slices, uint64_t now, uint64_t delay) {
  range out = {0};
  lock_take(LOCK_MAPPINGS);
  range *oldest = range_oldest();
  if (oldest && purge_is_due(oldest->since, now, delay)) {
    out.slices = min_size(oldest->slices, slices);
    out.start = range_cut(oldest, out.slices);
  }
  lock_drop(LOCK_MAPPINGS);
  return out;
}

internal size_t mappings_unmap(size_t size, uint64_t now, uint64_t delay) {
  size_t slices = (min_size(size, SIZE_MAX - SLICE_SIZE) + SLICE_SIZE - 1) >> SLICE_SHIFT;
  size_t left = slices;
  range out;
  while (left && (out = range_out_due(left, now, delay)).slices) {
    range_unmap(out);
    left -= out.slices;
  }
  return bytes_of(slices - left);
}

internal size_t mappings_kept(void) { return load_relaxed(&mappings.kept); }

/* ---- Taking and giving back ---- */

internal char *mapping_take_kept(size_t slices, size_t align) {
  range *best = NULL;
  char *start = NULL;
  lock_take(LOCK_MAPPINGS);
  for EACH_RANGE(r)
    if (r->slices >= slices && !((uintptr_t)r->start & (align - 1)) &&
        (!best || r->slices < best->slices))
      best = r;
  if (best)
    start = range_cut(best, slices);
  lock_drop(LOCK_MAPPINGS);
  return start;
}

static char *move_to(size_t align, char *start, size_t from, size_t to) {
  char *target = os_reserve(bytes_of(to), align);
  if (!target)
    return NULL;
  if (!map_prepare(target, bytes_of(to))) {
    os_unmap(target, bytes_of(to));
    return NULL;
  }
  /* Some kernels unmap the target before they refuse, and then it may be somebody
   * else's by now: the reservation, address space only, is given up. */
  return os_move(start, bytes_of(from), target, bytes_of(to)) ? target : NULL;
}

/* The largest range that is smaller than that; empty: there is none. */
static range take_largest_below(size_t slices) {
  range *largest = NULL, out = {0};
  lock_take(LOCK_MAPPINGS);
  for EACH_RANGE(r)
    if (r->slices && r->slices < slices && (!largest || r->slices > largest->slices))
      largest = r;
  if (largest)
    out = range_out(largest);
  lock_drop(LOCK_MAPPINGS);
  return out;
}

internal char *mapping_take_fresh(size_t slices, size_t align, size_t *dirty) {
  range old = take_largest_below(slices);
  char *start = old.slices ? move_to(align, old.start, old.slices, slices) : NULL;
  *dirty = bytes_of(old.slices);
  if (start)
    return start;
  *dirty = 0;
  range_unmap(old);
  start = os_map(bytes_of(slices), align);
  if (start && !map_prepare(start, bytes_of(slices))) {
    os_unmap(start, bytes_of(slices));
    return NULL;
  }
  return start;
}

internal size_t mapping_give(char *start, size_t slices) {
  range out = {start, slices, os_now_ms()};
  if (bytes_of(slices) <= RANGE_MOST) {
    lock_take(LOCK_MAPPINGS);
    range_join(&out);
    out = range_in(out);
    lock_drop(LOCK_MAPPINGS);
  }
  return range_unmap(out);
}

/* ---- Resizing ---- */

internal bool mapping_extend_kept(char *start, size_t from, size_t to) {
  bool done = false;
  lock_take(LOCK_MAPPINGS);
  for EACH_RANGE(r)
    if (r->slices >= to - from && r->start == start + bytes_of(from)) {
      range_cut(r, to - from);
      done = true;
      break;
    }
  lock_drop(LOCK_MAPPINGS);
  return done;
}

internal bool mapping_extend_fresh(char *start, size_t from, size_t to) {
  char *more = start + bytes_of(from);
  if (!os_grow_in_place(start, bytes_of(from), bytes_of(to)))
    return false;
  if (!map_prepare(more, bytes_of(to - from))) {
    os_unmap(more, bytes_of(to - from));
    return false;
  }
  return true;
}

internal char *mapping_move(char *start, size_t from, size_t to) {
  return move_to(SLICE_SIZE, start, from, to);
}

/* ---- Figures ---- */

static range nth_range(unsigned n) {
  lock_take(LOCK_MAPPINGS);
  range r = mappings.ranges[n];
  lock_drop(LOCK_MAPPINGS);
  return r;
}

internal size_t mappings_resident(void) {
  size_t bytes = 0;
  for (unsigned n = 0; n < RANGES; n++) {
    range r = nth_range(n);
    bytes += os_resident_in(r.start, bytes_of(r.slices));
  }
  return bytes;
}
