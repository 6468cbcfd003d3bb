/* sampled: allocations that an observer looks at.
 *
 * Which they are, the budget of each heap says (heap/budget.h). Their frees have to come to the slow path,
 * where the observer hears of it. Blocks below SLAB_SEEN_LEAST come from a heap of their own, which is no
 * thread's, and where they share the slabs of powers of two; those of a named heap from
 * a limb of that kind, on its account. A larger one is taken where it would be
 * anyway: elsewhere it would touch pages which the program else had not. A slab of the heap of samples is
 * watched (heap/slab.h), another one while a sample of it is out. What a thread frees of slabs with its own tag comes there
 * by an event; so while one thread only takes samples their slabs have its tag, later that of their heap. Limbs
 * are told by their tags. Large blocks bear a mark.
 *
 * The observer is called outside of all locks but LOCK_POOLS and LOCK_SIZED, under which memory is
 * allocated; it may allocate, and what it allocates is not sampled, but by a thread past its last
 * destructor. A block is told of before its caller has it, and again before its memory is anybody
 * else's, so for one address the calls come in order.
 *
 * Threads: any.
 */
#ifndef MASU_API_SAMPLED_H
#define MASU_API_SAMPLED_H

#include "api/thread.h"
#include "heap/budget.h"

/* size: what was asked for. usable: bytes of the block. a: of the named heap that it is from, or NULL. weight: how many such
 * blocks it stands for, itself among them; of one that has grown it may be less than 1.
 * resized: now so much is asked for of the same block; false: that is more than its usable bytes, and nothing changed. used:
 * all of these may be used, however much was asked for; returns them, 0: it knows nothing of the block.
 * freed may be called inside a slow path: it must not allocate. */
typedef struct sample_observer {
  void (*taken)(void *p, size_t size, size_t usable, const account *a, double weight);
  void (*freed)(void *p);
  bool (*resized)(void *p, size_t size);
  size_t (*used)(void *p);
} sample_observer;

/* Observes from now on. One observer for the life of the process. interval as
 * budget_interval; 0: no more blocks are taken, but those that were are told of when they
 * are freed. */
internal void sample_start(const sample_observer *observer, uint64_t interval);

/* Where every allocation is looked at, a block has a byte more than was asked for: so the
 * address behind it, which programs keep as the end of an array, is not that of another. */
static inline size_t sampled_room(size_t size) {
  return size + (load_relaxed(&budget_interval) == 1 && size < SIZE_MAX);
}
/* The class for that, aligned as the class that would do without; or that class, if there is none. */
internal unsigned sampled_class(size_t size, unsigned size_class);
/* A sampled block of the class, on the account (NULL: nobody's), or NULL: then an ordinary
 * one will do. Inside a slow path; sampled_tell afterwards, outside, with the interval that budget_due
 * returned. sampled_take_own: for the thread's own heap, that interval known. */
internal block *sampled_take(account *a, unsigned size_class);
internal block *sampled_take_own(heap *h, unsigned size_class, uint64_t interval);
internal void sampled_tell(void *p, size_t size, size_t usable, const account *a, uint64_t interval);
/* May blocks of the small slab with that entry in the page map be sampled ones? */
internal bool sampled_may_be(map_entry e);
/* One of them is freed. Inside a slow path; h: the thread's own heap, or NULL. */
internal void sampled_free(heap *h, slab *s, void *p);
/* Is the block at p, with that entry in the page map, perhaps a sampled one? */
internal bool sampled_is(map_entry e, const void *p);
/* So much is asked for of the block now, which has room for it; or its caller learns how large it is, and may use
 * all of it. Tells of it if it is a sampled one. A block of the heap of samples may be larger than others of its size would
 * be, which nobody is to notice: false, it can't stay where it is; its usable bytes, 0: as many as its slab's blocks
 * have. Outside of slow paths. */
internal bool sampled_resize(map_entry e, void *p, size_t size);
internal size_t sampled_use(map_entry e, void *p);
/* Gives back what is ready in the account's sampled blocks' limb. Inside a slow path, with no lock. */
internal void sampled_reclaim(account *a);
/* The account's memory is about to be released: tells of all its sampled blocks. Likewise. */
internal void sampled_forget(account *a);

/* The same for large blocks. interval: budget_due_large returned it. */
internal void sampled_large(slab *s, size_t size, uint64_t interval);
static inline bool sampled_large_is(const slab *s) { return UNLIKELY(s->waiting != 0); }
internal void sampled_large_free(slab *s);
/* Around a resize, which may move it, to `size` bytes. What was sampled before stays so; what was not has another
 * chance with what is new of it. Weights are such that the block counts once on average, whatever the intervals.
 * was: what the first of them returned, its weight; 0: it was not sampled. */
internal float sampled_large_resize(slab *s);
internal void sampled_large_resized(slab *s, float was, size_t before, size_t size);

#endif
