/* limb: the part of a named heap that one thread allocates from.
 *
 * A limb is a heap like the thread's own, on the named heap's account, so a named heap
 * needs no lock. A thread makes one at its first allocation from a named heap and parks
 * it on the account when it ends; the next thread inherits it. The limb that the thread
 * used last stands first in `limbs` of the thread's own heap, the others behind it (`sibling`).
 *
 *     the host of a limb in use is that heap
 *     a limb with account NULL is blank: its named heap was destroyed. It is dropped
 *     when its thread looks for another, or ends.
 *
 * Blocks are freed by free() like any other; other threads' frees are sent at once,
 * never kept in a slot, so that a named heap can be destroyed.
 *
 * Threads: each its own limbs. Locks: LOCK_FORMS while a limb is parked.
 */
#ifndef MASU_API_LIMB_H
#define MASU_API_LIMB_H

#include "api/checked.h"
#include "api/thread.h"

/* The calling thread's limb on the account; NULL: none is to be had (out of memory, or
 * past the thread's last destructor). */
internal heap *limb_find(account *a);
/* The calling thread's limb with this tag; NULL: it has none. */
internal heap *limb_tagged(map_tag tag);

/* As malloc and aligned_alloc, on the account; NULL with ENOMEM as well when it would go
 * beyond its hard limit. *dirty: so many bytes at the start may not be zero. */
internal void *limb_malloc_slow(account *a, size_t size);
/* limb_aligned leaves account_notice to the caller, who may be in the middle of something
 * that the callback must not see. */
internal void *limb_aligned(account *a, size_t align, size_t size, size_t *dirty);
static ALWAYS_INLINE void *limb_malloc(account *a, size_t size) {
  heap *l = thread_hot->limbs;
  if (UNLIKELY(!l || load_relaxed(&l->account) != a || size > TABLE_MAX))
    return limb_malloc_slow(a, size);
  block **hand = heap_hand_at(&l->hot, class_offset(size));
  block *b = *hand;
  if (UNLIKELY(!b))
    return limb_malloc_slow(a, size);
  *hand = b->next;
  if (CHECKED)
    checked_take(b);
  return b;
}

/* Frees a block of a slab of the limb. */
internal void limb_event(heap *l, slab *s);
static ALWAYS_INLINE void limb_free(heap *l, slab *s, void *p) {
  block *b = p;
  b->next = s->free;
  s->free = b;
  if (UNLIKELY(count_down_release(&s->need)))
    limb_event(l, s);
}
/* Gives back what the calling thread's limb and parked ones keep ready. */
internal void limb_trim(account *a);

/* The calling thread, whose heap that is, ends. */
internal void limbs_leave(heap *own);

#endif
