/* sleepers: the helper takes the heap of a thread that sleeps.
 *
 * Mirrors sleeper_take, sleeps_outside and park_sleeper (src/heap/sleepers.c), join and roster_leave (src/heap/roster.c), thread_join,
 * thread_enter, thread_leave, heap_leave (src/api/thread.c), and of the fast paths that they read
 * the hot word once and use that heap until their end.
 *
 * One thread, one heap. The thread uses the heap by the hot word or by a slow path, sleeps, also in a slow path
 * or in a signal handler that interrupts any of these, and ends, in two rounds of destructors. The helper looks
 * at it again and again. `same` stands for the count of the thread's switches: the helper sets it
 * when it reads the count, the thread clears it when it goes to sleep.
 *
 * Nobody else may use the heap while the thread does (`inside`), nor the seat when its thread has
 * left it for good.
 */
#define NONE 0
#define HEAP 1
#define EMPTY 2 /* of the heap */
#define LATER 3 /* none, in later rounds of destructors */

byte hot = NONE;
bool busy, asleep, frame, same;
bool seat, parked = true, lock;
bool inside;      /* the thread has the heap's address and will use it */
bool helper_uses;
byte handlers = 2, rounds;

inline take_lock() { atomic { !lock -> lock = true } }

/* The helper may see the thread asleep from the first step to the second. */
inline sleep() {
  atomic { asleep = true; same = false };
  asleep = false
}

/* Anywhere in masu. */
inline may_be_interrupted() {
  if
  :: atomic { handlers > 0 -> handlers--; frame = true };
     sleep();
     frame = false
  :: skip
  fi
}

inline use() {
  assert(inside && !helper_uses);
  assert(!parked)
}

inline fast() {
  if
  :: atomic { hot == HEAP -> inside = true };
     may_be_interrupted();
     atomic { use(); inside = false }
  :: hot != HEAP -> slow()
  fi
}

inline join() {
  assert(hot != HEAP); /* a heap is lost */
  busy = true;
  take_lock();
  if
  :: atomic { parked -> parked = false; lock = false; hot = HEAP };
     busy = false;
     if
     :: rounds == 0 ->
        take_lock();
        atomic { seat = true; lock = false }
     :: else
     fi
  :: atomic { !parked -> lock = false; busy = false } /* another heap; this model has none */
  fi
}

/* thread_heap: while the word is at `empty` the heap may be about to be taken, so the thread waits. */
inline heap_of_thread() {
  word = hot;
#ifdef MISTAKE_WORD_READ_TWICE
  if
  :: word == EMPTY && hot != EMPTY -> word = NONE
  :: else
  fi;
#endif
  if
  :: atomic { word == HEAP -> mine = true; inside = true }
  :: word == EMPTY ->
#ifdef MISTAKE_SLOW_WITHOUT_WAIT
     atomic { mine = seat; inside = mine }
#else
     take_lock();
     atomic { mine = seat; inside = mine };
     lock = false
#endif
  :: word == NONE || word == LATER -> mine = false
  fi
}

inline slow() {
  heap_of_thread();
  if
  :: !mine -> join(); heap_of_thread()
  :: else
  fi;
  if
  :: mine ->
     may_be_interrupted();
     busy = true;
     use();
     if
     :: sleep()
     :: skip
     fi;
     atomic { use(); inside = false };
     busy = false
  :: !mine
  fi;
  mine = false
}

inline leave() {
  rounds++;
  heap_of_thread();
  if
  :: mine ->
     busy = true;
     use();
     atomic { hot = LATER; inside = false };
     busy = false;
     take_lock();
     atomic { seat = false; parked = true; lock = false }
  :: !mine -> hot = LATER
  fi;
  mine = false
}

inline put_back() {
#ifdef MISTAKE_PUT_BACK_BLINDLY
  hot = HEAP
#else
  atomic {
    if
    :: hot == EMPTY -> hot = HEAP
    :: else
    fi
  }
#endif
}

active proctype thread() {
  bool mine;
  byte word;
  do
  :: fast()
  :: slow()
  :: sleep()
  :: rounds < 2 -> leave()
  od
}

active proctype helper() {
  bool good;
  do
  :: skip;
#ifndef MISTAKE_COUNT_LATE
     same = true;
#endif
     good = asleep;
#ifndef MISTAKE_BUSY_UNSEEN
     good = good && !busy;
#endif
#ifndef MISTAKE_FRAMES_UNSEEN
     good = good && !frame;
#endif
     take_lock();
     good = good && seat;
     if
     :: atomic { good && hot == HEAP -> hot = EMPTY };
#ifdef MISTAKE_COUNT_LATE
        same = true;
#endif
#ifndef MISTAKE_NO_SECOND_LOOK
        good = asleep;
#endif
#ifndef MISTAKE_NO_COUNT
        good = good && same;
#endif
        if
        :: atomic { good -> seat = false; parked = true }
        :: !good -> put_back()
        fi
     :: else
     fi;
     lock = false
  :: take_lock();
     if
     :: atomic { parked -> parked = false; lock = false; helper_uses = true };
        assert(!inside);
        take_lock();
        atomic { helper_uses = false; parked = true; lock = false }
     :: atomic { !parked -> lock = false }
     fi
  od
}
