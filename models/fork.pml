/* fork: what a child finds when it is forked at any step of the other threads.
 *
 * Mirrors fork_prepare, fork_parent, fork_child (src/api/process.c), locks_fork_prepare,
 * locks_fork_release (src/os/lock.c), roster_fork_child, roster_join, roster_leave, parked_pop
 * (src/heap/roster.c), heap_repair_all, heap_give_back_spares (src/heap/heap.c), slab_make,
 * slab_release (src/heap/slab.c), heap_hand_back (src/heap/heap.h), thread_enter, thread_leave, thread_exits
 * (src/api/thread.c), and what slab.pml mirrors.
 *
 * In the parent one thread allocates and frees from heap 0, and leaves and joins; one
 * sends blocks by way of a slot of heap 1, which has no slabs; one gives back spares
 * without owning a heap (the helper, or malloc_trim); one forks, and has no heap. Fast paths are
 * cut into their stores. The child gets a prefix of every thread's stores, in an
 * order that the threads agree on. In the child the forking thread joins and so
 * repairs, while another thread frees blocks that were out, and a third gives back spares.
 *
 * Lost in the child, and that is all right: what a dead thread had in its registers
 * (blocks, a run, a slab out of the spare slot), and a slab between mail_publish and
 * queue_push.
 */
#define NS 1
#ifndef NB
#define NB 2
#endif
#define NH 1
#define NP 4
#define WITH_LOCKS

/* Further steps of the owner. */
#define COUNTING 20 /* free_fast between its two stores */
#define ENTERING 21 /* free_event */
#define ENTERED 22
#define HANDING 23  /* heap_hand_back */
#define OUT 24      /* thread_leave */
#define FREE_EVENT(h) step = ENTERING
#define DONE step = OUT

#include "slab.pml"

/* The slab is empty: what is held back is out. */
#ifdef MISTAKE_HAND_BACK_WITH_RESERVE
#define IS_EMPTY true
#else
#define IS_EMPTY !reserve[t]
#endif
#define CAN_HAND_BACK (state[t] == OPEN && IS_EMPTY && ALONE(0, t) && !hand[0] && !ending)

bool child;
bool busy[2], sealed[2];
bool parked; /* heap 0 is on the parked stack */
byte slot;
bool sending;
byte given; /* what a thread of the child took out of the spare slot */

#ifdef MISTAKE_NEVER_BUSY
#define ENTER(h) skip
#else
#define ENTER(h) busy[h] = true
#endif

proctype owner_thread() provided (!child) {
  PUBLISH_LOCALS;
  OWNER_LOCALS;
  bool joined;
  joined = true;
end:
  do
  :: d_step { step == NIL && joined && !ending && hand[0] -> malloc_fast(0) }
  :: atomic { step == NIL && joined && !ending && !hand[0] -> ENTER(0); refill_starts(0) }
  :: atomic {
       step == NIL && (joined && !ending && ANY_HELD || ending && hand[0]) ->
       if
       :: ending -> b = hand[0]; hand[0] = next[b]
       :: else -> TAKE_HELD
       fi;
       free_push();
       step = COUNTING
     }
  :: atomic { step == COUNTING -> step = NIL; free_count(0) }
  :: atomic { step == ENTERING -> ENTER(0); step = ENTERED }
  :: atomic { step == ENTERED -> free_event(0) }
  /* heap_hand_back, which is not marked busy: for a moment the blocks are in no place. */
#ifdef MISTAKE_HAND_BACK_HAND_FIRST
  :: atomic { step == ENTERING && CAN_HAND_BACK -> hand[0] = first_free[t]; step = HANDING }
  :: atomic { step == HANDING -> hand_back_from(); hand_back_to(0); step = NIL }
#else
  :: atomic { step == ENTERING && CAN_HAND_BACK -> hand_back_from(); step = HANDING }
  :: atomic { step == HANDING -> hand_back_to(0); step = NIL }
#endif
#ifdef MISTAKE_BUSY_CLEARED_EARLY
  :: atomic {
       step == TAKING && state[t] == OPEN && first_free[t] ->
       hand[0] = first_free[t];
       n = threaded[t] - count[t];
       busy[0] = false;
       step = 30
     }
  :: atomic { step == 30 -> take_mail(t, first_free[t]); step = SETTLING }
#endif
  FREE_STEPS(0, 0)
  REFILL_STEPS(0)
  DRAIN_STEPS(0)
  :: atomic { step == OUT -> busy[0] = ending && busy[0]; step = NIL }
  /* thread_exits: the hand goes home, the heap on the roster */
  :: atomic { step == NIL && joined && !ending -> ENTER(0); ending = true }
  :: atomic { step == NIL && ending && !hand[0] -> busy[0] = false; ending = false; joined = false; step = LEAVING }
  :: atomic { step == LEAVING && !locked[ROSTER] -> parked = true; step = NIL }
  /* roster_join */
  :: atomic { step == NIL && !joined && !locked[ROSTER] -> parked = false; joined = true }
  od
}

/* A block waits in the slot, and the heap with it, until the slot is emptied in a slow path. */
proctype sender() provided (!child) {
  PUBLISH_LOCALS;
  byte b;
end:
  do
  :: atomic { ANY_HELD && !slot -> TAKE_HELD; slot = b; b = 0 }
  :: atomic {
       slot ->
#ifndef MISTAKE_SLOT_WITHOUT_BUSY
       ENTER(1);
#endif
       b = slot;
       mail_see(1, b, b)
     }
     outbox_deliver(1, b, b, 1);
     slot = NIL;
     atomic { busy[1] = false; b = 0 }
  od
}

proctype helper() provided (!child) {
end:
  do
  :: atomic { spare[0] -> purging = spare[0]; spare[0] = NIL }
     atomic { RELEASE_FIRST(purging - 1) }
     RELEASE_REST(purging - 1);
     purging = NIL
  od
}

/* ---- The child ---- */

proctype child_sender() provided (child && !locked[ROSTER]) {
  PUBLISH_LOCALS;
  byte b;
end:
  do
  :: atomic {
       if
       :: ANY_HELD -> TAKE_HELD
       :: slot && !sealed[1] -> b = slot; slot = NIL /* who joined that heap sends what waits */
       fi;
       sending = true;
       mail_see(2, b, b)
     }
     outbox_deliver(2, b, b, 1);
     atomic { b = 0; sending = false }
  od
}

proctype child_helper() provided (child && !locked[ROSTER]) {
end:
  do
  :: atomic { spare[0] -> given = spare[0]; spare[0] = NIL }
     atomic { RELEASE_FIRST(given - 1) }
     RELEASE_REST(given - 1);
     given = NIL
  od
}

/* What the child may use must be sound. */
inline check_child() {
  forget_places();
  if
  :: slot && !sealed[1] -> place_[slot] = 1; assert(status[slot] == MOVING)
  :: else
  fi;
  if
  :: !sealed[0] ->
     note_chain(hand[0], NS);
     if
     :: live[0] && kind[0] && state[0] != DEAD && (ON_ANY_LIST(0) || state[0] != OPEN) ->
        assert(out[run_of[0]] && map[run_of[0]] == 1);
        note_chain(first_free[0], run_of[0]);
        note_chain(head[0], run_of[0]);
        chain_length(first_free[0], n_);
        assert(need[0] && need[0] + reserve[0] + n_ == threaded[0] || !need[0] && !reserve[0] && n_ == threaded[0])
     :: else -> assert(!ON_ANY_LIST(0) || state[0] == DEAD)
     fi
  :: else
  fi
}

#ifdef MISTAKE_PREPARE_OUT_OF_ORDER
#define FIRST META
#define LAST ROSTER
#else
#define FIRST ROSTER
#define LAST META
#endif

#ifdef MISTAKE_USES_BUSY_HEAPS
#define SEALS false
#else
#define SEALS true
#endif

#ifdef MISTAKE_REPAIR_FORGETS_QUEUED
#define WANTS_REPAIR (state[t] == OPEN || state[t] == PARKED)
#else
#define WANTS_REPAIR (state[t] != DEAD)
#endif

/* OPEN but on no list: out of the spare slot, and perhaps half returned. */
#ifdef MISTAKE_REPAIR_TAKES_UNLISTED
#define LISTED(t) true
#else
#define LISTED(t) ON_AVAIL(0, t)
#endif

#define REPAIRING 20 /* OPEN: need was raised */
#define RECOUNTING 21
#define TOUCHING 31 /* PARKED or QUEUED: need stands one too high */
#define COUNTING_FREE 32
#ifdef MISTAKE_REPAIR_WALKS_PARKED
#define HOLD_PARKED skip
#else
#define HOLD_PARKED need[0] = need[0] + 1
#endif

proctype forker() {
  PUBLISH_LOCALS;
  OWNER_LOCALS;
  bool repairs;
  LOCK(FIRST); /* fork_prepare */
  LOCK(SUPPLY);
  LOCK(LAST);
  if
  :: goto end_parent
  :: atomic {
       /* roster_fork_child */
       child = true;
       sealed[0] = busy[0] && !parked && SEALS;
       sealed[1] = busy[1] && SEALS;
       repairs = !parked && !sealed[0];
       parked = !sealed[0];
       assert(locked[0] && locked[1] && locked[2]);
       DROP(0); DROP(1); DROP(2)
     }
  fi;
#ifndef MISTAKE_NO_REPAIR
  /* The first who takes a parked heap repairs: heap_repair_all. */
  if
  :: atomic {
       repairs && live[0] && kind[0] && WANTS_REPAIR && (state[0] == OPEN -> LISTED(0) : first_free[0] != NIL) ->
       if
       :: state[0] != OPEN -> HOLD_PARKED; step = TOUCHING
#ifdef MISTAKE_REPAIR_WALKS_FIRST
       :: state[0] == OPEN -> step = RECOUNTING
#else
       :: state[0] == OPEN -> need[0] = threaded[0]; step = REPAIRING
#endif
       fi
     }
     do
     :: atomic {
          step == REPAIRING ->
          if
          :: state[0] == DEAD -> slab_bury(0, 0); step = NIL
          :: else ->
             take_mail(0, z_);
             do
             :: z_ -> b_ = next[z_]; next[z_] = first_free[0]; first_free[0] = z_; z_ = b_
             :: else -> break
             od;
             b_ = 0;
             step = RECOUNTING
          fi
        }
     :: atomic {
          step == TOUCHING ->
          if
          :: state[0] == DEAD -> step = NIL
          :: else -> mail_changed(0); step = COUNTING_FREE
          fi
        }
     :: atomic {
          step == COUNTING_FREE ->
          chain_length(first_free[0], n_);
          need[0] = threaded[0] - n_ - reserve[0];
          step = NIL;
          if
          :: !need[0] -> t = 0; need[0] = reserve[0]; step = UNPARKING
          :: else
          fi
        }
     :: atomic { step == RECOUNTING && reserve[0] -> reserve[0] = 0 }
     :: atomic {
          step == RECOUNTING && !reserve[0] ->
          chain_length(first_free[0], n_);
          need[0] = threaded[0] - n_;
          if
          :: need[0] == 0 && !ON_AVAIL(0, 0) -> other = spare[0]; spare[0] = 1
          :: need[0] == 0 && ON_AVAIL(0, 0) -> slab_retire(0, 0)
          :: need[0] == 0 || need[0] > 0 -> skip /* the only open slab stays */
          fi;
          step = (other -> RELEASING : NIL)
        }
     FREE_STEPS(0, 3)
     :: atomic { step == OUT || step == NIL -> step = NIL; break }
     od
  :: else
  fi;
#endif
  atomic { !sending && !given -> check_child() }
  do :: child od; /* the others stand still forever: that is no deadlock */
end_parent:
  DROP(0);
  DROP(1);
  DROP(2)
}

init {
  atomic {
    start_blocks();
    run owner_thread();
    run sender();
    run helper();
    run child_sender();
    run child_helper();
    run forker()
  }
}
