#include "pages/mappings.h"

#include "base/options.h"
#include "os/bell.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/pagemap.h"
#include "pages/purge.h"
#include "pages/supply.h"

enum { RANGES = 64 };
#define RANGE_MOST (64 * MIB) /* what is larger is not kept */

typedef struct range {
  char *start;
  size_t slices;  /* 0: the entry is free */
  uint64_t since; /* ms */
} range;

/* Guarded by LOCK_MAPPINGS. */
static struct {
  range ranges[RANGES];
  size_t kept, used; /* bytes */
  purge_policy policy;
  size_t unmapped; /* bytes that did not fit the policy, not needed again so far */
  uint64_t unmapped_at;
} mappings;

#define EACH_RANGE(r) \
  (range *r = mappings.ranges; r < mappings.ranges + RANGES; r++)

static size_t bytes_of(size_t slices) { return slices << SLICE_SHIFT; }
static char *range_end(const range *r) { return r->start + bytes_of(r->slices); }

/* ---- Entries; with the lock held ---- */

static range range_out(range *r) {
  range out = *r;
  mappings.kept -= bytes_of(out.slices);
  r->slices = 0;
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
  r->start += bytes_of(slices);
  r->slices -= slices;
  mappings.kept -= bytes_of(slices);
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
  mappings.kept += bytes_of(in.slices);
  return out;
}

/* ---- Giving to the system ---- */

/* Without the lock. Returns the bytes. */
static size_t range_unmap(range r) {
  if (r.slices) {
    os_unmap(r.start, bytes_of(r.slices));
    supply_count_returned(bytes_of(r.slices));
  }
  return bytes_of(r.slices);
}

/* The oldest range if there are more than `keep` bytes and it is due. */
static range range_out_due(size_t keep, uint64_t now, uint64_t delay) {
  range out = {0};
  lock_take(LOCK_MAPPINGS);
  range *oldest = range_oldest();
  if (oldest && mappings.kept > keep && purge_is_due(oldest->since, now, delay))
    out = range_out(oldest);
  lock_drop(LOCK_MAPPINGS);
  return out;
}

/* Until `keep` bytes are left, or none is due; returns the bytes. */
static size_t purge_down_to(size_t keep, uint64_t now, uint64_t delay) {
  size_t returned = 0, once;
  do
    returned += once = range_unmap(range_out_due(keep, now, delay));
  while (once);
  return returned;
}

internal size_t mappings_purge(uint64_t now, bool all) {
  return purge_down_to(0, now, all ? 0 : option_get(OPTION_purge_delay));
}

internal size_t mappings_kept(void) {
  lock_take(LOCK_MAPPINGS);
  size_t kept = mappings.kept;
  lock_drop(LOCK_MAPPINGS);
  return kept;
}

/* ---- Taking ---- */

/* `size` bytes are about to be asked of the system. What was given to it in vain is
 * regretted. */
static void ask_for(size_t size) {
  uint64_t now = os_now_ms();
  lock_take(LOCK_MAPPINGS);
  size_t again = min_size(size, mappings.unmapped);
  mappings.unmapped -= again;
  purge_note_reuse(&mappings.policy, again, mappings.unmapped_at, now);
  lock_drop(LOCK_MAPPINGS);
  supply_make_room(size);
}

static char *take_kept(size_t slices, size_t align) {
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

static char *map_fresh(size_t slices, size_t align) {
  ask_for(bytes_of(slices));
  char *start = os_map(bytes_of(slices), align);
  if (start && !map_prepare(start, bytes_of(slices))) {
    os_unmap(start, bytes_of(slices));
    return NULL;
  }
  return start;
}

static char *move_to(size_t align, char *start, size_t from, size_t to) {
  ask_for(bytes_of(to - from));
  char *target = os_reserve(bytes_of(to), align);
  /* Some kernels unmap the target before they refuse, and then it may be somebody
   * else's by now: the reservation, address space only, is given up. */
  if (!target || !map_prepare(target, bytes_of(to)) ||
      !os_move(start, bytes_of(from), target, bytes_of(to)))
    return NULL;
  return target;
}

static char *grow_largest(size_t slices, size_t align) {
  range *largest = NULL, old = {0};
  lock_take(LOCK_MAPPINGS);
  for EACH_RANGE(r)
    if (r->slices && r->slices < slices && (!largest || r->slices > largest->slices))
      largest = r;
  if (largest)
    old = range_out(largest);
  lock_drop(LOCK_MAPPINGS);
  if (!old.slices)
    return NULL;
  char *start = move_to(align, old.start, old.slices, slices);
  if (!start)
    range_unmap(old);
  return start;
}

static void used_changes(size_t more, size_t less) {
  lock_take(LOCK_MAPPINGS);
  mappings.used += more - less;
  lock_drop(LOCK_MAPPINGS);
  supply_count_direct(more, less);
}

internal char *mapping_take(size_t slices, size_t align, bool *zeroed) {
  *zeroed = false;
  char *start = take_kept(slices, align);
  if (!start)
    start = grow_largest(slices, align);
  if (!start)
    *zeroed = (start = map_fresh(slices, align)) != NULL;
  if (start)
    used_changes(bytes_of(slices), 0);
  return start;
}

/* ---- Resizing ---- */

/* From the kept range that begins at `end`. */
static bool extend_kept(const char *end, size_t more) {
  bool done = false;
  lock_take(LOCK_MAPPINGS);
  for EACH_RANGE(r)
    if (r->slices >= more && r->start == end) {
      range_cut(r, more);
      done = true;
      break;
    }
  lock_drop(LOCK_MAPPINGS);
  return done;
}

internal bool mapping_extend(char *start, size_t from, size_t to) {
  if (!extend_kept(start + bytes_of(from), to - from)) {
    ask_for(bytes_of(to - from));
    if (!os_grow_in_place(start, bytes_of(from), bytes_of(to)))
      return false;
  }
  used_changes(bytes_of(to - from), 0);
  return true;
}

internal char *mapping_move(char *start, size_t from, size_t to) {
  char *target = move_to(SLICE_SIZE, start, from, to);
  if (target)
    used_changes(bytes_of(to - from), 0);
  return target;
}

/* ---- Giving back ---- */

internal void mapping_give(char *start, size_t slices) {
  uint64_t now = os_now_ms();
  range out = {start, slices, now};
  used_changes(0, bytes_of(slices));
  lock_take(LOCK_MAPPINGS);
  if (bytes_of(slices) <= RANGE_MOST) {
    range_join(&out);
    out = range_in(out);
  }
  size_t cap = purge_cap(&mappings.policy, mappings.used, now);
  lock_drop(LOCK_MAPPINGS);
  size_t unmapped = range_unmap(out) + purge_down_to(cap, now, 0);
  lock_take(LOCK_MAPPINGS);
  if (purge_elapsed(mappings.unmapped_at, now) >= PURGE_REGRET_MS)
    mappings.unmapped = 0;
  if (unmapped) {
    mappings.unmapped += unmapped;
    mappings.unmapped_at = now;
  }
  lock_drop(LOCK_MAPPINGS);
  bell_ring();
}
