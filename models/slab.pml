/* slab: what all models share: blocks, runs, descriptors, heaps, the mail word.
 *
 * Mirrors
 *     mail_publish, mail_take, mail_park, mail_unpark                  src/heap/mail.c
 *     outbox_deliver, heap_refill, slab_take_blocks, slab_park, queue_push, queue_drain,
 *     heap_slab_event, heap_hand_back, slab_retire, slab_bury, heap_tidy,
 *     heap_give_back_spares                                            src/heap/heap.c
 *     slab_make, slab_thread, slab_return_run, slab_release            src/heap/slab.c
 *     free_fast, malloc_fast                                           src/api/fast.h
 *
 * One size class. The including file sets
 *     NS  descriptors, and as many runs (1 or 2)     NB  blocks of a run
 *     NH  heaps (1 or 2)                             NP  who may publish
 * and says what the threads do.
 *
 * One step is one access to a word that several threads share, with what the
 * thread does on its own before and after. A load is folded into the swap that
 * follows where nothing in between could make a difference. The version of the mail word
 * isn't counted: who has read the word is `fresh` until somebody changes it,
 * which is what a counter without end gives.
 */
#define TB (NS * NB)
#define NIL 0
#define POISON 255
#define RUN(b) (((b) - 1) / NB)

/* What the program may do with a block. */
#define UNBORN 0 /* not threaded, or the run is in the supply */
#define IDLE 1   /* the allocator's */
#define HELD 2   /* the program's */
#define MOVING 3 /* inside a call of free */

#define OPEN 0
#define PARKED 1
#define QUEUED 2
#define DEAD 3

byte next[TB + 1]; /* blocks are numbered from 1 */
byte status[TB + 1];

/* Of each run: the pagemap (descriptor s is written s + 1), and the supply. */
byte map[NS];
bool out[NS];

/* Descriptors. live: not on the list of unused ones. */
bool live[NS];
byte run_of[NS], threaded[NS], first_free[NS], need[NS], reserve[NS];
byte state[NS], count[NS], head[NS];
byte queued[NS];
#if NH > 1
byte owner[NS];
#define OWNER(s) owner[s]
#ifdef CLAIM
byte tag[NS]; /* of the pagemap entries */
#define SET_OWNER(s, h) owner[s] = h; tag[s] = h
#define TAG(s) tag[s]
#else
#define SET_OWNER(s, h) owner[s] = h
#define TAG(s) owner[s]
#endif
#else
#define OWNER(s) 0
#define SET_OWNER(s, h) skip
#endif

/* Heaps. Two places of avail each, in the order of looking. */
byte hand[NH], queue[NH], spare[NH], avail[2 * NH];
#define FIRST_AVAIL(h) avail[2 * (h)]
#define SECOND_AVAIL(h) avail[2 * (h) + 1]
#define ON_AVAIL(h, s) (FIRST_AVAIL(h) == s + 1 || SECOND_AVAIL(h) == s + 1)
#if NH > 1
#define ON_ANY_LIST(s) (ON_AVAIL(0, s) || ON_AVAIL(1, s) || spare[0] == s + 1 || spare[1] == s + 1)
#else
#define ON_ANY_LIST(s) (ON_AVAIL(0, s) || spare[0] == s + 1)
#endif

byte purging; /* what was taken out of a spare slot, to be returned */

/* Publishers between load and swap. */
byte on[NP];
bool fresh[NP];

bool stop;
byte gone;

hidden byte i_, j_, n_, b_, z_;
hidden byte place_[TB + 1];

/* Somebody changed the mail word of s. */
inline mail_changed(s) {
  i_ = 0;
  do
  :: i_ < NP ->
     if
     :: on[i_] == s + 1 -> fresh[i_] = false
     :: else
     fi;
     i_++
  :: else -> break
  od;
  i_ = 0
}

/* ---- What must always hold ---- */

inline chain_length(first, result) {
  result = 0;
  b_ = first;
  do
  :: b_ == NIL -> break
  :: else ->
     assert(b_ != POISON && b_ <= TB);
     result++;
     assert(result <= TB);
     b_ = next[b_]
  od;
  b_ = 0
}

/* own: the run they must be of, or NS. */
inline note_chain(first, own) {
  b_ = first;
  do
  :: b_ == NIL -> break
  :: else ->
     assert(b_ != POISON && b_ <= TB);
     assert(own == NS || RUN(b_) == own);
     assert(status[b_] == IDLE);
     place_[b_]++;
     assert(place_[b_] == 1); /* in two places */
     b_ = next[b_]
  od;
  b_ = 0
}

inline forget_places() {
  i_ = 0;
  do
  :: i_ < TB + 1 -> place_[i_] = 0; i_++
  :: else -> break
  od;
  i_ = 0
}

inline check_slabs(h) {
  i_ = 0;
  do
  :: i_ < NS ->
     if
     :: live[i_] && OWNER(i_) == h && state[i_] != DEAD && purging != i_ + 1 ->
        assert(out[run_of[i_]] && map[run_of[i_]] == i_ + 1);
        note_chain(first_free[i_], run_of[i_]);
        note_chain(head[i_], run_of[i_]);
        chain_length(head[i_], n_);
        assert(n_ == count[i_]);
        chain_length(first_free[i_], n_);
        assert(need[i_] + reserve[i_] + n_ == threaded[i_]);
        assert(need[i_] || !reserve[i_]);
        if
        :: state[i_] == OPEN ->
           assert((spare[h] == i_ + 1) + (FIRST_AVAIL(h) == i_ + 1) + (SECOND_AVAIL(h) == i_ + 1) == 1);
           assert(spare[h] != i_ + 1 || need[i_] == 0)
        :: else ->
           assert(need[i_] && threaded[i_] == NB);
           assert(!ON_ANY_LIST(i_));
           assert(state[i_] != PARKED || count[i_] == 0);
           assert(state[i_] != QUEUED || count[i_] > 0)
        fi
     :: else
     fi;
     i_++
  :: else -> break
  od;
  i_ = 0
}

/* By the owner between two calls: no block in two places, none the program holds in
 * any, and the equations of slab.h. */
inline check_heap(h) {
  forget_places();
  note_chain(hand[h], NS);
  check_slabs(h)
}

#if NH > 1
#define EVERY_QUEUE(do_it) do_it(0) do_it(1)
#else
#define EVERY_QUEUE(do_it) do_it(0)
#endif
#define COUNT_IN_QUEUE(h) \
  j_ = queue[h]; \
  do \
  :: j_ -> n_ = n_ + (j_ == i_ + 1); j_ = queued[j_ - 1] \
  :: else -> break \
  od;

/* Nobody is inside a call: nothing is lost. */
inline check_quiet() {
  forget_places();
  note_chain(hand[0], NS);
#if NH > 1
  note_chain(hand[1], NS);
  check_slabs(1);
#endif
  check_slabs(0);
  i_ = 0;
  do
  :: i_ < NS ->
     n_ = 0;
     EVERY_QUEUE(COUNT_IN_QUEUE)
     assert(n_ == (live[i_] && (state[i_] == QUEUED || state[i_] == DEAD && !ON_ANY_LIST(i_))));
     assert(!live[i_] || state[i_] != DEAD || map[run_of[i_]] != i_ + 1);
     i_++
  :: else -> break
  od;
  i_ = 1;
  do
  :: i_ <= TB ->
     assert(status[i_] != MOVING);
     assert((status[i_] == IDLE) == (place_[i_] == 1)); /* lost */
     i_++
  :: else -> break
  od;
  i_ = 0;
  do
  :: i_ < NS -> assert(out[i_] == (map[i_] != NIL)); i_++
  :: else -> break
  od;
  i_ = 0
}

/* Everything was freed and tidied: everything is back, but for one spare. */
inline check_returned() {
  assert(FIRST_AVAIL(0) == NIL && queue[0] == NIL);
  assert(!live[0] || spare[0] == 1 || spare[NH - 1] == 1);
  assert(!live[NS - 1] || spare[0] == NS || spare[NH - 1] == NS)
}

inline avail_append(h, s) {
  assert(!ON_ANY_LIST(s));
  if
  :: FIRST_AVAIL(h) == NIL -> FIRST_AVAIL(h) = s + 1
  :: else -> assert(SECOND_AVAIL(h) == NIL); SECOND_AVAIL(h) = s + 1
  fi
}

inline avail_remove(h, s) {
  if
  :: FIRST_AVAIL(h) == s + 1 -> FIRST_AVAIL(h) = SECOND_AVAIL(h); SECOND_AVAIL(h) = NIL
  :: else -> assert(SECOND_AVAIL(h) == s + 1); SECOND_AVAIL(h) = NIL
  fi
}

/* ---- Slabs ---- */

inline descriptor_give(s) {
  assert(live[s]);
  assert(!ON_ANY_LIST(s));
  live[s] = false;
  run_of[s] = 0; threaded[s] = 0; first_free[s] = NIL; need[s] = 0; reserve[s] = 0;
  state[s] = OPEN; count[s] = 0; head[s] = NIL; queued[s] = NIL;
  SET_OWNER(s, 0);
  mail_changed(s)
}

/* No block may be outside. */
inline supply_give(r) {
  assert(out[r]); /* twice */
  out[r] = false;
  i_ = r * NB + 1;
  do
  :: i_ <= r * NB + NB ->
     assert(status[i_] == IDLE || status[i_] == UNBORN);
     status[i_] = UNBORN;
     next[i_] = POISON;
     i_++
  :: else -> break
  od;
  i_ = 0
}

/* A slab that nobody else can reach. */
inline check_release(s) {
  assert(live[s] && state[s] == OPEN && count[s] == 0 && need[s] == 0 && reserve[s] == 0);
  chain_length(first_free[s], n_);
  assert(n_ == threaded[s]) /* a block is outside */
}

#define ALL_USED(of) (of[0] && of[NS - 1])
#define CAN_MAKE (!ALL_USED(live) && !ALL_USED(out))

inline make_descriptor() {
  t = live[0];
  live[t] = true
}
inline make_run() {
  n = out[0];
  out[n] = true
}
inline make_slab(h) {
  run_of[t] = n;
  SET_OWNER(t, h);
  assert(map[n] == NIL);
  map[n] = t + 1;
  avail_append(h, t);
  t = 0; n = 0
}

#ifndef WITH_LOCKS
/* slab_return_run: the map first, then the supply. Nobody asks the map for blocks of
 * such a run, so the two are one step. */
#ifdef MISTAKE_GIVE_BEFORE_CLEAR
#define SLAB_RETURN_RUN(r) d_step { supply_give(r) } d_step { map[r] = NIL }
#else
#define SLAB_RETURN_RUN(r) d_step { map[r] = NIL; supply_give(r) }
#endif
#define SLAB_DESCRIPTOR_GIVE(s) d_step { descriptor_give(s) }
#define DESCRIPTOR_GIVE_HERE(s) descriptor_give(s)
#define RELEASE_FIRST(s) check_release(s); map[run_of[s]] = NIL; supply_give(run_of[s]); descriptor_give(s)
#define RELEASE_REST(s) skip
#define MAKE_GUARD
#define MAKE_FIRST(h) make_descriptor(); make_run(); make_slab(h)
#define MAKE_REST(h) skip
#else
/* Locks, by rank. */
#define ROSTER 0
#define SUPPLY 1
#define META 2
bool locked[3];
bool kind[NS]; /* SLAB_SMALL; else SLAB_UNUSED */

#define LOCK(l) atomic { !locked[l] -> locked[l] = true }
#define DROP(l) locked[l] = false
#define SLAB_RETURN_RUN(r) map[r] = NIL; atomic { !locked[SUPPLY] -> supply_give(r) }
#define DESCRIPTOR_GIVE_HERE(s) !locked[META]; kind[s] = false; descriptor_give(s)
#define SLAB_DESCRIPTOR_GIVE(s) atomic { DESCRIPTOR_GIVE_HERE(s) }
#define RELEASE_FIRST(s) check_release(s); map[run_of[s]] = NIL
#define RELEASE_REST(s) atomic { !locked[SUPPLY] -> supply_give(run_of[s]) } SLAB_DESCRIPTOR_GIVE(s)
/* The supply takes LOCK_META, for its own tables, under LOCK_SUPPLY. */
#define MAKE_GUARD && !locked[META]
#define MAKE_FIRST(h) make_descriptor()
#define MAKE_REST(h) \
  LOCK(SUPPLY); \
  LOCK(META); \
  atomic { make_run(); DROP(META) } \
  DROP(SUPPLY); \
  atomic { kind[t] = true; make_slab(h) }
#endif

/* ---- The mail word ---- */

#ifdef MISTAKE_NO_VERSION
#define SAME(me, s) (state[s] == seen_state && count[s] == seen_count && head[s] == seen_head)
#define SEE(me, s) seen_state = state[s]; seen_count = count[s]; seen_head = head[s]
#define SEEN_LOCALS byte seen_state, seen_count, seen_head
#define UNSEE seen_state = 0; seen_count = 0; seen_head = 0
#else
#define SAME(me, s) fresh[me]
#define SEE(me, s) fresh[me] = true
#define SEEN_LOCALS byte unused_
#define UNSEE skip
#endif

/* Which run it is must be known before the swap: after it the owner may recycle the
 * descriptor. */
#ifdef MISTAKE_TOUCH_AFTER_DEAD
#define READ_RUN_BEFORE skip
#define READ_RUN_AFTER assert(live[s]); r = run_of[s]
#else
#define READ_RUN_BEFORE r = run_of[s]
#define READ_RUN_AFTER skip
#endif

#ifdef MISTAKE_TOUCH_AFTER_SWAP
#define TOUCH_AFTER_SWAP assert(live[s])
#else
#define TOUCH_AFTER_SWAP skip
#endif

#ifdef MISTAKE_PUSH_TWICE
#define PUSHES (before != OPEN)
#else
#define PUSHES (before == PARKED)
#endif

#ifdef OWNER_READ_BEFORE
#define READ_OWNER_BEFORE to = OWNER(s)
#define READ_OWNER_AFTER skip
#else
#define READ_OWNER_BEFORE skip
#define READ_OWNER_AFTER to = OWNER(s)
#endif

/* How many blocks in the mail end the slab: need first, then what is held back of it. */
#ifdef MISTAKE_RESERVE_READ_FIRST
#define LAST_COUNT reserve[s]
#define LAST_REST need[s]
#else
#define LAST_COUNT need[s]
#define LAST_REST reserve[s]
#endif

/* total: 1 more than that, part: the first half of it; 0: not read yet. */
#define PUBLISH_LOCALS \
  SEEN_LOCALS; \
  byte s, r, before, after, top, part, total, to

/* The first load, and the tail linked to what it saw. The caller holds the blocks
 * first .. last, so their slab stays until the swap. */
inline mail_see(me, first, last) {
  assert(map[RUN(first)] != NIL);
  s = map[RUN(first)] - 1;
  assert(live[s] && run_of[s] == RUN(first) && state[s] != DEAD);
  on[me] = s + 1;
  READ_RUN_BEFORE;
  READ_OWNER_BEFORE;
  SEE(me, s);
  next[last] = head[s];
  before = state[s];
#ifdef MISTAKE_NEED_READ_FIRST
  part = part /* read by the caller, before the word */
#else
  part = 0
#endif
}

/* The owner may still be at work on a slab that he has just parked. */
#ifdef MISTAKE_END_PARKED
#define ENDS true
#else
#define ENDS before != PARKED
#endif

/* mail_publish after its first load, and outbox_deliver's answer to it. */
inline outbox_deliver(me, first, last, k) {
  do
  :: atomic {
       !total && !part ->
#ifdef MISTAKE_RESERVE_LOOKED_AT_LATE
       part = 1 + LAST_COUNT
#else
       if
       :: count[s] + k < reserve[s] -> total = POISON /* it can't be the last */
       :: else -> part = 1 + LAST_COUNT
       fi
#endif
     }
  :: atomic { !total && part -> total = part + LAST_REST; part = 0 }
  :: atomic {
       total && SAME(me, s) ->
       assert(live[s] && before != DEAD && before == state[s]);
       if
       :: count[s] + k + 1 == total && ENDS -> after = DEAD
       :: else -> after = (before == OPEN -> OPEN : QUEUED)
       fi;
       count[s] = count[s] + k;
       head[s] = first;
       state[s] = after;
       status[first] = IDLE; status[last] = IDLE;
       on[me] = 0; fresh[me] = false; UNSEE; total = 0;
       mail_changed(s);
       if
       :: after == DEAD ->
          chain_length(first, n_);
          j_ = n_;
          chain_length(first_free[s], n_);
          assert(n_ + j_ == threaded[s]); /* a block is outside */
          j_ = 0
       :: else
       fi;
       break
     }
  :: atomic {
       total && !SAME(me, s) ->
       assert(live[s] && state[s] != DEAD);
       total = 0;
       SEE(me, s);
#ifndef MISTAKE_LINK_ONCE
       next[last] = head[s];
#endif
       before = state[s]
     }
  od;
  if
  :: after == DEAD ->
     READ_RUN_AFTER;
     SLAB_RETURN_RUN(r);
#ifdef MISTAKE_RECYCLE_LINKED
     SLAB_DESCRIPTOR_GIVE(s)
#elif defined MISTAKE_END_PARKED
     if
     :: before == PARKED -> SLAB_DESCRIPTOR_GIVE(s)
     :: else
     fi
#endif
  :: after == QUEUED && PUSHES -> queue_push(s)
  :: else -> TOUCH_AFTER_SWAP
  fi;
  atomic { s = 0; r = 0; before = 0; after = 0; to = 0 }
}

inline queue_push(s) {
  atomic { assert(live[s]); READ_OWNER_AFTER; top = queue[to]; queued[s] = top }
  do
#ifdef MISTAKE_QUEUE_WITHOUT_SWAP
  :: atomic { queue[to] = s + 1; top = 0; break }
#else
  :: atomic { queue[to] == top -> queue[to] = s + 1; top = 0; break }
  :: atomic { queue[to] != top -> assert(live[s]); top = queue[to]; queued[s] = top }
#endif
  od
}

/* ---- The owner ---- */

/* What an owner is at; step is NIL between two calls. ending: no more malloc. b: a block on its way; t: a
 * slab; n: a number for the next step; x: what was drained and is not opened yet. */
#define OWNER_LOCALS byte t, x, n, b, other, step; bool ending

#define UNPARKING 1 /* an event on a slab that isn't OPEN has raised need */
#define SENDING 2   /* b is to be delivered */
#define RELEASING 3 /* other is to be released */
#define TAKING 4    /* slab_take_blocks has raised need */
#define SETTLING 5  /* need is to become n */
#define PARKING 6   /* slab_park after its swap */
#define FORGETTING 7 /* and with the reserve */
#define DRAINING 8  /* queue_drain, x to come */
#define OPENING 9   /* queue_drain has raised need */
#define OPENED 10   /* queue_drain after its swap */
#define LEAVING 11
#define CLEARING 12
#define ARMING 13   /* one of need is to be held back */
#define ARMED 14    /* and no longer to be in need */
#define THINNED 15  /* need is 0, but for what was held back */
#define THINNING 16 /* and was raised to that */
#define THIN 17     /* the mail is in, x blocks */
#define WOKEN 18    /* slab_wakes after its swap */
#define DROPPING 19 /* queue_drain releases other */

#ifndef DONE
#define DONE step = NIL
#endif

/* mail_take. */
inline take_mail(s, first) {
  first = head[s];
  head[s] = NIL; count[s] = 0; state[s] = OPEN;
  mail_changed(s)
}

/* Entirely free: into the spare slot; what was there is given back. */
inline slab_retire(h, s) {
  avail_remove(h, s);
  other = spare[h];
  spare[h] = s + 1
}

inline slab_bury(h, s) {
  avail_remove(h, s);
  DESCRIPTOR_GIVE_HERE(s)
}

/* Where there is only one slab it may be alone or not, as it likes. */
#define ALONE(h, s) (FIRST_AVAIL(h) == s + 1 && SECOND_AVAIL(h) == NIL)
#define NOT_ALONE(h, s) (NS == 1 || !ALONE(h, s))

/* heap_hand_back: the first of the list goes to the hand, for which the program has
 * asked or not; or the whole list. */
inline hand_back_from() {
  b = first_free[t];
  if
  :: first_free[t] = next[b];
     next[b] = NIL;
     need[t] = 1
  :: first_free[t] = NIL;
     need[t] = threaded[t]
  fi
}

inline hand_back_to(h) {
  hand[h] = b;
  b = 0; t = 0
}

/* heap_slab_event. An OPEN slab with need 0 has no block outside, so nobody else looks
 * at it and its event is part of the step. */
inline free_event(h) {
  if
  :: ON_AVAIL(h, t) && reserve[t] -> b = 0; step = THINNED
  :: else ->
  if
  :: ON_AVAIL(h, t) && ALONE(h, t) && !hand[h] && !ending -> hand_back_from(); hand_back_to(h); DONE
  :: ON_AVAIL(h, t) && ALONE(h, t) -> b = 0; t = 0; DONE /* the only open slab stays */
  :: ON_AVAIL(h, t) && NOT_ALONE(h, t) ->
     slab_retire(h, t);
     b = 0; t = 0;
     if
     :: other -> step = RELEASING
     :: else -> DONE
     fi
  :: !ON_AVAIL(h, t) ->
#ifndef MISTAKE_WAKE_KEEPS_NEED
     need[t] = reserve[t];
#endif
     b = 0;
     step = UNPARKING
  fi
  fi
}

#ifndef FREE_EVENT
#define FREE_EVENT(h) free_event(h)
#endif

inline free_push() {
  assert(map[RUN(b)] != NIL);
  t = map[RUN(b)] - 1;
  assert(live[t] && state[t] != DEAD);
  status[b] = IDLE;
  next[b] = first_free[t];
  first_free[t] = b
}

inline free_count(h) {
  assert(need[t] > 0);
  need[t] = need[t] - 1;
  if
  :: need[t] == 0 -> FREE_EVENT(h)
  :: else -> b = 0; t = 0
  fi
}

/* free of an own block b: push, and count. */
inline free_own(h) {
  free_push();
  free_count(h)
}

/* slab_wakes: if the slab is QUEUED or DEAD by now, who drains the queue sees to it. */
inline unpark(h) {
  if
#ifdef MISTAKE_UNPARK_WITHOUT_SWAP
  :: true ->
#else
  :: state[t] == PARKED ->
#endif
     assert(count[t] == 0);
     state[t] = OPEN;
     mail_changed(t);
     n = 1
#ifndef MISTAKE_UNPARK_WITHOUT_SWAP
  :: state[t] != PARKED -> n = 0
#endif
  fi;
  step = WOKEN
}

inline woken(h) {
  reserve[t] = 0;
  if
  :: !n -> t = 0; DONE
  :: n ->
     n = 0;
     avail_append(h, t);
     if
     :: need[t] > 1 -> step = ARMING
     :: true -> t = 0; DONE
     fi
  fi
}

#define HELD_BACK (need[t] > 2 -> 2 : 1)
/* An event before the slab is empty. Who reads the lower need finds the rest in reserve. */
#ifdef MISTAKE_NEED_LOWERED_FIRST
#define ARM_FIRST need[t] = need[t] - 1
#define ARM_REST reserve[t] = 1
#else
#define ARM_FIRST reserve[t] = HELD_BACK
#define ARM_REST need[t] = need[t] - reserve[t]
#endif

/* slab_thinned: need is raised to all that is out, the word changes, and only then
 * reserve is cleared. */
inline thin_swap(h) {
  if
  :: state[t] == DEAD -> slab_bury(h, t); t = 0; DONE
  :: else ->
     assert(state[t] == OPEN);
     x = count[t];
     take_mail(t, z_);
     do
     :: z_ -> b_ = next[z_]; next[z_] = first_free[t]; first_free[t] = z_; z_ = b_
     :: else -> break
     od;
     b_ = 0;
     step = THIN
  fi
}

inline thin_settle(h) {
  need[t] = need[t] - x;
  x = 0;
  if
  :: need[t] == 0 && NOT_ALONE(h, t) ->
     slab_retire(h, t);
     t = 0;
     if
     :: other -> step = RELEASING
     :: else -> DONE
     fi
  :: need[t] == 0 && ALONE(h, t) -> t = 0; DONE
  :: need[t] > 1 -> step = ARMING
  :: need[t] -> t = 0; DONE
  fi
}

#ifdef MISTAKE_NEED_RAISED_LATE
#define RAISE_NEED(to) skip
#else
#define RAISE_NEED(to) need[t] = to
#endif

/* slab_take_blocks of the first slab on avail: need goes up. n keeps what it was. */
inline take_raise(h) {
  t = FIRST_AVAIL(h) - 1;
  assert(live[t]);
  n = need[t] + reserve[t];
  if
  :: first_free[t] || threaded[t] == NB -> RAISE_NEED(threaded[t])
  :: else -> RAISE_NEED(threaded[t] + 1)
  fi;
  step = TAKING
}

#ifdef MISTAKE_PARK_WITHOUT_SWAP
#define PARKS (threaded[t] == NB)
#else
#define PARKS (threaded[t] == NB && !count[t])
#endif
/* So many of the owner's own frees wake a slab. */
#define WAKE (NB > 3 -> 2 : 1)

/* slab_take_blocks: the mail word; and what comes of it, as nobody else may take
 * the slab for empty now. */
inline take_swap(h) {
  if
  :: state[t] == DEAD -> n = 0; slab_bury(h, t); t = 0; DONE
  :: else ->
     assert(state[t] == OPEN);
     reserve[t] = 0; /* after the swap, before need goes down */
     hand[h] = first_free[t];
     if
     :: PARKS -> /* slab_park: nothing remains */
        first_free[t] = NIL;
        state[t] = PARKED;
        mail_changed(t);
        n = 0;
        step = PARKING
     :: !PARKS && hand[h] ->
        n = threaded[t] - count[t];
        take_mail(t, first_free[t]);
        step = SETTLING
     :: !PARKS && !hand[h] && count[t] -> take_mail(t, hand[h]); step = SETTLING
     :: !PARKS && !hand[h] && !count[t] -> /* slab_thread */
        take_mail(t, hand[h]);
        threaded[t] = threaded[t] + 1;
        hand[h] = run_of[t] * NB + threaded[t];
        next[hand[h]] = NIL;
        assert(status[hand[h]] == UNBORN);
        status[hand[h]] = IDLE;
#ifdef MISTAKE_NEED_RAISED_LATE
        n = threaded[t];
        step = SETTLING
#else
        n = 0; t = 0;
        DONE
#endif
     fi
  fi
}

/* queue_drain, one slab: need goes up. */
inline drain_raise(h) {
  t = x - 1;
  assert(live[t]);
  x = queued[t];
  queued[t] = NIL;
#ifndef MISTAKE_DRAIN_KEEPS_NEED
  need[t] = (OWNER(t) == h -> need[t] + reserve[t] : need[t]);
#endif
  step = OPENING
}

#ifdef FORWARD
#define MINE_ONLY(h) && OWNER(t) == h
#else
#define MINE_ONLY(h)
#endif

inline drain_swap(h) {
  if
#ifdef FORWARD
  :: state[t] != DEAD && OWNER(t) != h -> /* somebody claimed it meanwhile */
     queued[t] = queue[OWNER(t)];
     queue[OWNER(t)] = t + 1;
     t = 0;
     step = DRAINING
#endif
  :: state[t] == DEAD -> DESCRIPTOR_GIVE_HERE(t); t = 0; step = DRAINING
  :: state[t] == QUEUED MINE_ONLY(h) ->
     assert(OWNER(t) == h);
     n = count[t];
     take_mail(t, z_);
     do
     :: z_ -> b_ = next[z_]; next[z_] = first_free[t]; first_free[t] = z_; z_ = b_
     :: else -> break
     od;
     b_ = 0;
     step = OPENED
  :: state[t] == OPEN || state[t] == PARKED -> assert(false)
  fi
}

/* The slab is open. If it is empty it may stay so, where it is the only one. */
inline drain_settle(h) {
  need[t] = need[t] - n;
  n = 0;
  avail_append(h, t);
  step = DRAINING;
  if
  :: need[t] == 0 && NOT_ALONE(h, t) ->
     slab_retire(h, t);
     if
     :: other -> step = DROPPING
     :: else
     fi
  :: need[t] || ALONE(h, t)
  fi;
  t = 0
}

#ifdef MISTAKE_PARK_KEEPS_NEED
#define NEED_PARKED skip
#else
#define NEED_PARKED need[t] = WAKE
#endif
#define RESERVE_PARKED reserve[t] = NB - WAKE
#ifdef MISTAKE_PARK_LOWERS_NEED_FIRST
#define PARK_FIRST NEED_PARKED
#define PARK_REST RESERVE_PARKED
#else
#define PARK_FIRST RESERVE_PARKED
#define PARK_REST NEED_PARKED
#endif

/* The alternatives of an owner's loop that go on with a call. */
#define DRAIN_STEPS(h) \
  :: atomic { step == DRAINING && x -> drain_raise(h) } \
  :: atomic { step == OPENING -> drain_swap(h) } \
  :: atomic { step == OPENED && reserve[t] -> reserve[t] = 0 } \
  :: atomic { step == OPENED && !reserve[t] -> drain_settle(h) } \
  :: atomic { step == DROPPING -> RELEASE_FIRST(other - 1) } \
     RELEASE_REST(other - 1); \
     atomic { other = 0; step = DRAINING }
#define FREE_STEPS(h, me) \
  :: atomic { step == UNPARKING -> unpark(h) } \
  :: atomic { step == WOKEN -> woken(h) } \
  :: atomic { step == ARMING -> ARM_FIRST; step = ARMED } \
  :: atomic { step == ARMED -> ARM_REST; t = 0; DONE } \
  :: atomic { step == THINNED -> need[t] = reserve[t]; step = THINNING } \
  :: atomic { step == THINNING -> thin_swap(h) } \
  :: atomic { step == THIN && reserve[t] -> reserve[t] = 0 } \
  :: atomic { step == THIN && !reserve[t] -> thin_settle(h) } \
  :: step == SENDING -> \
     outbox_deliver(me, b, b, 1); \
     atomic { b = 0; DONE } \
  :: atomic { step == RELEASING -> RELEASE_FIRST(other - 1) } \
     RELEASE_REST(other - 1); \
     atomic { other = 0; DONE } \
  :: atomic { \
       step == SETTLING -> \
       need[t] = n; \
       n = 0; \
       if \
       :: need[t] > 1 -> step = ARMING \
       :: true -> t = 0; DONE \
       fi \
     }
#define REFILL_STEPS(h) \
  :: atomic { step == TAKING -> take_swap(h) } \
  :: atomic { step == PARKING -> PARK_FIRST; step = FORGETTING } \
  :: atomic { step == FORGETTING -> PARK_REST; avail_remove(h, t); t = 0; DONE } \
  :: atomic { step == DRAINING && !x && FIRST_AVAIL(h) -> DONE } \
  :: atomic { \
       step == DRAINING && !x && !FIRST_AVAIL(h) && spare[h] -> \
       other = spare[h]; \
       spare[h] = NIL; \
       avail_append(h, other - 1); \
       other = 0; \
       DONE \
     } \
  :: atomic { step == DRAINING && !x && !FIRST_AVAIL(h) && !spare[h] && !CAN_MAKE -> DONE } \
  :: atomic { step == DRAINING && !x && !FIRST_AVAIL(h) && !spare[h] && CAN_MAKE MAKE_GUARD -> MAKE_FIRST(h) } \
     MAKE_REST(h); \
     atomic { DONE }

/* heap_refill. */
inline refill_starts(h) {
  if
  :: FIRST_AVAIL(h) -> take_raise(h)
#ifdef MISTAKE_DRAIN_WITHOUT_EXCHANGE
  :: else -> x = queue[h]; step = CLEARING
#else
  :: else -> x = queue[h]; queue[h] = NIL; step = DRAINING
#endif
  fi
}

/* heap_tidy, by who has the heap to himself: all mail comes in, empty slabs go. No
 * sender can end a slab between the swap and the lower need: it is too high by what
 * the mail held. */
inline heap_tidy(h) {
  atomic { x = queue[h]; queue[h] = NIL; step = DRAINING }
  do
  DRAIN_STEPS(h)
  :: atomic { step == DRAINING && !x -> step = NIL; break }
  od;
  do
  :: atomic {
       step == NIL && n < 2 && avail[2 * h + n] ->
       t = avail[2 * h + n] - 1;
       need[t] = need[t] + reserve[t];
       step = THINNING
     }
  :: atomic {
       step == THINNING ->
       if
       :: state[t] == DEAD -> slab_bury(h, t); t = 0; step = NIL
       :: else ->
          x = count[t];
          take_mail(t, z_);
          do
          :: z_ -> b_ = next[z_]; next[z_] = first_free[t]; first_free[t] = z_; z_ = b_
          :: else -> break
          od;
          b_ = 0;
          step = SETTLING
       fi
     }
  :: atomic { step == SETTLING && reserve[t] -> reserve[t] = 0 }
  :: atomic {
       step == SETTLING && !reserve[t] ->
       need[t] = need[t] - x;
       x = 0;
       if
       :: need[t] == 0 -> slab_retire(h, t)
       :: else -> n++
       fi;
       t = 0;
       step = NIL;
       if
       :: other -> step = RELEASING
       :: else
       fi
     }
  :: atomic { step == RELEASING -> RELEASE_FIRST(other - 1) }
     RELEASE_REST(other - 1);
     atomic { other = 0; step = NIL }
  :: atomic { step == NIL && (n == 2 || !avail[2 * h + n]) -> n = 0; break }
  od
}

/* malloc, its fast path. */
inline malloc_fast(h) {
  b = hand[h];
  hand[h] = next[b];
  assert(hand[h] != POISON && status[b] == IDLE);
  next[b] = POISON;
  status[b] = HELD;
  b = 0
}

#define HOLD(i) :: status[i] == HELD -> status[i] = MOVING; b = i
#if NS * NB == 2
#define ANY_HELD (status[1] == HELD || status[2] == HELD)
#define TAKE_HELD if HOLD(1) HOLD(2) fi
#elif NS * NB == 3
#define ANY_HELD (status[1] == HELD || status[2] == HELD || status[3] == HELD)
#define TAKE_HELD if HOLD(1) HOLD(2) HOLD(3) fi
#elif NS * NB == 4
#define ANY_HELD (status[1] == HELD || status[2] == HELD || status[3] == HELD || status[4] == HELD)
#define TAKE_HELD if HOLD(1) HOLD(2) HOLD(3) HOLD(4) fi
#else
#define ANY_HELD (status[1] == HELD || status[2] == HELD || status[3] == HELD || status[4] == HELD || status[5] == HELD)
#define TAKE_HELD if HOLD(1) HOLD(2) HOLD(3) HOLD(4) HOLD(5) fi
#endif

inline start_blocks() {
  i_ = 1;
  do
  :: i_ <= TB -> next[i_] = POISON; i_++
  :: else -> break
  od;
  i_ = 0
}
