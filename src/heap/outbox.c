#include "heap/outbox.h"

#include "heap/mail.h"

static void queue_push(heap *owner, slab *s) {
  slab *top = load_relaxed(&owner->queue);
  do
    s->queued = top;
  while (!cas_release(&owner->queue, &top, s));
}

internal void outbox_deliver(slab *s, block *head, block *tail, uint32_t count) {
  run r = slab_run(s);
  account *a = heap_account_of(s);
  size_t charge = 0;
  switch (mail_publish(s, head, tail, count, a ? &charge : NULL)) {
  case MAIL_SENT_NOTHING:
    break;
  case MAIL_SENT_QUEUE:
    queue_push(load_relaxed(&s->owner), s);
    break;
  case MAIL_SENT_LAST:
    account_discharge(a, charge);
    slab_return_run(r);
    break;
  }
}

static void slot_flush(send_slot *slot) {
  if (slot->count)
    outbox_deliver(slot->slab, slot->head, slot->tail, slot->count);
  slot->slab = NULL;
  slot->count = 0;
}

internal void outbox_send(heap *h, slab *s, block *b) {
  send_slot *slot = outbox_slot(h, s);
  if (slot->slab != s) {
    slot_flush(slot);
    slot->slab = s;
    slot->head = NULL;
    slot->tail = b;
    slot->most = (uint32_t)min_size(SLOT_BLOCKS, max_size(SLOT_BYTES / s->block_size, 1));
  }
  b->next = slot->head;
  slot->head = b;
  if (++slot->count == slot->most)
    slot_flush(slot);
}

internal void outbox_flush(heap *h) {
  for (send_slot *s = h->slots; s < h->slots + SLOT_COUNT; s++)
    slot_flush(s);
}
