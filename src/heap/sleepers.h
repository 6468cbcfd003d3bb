/* sleepers: the heaps of threads that sleep.
 *
 * What a thread holds ready, in hands, open slabs and slots, is its own, and while it sleeps nobody
 * gives it back: a server's idle workers keep what their busiest moment took. The fast paths
 * can't be asked, since they know nothing of other threads. But a thread that has been inside one
 * system call all the time is not in them. So the helper parks its heap as if it had ended:
 *
 *     1  count how often it went to sleep
 *     2  see that it is in a system call, that it isn't busy, and that no signal handler
 *        on its stack has interrupted masu
 *     3  point its hot word, the seat, at the heap's `empty`: what it does next, if it wakes, is a slow path
 *     4  see that it is in a system call, and then that the count is the same: it slept from
 *        1 to 4. If it did not, set the word back
 *     5  the heap has no seat, and is parked
 *
 * The helper has LOCK_ROSTER from 3 to 5, and sees under it first that the heap is still that thread's. A slow path that finds
 * the word at `empty` waits for the lock: either all is as it was, or the thread joins another heap, the same if it is still parked. The helper sees all that the
 * thread did, and the thread the word, because it is with the lock of the thread's processor that the system
 * puts it to sleep, tells that it sleeps, and wakes it.
 *
 * Not taken: heaps of threads that have limbs, scopes or hands of shared pools, that are in a destructor's later rounds, on
 * another stack than the system's, or more than 1 MiB deep in it, and where the system doesn't
 * say what threads do. Modelled in models/sleepers.pml.
 */
#ifndef MASU_HEAP_SLEEPERS_H
#define MASU_HEAP_SLEEPERS_H

#include "heap/heap.h"

/* LOCK_ROSTER is held. The calling thread's heap, which it will leave in any case: from now on the helper may
 * take it. */
internal void sleeper_seated(heap *h, heap_hot **seat);

/* One look at all heaps: those that had no slow path since the last one, and whose threads sleep, are parked. */
internal void sleepers_take(void);
/* Might another look find one? */
internal bool sleepers_to_come(void);
/* Takes the heap if its thread sleeps. */
internal bool sleeper_take(heap *h);

#endif
