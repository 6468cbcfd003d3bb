/* fast: the two hot paths, inlined into every entry point that allocates or frees.
 *
 * They make no call, touch no lock and count nothing but one countdown. Everything
 * rare leaves by one branch to malloc_slow, malloc_larger or free_slow, at the end
 * (so as a jump, without a stack frame). script/check-fastpath counts instructions.
 */
#ifndef MASU_API_FAST_H
#define MASU_API_FAST_H

#include "api/checked.h"
#include "api/malloc.h"
#include "api/thread.h"

/* The first block in the hand; NULL: there is none, or the size is above TABLE_MAX. */
static ALWAYS_INLINE void *malloc_ready(size_t size) {
  if (UNLIKELY(size > TABLE_MAX))
    return NULL;
  block **hand = heap_hand_at(thread_hot, class_offset(size));
  block *b = *hand;
  if (UNLIKELY(!b))
    return NULL;
  *hand = b->next;
  if (CHECKED)
    checked_take(b);
  return b;
}

/* NULL with errno ENOMEM when there is no memory. */
static ALWAYS_INLINE void *malloc_fast(size_t size) {
  void *p = malloc_ready(size);
  if (LIKELY(p != NULL))
    return p;
  return UNLIKELY(size > TABLE_MAX) ? malloc_larger(size) : malloc_slow(size);
}

/* A block with that entry in the page map, which has the thread's tag. What it is done with is a slab, or what stands in
 * for a watched one. */
static ALWAYS_INLINE void free_own(void *p, map_entry e, heap_hot *hot) {
  slab *s = map_entry_descriptor(e);
  block *b = p, *rest = s->free;
  if (CHECKED)
    checked_give(slab_stood_for(s), p);
  b->next = rest;
  s->free = b;
  if (LIKELY(!count_down_release(&s->need)))
    return;
  block **hand = UNLIKELY(thread_busy) ? NULL : heap_hand_to_back((heap *)hot, s);
  if (UNLIKELY(hand && rest))
    free_back_some(b, s, hand);
  else if (UNLIKELY(!hand || !heap_hand_back_one(hand, s, b)))
    free_event(b, s);
}

static ALWAYS_INLINE void free_fast(void *p) {
  uintptr_t leaf = map_leaf(p);
  if (UNLIKELY(!leaf)) {
    free_slow(p, MAP_NONE);
    return;
  }
  map_entry e = map_get_in(leaf, p);
  heap_hot *hot = thread_hot;
  if (LIKELY(map_entry_tag(e) == hot->tag))
    free_own(p, e, hot);
  else
    free_slow(p, e);
}

#endif
