#include "api/malloc.h"

#include <errno.h>
#include <string.h>

#include "api/fast.h"
#include "api/foreign.h"
#include "api/limb.h"
#include "api/sampled.h"
#include "heap/front.h"
#include "heap/helper.h"
#include "heap/outbox.h"
#include "heap/roster.h"
#include "heap/spares.h"
#include "os/bell.h"
#include "os/report.h"

/* ---- Slow paths ---- */

static COLD void *out_of_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* A block in a hand keeps a slab, and a slab the region that it is in. */
internal COLD bool malloc_reclaim(heap *h) {
  bool waited = supply_settle();
  if (supply_is_prewarmed())
    supply_prewarm(0);
  if (h) {
    heap_flush(h);
    heap_tidy(h);
  }
  return helper_give_back_all(0) > 0 || waited;
}

/* A fresh block of a class is checked memory like any other. */
static void *hand_out(block *b) {
  if (!b)
    return out_of_memory();
  if (CHECKED)
    checked_take(b);
  return b;
}

static void *nested(size_t size, size_t align) {
  void *p = large_take_nested(size, align);
  return p ? p : out_of_memory();
}

/* Which is none of those in front. h may be NULL. */
static slab *take_large_afresh(heap *h, size_t size, size_t align, size_t *dirty) {
  if (h) {
    front_give_back(h); /* nothing of it was of use for this one */
    spares_make_room(h, large_slices(size));
  }
  slab *s = large_take(size, align, dirty);
  if (UNLIKELY(!s) && malloc_reclaim(h))
    s = large_take(size, align, dirty);
  if (s && h)
    front_claim(h, s);
  return s;
}

/* Perhaps one that is to be looked at. */
static NOINLINE void *take_large_slow(size_t size, size_t align, size_t *dirty) {
  if (UNLIKELY(thread_busy))
    return nested(size, align);
  if (UNLIKELY(!large_is_possible(size, align)))
    return out_of_memory();
  uint64_t interval = 0;
  size_t room = sampled_room(size);
  *dirty = room;
  heap *h = thread_enter();
  slab *s = h && align <= SLICE_SIZE ? front_take_due(h, large_slices(room), &interval) : NULL;
  if (!s) {
    interval = h ? budget_due_large(h, ROUND_UP(size, SLICE_SIZE)) : 0;
    s = take_large_afresh(h, interval ? room : size, align, dirty);
  }
  thread_leave(h);
  if (UNLIKELY(!s))
    return out_of_memory();
  if (CHECKED)
    checked_take(s->start);
  if (UNLIKELY(interval != 0))
    sampled_large(s, size, interval);
  return s->start;
}

/* h may be NULL. A slab's worth may not be to be had where one block still is. */
static COLD NOINLINE void *malloc_reclaiming(heap *h, unsigned size_class) {
  block *b = NULL;
  size_t dirty;
  if (malloc_reclaim(h) && (h || (h = thread_enter())))
    b = heap_take_block(h, size_class);
  thread_leave(h);
  if (!b && size_class >= TABLE_COUNT)
    return take_large_slow(class_size(size_class), 1, &dirty);
  return hand_out(b);
}

static ALWAYS_INLINE void *malloc_unseen(heap *h, unsigned size_class) {
  block *b = heap_take_block(h, size_class);
  if (UNLIKELY(!b))
    return malloc_reclaiming(h, size_class);
  thread_leave(h);
  return hand_out(b);
}

/* The next block of the class may have to be looked at. */
static NOINLINE void *malloc_questioned(heap *h, size_t size, unsigned size_class) {
  uint64_t interval = budget_due(h, size_class);
  unsigned c = sampled_class(size, size_class);
  block *b = UNLIKELY(interval != 0) ? sampled_take_own(h, c, interval) : NULL;
  if (LIKELY(!b))
    return malloc_unseen(h, size_class);
  thread_leave(h);
  sampled_tell(b, size, class_size(c), NULL, interval);
  return hand_out(b);
}

/* Aligned as the class's blocks are: that may be what the class was chosen for. */
static COLD void *nested_of_class(unsigned size_class) {
  size_t has = class_size(size_class);
  return nested(has, min_size(has & -has, TABLE_MAX));
}

static ALWAYS_INLINE void *malloc_refilling(size_t size, unsigned size_class) {
  if (UNLIKELY(thread_busy))
    return nested_of_class(size_class);
  heap *h = thread_enter();
  if (UNLIKELY(!h))
    return malloc_reclaiming(NULL, size_class);
  if (UNLIKELY(!budget_is_ahead(h, size_class)))
    return malloc_questioned(h, size, size_class);
  return malloc_unseen(h, size_class);
}

internal NOINLINE void *malloc_slow(size_t size) {
  if (UNLIKELY(!thread_knows_sizes()))
    return nested(max_size(size, 1), 1);
  return malloc_refilling(size, class_in_table(size));
}

/* One that is ready; NULL: there is none. size: not 0. */
static ALWAYS_INLINE void *take_large_ready(size_t size) {
  void *p = size <= FRONT_SLICES * SLICE_SIZE ? front_take(thread_hot, large_slices(size)) : NULL;
  if (CHECKED && p)
    checked_take(p);
  return p;
}

static inline void *take_large(size_t size, size_t align, size_t *dirty) {
  void *p = align <= SLICE_SIZE ? take_large_ready(size) : NULL;
  *dirty = size;
  return LIKELY(p != NULL) ? p : take_large_slow(size, align, dirty);
}

/* Apart, so that what is ready needs no stack frame. */
static NOINLINE void *malloc_large_slow(size_t size) {
  size_t dirty;
  return take_large_slow(size, 1, &dirty);
}
static NOINLINE HOT void *malloc_large(size_t size) {
  void *p = take_large_ready(size);
  return LIKELY(p != NULL) ? p : malloc_large_slow(size);
}
static NOINLINE void *malloc_refilling_apart(size_t size, unsigned size_class) { return malloc_refilling(size, size_class); }

/* size: what is asked for, at most that of the class. */
static ALWAYS_INLINE void *malloc_of_class(size_t size, unsigned size_class) {
  block **hand = heap_hand_at(thread_hot, size_class * sizeof(void *));
  block *b = *hand;
  if (UNLIKELY(!b))
    return malloc_refilling_apart(size, size_class);
  *hand = b->next;
  if (CHECKED)
    checked_take(b);
  return b;
}

internal NOINLINE HOT void *malloc_larger(size_t size) {
  return size > SMALL_MAX ? malloc_large(size) : malloc_of_class(size, class_above_table(size));
}

internal void *malloc_aligned_dirty(size_t align, size_t size, size_t *dirty) {
  unsigned c = thread_knows_sizes() ? class_aligned(size, align) : CLASS_COUNT;
  *dirty = size;
  return c < CLASS_COUNT ? malloc_of_class(size, c) : take_large(max_size(size, 1), align, dirty);
}

static NOINLINE void *malloc_aligned_apart(size_t align, size_t size) {
  size_t dirty;
  return malloc_aligned_dirty(align, size, &dirty);
}

/* Most often the class is that of the size rounded up. */
internal HOT void *malloc_aligned(size_t align, size_t size) {
  size_t rounded = size <= TABLE_MAX && align <= TABLE_MAX ? ROUND_UP(max_size(size, 1), align) : SIZE_MAX;
  if (LIKELY(rounded <= TABLE_MAX && thread_hot->tag != TAG_NO_HEAP)) {
    unsigned c = class_in_table(rounded);
    if (LIKELY(!(class_size(c) & (align - 1))))
      return malloc_of_class(size, c);
  }
  return malloc_aligned_apart(align, size);
}

/* One more block of a slab whose blocks wait in a slot. False: not now; then nothing was done, and what was
 * deferred meanwhile is freed by the slow path that follows. */
static ALWAYS_INLINE bool free_along(const slab *s, block *b) {
  heap_hot *hot = thread_hot;
  if (UNLIKELY(thread_busy || hot->tag == TAG_NO_HEAP))
    return false;
  thread_touch((heap *)hot);
  bool sent = outbox_send_along((heap *)hot, s, b);
  thread_touched_so_far((heap *)hot);
  return sent;
}

static void give_large(slab *s) {
  account *a = heap_account_of(s);
  size_t size = s->block_size;
  if (sampled_large_is(s))
    sampled_large_free(s);
  large_give(s);
  account_discharge(a, size);
}

internal void free_entered(heap *h, void *p) {
  map_entry e = map_get(p);
  slab *s = slab_of_entry(e);
  if (map_entry_tag(e) == TAG_SHARED)
    give_large(s);
  else if (sampled_may_be(e))
    sampled_free(h, s, p);
  else if (!h || map_entry_tag(e) >= TAG_FIRST_LIMB)
    outbox_deliver(s, p, p, 1); /* nothing of a named heap waits: it can be destroyed */
  else if (map_entry_tag(e) == h->hot.tag)
    heap_free_own(h, s, p);
  else
    outbox_send(h, s, p);
}

static NOINLINE void free_apart(map_entry e, slab *s, void *p) {
  heap *limb = map_entry_tag(e) >= TAG_FIRST_LIMB ? limb_tagged(map_entry_tag(e)) : NULL;
  if (UNLIKELY(limb != NULL)) {
    limb_free(limb, s, p);
    return;
  }
  heap *h = thread_enter_to_free();
  free_entered(h, p);
  thread_leave(h);
}

static NOINLINE void free_large_slow(slab *s) {
  if (UNLIKELY(thread_busy)) {
    thread_defer_free(s->start);
    return;
  }
  if (sampled_large_is(s))
    sampled_large_free(s);
  heap *h = thread_enter_if_joined();
  if (!h || load_relaxed(&s->owner) || !front_give(h, s))
    give_large(s);
  thread_leave(h);
}

/* Without a stack frame where it can wait in front. Those of named heaps are nobody's there. */
static NOINLINE HOT void free_large(slab *s, const void *p) {
  heap_hot *hot = thread_hot;
  bool kept = false;
  if (LIKELY(front_is_claimed(hot, s) & !(thread_busy | s->waiting))) {
    thread_touch((heap *)hot);
    kept = front_give_ready((heap *)hot, s, p);
    thread_touched_so_far((heap *)hot);
  }
  if (UNLIKELY(!kept)) {
    free_large_slow(s);
    return;
  }
  bell_ring();
  thread_free_deferred();
}

static NOINLINE HOT void free_otherwise(map_entry e, void *p) {
  if (!p)
    return;
  if (UNLIKELY(e == MAP_NONE)) {
    foreign_free(p);
    return;
  }
  slab *s = slab_of_entry(e);
  if (CHECKED)
    checked_give(s, p);
  if (map_entry_tag(e) == TAG_SHARED)
    free_large(s, p);
  else if (UNLIKELY(thread_busy))
    thread_defer_free(p);
  else
    free_apart(e, s, p);
}

/* A block of another thread: without a stack frame where others of its slab wait already. A slot never has
 * blocks of the slabs that the other ways are for, but of one that is watched since they came to wait; and what stands in for
 * that is no slot's. */
internal NOINLINE HOT void free_slow(void *p, map_entry e) {
  if (CHECKED || UNLIKELY(map_entry_tag(e) <= TAG_SHARED) || !free_along(map_entry_descriptor(e), p))
    free_otherwise(e, p);
  else
    thread_free_deferred();
}

internal COLD void free_event_nested(block *b, slab *s) {
  if (load_relaxed(&s->reserve)) {
    heap_slab_event_nested(s);
    return;
  }
  s->free = b->next;
  store_release(&s->need, 1);
  thread_defer_free(b);
}

/* Of a stand-in: frees the block, and those above it, which signal handlers freed while it was not ready for another event. One
 * that comes later takes off the list what it put there. What lies below was interrupted before it was
 * counted, and has its event later. */
static NOINLINE void free_watched(block *b, slab *instead) {
  store_relaxed(&instead->need, 1);
  compiler_fence();
  block *next, *due = instead->free, *rest = b->next;
  instead->free = rest;
  compiler_fence();
  for (; due != rest; due = next) {
    next = due->next;
    if (UNLIKELY(thread_busy))
      thread_defer_free(due);
    else
      free_apart(map_get(due), slab_stood_for(instead), due);
  }
}

internal NOINLINE void free_event(block *b, slab *s) {
  if (UNLIKELY(slab_is_stand_in(s))) {
    free_watched(b, s);
    return;
  }
  if (UNLIKELY(thread_busy)) {
    free_event_nested(b, s);
    return;
  }
  if (heap_hand_back_asked(thread_heap(), s))
    return;
  heap *h = thread_enter_if_joined();
  heap_slab_event(h, s);
  thread_leave(h);
}

internal NOINLINE HOT void free_back_some(block *b, slab *s, block **hand) {
  if (!heap_hand_back_some(hand, s, b))
    free_event(b, s);
}

/* ---- malloc, calloc, free ---- */

PUBLIC HOT void *masu_malloc(size_t size) { return malloc_fast(size); }
PUBLIC HOT void masu_free(void *p) { free_fast(p); }

PUBLIC void *masu_calloc(size_t count, size_t size) {
  size_t total, dirty;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &total)))
    return out_of_memory();
  /* A run is known to be zero as long as it is fresh; blocks of a slab never are. */
  void *p;
  if (LIKELY(total <= TABLE_MAX))
    p = malloc_fast(dirty = total);
  else
    p = take_large(total, 1, &dirty);
  if (LIKELY(p != NULL))
    memset(p, 0, min_size(dirty, total));
  return p;
}

PUBLIC void masu_free_sized(void *p, size_t size) {
  if (CHECKED)
    checked_sized(p, 1, size);
  else
    (void)size;
  free_fast(p);
}

PUBLIC void masu_free_aligned_sized(void *p, size_t alignment, size_t size) {
  if (CHECKED)
    checked_sized(p, alignment, size);
  else
    (void)alignment, (void)size;
  free_fast(p);
}

/* ---- realloc ---- */

/* A block may stay where it is if it isn't too small, and another would be the same
 * or not too much of it would be left over. */
static bool fits_in_place(const slab *s, size_t size) {
  return size <= s->block_size &&
         (size >= least_kept(s->block_size) || class_of(size) == s->size_class);
}

/* Blocks of named heaps are roots of their own: nothing is gained by more room, which their limit has not. */
static inline size_t resize_room(const slab *s, size_t size) {
  size_t room = sampled_room(size);
  return LIKELY(room == size) || heap_account_of(s) ? size : room;
}

/* *untold: its weight, if its observer was told that the block is no more; else 0. */
static void *resize_large(slab *s, size_t size, float *untold) {
  account *a = heap_account_of(s);
  size_t before = s->block_size;
  if (thread_busy || size <= TABLE_MAX || size > LARGE_MOST)
    return NULL;
  size_t room = resize_room(s, size);
  size_t more = ROUND_UP(room, SLICE_SIZE);
  more = more > before ? more - before : 0;
  if (!account_charge(a, more))
    return NULL;
  *untold = sampled_large_resize(s);
  heap *h = thread_enter_if_joined();
  void *p = large_resize(s, room);
  thread_leave(h);
  account_discharge(a, p ? before + more - s->block_size : more);
  if (UNLIKELY(load_relaxed(&budget_interval) || *untold > 0) && p)
    sampled_large_resized(s, *untold, before, size);
  if (UNLIKELY(a != NULL))
    account_notice(a);
  return p;
}

static void *realloc_by_copy(const slab *s, void *p, size_t size) {
  size_t kept = min_size(s->block_size, size);
  account *a = heap_account_of(s);
  void *q = UNLIKELY(a != NULL) ? limb_malloc(a, size) : malloc_fast(size);
  if (LIKELY(q != NULL)) {
    memcpy(q, p, kept);
    free_fast(p);
  }
  return q;
}

PUBLIC void *masu_realloc(void *p, size_t size) {
  if (!p)
    return malloc_fast(size);
  if (UNLIKELY(size == 0)) {
    free_fast(p);
    return NULL;
  }
  map_entry e = map_get(p);
  if (UNLIKELY(e == MAP_NONE))
    return foreign_realloc(p, size);
  slab *s = slab_of_entry(e);
  if (CHECKED)
    checked_live(s, p);
  if (s->kind == SLAB_SMALL) {
    if (fits_in_place(s, resize_room(s, size)) && sampled_resize(e, p, size))
      return p;
  } else {
    float untold = 0;
    void *resized = resize_large(s, size, &untold);
    if (!resized)
      resized = realloc_by_copy(s, p, size);
    if (UNLIKELY(!resized && untold > 0))
      sampled_large_resized(s, untold, s->block_size, s->block_size);
    return resized;
  }
  return realloc_by_copy(s, p, size);
}

PUBLIC void *masu_reallocarray(void *p, size_t count, size_t size) {
  size_t total;
  if (UNLIKELY(__builtin_mul_overflow(count, size, &total)))
    return out_of_memory();
  return masu_realloc(p, total);
}

PUBLIC void *masu_reallocf(void *p, size_t size) {
  void *q = masu_realloc(p, size);
  if (UNLIKELY(!q) && size)
    masu_free(p);
  return q;
}

/* ---- Sizes ---- */

static size_t block_size_of(const slab *s) { return s->block_size; }

static NOINLINE size_t usable_size_slow(void *p) {
  map_entry e = map_get(p);
  if (e == MAP_NONE)
    return p ? foreign_usable_size(p) : 0;
  size_t sampled = sampled_use(e, p);
  return sampled ? sampled : block_size_of(slab_of_entry(e));
}

/* Some programs ask for each block that they take or free. One of a slab that isn't watched is no sampled one. */
PUBLIC size_t masu_malloc_usable_size(void *p) {
  map_entry e = map_get(p);
  return LIKELY(slab_entry_is_plain(e, thread_hot->tag)) ? block_size_of(map_entry_descriptor(e)) : usable_size_slow(p);
}

PUBLIC size_t masu_malloc_good_size(size_t size) {
  (void)thread_knows_sizes();
  if (size <= SMALL_MAX)
    return class_size(class_of(size));
  return size > LARGE_MOST ? size : ROUND_UP(size, SLICE_SIZE);
}
