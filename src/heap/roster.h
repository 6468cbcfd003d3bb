/* roster: all heaps: in use, parked (their thread is gone) or sealed (lost in fork).
 *
 * A thread that ends parks its heap; the next thread that needs one inherits it
 * whole, with its tag and its slabs, so threads that come and go leave no memory
 * behind. The helper takes parked heaps off the roster, tidies them and puts them
 * back. Whoever took a heap off the roster is its owner until it is parked again.
 *
 * Limbs, the heaps that threads use of a named heap, are parked on their account, and
 * only a thread that uses the named heap inherits them. The helper leaves them alone.
 *
 * Past a thread's last destructor, where nothing would ever park a heap again, and
 * where no heap can be made, memory comes from one orphan heap under LOCK_ORPHAN. Blocks that
 * an observer looks at come from one under LOCK_SAMPLES, or from one on their account.
 *
 * Fork: the child keeps the forking thread's heap. Heaps of other threads that were
 * in a slow path (`busy`) may be half changed and are sealed: what is allocated
 * there stays valid, may be freed, but is not reused. The others are parked and
 * recounted before use.
 */
#ifndef MASU_HEAP_ROSTER_H
#define MASU_HEAP_ROSTER_H

#include "heap/heap.h"

/* A heap for the calling thread; NULL: out of memory or of tags. a: a limb on this
 * account, one that an ended thread left if there is any; NULL: an own heap. */
internal heap *roster_join(account *a);
/* An own heap, that one if it is still parked; NULL is allowed. */
internal heap *roster_join_again(heap *wanted);
/* The thread gives its heap, or limb, up. */
internal void roster_leave(heap *h);
/* LOCK_ROSTER is held: the heap was taken from its thread (sleepers.h). */
internal void roster_park_sleeper(heap *h);
/* In a forked child: makes the heaps that fork cut off usable, if there still are any. */
internal void roster_repair(void);
/* Everything that heaps on the account hold goes back, whatever is out; they become
 * blank limbs, for any named heap. The account's heaps must not be used
 * meanwhile. */
internal void roster_release_account(account *a);
/* The orphan heap; LOCK_ORPHAN is held while it is used. NULL: out of memory. */
internal heap *roster_orphan(void);
/* The heap of sampled blocks of the account (NULL: of none), likewise under LOCK_SAMPLES. */
internal heap *roster_sampled(account *a);

/* Visits every parked heap but limbs, each off the roster meanwhile: the visitor owns
 * it. */
internal void roster_visit_parked(void (*visit)(heap *h, void *context), void *context);
/* heap_flush and heap_tidy; is there a heap that was parked since? */
internal void roster_tidy_parked(void);
internal bool roster_is_untidy(void);
/* Gives back what all heaps but limbs keep ready; returns bytes. */
internal size_t roster_give_back_spares(void);
/* Visits every heap that isn't sealed; a heap in use may change meanwhile. */
internal void roster_for_each(void (*visit)(heap *h, void *context), void *context);
internal unsigned roster_count(void);
/* heap_check of all heaps but those that the helper has just now. The threads that
 * have heaps must leave them alone meanwhile. */
internal unsigned roster_check(void);

/* In a forked child, with all locks held: `mine` is the caller's heap or NULL; it
 * keeps its limbs as well. */
internal void roster_fork_child(heap *mine);

#endif
