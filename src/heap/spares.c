#include "heap/spares.h"

#include "heap/sparse.h"
#include "os/bell.h"
#include "os/lock.h"

enum {
  SPARE_MOST = 2048, /* slices, of a heap */
  MISSES_MOST = 8,
  COLLECTED_MOST = 32,
  ORDERED_MOST = 4 * KIB, /* bytes of a block */
  AHEAD_MOST = 512, /* up to here the processor reads on in a list that is in order by itself */
  ORDER_LOOKS = 8,
};

static void spare_push(heap *h, slab *s) {
  _Atomic(slab *) *spares = &h->spare[s->size_class];
  s->queued = load_relaxed(spares) ? exchange_acq_rel(spares, NULL) : NULL;
  add_relaxed(&h->spared, s->slices);
  store_release(spares, s);
}

static slab *spares_out(heap *h, unsigned size_class) {
  _Atomic(slab *) *spares = &h->spare[size_class];
  return load_relaxed(spares) ? exchange_acq_rel(spares, NULL) : NULL;
}

static slab *spare_pop(heap *h, unsigned size_class) {
  slab *s = spares_out(h, size_class);
  if (!s)
    return NULL;
  sub_relaxed(&h->spared, s->slices);
  if (s->queued)
    store_release(&h->spare[size_class], s->queued);
  return s;
}

static void spare_let_go(slab *s) {
  account *a = heap_account_of(s);
  if (UNLIKELY(a != NULL))
    account_discharge(a, sparse_charged(s));
  slab_release(s);
}

/* On their way back, from threads' own heaps, where a child of fork finds them. Guarded by LOCK_META. */
static slab *leaving;

static slab *leaving_pop(void) {
  lock_take(LOCK_META);
  slab *s = leaving;
  leaving = s ? s->queued : NULL;
  lock_drop(LOCK_META);
  return s;
}

/* Of the class at most so many slices, and all but one slab or all. */
static void spares_leave(heap *h, unsigned size_class, bool but_one, size_t slices) {
  lock_take(LOCK_META);
  slab *first = spares_out(h, size_class), *s = first && but_one ? first->queued : first;
  while (s && slices) {
    slab *next = s->queued;
    slices -= min_size(slices, s->slices);
    sub_relaxed(&h->spared, s->slices);
    s->queued = leaving;
    leaving = s;
    s = next;
  }
  if (first && but_one) {
    first->queued = s;
    store_release(&h->spare[size_class], first);
  }
  lock_drop(LOCK_META);
}

/* What is on its way back goes, also what a thread that fork cut off had begun. Returns the bytes. */
static size_t spares_finish(void) {
  size_t bytes = 0;
  for (slab *s; (s = leaving_pop());) {
    bytes += s->slices * SLICE_SIZE;
    spare_let_go(s);
  }
  return bytes;
}

internal void spare_keep(heap *h, slab *s) {
  bool full = load_relaxed(&h->spared) + s->slices > h->spares_wanted;
  slab *before = full ? spare_pop(h, s->size_class) : NULL;
  spare_push(h, s);
  if (before) {
    h->let_go += before->slices;
    spare_let_go(before);
  }
  bell_ring();
}

/* Making a slab anew now and then is nothing to regret. */
internal void spare_keep_wanted(heap *h, slab *s) {
  if (load_relaxed(&h->spared) + s->slices <= h->spares_wanted) {
    spare_push(h, s);
    bell_ring();
    return;
  }
  if (++h->collected > COLLECTED_MOST)
    h->let_go += s->slices;
  spare_let_go(s);
}

/* Lets go of spares beyond one of each class, until that makes so many slices. */
static void spares_reduce(heap *h, size_t slices) {
  for (unsigned c = 0; c < CLASS_COUNT && slices; c++)
    if (load_relaxed(&h->spare[c])) {
      spares_leave(h, c, true, slices);
      slices -= min_size(slices, spares_finish() / SLICE_SIZE);
    }
}

internal void spares_make_room(heap *h, size_t slices) {
  if (LIKELY(!h->spares_wanted))
    return;
  spares_reduce(h, slices << h->misses);
  if (h->misses < MISSES_MOST)
    h->misses++;
}

/* As far as the first blocks tell: upwards or downwards. */
static bool is_in_order(const slab *s) {
  unsigned looks = 0, neighbours = 0;
  for (const block *b = s->free; b && b->next && looks < ORDER_LOOKS; b = b->next, looks++) {
    size_t apart = (size_t)((const char *)b->next - (const char *)b);
    neighbours += apart == s->block_size || apart == -s->block_size;
  }
  return neighbours * 4 >= looks * 3;
}

/* Blocks lie in the list as they were freed, by and by in no order at all, and a program that
 * takes small ones one after the other waits for each. Linked up anew they follow each other, and
 * large ones are written to some at a time, before the program waits for one. */
static void order_anew(slab *s) {
  if (s->block_size > ORDERED_MOST || (s->block_size <= AHEAD_MOST && is_in_order(s)))
    return;
  s->free = NULL;
  store_relaxed(&s->threaded, 0);
  store_relaxed(&s->purged, 0);
}

/* A named heap spares no more than one, since they count on its account. */
internal slab *spare_take(heap *h, unsigned size_class) {
  slab *s = spare_pop(h, size_class);
  if (s) {
    h->misses = 0;
    if (!load_relaxed(&h->account)) /* which would count memory as new that was never given back */
      order_anew(s);
    return s;
  }
  if (h->let_go && !load_relaxed(&h->account)) {
    uint32_t regretted = (uint32_t)min_size(class_slices(size_class), h->let_go);
    h->let_go -= regretted;
    h->spares_wanted = (uint32_t)min_size(h->spares_wanted + regretted, SPARE_MOST);
  }
  spares_make_room(h, class_slices(size_class));
  return NULL;
}

internal void spares_upkeep(heap *h) {
  h->let_go = 0;
  h->collected = 0;
  if (LIKELY(!h->spares_wanted))
    return;
  h->spares_wanted /= 2;
  if (load_relaxed(&h->spared) > h->spares_wanted)
    spares_reduce(h, SIZE_MAX);
}

static size_t limb_spares_give_back(heap *l) {
  size_t bytes = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    for (slab *s; (s = spare_pop(l, c));) {
      bytes += s->slices * SLICE_SIZE;
      spare_let_go(s);
    }
  return bytes;
}

internal size_t spares_give_back(heap *h) {
  if (load_relaxed(&h->account))
    return limb_spares_give_back(h);
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    if (load_relaxed(&h->spare[c]))
      spares_leave(h, c, false, SIZE_MAX);
  return spares_finish();
}
