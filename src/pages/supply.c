#include "pages/supply.h"

#include "base/bits.h"
#include "base/options.h"
#include "os/bell.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/meta.h"
#include "pages/mappings.h"
#include "pages/pagemap.h"
#include "pages/purge.h"
#include "pages/regions.h"

#define HUGE_MOST (32 * 1024 * MIB) /* in huge pages: each may be a mapping of its own */
#define PURGE_STEP (256 * KIB)   /* bytes purged on behalf of a small call */

enum {
  SETTLE_TRIES = 1000, /* milliseconds to wait for system calls that are pending */
  FEW_LOOKS = 8,     /* pages looked at for an aligned run that may not be there */
};

/* Everything here is guarded by LOCK_SUPPLY. */
static struct {
  bool ready;
  list_node aging;
  unsigned in_transit; /* system calls pending */
  unsigned arrived;    /* system calls that have ended */
  purge_policy policy;
  size_t unmapped; /* bytes of mappings, not asked for again so far */
  uint64_t unmapped_at;
  uint64_t sparse_purged_at; /* ms */
  supply_figures figures;
} supply;

static void prepare_lists(void) {
  if (LIKELY(supply.ready))
    return;
  bins_prepare();
  list_init(&supply.aging);
  supply.ready = true;
}

/* Around every system call: the lock is off, fork and who is out of memory wait. A child that a signal
 * handler forked meanwhile has forgotten it. */
static void transit_begin(void) {
  supply.in_transit++;
  lock_drop(LOCK_SUPPLY);
}
static void transit_end(void) {
  lock_take(LOCK_SUPPLY);
  supply.in_transit -= supply.in_transit != 0;
  supply.arrived++;
}

static size_t slice_bytes(uint32_t mask) { return bit_count32(mask) * SLICE_SIZE; }
static uint32_t idle_slices(const hpage *page) { return page->dirty & ~page->used; }

/* ---- hpages ---- */

/* The only way `used` and `dirty` of a committed page change. */
static void page_update(hpage *page, uint32_t used, uint32_t dirty) {
  supply.figures.idle -= slice_bytes(idle_slices(page));
  if (!page->used != !used)
    page->region->used += used ? 1 : -1u;
  if (page->used != used) {
    bins_leave(page);
    page->used = used;
    bins_enter(page);
  }
  page->dirty = dirty;
  supply.figures.idle += slice_bytes(idle_slices(page));
}

static atomic_u32 huge_pages; /* for which `huge` is set */

static void set_huge(hpage *page, bool huge) {
  bool before = atomic_exchange(&page->huge, huge);
  add_relaxed(&huge_pages, (uint32_t)huge - (uint32_t)before);
}

/* figures.used, figures.peak and figures.prewarmed, for who has not the lock. */
static atomic_word used_now, peak_now, prewarmed_now;
static atomic_u32 helped; /* a helper purges by age */

static void count_used(size_t more, size_t less) {
  supply.figures.used += more - less;
  store_relaxed(&used_now, supply.figures.used);
  supply.figures.peak =
      max_size(supply.figures.peak, supply.figures.used + supply.figures.direct);
  store_relaxed(&peak_now, supply.figures.peak);
}

/* Takes LOCK_SUPPLY. */
static void count_direct(size_t size) {
  lock_take(LOCK_SUPPLY);
  supply.figures.direct += size;
  count_used(0, 0);
  lock_drop(LOCK_SUPPLY);
}

/* ---- Mappings given to the system ---- */

static void note_unmapped(size_t size) {
  uint64_t now = os_now_ms();
  if (!size)
    return;
  if (purge_elapsed(supply.unmapped_at, now) >= PURGE_REGRET_MS)
    supply.unmapped = 0;
  supply.unmapped += size;
  supply.unmapped_at = now;
  supply.figures.returned += size;
}

/* As mappings_unmap. Called and left with the lock held, drops it for the system
 * calls. */
static size_t unmap_kept(size_t size, uint64_t now, uint64_t delay) {
  transit_begin();
  size_t unmapped = mappings_unmap(size, now, delay);
  transit_end();
  note_unmapped(unmapped);
  return unmapped;
}

static bool huge_wanted(void) {
  uint64_t from = option_get(OPTION_huge_pages);
  return from && supply.figures.used >= from * MIB &&
         load_relaxed(&huge_pages) < HUGE_MOST / HUGE_SIZE && os_gives_huge_pages();
}

/* Adds 2 MiB of fresh memory to the bins, as a huge page if it will be dense. Called and left
 * with the lock held, drops it for the system calls. */
static bool grow(bool dense) {
  hpage *page;
  while (!(page = regions_next_page())) {
    size_t added = regions_add(supply.figures.reserved);
    if (!added)
      return false;
    supply.figures.reserved += added;
  }
  page->used = UINT32_MAX; /* in transit: keeps the region while the lock is off */
  page->region->used++;
  transit_begin();
  bool committed = os_commit(page->base, HUGE_SIZE);
  if (committed && dense)
    os_want_huge_pages(page->base, HUGE_SIZE);
  else if (committed && page->huge) /* since it was put away */
    os_avoid_huge_pages(page->base, HUGE_SIZE);
  transit_end();
  page->dense = dense;
  set_huge(page, committed && dense);
  page->region->used--;
  page->committed = committed;
  page->used = page->dirty = page->idle = 0;
  if (!committed) { /* behind those that were accessible before */
    regions_put_back(page, false);
    return false;
  }
  bins_enter(page);
  supply.figures.committed += HUGE_SIZE;
  page->untouched = page->huge ? UINT32_MAX : 0;
  if (page->huge) { /* the first use of any slice makes all of them resident */
    page_update(page, 0, UINT32_MAX);
    page->idle = 0;
    page->visited = os_now_ms();
    list_push_back(&supply.aging, &page->aging);
  }
  return true;
}

static void page_forget(hpage *page) {
  supply.figures.idle -= slice_bytes(idle_slices(page));
  supply.figures.returned += slice_bytes(idle_slices(page));
  list_remove(&page->aging);
  set_huge(page, false);
  if (page->committed) {
    bins_leave(page);
    supply.figures.committed -= HUGE_SIZE;
  } else {
    list_remove(&page->bin);
  }
}

/* Unmaps the regions in which nothing is used; returns the address space released.
 * Lock held; the structs are off all lists before it is dropped. */
static size_t release_empty_regions(void) {
  size_t released = 0;
  for (region *r; (r = regions_take_empty());) {
    for (unsigned i = 0; i < r->touched; i++)
      page_forget(&r->pages[i]);
    supply.figures.reserved -= r->count * HUGE_SIZE;
    released += r->count * HUGE_SIZE;
    transit_begin();
    os_unmap(r->base, r->count * HUGE_SIZE);
    transit_end();
    regions_forget(r);
  }
  return released;
}

/* ---- Taking ---- */

/* The slices of `mask` go into use. */
static void page_use(hpage *page, uint32_t mask, uint64_t now) {
  uint32_t again = page->purged & mask;
  if (again)
    purge_note_reuse(&supply.policy, slice_bytes(again), page->purged_at, now);
  page->purged &= ~mask;
  page->idle &= ~mask;
  page->untouched &= ~mask;
  page_update(page, page->used | mask, page->dirty | mask);
  count_used(slice_bytes(mask), 0);
}

static bool take(unsigned slices, unsigned align, bool dense, run *out) {
  uint64_t now = os_now_ms();
  uint32_t starts = 0;
  hpage *page;
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  dense = dense && huge_wanted();
  while (!(page = bins_find(dense, slices, align, FEW_LOOKS, &starts)))
    if (!grow(dense)) { /* memory is short: worth looking everywhere */
      page = bins_find(dense, slices, align, BINS_ALL, &starts);
      break;
    }
  if (!page) {
    lock_drop(LOCK_SUPPLY);
    return false;
  }
  unsigned first = bit_low32(starts);
  uint32_t mask = bit_run32(first, slices);
  *out = (run){page->base + first * SLICE_SIZE, page, slices,
               !(page->dirty & ~page->untouched & mask)};
  uint32_t fresh = mask & (~page->dirty | page->untouched);
  page_use(page, mask, now);
  if (fresh && mappings_kept()) /* which cannot serve here, but make room */
    unmap_kept(slice_bytes(fresh), now, 0);
  lock_drop(LOCK_SUPPLY);
  return true;
}

internal bool supply_take(unsigned slices, unsigned align, run *out) {
  return take(slices, align, false, out);
}
internal bool supply_take_dense(unsigned slices, run *out) { return take(slices, 1, true, out); }

static uint32_t mask_of(const hpage *page, const char *start, unsigned slices) {
  return bit_run32((unsigned)((size_t)(start - page->base) >> SLICE_SHIFT), slices);
}

internal bool supply_extend(hpage *page, char *start, unsigned from, unsigned to) {
  unsigned first = (unsigned)((size_t)(start - page->base) >> SLICE_SHIFT);
  if (first + to > HUGE_SLICES)
    return false;
  uint32_t more = bit_run32(first + from, to - from);
  uint64_t now = os_now_ms();
  lock_take(LOCK_SUPPLY);
  bool room = !(page->used & more);
  if (room)
    page_use(page, more, now);
  lock_drop(LOCK_SUPPLY);
  return room;
}

/* ---- Giving back ---- */

/* Puts a page with idle slices at the end of the aging queue. */
static void aging_enter(hpage *page, uint64_t now) {
  page->visited = now;
  page->idle = page->prewarmed ? 0 : idle_slices(page);
  list_remove(&page->aging);
  if (page->idle)
    list_push_back(&supply.aging, &page->aging);
}

/* If two threads come at once both ask the system. */
internal void supply_split(hpage *page) {
  if (!page->huge)
    return;
  os_avoid_huge_pages(page->base, HUGE_SIZE);
  set_huge(page, false);
}

/* A page that is free and purged entirely: others are used first. */
static void page_retire(hpage *page) {
  bins_leave(page);
  page->committed = false;
  supply.figures.committed -= HUGE_SIZE;
  regions_put_back(page, true);
}

/* Purges the slices of `mask`, which are idle. Called and left with the lock held,
 * drops it for the system calls. A page that the system refused to purge (locked
 * memory) does not age again before something else is freed in it. */
static size_t page_purge(hpage *page, uint32_t mask, uint64_t now) {
  page_update(page, page->used | mask, page->dirty);
  page->idle &= ~mask;
  list_remove(&page->aging);
  transit_begin();
  uint32_t purged = 0;
  if (mask != UINT32_MAX) /* of a page that is purged whole nothing is left to fill up */
    supply_split(page);
  for (uint32_t left = mask; left;) {
    unsigned first = bit_low32(left);
    uint32_t after = ~(left >> first);
    unsigned length = after ? bit_low32(after) : HUGE_SLICES;
    uint32_t piece = bit_run32(first, length);
    if (os_purge(page->base + first * SLICE_SIZE, length * SLICE_SIZE))
      purged |= piece;
    left &= ~piece;
  }
  transit_end();
  if (page->dense && !page->huge) {
    bins_leave(page);
    page->dense = false;
    bins_enter(page);
  }
  page_update(page, page->used & ~mask, page->dirty & ~purged);
  page->untouched &= ~purged;
  page->purged = page->purged_at == now ? page->purged | purged : purged;
  page->purged_at = now;
  if (purged == mask)
    aging_enter(page, now);
  if (page->huge && !page->used && !page->dirty)
    page_retire(page); /* to be one again if it is dense */
  supply.figures.returned += slice_bytes(purged);
  return slice_bytes(purged);
}

/* The lowest `most` bits of a mask. */
static uint32_t lowest_bits(uint32_t mask, size_t most) {
  uint32_t taken = 0;
  for (; mask && most; most--, mask &= mask - 1)
    taken |= mask & -mask;
  return taken;
}

/* Purges the oldest pages until `budget` bytes are purged, idle memory is down to
 * `floor`, or (unless `any_age`) the oldest page isn't due. With the lock held. */
static size_t purge_oldest(uint64_t now, size_t budget, size_t floor, bool any_age) {
  size_t done = 0;
  floor += supply.figures.prewarmed;
  uint64_t delay = option_get(OPTION_purge_delay);
  while (done < budget && !list_empty(&supply.aging) && supply.figures.idle > floor) {
    hpage *page = CONTAINER_OF(supply.aging.next, hpage, aging);
    if (!any_age && !purge_is_due(page->visited, now, delay))
      break;
    uint32_t mask = any_age ? idle_slices(page) : page->idle & idle_slices(page);
    if (!page->huge || mask != UINT32_MAX) /* one whole is purged at once */
      mask = lowest_bits(mask, (budget - done - 1) / SLICE_SIZE + 1);
    if (mask)
      done += page_purge(page, mask, now);
    else
      aging_enter(page, now);
  }
  return done;
}

static size_t all_used(void) { return supply.figures.used + supply.figures.direct; }

/* The same by amount: idle memory of both kinds beyond what the policy keeps. */
static void purge_excess(uint64_t now, size_t budget) {
  size_t cap = purge_cap(&supply.policy, all_used(), now);
  size_t kept = mappings_kept(), idle = supply.figures.idle;
  if (kept && kept + idle > cap)
    kept -= unmap_kept(min_size(min_size(kept, kept + idle - cap), budget), now, 0);
  purge_oldest(now, budget, cap - min_size(kept, cap), true);
}

/* `size` bytes are about to be asked of the system for a mapping. What was given to
 * it in vain is regretted. What is kept makes room, as far as the process would
 * otherwise become larger by more than a quarter than it ever was, and so do idle
 * slices, which cannot serve here. */
static void make_room(size_t size) {
  uint64_t now = os_now_ms();
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  size_t again = min_size(size, supply.unmapped);
  supply.unmapped -= again;
  purge_note_reuse(&supply.policy, again, supply.unmapped_at, now);
  size_t all = all_used() + supply.figures.idle + mappings_kept() + size;
  size_t most = supply.figures.peak + max_size(PURGE_KEEP_LEAST, all_used() / 4);
  if (all > most)
    unmap_kept(all - most, now, 0);
  purge_oldest(now, size, PURGE_KEEP_LEAST, true);
  lock_drop(LOCK_SUPPLY);
}

internal size_t supply_purge_aged(uint64_t now, size_t budget) {
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  size_t done = purge_oldest(now, budget, purge_regretted(&supply.policy, now), false);
  if (mappings_kept())
    done += unmap_kept(SIZE_MAX, now, option_get(OPTION_purge_delay));
  lock_drop(LOCK_SUPPLY);
  return done;
}

/* Pages that the system refused to purge are worth another try. */
static void age_everything(uint64_t now) {
  for (region *r = regions_first(); r; r = r->next)
    for (unsigned i = 0; i < r->touched; i++)
      if (r->pages[i].committed && list_empty(&r->pages[i].aging))
        aging_enter(&r->pages[i], now);
}

/* ---- Preparing ---- */

/* Slices in use may be read-only by now, or shared with a child: the system makes them
 * resident, if it knows how. */
static void slice_touch(char *slice, bool free) {
  if (!free) {
    os_populate(slice, SLICE_SIZE);
    return;
  }
  for (size_t at = 0; at < SLICE_SIZE; at += os_page())
    *(volatile char *)(slice + at) = 0;
  map_set(slice, 1, MAP_NONE);
}

/* Makes all of a page resident. Called and left with the lock held, which is dropped
 * meanwhile. */
static void page_touch(hpage *page) {
  uint32_t fresh = ~(page->used | page->dirty);
  page_update(page, page->used | fresh, page->dirty);
  page->region->used++; /* keeps the region while the lock is off */
  transit_begin();
  for (unsigned i = 0; i < HUGE_SLICES; i++)
    slice_touch(page->base + i * SLICE_SIZE, fresh >> i & 1);
  transit_end();
  page->region->used--;
  page_update(page, page->used & ~fresh, page->dirty | fresh);
  page->purged &= ~fresh;
}

/* The next committed page that isn't prewarmed, and is, or is not, in use. */
static hpage *page_to_prewarm(bool in_use) {
  for (region *r = regions_first(); r; r = r->next)
    for (unsigned i = 0; i < r->touched; i++) {
      hpage *page = &r->pages[i];
      if (page->committed && !page->prewarmed && !page->used == !in_use)
        return page;
    }
  return NULL;
}

static void page_prewarm(hpage *page) {
  page->prewarmed = true; /* from now on nothing of it is purged */
  aging_enter(page, os_now_ms());
  page_touch(page);
}

/* Bytes of pages that are free entirely, so that any run fits. */
static size_t whole_free(bool prewarmed) {
  size_t free = 0;
  for (region *r = regions_first(); r; r = r->next)
    for (unsigned i = 0; i < r->touched; i++)
      if (r->pages[i].committed && !r->pages[i].used && (r->pages[i].prewarmed || !prewarmed))
        free += HUGE_SIZE;
  return free;
}

/* All pages in use, since runs come from them first; of the others as many as it takes.
 * Clean ones that are not needed are put away. */
static void prewarm_pages(void) {
  hpage *page;
  while (supply.figures.prewarmed && (page = page_to_prewarm(true)))
    page_prewarm(page);
  while (whole_free(true) < supply.figures.prewarmed && (page = page_to_prewarm(false)))
    page_prewarm(page);
  for (region *r = regions_first(); r; r = r->next)
    for (unsigned i = 0; i < r->touched; i++) {
      page = &r->pages[i];
      if (page->committed && !page->prewarmed && !page->used && !page->dirty)
        page_retire(page);
    }
}

static void end_prewarming(void) {
  supply.figures.prewarmed = 0;
  store_relaxed(&prewarmed_now, 0);
  for (region *r = regions_first(); r; r = r->next)
    for (unsigned i = 0; i < r->touched; i++)
      r->pages[i].prewarmed = false;
  age_everything(os_now_ms());
}

internal bool supply_prewarm(size_t size) {
  bool enough = true;
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  while (size && enough && whole_free(false) < supply.figures.prewarmed + size)
    enough = grow(huge_wanted());
  if (!size) {
    end_prewarming();
  } else if (enough) {
    supply.figures.prewarmed += size;
    store_relaxed(&prewarmed_now, supply.figures.prewarmed);
    prewarm_pages();
  }
  lock_drop(LOCK_SUPPLY);
  return enough;
}

internal bool supply_is_prewarmed(void) { return load_relaxed(&prewarmed_now) != 0; }

internal bool supply_owns(const void *p) {
  bool owns = false;
  lock_take(LOCK_SUPPLY);
  for (const region *r = regions_first(); r && !owns; r = r->next)
    owns = (uintptr_t)p - (uintptr_t)r->base < r->count * HUGE_SIZE;
  lock_drop(LOCK_SUPPLY);
  return owns;
}

/* Called and left with the lock held, which is dropped meanwhile. */
static int page_lock(hpage *page, bool lock) {
  page->region->used++;
  transit_begin();
  int why = os_lock_memory(page->base, HUGE_SIZE, lock);
  transit_end();
  page->region->used--;
  return why;
}

internal int supply_lock(bool lock) {
  int why = 0;
  lock_take(LOCK_SUPPLY);
  for (region *r = regions_first(); r && !why; r = r->next)
    for (unsigned i = 0; i < r->touched && !why; i++)
      if (r->pages[i].committed)
        why = page_lock(&r->pages[i], lock);
  lock_drop(LOCK_SUPPLY);
  return why;
}

/* ---- Giving everything back ---- */

internal size_t supply_purge_all(size_t keep) {
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  size_t done = 0;
  age_everything(os_now_ms());
  done += unmap_kept(SIZE_MAX, os_now_ms(), 0);
  if (!keep && !supply.figures.prewarmed)
    done += release_empty_regions();
  done += purge_oldest(os_now_ms(), SIZE_MAX, keep, true);
  lock_drop(LOCK_SUPPLY);
  return done;
}

internal void supply_give(hpage *page, char *start, unsigned slices) {
  uint64_t now = os_now_ms();
  uint32_t mask = mask_of(page, start, slices);
  lock_take(LOCK_SUPPLY);
  page_update(page, page->used & ~mask, page->dirty);
  count_used(0, slice_bytes(mask));
  if (list_empty(&page->aging))
    aging_enter(page, now);
  size_t budget = max_size(PURGE_STEP, 2 * slices * SLICE_SIZE); /* keeps up */
  purge_excess(now, budget);
  if (!load_relaxed(&helped))
    purge_oldest(now, budget, purge_regretted(&supply.policy, now), false);
  lock_drop(LOCK_SUPPLY);
  bell_ring();
}

/* ---- Mappings ---- */

internal char *supply_map(size_t slices, size_t align, size_t *dirty) {
  char *start = mapping_take_kept(slices, align);
  *dirty = slices * SLICE_SIZE;
  if (!start) {
    make_room(slices * SLICE_SIZE);
    start = mapping_take_fresh(slices, align, dirty);
  }
  if (start)
    count_direct(slices * SLICE_SIZE);
  return start;
}

internal void supply_unmap(char *start, size_t slices) {
  uint64_t now = os_now_ms();
  size_t size = slices * SLICE_SIZE, unmapped = mapping_give(start, slices);
  lock_take(LOCK_SUPPLY);
  supply.figures.direct -= size;
  prepare_lists();
  note_unmapped(unmapped);
  purge_excess(now, 2 * size);
  lock_drop(LOCK_SUPPLY);
  bell_ring();
}

internal bool supply_extend_mapping(char *start, size_t from, size_t to) {
  if (!mapping_extend_kept(start, from, to)) {
    make_room((to - from) * SLICE_SIZE);
    if (!mapping_extend_fresh(start, from, to))
      return false;
  }
  count_direct((to - from) * SLICE_SIZE);
  return true;
}

internal char *supply_move_mapping(char *start, size_t from, size_t to) {
  char *moved = mapping_move(start, from, to);
  if (moved)
    count_direct((to - from) * SLICE_SIZE);
  return moved;
}

/* ---- Empty pages inside slabs ---- */

internal size_t supply_regretted(void) {
  lock_take(LOCK_SUPPLY);
  size_t regretted = purge_regretted(&supply.policy, os_now_ms());
  lock_drop(LOCK_SUPPLY);
  return regretted;
}

internal void supply_note_purged(size_t size) {
  if (!size)
    return;
  lock_take(LOCK_SUPPLY);
  supply.figures.returned += size;
  supply.sparse_purged_at = os_now_ms();
  lock_drop(LOCK_SUPPLY);
}

internal void supply_note_sparse_reuse(size_t size) {
  lock_take(LOCK_SUPPLY);
  purge_note_reuse(&supply.policy, size, supply.sparse_purged_at, os_now_ms());
  lock_drop(LOCK_SUPPLY);
}

internal size_t supply_used(void) { return load_relaxed(&used_now); }
internal size_t supply_peak(void) { return load_relaxed(&peak_now); }

internal bool supply_settle(void) {
  bool any = false;
  lock_take(LOCK_SUPPLY);
  unsigned awaited = supply.in_transit, before = supply.arrived;
  for (int i = 0; supply.arrived - before < awaited && supply.in_transit && i < SETTLE_TRIES; i++) {
    any = true;
    lock_drop(LOCK_SUPPLY);
    os_sleep_ms(1);
    lock_take(LOCK_SUPPLY);
  }
  lock_drop(LOCK_SUPPLY);
  return any;
}

internal void supply_set_helped(bool is) {
  store_relaxed(&helped, is);
  bell_enable(is);
}

internal supply_figures supply_figures_now(void) {
  lock_take(LOCK_SUPPLY);
  supply_figures f = supply.figures;
  f.kept = mappings_kept();
  lock_drop(LOCK_SUPPLY);
  return f;
}

/* The n-th region's accessible part; false: there are fewer. */
static bool nth_region(unsigned n, const char **start, size_t *size) {
  lock_take(LOCK_SUPPLY);
  const region *r = regions_first();
  while (r && n--)
    r = r->next;
  if (r) {
    *start = r->base;
    *size = r->touched * HUGE_SIZE;
  }
  lock_drop(LOCK_SUPPLY);
  return r != NULL;
}

internal size_t supply_resident(void) {
  const char *start;
  size_t size, bytes = 0;
  for (unsigned n = 0; nth_region(n, &start, &size); n++)
    bytes += os_resident_in(start, size);
  return bytes;
}

internal bool supply_is_aging(void) {
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  bool aging = !list_empty(&supply.aging) || mappings_kept();
  lock_drop(LOCK_SUPPLY);
  return aging;
}

/* ---- Fork ---- */

static unsigned pages_used(const region *r) {
  unsigned used = 0;
  for (unsigned i = 0; i < r->touched; i++)
    used += r->pages[i].used != 0;
  return used;
}

internal bool supply_in_transit(void) { return supply.in_transit > 0; }

/* Who kept a region while the lock was off is gone. */
internal void supply_fork_child(bool interrupted) {
  if (UNLIKELY(supply.in_transit) && !interrupted)
    for (region *r = regions_first(); r; r = r->next)
      r->used = pages_used(r);
  supply.in_transit = 0;
}

/* ---- Checking ---- */

static unsigned check_page(const hpage *page, size_t *idle, size_t *committed) {
  unsigned wrong = 0;
  if (!page->committed)
    return 0;
  *committed += HUGE_SIZE;
  *idle += slice_bytes(idle_slices(page));
  wrong += report_violation(page->longest != bit_longest_run32(~page->used),
                    "longest free run", page->base);
  wrong += report_violation(page->idle & ~(page->dirty & ~page->used), "idle in use", page->base);
  wrong += report_violation(list_empty(&page->bin), "page on no bin", page->base);
  for (unsigned i = 0; i < HUGE_SLICES; i++)
    if (!(page->used >> i & 1))
      wrong += report_violation(map_get(page->base + i * SLICE_SIZE) != MAP_NONE,
                        "free slice in the map", page->base + i * SLICE_SIZE);
  return wrong;
}

internal unsigned supply_check(void) {
  unsigned wrong = 0;
  size_t idle = 0, committed = 0;
  lock_take(LOCK_SUPPLY);
  prepare_lists();
  for (region *r = regions_first(); r; r = r->next) {
    for (unsigned i = 0; i < r->touched; i++)
      wrong += check_page(&r->pages[i], &idle, &committed);
    wrong += report_violation(pages_used(r) != r->used, "used pages of region", r->base);
  }
  wrong += report_violation(idle != supply.figures.idle, "idle bytes", NULL);
  wrong += report_violation(committed != supply.figures.committed, "committed bytes", NULL);
  lock_drop(LOCK_SUPPLY);
  return wrong;
}
