#include "heap/mail.h"

#include "heap/sparse.h"

enum { HEAD_SHIFT = 2, HEAD_BITS = 17, COUNT_SHIFT = 19, VERSION_SHIFT = 33 };
#define VERSION_ONE ((uint64_t)1 << VERSION_SHIFT)
#define VERSION_MASK (~(VERSION_ONE - 1))

static uint64_t with(uint64_t version, uint32_t count, uint64_t head, mail_state state) {
  return version | (uint64_t)count << COUNT_SHIFT | head << HEAD_SHIFT | state;
}

static uint64_t head_code(const slab *s, const block *b) {
  return ((uint64_t)((const char *)b - s->start) >> 3) + 1;
}

static block *head_of(const slab *s, uint64_t word) {
  uint64_t code = word >> HEAD_SHIFT & ((1u << HEAD_BITS) - 1);
  return code ? (block *)(s->start + ((code - 1) << 3)) : NULL;
}

internal void mail_init(slab *s) { store_relaxed(&s->mail, with(0, 0, 0, MAIL_OPEN)); }

/* The state after `total` blocks are in the mail. need is read after the word: a
 * later need goes with a later version, on which the compare-and-swap fails. And
 * reserve after need: a need that was lowered for it goes with it. And before as well: the
 * owner may clear it behind the same word, and the need that he raised for that goes with it; nor
 * is need, in the owner's line, looked at while reserve alone is more. A PARKED slab is
 * only queued: its owner may still be at work on it. */
static mail_state state_with(slab *s, mail_state before, uint32_t total) {
  if (before != MAIL_PARKED && total >= load_acquire(&s->reserve)) {
    uint32_t need = load_acquire(&s->need);
    if (total == need + load_relaxed(&s->reserve))
      return MAIL_DEAD;
  }
  return before == MAIL_OPEN ? MAIL_OPEN : MAIL_QUEUED;
}

internal mail_sent mail_publish(slab *s, block *head, block *tail, uint32_t count,
                                size_t *charge) {
  uint64_t seen = load_acquire(&s->mail), next;
  mail_state before, after;
  do {
    uint32_t total = mail_count_of(seen) + count;
    before = mail_state_of(seen);
    after = state_with(s, before, total);
    tail->next = head_of(s, seen);
    if (charge && after == MAIL_DEAD) /* stands while the word does: nothing of s is out */
      *charge = sparse_charged(s);
    next = with(seen & VERSION_MASK, total, head_code(s, head), after);
  } while (!cas_acq_rel(&s->mail, &seen, next));
  if (after == MAIL_DEAD)
    return MAIL_SENT_LAST;
  return before == MAIL_PARKED ? MAIL_SENT_QUEUE : MAIL_SENT_NOTHING;
}

internal bool mail_take(slab *s, block **chain, uint32_t *count) {
  uint64_t seen = load_acquire(&s->mail), empty;
  do {
    if (mail_state_of(seen) == MAIL_DEAD)
      return false;
    empty = with((seen & VERSION_MASK) + VERSION_ONE, 0, 0, MAIL_OPEN);
  } while (!cas_acq_rel(&s->mail, &seen, empty));
  *chain = head_of(s, seen);
  *count = mail_count_of(seen);
  return true;
}

internal bool mail_touch(slab *s) {
  uint64_t seen = load_acquire(&s->mail);
  do
    if (mail_state_of(seen) == MAIL_DEAD)
      return false;
  while (!cas_acq_rel(&s->mail, &seen, seen + VERSION_ONE));
  return true;
}

static bool move_empty(slab *s, mail_state from, mail_state to) {
  uint64_t seen = load_relaxed(&s->mail);
  return mail_state_of(seen) == from && !mail_count_of(seen) &&
         cas_acq_rel(&s->mail, &seen, with((seen & VERSION_MASK) + VERSION_ONE, 0, 0, to));
}

internal bool mail_park(slab *s) { return move_empty(s, MAIL_OPEN, MAIL_PARKED); }
internal bool mail_unpark(slab *s) { return move_empty(s, MAIL_PARKED, MAIL_OPEN); }
