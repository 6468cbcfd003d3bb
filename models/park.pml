/* park: heaps that outlive their threads.
 *
 * Mirrors roster_join, roster_leave, roster_tidy_parked (src/heap/roster.c), thread_exits,
 * thread_enter (src/api/thread.c), heap_flush, heap_tidy, heap_give_back_spares
 * (src/heap/heap.c), free_fast and free_slow (src/api), and what slab.pml mirrors.
 *
 * Two heaps, two threads, and the helper. A thread without a heap joins (inherits the
 * heap parked last), allocates, frees any block that the program holds, leaves, and so on;
 * without a heap it only frees. The helper takes parked heaps, tidies them and puts
 * them back.
 *
 * -DCLAIM, which the code doesn't do: a thread takes a parked heap off the roster, moves
 * its OPEN slabs and, by compare-and-swap, its PARKED ones to its own heap, and puts
 * it back. A publisher reads the slab's owner after his swap, and a QUEUED slab is not
 * claimed, so the queue he pushes on is the right one. Were the owner read before,
 * forwarding what somebody claimed meanwhile would not do (MISTAKE_FORWARD_STALE):
 * the old queue's drainer could recycle a descriptor that its owner is just parking.
 */
#if defined MISTAKE_OWNER_READ_BEFORE || defined MISTAKE_FORWARD_STALE
#define CLAIM
#define OWNER_READ_BEFORE
#endif
#ifdef MISTAKE_FORWARD_STALE
#define FORWARD
#endif
#define NS 1
#define NB 2
#define NH 2
#define NP 3

#include "slab.pml"

#define NONE NH

byte parked; /* the top; heap h is written h + 1 */
byte parked_next[NH];
bool used[NH]; /* somebody has it to himself */

/* Under LOCK_ROSTER. */
inline roster_pop(h) {
  h = parked - 1;
  parked = parked_next[h];
  parked_next[h] = NIL;
  assert(!used[h]); /* two owners */
  used[h] = true
}

inline roster_push(h) {
  assert(used[h]);
  used[h] = false;
  parked_next[h] = parked;
  parked = h + 1
}

/* Slabs of g, which this thread took off the roster, become h's. */
inline heap_claim(h, g, me) {
  do
  :: atomic {
       FIRST_AVAIL(g) ->
       t = FIRST_AVAIL(g) - 1;
       avail_remove(g, t);
#ifdef MISTAKE_CLAIM_KEEPS_TAG
       owner[t] = h;
#else
       SET_OWNER(t, h);
#endif
       avail_append(h, t);
       t = 0
     }
  :: atomic { !FIRST_AVAIL(g) -> break }
  od;
  /* Parked slabs are on no list: the claimer finds them in the table of descriptors. */
  if
  :: atomic { !(live[0] && state[0] == PARKED && OWNER(0) == g) -> skip }
  :: atomic { live[0] && state[0] == PARKED && OWNER(0) == g -> on[me] = 1; SEE(me, 0) }
     n = need[0];
     need[0] = n + reserve[0];
     if
#ifdef MISTAKE_CLAIM_WITHOUT_SWAP
     :: atomic {
          true ->
#else
     :: atomic {
          SAME(me, 0) ->
#endif
          state[0] = OPEN;
          mail_changed(0);
          on[me] = 0; fresh[me] = false; UNSEE;
          SET_OWNER(0, h);
          avail_append(h, 0)
        }
        atomic { reserve[0] = 0; n = 0 }
#ifndef MISTAKE_CLAIM_WITHOUT_SWAP
     :: atomic { !SAME(me, 0) -> need[0] = (live[0] && state[0] == QUEUED -> n : need[0]); n = 0; on[me] = 0; UNSEE }
#endif
     fi
  fi
}

proctype thread(byte me) {
  PUBLISH_LOCALS;
  OWNER_LOCALS;
  byte h, g;
  h = NONE;
  do
#ifndef MISTAKE_JOIN_WITHOUT_LOCK
  :: atomic { step == NIL && h == NONE && parked -> roster_pop(h) }
#else
  :: atomic { step == NIL && h == NONE && parked -> g = parked }
     atomic {
       h = g - 1;
       g = 0;
       parked = parked_next[h];
       parked_next[h] = NIL;
       assert(!used[h]);
       used[h] = true
     }
#endif
  :: d_step { step == NIL && h != NONE -> check_heap(h) } /* at any time between two calls */
  :: d_step { step == NIL && h != NONE && !ending && hand[h] -> malloc_fast(h) }
  :: atomic { step == NIL && h != NONE && !ending && !hand[h] -> refill_starts(h) }
  :: atomic {
       step == NIL && (!ending && ANY_HELD || ending && hand[h]) ->
       if
       :: ending -> b = hand[h]; hand[h] = next[b]
       :: else -> TAKE_HELD
       fi;
       if
       :: h != NONE && TAG(map[RUN(b)] - 1) == h ->
          assert(OWNER(map[RUN(b)] - 1) == h);
          free_own(h)
       :: else -> mail_see(me, b, b); step = SENDING
       fi
     }
  FREE_STEPS(h, me)
  REFILL_STEPS(h)
  DRAIN_STEPS(h)
  /* thread_exits */
#ifdef MISTAKE_PARK_BEFORE_FLUSH
  :: atomic { step == NIL && h != NONE && !ending -> ending = true; roster_push(h) }
  :: atomic { step == NIL && ending && !hand[h] -> ending = false; h = NONE }
#else
  :: atomic { step == NIL && h != NONE && !ending -> ending = true }
  :: atomic { step == NIL && ending && !hand[h] -> ending = false; roster_push(h); h = NONE }
#ifndef CLAIM /* whoever claims slabs would have to flush the hand first */
  /* where the helper runs, with what is in the hand */
  :: atomic { step == NIL && h != NONE && !ending -> roster_push(h); h = NONE }
#endif
#endif
#ifdef CLAIM
  :: atomic { step == NIL && h != NONE && !ending && parked -> roster_pop(g); step = 20 }
  :: step == 20 ->
#ifdef MISTAKE_CLAIM_AFTER_PUSH
     atomic { roster_push(g) }
     heap_claim(h, g, me);
#else
     heap_claim(h, g, me);
     atomic { roster_push(g) }
#endif
     atomic { g = 0; step = NIL }
#endif
  :: atomic { step == NIL && h == NONE -> stop = true; break }
  od;
  gone++
}

/* In the helper, which owns h. */
inline hand_flush(h) {
  do
  :: atomic { step == NIL && hand[h] -> b = hand[h]; hand[h] = next[b]; free_own(h) }
  FREE_STEPS(h, 0)
  :: atomic { step == NIL && !hand[h] -> break }
  od
}

/* Once all threads are gone it frees everything, and everything must come back. */
proctype helper() {
  PUBLISH_LOCALS;
  OWNER_LOCALS;
  byte h;
  ending = true;
  do
#ifdef MISTAKE_TIDY_IN_PLACE
  :: atomic { parked && gone < 2 -> h = parked - 1; used[h] = true }
#else
  :: atomic { parked && gone < 2 -> roster_pop(h) }
#endif
     hand_flush(h);
     heap_tidy(h);
     if
     :: atomic { spare[h] -> other = spare[h]; spare[h] = NIL }
        atomic { RELEASE_FIRST(other - 1); other = 0 }
     :: atomic { !spare[h] -> skip }
     fi;
#ifdef MISTAKE_TIDY_IN_PLACE
     atomic { used[h] = false; h = 0 }
#else
     atomic { roster_push(h); h = 0 }
#endif
  :: atomic { gone == 2 -> check_quiet(); assert(!used[0] && !used[1]); break }
  od;
  do
  :: atomic { step == NIL && ANY_HELD -> TAKE_HELD; h = OWNER(map[RUN(b)] - 1); free_own(h) }
  FREE_STEPS(h, 0)
  :: atomic { step == NIL && !ANY_HELD -> break }
  od;
  h = 0;
  do
  :: h < 2 -> hand_flush(h); heap_tidy(h); h++
  :: else -> break
  od;
  atomic { check_quiet(); check_returned() }
}

init {
  atomic {
    start_blocks();
    parked = 1; parked_next[0] = 2;
    run thread(0);
    run thread(1);
    run helper()
  }
}
