#include "api/limb.h"

#include <errno.h>

#include "api/malloc.h"
#include "api/sampled.h"
#include "heap/roster.h"
#include "os/lock.h"

static heap *limb_enter(heap *l) {
  heap *h = thread_enter();
  l->busy = true;
  compiler_fence();
  return h;
}

static void limb_leave(heap *l, heap *h) {
  heap_upkeep(l);
  compiler_fence();
  l->busy = false;
  thread_leave(h);
}

/* ---- Finding ---- */

static void limb_to_front(heap *own, heap **place) {
  heap *l = *place;
  *place = l->sibling;
  l->sibling = own->hot.limbs;
  own->hot.limbs = l;
}

/* Drops blank limbs on the way. */
static heap *limb_find_own(heap *own, account *a) {
  for (heap **place = &own->hot.limbs; *place;) {
    heap *l = *place;
    account *its = load_acquire(&l->account);
    if (its == a) {
      limb_to_front(own, place);
      return l;
    }
    if (its) {
      place = &l->sibling;
    } else {
      *place = l->sibling;
      roster_leave(l);
    }
  }
  return NULL;
}

/* A thread past its last destructor has the orphan heap, which it must not keep. */
static heap *limb_join(heap *own, account *a) {
  if (!own || own != thread_heap())
    return NULL;
  lock_take(LOCK_FORMS);
  heap *l = roster_join(a);
  lock_drop(LOCK_FORMS);
  if (l) {
    l->host = own;
    l->sibling = own->hot.limbs;
    own->hot.limbs = l;
  }
  return l;
}

internal COLD heap *limb_find(account *a) {
  if (thread_busy)
    return NULL;
  heap *own = thread_enter();
  heap *l = own ? limb_find_own(own, a) : NULL;
  if (!l)
    l = limb_join(own, a);
  thread_leave(own);
  return l;
}

static heap *my_limbs(void) {
  const heap *own = thread_heap();
  return own ? own->hot.limbs : NULL;
}

internal heap *limb_tagged(map_tag tag) {
  heap *l = my_limbs();
  while (l && l->hot.tag != tag)
    l = l->sibling;
  return l;
}

/* ---- Allocating ---- */

static COLD void *limb_none(void) {
  errno = ENOMEM;
  return NULL;
}

static COLD void *out_of_budget(account *a) {
  add_relaxed(&a->refused, 1);
  return limb_none();
}

/* What is ready in one class may be what another needs. */
static void limb_reclaim(heap *l) {
  heap_flush(l);
  heap_tidy(l);
}

static void *limb_take(heap *l, size_t size, unsigned size_class) {
  account *a = load_relaxed(&l->account);
  heap *h = limb_enter(l);
  /* What is in the hand is not to be looked at. */
  uint64_t interval = l->hot.hand[size_class] || budget_is_ahead(l, size_class) ? 0 : budget_due(l, size_class);
  block *b = UNLIKELY(interval != 0) ? sampled_take(a, size_class) : NULL;
  bool sampled = b != NULL;
  if (LIKELY(!sampled))
    b = heap_take_block(l, size_class);
  if (UNLIKELY(!b)) {
    limb_reclaim(l);
    sampled_reclaim(a);
    b = heap_take_block(l, size_class);
    if (!b && !l->refused && malloc_reclaim(h))
      b = heap_take_block(l, size_class);
  }
  bool refused = l->refused;
  limb_leave(l, h);
  if (!b)
    return refused ? out_of_budget(a) : limb_none();
  if (UNLIKELY(sampled))
    sampled_tell(b, size, class_size(size_class), a, interval);
  if (CHECKED)
    checked_take(b);
  return b;
}

static void *limb_take_large(heap *l, size_t align, size_t size, size_t *dirty) {
  account *a = load_relaxed(&l->account);
  if (!large_is_possible(size, align))
    return limb_none();
  size_t charge = ROUND_UP(size, SLICE_SIZE);
  heap *h = limb_enter(l);
  slab *s = NULL;
  uint64_t interval = UNLIKELY(load_relaxed(&budget_interval) != 0) ? budget_due_large(l, charge) : 0;
  bool allowed = account_charge(a, charge);
  if (UNLIKELY(!allowed)) {
    limb_reclaim(l);
    sampled_reclaim(a);
    allowed = account_charge(a, charge);
  }
  if (allowed) {
    s = large_take(size, align, dirty);
    if (UNLIKELY(!s)) {
      limb_reclaim(l);
      sampled_reclaim(a);
      s = malloc_reclaim(h) ? large_take(size, align, dirty) : NULL;
    }
    if (s)
      store_release(&s->owner, l);
    else
      account_discharge(a, charge);
  }
  limb_leave(l, h);
  if (!s)
    return allowed ? limb_none() : out_of_budget(a);
  if (UNLIKELY(interval != 0))
    sampled_large(s, size, interval);
  return s->start;
}

static heap *limb_to_use(account *a) {
  heap *l = my_limbs();
  if (thread_busy)
    return NULL;
  return l && load_relaxed(&l->account) == a ? l : limb_find(a);
}

internal NOINLINE void *limb_malloc_slow(account *a, size_t size) {
  size_t dirty;
  heap *l = limb_to_use(a);
  if (!l)
    return limb_none();
  void *p = size > SMALL_MAX ? limb_take_large(l, 1, size, &dirty) : limb_take(l, size, class_of(size));
  account_notice(a);
  return p;
}

internal void *limb_aligned(account *a, size_t align, size_t size, size_t *dirty) {
  heap *l = limb_to_use(a);
  if (UNLIKELY(!l))
    return limb_none();
  unsigned c = size > SMALL_MAX ? CLASS_COUNT : align <= 1 ? class_of(size) : class_aligned(size, align);
  if (c == CLASS_COUNT)
    return limb_take_large(l, align, max_size(size, 1), dirty);
  *dirty = size;
  return limb_take(l, size, c);
}

/* ---- Freeing ---- */

internal NOINLINE void limb_event(heap *l, slab *s) {
  if (UNLIKELY(thread_busy)) {
    free_event_nested(s->free, s);
    return;
  }
  if (heap_hand_back(l, s, s->free) || heap_hand_back_asked(l, s))
    return;
  heap *h = limb_enter(l);
  heap_slab_event(l, s);
  limb_leave(l, h);
}

/* ---- Ending ---- */

/* Parked ones first, each as the calling thread's for a moment. */
internal void limb_trim(account *a) {
  heap *own = limb_find(a);
  if (!own)
    return;
  heap *h = limb_enter(own);
  sampled_reclaim(a);
  roster_repair();
  lock_take(LOCK_FORMS);
  for (heap *l = a->parked; l; l = l->parked)
    limb_reclaim(l);
  lock_drop(LOCK_FORMS);
  limb_reclaim(own);
  limb_leave(own, h);
}

/* LOCK_FORMS keeps the named heap from being destroyed in between. */
internal void limbs_leave(heap *own) {
  heap *l = own->hot.limbs, *next;
  if (LIKELY(!l))
    return;
  lock_take(LOCK_FORMS);
  own->hot.limbs = NULL;
  for (; l; l = next) {
    next = l->sibling;
    l->sibling = NULL;
    if (load_relaxed(&l->account))
      limb_reclaim(l);
    roster_leave(l);
  }
  lock_drop(LOCK_FORMS);
}
