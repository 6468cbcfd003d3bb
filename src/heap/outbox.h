/* outbox: blocks of other heaps that a thread frees, on their way home.
 *
 * They wait in the slots of the thread's heap, each a batch of one slab, until there are enough
 * to be worth an atomic operation on the slab's mail (mail.h). What a thread frees comes from as
 * many slabs as there are classes and owners, hence so many slots.
 *
 * Threads: the heap's, but for outbox_deliver: any.
 */
#ifndef MASU_HEAP_OUTBOX_H
#define MASU_HEAP_OUTBOX_H

#include "heap/heap.h"

enum { SLOT_BLOCKS = 64, SLOT_BYTES = 4096 }; /* at most, of a slot */

static inline send_slot *outbox_slot(heap *h, const slab *s) {
  return &h->slots[(uintptr_t)s / sizeof *s % SLOT_COUNT];
}
/* Frees a block of another thread's own heap; it may wait in a slot. */
internal void outbox_send(heap *h, slab *s, block *b);
/* The same if some of the slab's blocks wait already, and more may: nothing of the descriptor is
 * read, whose lines others write. Not of a watched slab, which it may be since they wait. */
static inline bool outbox_send_along(heap *h, const slab *s, block *b) {
  send_slot *slot = outbox_slot(h, s);
  if (slot->slab != s || slot->count + 1 == slot->most)
    return false;
  b->next = slot->head;
  slot->head = b;
  slot->count++;
  return true;
}
/* Frees blocks of a small slab, from any thread, at once. */
internal void outbox_deliver(slab *s, block *head, block *tail, uint32_t count);
/* Sends what waits. */
internal void outbox_flush(heap *h);

#endif
