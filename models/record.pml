/* record: the times of the recorder's records, most of which are of a reading of the clock before.
 *
 * Mirrors given_by, tell_time, note_owner, record_time, write_taken, write_given, write_and_free and realloc_timed (src/observe/record.c, "Time").
 *
 * A thread gives out the blocks of its heap and frees some; another frees some as well, which come back, and resizes
 * some where they lie. Both read the clock now and then, in order or early: an early reading is of any moment since the
 * thread's last one. What goes from thread to thread takes longer than the clock's step, of which
 * a time may be ahead.
 *
 * Sorted by time, those of one thread in their order, the records of a block have to come as they came in truth.
 */
#define NB 2
#define LAST 7 /* when the clock stops */
#define TRUE_TIME 255

#define READY 0 /* in the owner's hand */
#define OUT 1
#define HELD 2 /* the other frees it, and nobody else does */
#define SENT 3 /* on its way back */

#define OWNER 0
#define OTHER 1

byte now = 1;
byte place[NB]; /* READY */
byte moved_at[NB]; /* when it was last touched */
byte by[NB];       /* by whom */
byte stamp[NB];    /* time of its last record */
byte read[2];      /* the thread's last reading, which its records bear */
byte told;         /* the owner's, as others see it */
bool unsure;
hidden byte time;  /* within a step */
bool moved = true; /* the owner: it has not read since it began, or blocks came back */

#define is_there(b, who) (by[b] == who || now >= moved_at[b] + 2)

inline record(b, who, time) {
  assert(time > stamp[b] || (time == stamp[b] && by[b] == who));
  stamp[b] = time;
  by[b] = who;
  moved_at[b] = now
}

/* A reading in order; a clock that goes back stands. */
inline in_order(who, time) {
  time = (now > read[who] -> now : read[who]);
  read[who] = time
}

/* An early reading: a moment since the last one. */
inline early(who, time) {
  time = read[who];
  do
  :: time < now -> time++
  :: break
  od
}

/* What a release has to be later than. */
inline given_by(who, after) {
  if
#ifndef MISTAKE_SURE
  :: unsure -> after = TRUE_TIME
#endif
  :: else ->
#ifdef MISTAKE_ALL_ARE_OWN
     after = 0
#else
     if
     :: who == OWNER -> after = 0
     :: else -> after = told
     fi
#endif
  fi
}

#ifdef MISTAKE_AS_LATE_WILL_DO
#define goes_along(who) (after <= read[who])
#else
#define goes_along(who) (after < read[who])
#endif

/* The time of a record of a release or a resize: one along, or a reading. */
inline timed(who, after, time) {
  if
  :: after != TRUE_TIME && goes_along(who) -> time = read[who]
  :: after == TRUE_TIME -> in_order(who, time)
  :: after != TRUE_TIME ->
     early(who, time);
#ifndef MISTAKE_EARLIER_THAN_TOLD
     if
     :: time <= after -> time = after + 1
     :: else
     fi;
#endif
     read[who] = time
  fi
}

inline tell() {
  told = read[OWNER]
}

proctype owner() {
  byte b, after;
  do
  :: atomic { /* malloc */
       select(b : 0 .. NB - 1);
       if
       :: place[b] == READY
       :: else -> goto next
       fi;
       if
       :: moved -> in_order(OWNER, time); moved = false
#ifdef MISTAKE_GOES_ALONG_AFTER_A_REFILL
       :: moved -> time = read[OWNER]
#endif
       :: !moved -> time = read[OWNER]
       :: !moved -> early(OWNER, time); read[OWNER] = time
       fi
     }
#ifdef MISTAKE_TELLS_LATE
     atomic { record(b, OWNER, read[OWNER]); place[b] = OUT; b = 0 };
     tell()
#else
     tell();
     atomic { record(b, OWNER, read[OWNER]); place[b] = OUT; b = 0 }
#endif
  :: atomic { /* free */
       select(b : 0 .. NB - 1);
       if
       :: place[b] == OUT && is_there(b, OWNER)
       :: else -> goto next
       fi;
       given_by(OWNER, after);
       timed(OWNER, after, time);
       record(b, OWNER, time);
       place[b] = READY;
       b = 0; after = 0
     }
     tell()
  :: atomic { /* a slow path: what the other freed */
       select(b : 0 .. NB - 1);
       if
       :: place[b] == SENT && is_there(b, OWNER)
       :: else -> goto next
       fi;
       place[b] = READY;
       moved = true;
       b = 0
     }
  :: now == LAST -> break
  next: b = 0
  od
}

proctype other() {
  byte b, after;
  do
  :: atomic { /* free */
       select(b : 0 .. NB - 1);
       if
       :: place[b] == OUT && is_there(b, OTHER)
       :: else -> goto next
       fi;
       place[b] = HELD;
       given_by(OTHER, after)
     }
     atomic {
       timed(OTHER, after, time);
       record(b, OTHER, time);
       place[b] = SENT;
       b = 0; after = 0
     }
  :: atomic { /* realloc, and it stays where it is */
       select(b : 0 .. NB - 1);
       if
       :: place[b] == OUT && is_there(b, OTHER)
       :: else -> goto next
       fi;
       given_by(OTHER, after);
       timed(OTHER, after, time);
       unsure = true;
       record(b, OTHER, time);
       b = 0; after = 0
     }
  :: now == LAST -> break
  next: b = 0
  od
}

proctype clock() {
  do
  :: now < LAST -> now++
  :: else -> break
  od
}

init {
  atomic {
    read[OTHER] = now; /* it began with a record */
    run owner();
    run other();
    run clock()
  }
}
