#include "api/sampled.h"

#include <string.h>

#include "api/thread.h"
#include "heap/outbox.h"
#include "heap/roster.h"
#include "os/lock.h"

static _Atomic(const sample_observer *) observer_now;

internal void sample_start(const sample_observer *observer, uint64_t interval) {
  store_release(&observer_now, observer);
  budget_start(interval);
  heap *h = thread_heap();
  if (h)
    budget_ask(h); /* what this thread takes next is looked at already */
}

static bool is_sampled_heaps(const slab *s) { return load_relaxed(&s->owner)->is_sampled; }

internal bool sampled_may_be(map_entry e) {
  return slab_entry_is_watched(e) || (map_entry_tag(e) >= TAG_FIRST_LIMB && is_sampled_heaps(slab_of_entry(e)));
}

/* ---- Telling ---- */

/* Runs with the thread's own allocations unseen; but not those of a thread past its last destructor,
 * which draw from the orphan heap's budget. */
static void tell_taken(void *p, size_t size, size_t usable, const account *a, double weight) {
  heap *h = thread_heap();
  heap_budget *b = h ? h->budget : NULL;
  bool before = b && b->quiet;
  if (b)
    b->quiet = true;
  compiler_fence();
  load_acquire(&observer_now)->taken(p, size, usable, a, weight);
  compiler_fence();
  h = thread_heap(); /* the observer may have given the thread one */
  if (b && h && h->budget == b)
    b->quiet = before;
}

internal void sampled_tell(void *p, size_t size, size_t usable, const account *a, uint64_t interval) {
  tell_taken(p, size, usable, a, 1 / budget_probability(usable, interval));
}

static void tell_freed(void *p) { load_acquire(&observer_now)->freed(p); }

/* ---- Blocks of the size classes ---- */

internal unsigned sampled_class(size_t size, unsigned size_class) {
  size_t has = class_size(size_class), room = sampled_room(size);
  if (room <= has)
    return size_class;
  unsigned c = class_aligned(room, min_size(has & -has, TABLE_MAX));
  return c < CLASS_COUNT ? c : size_class;
}

/* Whose tag the slabs that h makes bear: that of the heap which is looked at, as long as it is the only one. */
static void note_taker(heap *h, const heap *taker) {
  if (h->taker == TAG_NONE)
    h->taker = taker->hot.tag;
  else if (h->taker != taker->hot.tag)
    h->taker = h->hot.tag;
}

/* taker: the thread's heap, or NULL for a named one. */
static block *take_sampled(account *a, const heap *taker, unsigned size_class) {
  block *b = NULL;
  lock_take(LOCK_SAMPLES);
  heap *h = roster_sampled(a);
  if (h) {
    if (a)
      store_relaxed(&a->has_samples, 1);
    else
      note_taker(h, taker);
    b = heap_take_block(h, size_class);
    if (b)
      b->next = NULL; /* the program may not write there, and it would lead to another block */
    heap_upkeep(h);
  }
  lock_drop(LOCK_SAMPLES);
  return b;
}

internal block *sampled_take(account *a, unsigned size_class) { return take_sampled(a, NULL, size_class); }

/* Each slab touches a page, and samples are few: they share those of a power of two, which has its class. */
static unsigned shared_class(unsigned size_class) {
  size_t last = class_size(size_class) - 1;
  return class_of((size_t)2 << bit_high64(last));
}

/* Where every block is seen they all come from the sampled heap: it has nothing else then. */
internal block *sampled_take_own(heap *h, unsigned size_class, uint64_t interval) {
  if (interval <= 1)
    return take_sampled(NULL, h, size_class);
  if (class_size(size_class) < SLAB_SEEN_LEAST)
    return take_sampled(NULL, h, shared_class(size_class));
  budget_refund(h, size_class);
  block *b = heap_take_block(h, size_class);
  if (b)
    slab_see(slab_of_entry(map_get(b)), b, h->hot.tag);
  return b;
}

/* As the fast path does, its event's short cut included. */
static void free_own_watched(heap *h, slab *s, block *b) {
  slab_watch_no_more(s, h->hot.tag);
  b->next = s->free;
  s->free = b;
  if (count_down_release(&s->need) && !heap_hand_back(h, s, b) && !heap_hand_back_asked(h, s))
    heap_slab_event(h, s);
}

internal void sampled_free(heap *h, slab *s, void *p) {
  if (is_sampled_heaps(s) || slab_unsee(s, p))
    tell_freed(p);
  if (h && load_relaxed(&s->owner) == h)
    free_own_watched(h, s, p);
  else
    outbox_deliver(s, p, p, 1);
}

internal bool sampled_is(map_entry e, const void *p) {
  slab *s = slab_of_entry(e);
  if (s->kind != SLAB_SMALL)
    return sampled_large_is(s);
  return sampled_may_be(e) && (is_sampled_heaps(s) || slab_sees(s, p));
}

static bool is_told_of(map_entry e, const void *p) { return UNLIKELY(sampled_is(e, p)) && !thread_busy; }

internal bool sampled_resize(map_entry e, void *p, size_t size) {
  return !is_told_of(e, p) || load_acquire(&observer_now)->resized(p, size);
}

internal size_t sampled_use(map_entry e, void *p) { return is_told_of(e, p) ? load_acquire(&observer_now)->used(p) : 0; }

/* ---- Named heaps ---- */

internal void sampled_reclaim(account *a) {
  if (LIKELY(!load_relaxed(&a->has_samples)))
    return;
  lock_take(LOCK_SAMPLES);
  if (a->sampled) {
    heap_flush(a->sampled);
    heap_tidy(a->sampled);
  }
  lock_drop(LOCK_SAMPLES);
}

/* Of a sampled slab all blocks: the observer knows which of them are on its record. A slab
 * that a sender ended has no memory. */
static void forget_slab(slab *s, void *a) {
  if (heap_account_of(s) != a || slab_of_entry(map_get(s->start)) != s)
    return;
  if (s->kind != SLAB_SMALL) {
    if (sampled_large_is(s))
      sampled_large_free(s);
  } else if (is_sampled_heaps(s)) {
    for (uint32_t i = 0; i < s->threaded; i++)
      tell_freed(s->start + i * s->block_size);
  }
}

internal void sampled_forget(account *a) {
  if (UNLIKELY(load_relaxed(&a->has_samples)))
    slab_for_each(forget_slab, a);
}

/* ---- Large blocks ---- */

/* Its mark is its weight, which is never 0. */
static float weight_of(const slab *s) {
  float weight;
  memcpy(&weight, &s->waiting, sizeof weight);
  return weight;
}

static void sample_large(slab *s, size_t size, double exact) {
  float weight = (float)exact;
  account *a = heap_account_of(s);
  memcpy(&s->waiting, &weight, sizeof weight);
  if (UNLIKELY(a != NULL))
    store_relaxed(&a->has_samples, 1);
  tell_taken(s->start, size, s->block_size, a, weight);
}

internal void sampled_large(slab *s, size_t size, uint64_t interval) {
  sample_large(s, size, 1 / budget_probability(s->block_size, interval));
}

internal void sampled_large_free(slab *s) {
  s->waiting = 0;
  tell_freed(s->start);
}

internal float sampled_large_resize(slab *s) {
  float weight = weight_of(s);
  if (sampled_large_is(s))
    sampled_large_free(s);
  return weight;
}

/* As budget_due_large, outside of slow paths. Not from a signal handler inside masu: it would find the budget half
 * changed. */
static uint64_t large_due(size_t size) {
  if (thread_busy)
    return 0;
  heap *h = thread_enter();
  uint64_t interval = h ? budget_due_large(h, size) : 0;
  thread_leave(h);
  return interval;
}

/* With `fresh` of it new: a block that counted once on average counts so again. If its weight was w where it was
 * seen, it is (1 - fresh) w + fresh now; where it was not, and what is new was drawn with probability p, fresh / p. */
internal void sampled_large_resized(slab *s, float was, size_t before, size_t size) {
  size_t more = s->block_size > before ? s->block_size - before : 0;
  double fresh = (double)more / (double)s->block_size;
  if (was > 0) {
    sample_large(s, size, was * (1 - fresh) + fresh);
    return;
  }
  uint64_t interval = more ? large_due(more) : 0;
  if (interval)
    sample_large(s, size, interval == 1 ? 1 : fresh / budget_probability(more, interval));
}
