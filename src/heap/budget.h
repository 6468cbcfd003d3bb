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
 *     blocks held are in need, like those in the hand
 *     the blocks of the hand have been charged to left[class]
 *
 * Threads: a budget belongs to its heap; budget_interval may change at any time.
 */
#ifndef MASU_HEAP_BUDGET_H
#define MASU_HEAP_BUDGET_H

#include "heap/heap.h"

enum { BUDGET_LARGE = CLASS_COUNT, BUDGET_COUNT }; /* large blocks have one in common */

typedef struct heap_budget {
  uint64_t interval; /* that `left` was drawn for */
  uint64_t random;
  bool quiet; /* an observer is at work: what it allocates itself is not seen */
  uint64_t left[BUDGET_COUNT]; /* bytes */
  block *held[CLASS_COUNT];
  uint32_t held_count[CLASS_COUNT];
} heap_budget;

/* Is an allocation of `size` bytes of that class (or BUDGET_LARGE) to be looked at? If
 * not, it is charged. */
internal bool budget_due(heap *h, unsigned class, size_t size);
/* The probability of that. */
internal double budget_probability(size_t size, uint64_t interval);
/* Of a list of `count` blocks the part that the hand may have now; charges it. */
internal block *budget_ration(heap *h, unsigned class, block *list, uint32_t count);
/* What was held, and how many; NULL: nothing. */
internal block *budget_release(heap *h, unsigned class, uint32_t *count);
/* The heap's thread was cut off by fork, perhaps while an observer was at work. */
internal void budget_fork_child(heap *h);

#endif
