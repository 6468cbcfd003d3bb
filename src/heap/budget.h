/* budget: how many bytes a heap gives out before somebody looks at an allocation.
 *
 * Observers see every n-th byte on average, at random, and the fast paths know nothing of
 * it: a refill gives the hand only as many blocks as nobody wants to see, and holds the rest
 * of them, so that the block to be seen is a refill of its own. Each class of a heap has its
 * own countdown, drawn from an exponential distribution: where it stops has nothing to do with what
 * was allocated before, so a block of n bytes is seen with probability 1 - exp(-n / interval),
 * whatever the program does, and also if blocks that were paid for are given back unused. With
 * an interval of 1 every block is seen. Limbs of named heaps have budgets of their own.
 *
 * A look takes one to four microseconds, the more the more threads take samples. A heap may have BUDGET_LOOKS_A_MS in each millisecond and some hundred at the
 * start, and saves some thousand that it did not have. When it has none left it doubles its own interval, of those classes
 * that are looked at most and as often as it takes, and halves it again when looks have become rare, so that they take no
 * more than about a hundredth of the time of a program that does nothing but allocate. What comes out of it stays right,
 * since the interval of a block has nothing to do with whether it is seen. An interval below BUDGET_INTERVAL is kept: who
 * asks for it wants to see so much.
 *
 *     blocks held are in need, like those in the hand
 *     the blocks of the hand have been charged to left[class]
 *
 * Threads: a budget belongs to its heap; budget_interval may change at any time.
 */
#ifndef MASU_HEAP_BUDGET_H
#define MASU_HEAP_BUDGET_H

#include "heap/heap.h"

enum { BUDGET_LARGE = CLASS_COUNT, BUDGET_COUNT }; /* large blocks have one in common */
enum { BUDGET_INTERVAL = 512 * KIB, BUDGET_LOOKS_A_MS = 4 };

/* What a refill looks at lies together: memory that is not in the first cache costs more than the instructions. */
typedef struct budget_class {
  uint64_t left;      /* blocks of the class, or bytes of large ones, before the next look */
  uint64_t drawn_for; /* the interval that this was drawn for */
  block *held;
  uint32_t held_count;
  uint8_t seen;      /* of `looks` those at this class */
  uint8_t doublings; /* of its interval, to keep the pace */
} budget_class;

typedef struct heap_budget {
  uint64_t asked;    /* budget_interval, when `left` was drawn */
  uint64_t random;
  uint64_t paced; /* ns; since when `looks` are counted */
  uint32_t looks, saved; /* saved: so many more it may have */
  bool quiet; /* an observer is at work: what it allocates itself is not seen */
  budget_class of[BUDGET_COUNT];
} heap_budget;

/* The same where it is not as usual. */
internal uint64_t budget_due_rarely(heap *h, unsigned class, size_t units);
/* Is an allocation of so many blocks of a class, or of so many bytes (BUDGET_LARGE), to be looked at? The interval
 * that this was drawn for; 0: no, and it is charged. */
static ALWAYS_INLINE uint64_t budget_due(heap *h, unsigned class, size_t units) {
  heap_budget *b = h->budget;
  if (UNLIKELY(!b || b->quiet || b->asked != load_relaxed(&budget_interval) || b->of[class].left < units))
    return budget_due_rarely(h, class, units);
  b->of[class].left -= units;
  return 0;
}
/* The probability of that. */
internal double budget_probability(size_t size, uint64_t interval);
/* Heaps are looked at from now on; 0: no more. And the widest interval of those that were since. */
internal void budget_start(uint64_t interval);
internal uint64_t budget_widest(void);
/* Of a list of `count` blocks the part that the hand may have now; charges it. */
internal block *budget_ration_some(heap *h, unsigned class, block *list, uint32_t count);
static ALWAYS_INLINE block *budget_ration(heap *h, unsigned class, block *list, uint32_t count) {
  uint64_t *left = &h->budget->of[class].left;
  if (UNLIKELY(*left < count))
    return budget_ration_some(h, class, list, count);
  *left -= count; /* of a countdown from before the interval was changed, too: it will be drawn anew */
  return list;
}
/* What was held, and how many; NULL: nothing. */
static inline block *budget_release(heap *h, unsigned class, uint32_t *count) {
  budget_class *c = &h->budget->of[class];
  block *list = c->held;
  if (UNLIKELY(list != NULL)) {
    *count = c->held_count;
    c->held = NULL;
    c->held_count = 0;
  }
  return list;
}
/* The heap's thread was cut off by fork, perhaps while an observer was at work. */
internal void budget_fork_child(heap *h);

#endif
