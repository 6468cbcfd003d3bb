/* scratch: parts of memory that buffers begin in, and the memory given back when none is in use.
 *
 * Mirrors scratch_take and scratch_give (src/observe/pprof.c).
 *
 * Three threads take up to two of two parts, write to them, see that what they wrote is there, and give them
 * back. Who gives the last one takes all, gives the memory back, and with it what stands there, and ends that.
 *
 * MISTAKE_PURGE_AS_LAST: he does so without taking them; MISTAKE_PURGE_AFTERWARDS: when he has seen that all are free.
 */
#define ALL 3 /* bits of both parts */
#define ROUNDS 2

byte taken;
byte part[2]; /* who wrote there last; 0: nobody */

inline take(i) {
  seen = taken;
  i = 2;
  do
  :: seen == ALL -> break
  :: else ->
     own = ((seen & 1) == 0 -> 1 : 2);
     if
     :: atomic { taken == seen -> taken = seen | own; i = own - 1; break }
     :: atomic { taken != seen -> seen = taken }
     fi
  od
}

inline purge() {
  part[0] = 0;
  part[1] = 0
}

inline give(i) {
  own = i + 1;
#ifdef MISTAKE_PURGE_AS_LAST
  if
  :: taken == own -> purge()
  :: taken != own
  fi;
  atomic { taken = taken - own; own = 0 }
#else
#ifdef MISTAKE_PURGE_AFTERWARDS
  atomic { taken = taken - own; last = taken == 0 };
  if
  :: last -> purge()
  :: !last
  fi
#else
  atomic {
    last = taken == own;
    if
    :: last -> taken = ALL
    :: else
    fi
  }
  if
  :: last -> purge(); atomic { taken = taken - ALL }
  :: !last -> atomic { assert(taken & own); taken = taken - own }
  fi
#endif
#endif
  i = 2
}

inline use(i) {
  if
  :: i < 2 -> assert(part[i] == _pid); give(i)
  :: else
  fi
}

proctype user() {
  byte seen, own, mine, other = 2, rounds;
  bool last;
  do
  :: rounds < ROUNDS ->
     rounds++;
     take(mine);
     if
     :: mine < 2 -> part[mine] = _pid; take(other)
     :: mine < 2 -> part[mine] = _pid
     :: else
     fi;
     if
     :: other < 2 -> part[other] = _pid
     :: else
     fi;
     use(mine);
     use(other)
  :: else -> break
  od
}

init {
  atomic {
    run user();
    run user();
    run user()
  };
  _nr_pr == 1;
  assert(taken == 0)
}
