/* mail: blocks that other threads freed, on their way home to the slab's owner.
 *
 * A slab's mail is one atomic word,
 *
 *     version : 31 | count : 14 | head : 17 | state : 2
 *
 * head is the first block of a chain of `count` blocks (0: none), as the distance
 * from the slab's start in 8 bytes, plus 1. The version changes whenever blocks are
 * taken out, so a sender's compare-and-swap fails if the chain it linked to is gone,
 * even if the same block heads the chain again.
 *
 *     OPEN    the owner has the slab on a list and will look at its mail
 *     PARKED  the owner forgot the slab: hardly a free block in it, none in the mail
 *     QUEUED  blocks came; the slab is on the owner's queue, or about to be
 *     DEAD    all blocks came; the run is returned, the descriptor still linked
 *
 * The only moves, and who makes them:
 *     OPEN -> PARKED    owner, on empty mail, when all blocks are out (mail_park)
 *     PARKED -> OPEN    owner, after some frees of his own            (mail_unpark)
 *     PARKED -> QUEUED  sender, who then pushes the slab on the queue (mail_publish)
 *     QUEUED -> OPEN    owner, draining its queue                     (mail_take)
 *     OPEN, QUEUED -> DEAD  sender who brings the last block          (mail_publish)
 *
 * The last block is that which makes count == need + reserve (see slab.h).
 *
 * Modelled in models/mail.pml. Every successful change is acquire and release: the
 * chain's links travel with it in both directions.
 */
#ifndef MASU_HEAP_MAIL_H
#define MASU_HEAP_MAIL_H

#include "heap/slab.h"

typedef enum mail_state { MAIL_OPEN, MAIL_PARKED, MAIL_QUEUED, MAIL_DEAD } mail_state;

/* What the sender has to do next. */
typedef enum mail_sent {
  MAIL_SENT_NOTHING, /* nothing, and the slab isn't his to touch any more */
  MAIL_SENT_QUEUE,   /* push the slab on its owner's queue */
  MAIL_SENT_LAST,    /* return the run; the owner recycles the descriptor */
} mail_sent;

static inline mail_state mail_state_of(uint64_t word) { return (mail_state)(word & 3); }
static inline uint32_t mail_count_of(uint64_t word) {
  return (uint32_t)(word >> 19) & 0x3fff;
}

/* Blocks of a small slab that are in use, or held ready by a thread. Any thread, for
 * figures: what changes meanwhile may be counted either way. */
static inline uint32_t mail_in_use(const slab *s) {
  uint64_t word = load_relaxed(&s->mail);
  uint32_t out = load_relaxed(&s->need) + load_relaxed(&s->reserve);
  uint32_t back = mail_state_of(word) == MAIL_DEAD ? out : mail_count_of(word);
  return out > back ? out - back : 0;
}

internal void mail_init(slab *s);
/* Any thread. A chain of `count` blocks of s, none of them in the mail yet. charge: if not
 * NULL and these are the last, what the slab was charged with (sparse_charged). */
internal mail_sent mail_publish(slab *s, block *head, block *tail, uint32_t count,
                                size_t *charge);
/* Owner, OPEN or taken off the queue: empties the mail into *chain and *count and
 * changes the version; the slab is OPEN then. False: it is DEAD. */
internal bool mail_take(slab *s, block **chain, uint32_t *count);
/* Owner, OPEN: false if there is mail or the slab is DEAD. */
internal bool mail_park(slab *s);
/* Owner: changes the version and nothing else. False: the slab is DEAD. */
internal bool mail_touch(slab *s);
/* Owner, PARKED or QUEUED: false if blocks came meanwhile. */
internal bool mail_unpark(slab *s);

#endif
