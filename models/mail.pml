/* mail: the way home of blocks that other threads free.
 *
 * Mirrors free_slow and free_event (src/api/malloc.c), heap_flush (src/heap/heap.c), and
 * through slab.pml mail_publish, mail_take, mail_park, mail_unpark, outbox_deliver, heap_refill,
 * heap_slab_event, queue_push, queue_drain, slab_park, slab_retire, slab_bury, heap_tidy.
 *
 * One owner, two senders (one brings two blocks at once when it can), and a purger that
 * empties the spare slot. One run of three blocks; with -DTWO_SLABS two runs of two
 * blocks and two descriptors, matched anew by each slab_make. Everybody loops as long
 * as he likes; any thread may free any block that the program holds.
 */
#ifdef TWO_SLABS
#define NS 2
#define NB 2
#else
#define NS 1
#ifndef NB
#define NB 3
#endif
#endif
#define NH 1
#define NP 3

#if defined TWO_SLABS
#define BATCHES false
#else
#define BATCHES true
#endif

/* Between the push and the event nothing else of the owner may run: upkeep that drained
 * the queue there would open the slab under the event's feet. */
#ifdef MISTAKE_DRAIN_BEFORE_EVENT
#define FREE_EVENT(h) step = 20
#endif

#include "slab.pml"

/* The owner's thread ends: the hand goes home. Then the program frees the rest. */
#define RUNNING 0
#define FLUSHING 1
#define CLOSING 2

proctype owner_thread() {
  PUBLISH_LOCALS;
  OWNER_LOCALS;
  byte phase;
  do
  :: d_step { step == NIL -> check_heap(0) } /* at any time between two calls */
  :: d_step { step == NIL && phase == RUNNING && hand[0] -> malloc_fast(0) }
  :: atomic { step == NIL && phase == RUNNING && !hand[0] -> refill_starts(0) }
  :: atomic {
       step == NIL && (phase != FLUSHING && ANY_HELD || phase == FLUSHING && hand[0]) ->
       if
       :: phase == FLUSHING -> b = hand[0]; hand[0] = next[b]
       :: else -> TAKE_HELD
       fi;
       free_own(0)
     }
  FREE_STEPS(0, 0)
  REFILL_STEPS(0)
  DRAIN_STEPS(0)
#ifdef MISTAKE_DRAIN_WITHOUT_EXCHANGE
  :: atomic { step == CLEARING -> queue[0] = NIL; step = DRAINING }
#endif
#ifdef MISTAKE_DRAIN_BEFORE_EVENT
  :: step == 20 ->
     atomic { x = queue[0]; queue[0] = NIL; step = DRAINING }
     do
     DRAIN_STEPS(0)
     :: atomic { step == DRAINING && !x -> break }
     od;
     atomic { t = map[RUN(b)] - 1; free_event(0) }
#endif
  :: atomic { step == NIL && phase == RUNNING -> stop = true; phase = FLUSHING; ending = true }
  :: atomic {
       step == NIL && phase == FLUSHING && !hand[0] && gone == 2 && purging == NIL ->
       check_quiet();
       phase = CLOSING
     }
  :: atomic { step == NIL && phase == CLOSING && !ANY_HELD -> break }
  od;
  heap_tidy(0);
  atomic { purging == NIL -> check_quiet(); check_returned() }
}

proctype sender(byte me; bool batches) {
  PUBLISH_LOCALS;
  byte b, last, k;
  do
#ifdef MISTAKE_NEED_READ_FIRST
  :: atomic {
       ANY_HELD && !b ->
       TAKE_HELD;
       last = b; k = 1;
       s = map[RUN(b)] - 1;
       before = state[s];
       part = 1 + LAST_COUNT
     }
  :: atomic { b -> mail_see(me, b, b) }
#else
  :: atomic {
       ANY_HELD ->
       TAKE_HELD;
       last = b; k = 1;
       if
       :: batches && b > 1 && RUN(b - 1) == RUN(b) && status[b - 1] == HELD -> last = b - 1
       :: batches && b < TB && RUN(b + 1) == RUN(b) && status[b + 1] == HELD -> last = b + 1
       :: true
       fi;
       if
       :: last != b -> next[b] = last; status[last] = MOVING; k = 2
       :: else
       fi;
       mail_see(me, b, last)
     }
#endif
     outbox_deliver(me, b, last, k);
     atomic { b = 0; last = 0; k = 0 }
  :: atomic { stop && !b -> break }
  od;
  gone++
}

proctype purger() {
end:
  do
#ifdef MISTAKE_SPARE_WITHOUT_EXCHANGE
  :: purging = spare[0];
     if
     :: purging ->
        spare[0] = NIL;
        atomic { RELEASE_FIRST(purging - 1); purging = NIL }
     :: else
     fi
#else
  :: atomic { spare[0] -> purging = spare[0]; spare[0] = NIL }
     atomic { RELEASE_FIRST(purging - 1); purging = NIL }
#endif
  od
}

init {
  atomic {
    start_blocks();
    run owner_thread();
    run sender(1, BATCHES);
    run sender(2, false);
    run purger()
  }
}
