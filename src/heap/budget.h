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
 * A look takes one to four microseconds where looks follow each other, and five or more where all that it needs has
 * left the caches since the last one; there the program pays as much again, as its own data has left them. So what is
 * rationed is time: the looks of a heap may take one part in BUDGET_SHARE of the CPU time of its thread, by twice what a
 * look took lately, in the mean of all threads, and a microsecond more; a heap saves what it did not need, some
 * milliseconds, and owes what it took too much, an eighth of one at most. Who waits, for work or a processor, earns nothing.
 * When looks have taken that eighth it is judged, and the first of these the process pays for, by what all heaps earned. A heap
 * that begins when nothing is left is judged at each look, and begins where others are. In the first 34 ms all are judged
 * at each look, and what looks may take is four times as much, which goes by the clock and is the process's: whose look
 * comes next has it. Of a time without looks, in which it may have waited for a processor, only what its thread has worked.
 * When they were too many it doubles its own interval, of those classes that are looked at most and as often as it takes, and
 * halves it again when looks have become rare. What comes out of it stays right, since the interval of a block has
 * nothing to do with whether it is seen. Where each look is judged, and those at some classes in a row were too many, it
 * doubles all. An interval below BUDGET_INTERVAL is kept: who asks for it wants to see so much.
 *
 *     blocks held are in need, like those in the hand
 *     the blocks of the hand have been charged to heap.left[class]
 *     a class that holds blocks has heap.left[class] 0, and what is left in budget_class
 *     a heap that is looked at (heap_hot.asked is not 0) has a budget
 *
 * heap.left is charged whether somebody looks or not: so a refill costs the same, and what goes straight back into the
 * hand, and asks one question for both. Where nobody looks it is BUDGET_UNSEEN bytes; so much, or what is left of an
 * earlier countdown, may go in and out of the hands of another thread before it learns that somebody does now. Refills
 * ask each time.
 *
 * Large blocks have one countdown in common, of bytes, which has no end where nobody looks. One that is put in front
 * (front.h) is charged right then for the next time that it is taken: if it is due, it waits there with the interval that
 * this was drawn for, and the countdown begins anew. All others are charged when they are taken.
 *
 * Threads: a budget belongs to its heap; budget_interval may change at any time.
 */
#ifndef MASU_HEAP_BUDGET_H
#define MASU_HEAP_BUDGET_H

#include "heap/heap.h"

enum { BUDGET_LARGE = CLASS_COUNT, BUDGET_COUNT }; /* large blocks have one in common */
_Static_assert(BUDGET_COUNT <= 64, "a bit each in heap_budget.unearned");
enum { BUDGET_INTERVAL = 512 * KIB, BUDGET_SHARE = 512, BUDGET_UNSEEN = 16 * MIB };

typedef struct budget_class {
  uint64_t drawn_for; /* the interval that the countdown was drawn for */
  block *held;
  uint32_t held_count;
  uint64_t left; /* while blocks are held: heap.left of later */
} budget_class;

typedef struct heap_budget {
  uint64_t random;
  uint64_t paced, paced_cpu; /* ns, on the clock and of the thread; since when `looks` are counted */
  uint32_t looks, saved, owed; /* ns: saved for more looks; owed for earlier ones, by a heap that pays for them itself */
  uint64_t unearned; /* since one was earned: the classes of those looks that weren't, one bit each */
  bool begun; /* it pays for its looks itself: the process paid for those before */
  bool quiet; /* an observer is at work: what it allocates itself is not seen */
  uint8_t doublings[BUDGET_COUNT]; /* of a class's interval, to keep the pace */
  uint32_t seen[BUDGET_COUNT]; /* what `looks` at this class stand for: so many at an interval without doublings */
  budget_class of[BUDGET_COUNT];
} heap_budget;

/* Is the next block of a class to be looked at? The interval that this was drawn for; 0: no. */
internal uint64_t budget_due(heap *h, unsigned class);
/* The next block that the heap itself gives out is not to be charged. */
internal void budget_refund(heap *h, unsigned class);
/* Does the heap know what interval is asked for, and has it what is left from that? budget_ask: from now on. */
static ALWAYS_INLINE bool budget_is_asked(const heap *h) { return h->hot.asked == load_relaxed(&budget_interval); }
internal void budget_ask(heap *h);
/* The usual answer, without asking: no. */
static ALWAYS_INLINE bool budget_is_ahead(const heap *h, unsigned class) { return budget_is_asked(h) && h->left[class] != 0; }
/* Where nobody looks: as many blocks of the class as may go into the hand before that is asked again. */
internal void budget_unseen(heap *h, unsigned class);
/* The same of a large block of so many bytes that is taken now; 0: no, and it is charged. */
internal uint64_t budget_due_large(heap *h, size_t bytes);
/* The usual answer, without asking: no, and it is charged. Also to what an observer allocates, which is not seen either: how
 * far the countdown has come has nothing to do with where it stops. */
static ALWAYS_INLINE bool budget_covers_large(heap *h, size_t bytes) {
  if (UNLIKELY(!budget_is_asked(h) || h->hot.large_left < bytes))
    return false;
  h->hot.large_left -= bytes;
  return true;
}
/* As budget_due_large of one that may be taken later: budget_look_large counts the look, when it is. */
internal uint64_t budget_due_later(heap *h, size_t bytes);
internal void budget_look_large(heap *h);
/* Does somebody look, who is not at work now, at the interval that the heap knows? */
static inline bool budget_looks(const heap *h) { return h->hot.asked && budget_is_asked(h) && !h->budget->quiet; }
/* The probability of that. */
internal double budget_probability(size_t size, uint64_t interval);
/* Heaps are looked at from now on; 0: no more. And the widest interval of those that were since. */
internal void budget_start(uint64_t interval);
internal uint64_t budget_widest(void);
/* What a look took, in ns: the pace follows the mean. */
internal void budget_look_took(uint64_t ns);
/* Of a list that heap_charge does not cover: the first is given out, the hand gets as many of the others as it may have, and
 * the rest is held. Nothing is held yet. */
internal void budget_ration(heap *h, unsigned class, block *list, uint32_t count);
/* What is held, and how many; NULL: nothing, and *count stays. budget_release: no longer. */
static inline const block *budget_held(const heap *h, unsigned class, uint32_t *count) {
  const budget_class *c = h->budget ? &h->budget->of[class] : NULL;
  if (!c || !c->held)
    return NULL;
  *count = c->held_count;
  return c->held;
}
internal block *budget_release(heap *h, unsigned class, uint32_t *count);
/* The heap's thread was cut off by fork, perhaps while an observer was at work. */
internal void budget_fork_child(heap *h);

#endif
