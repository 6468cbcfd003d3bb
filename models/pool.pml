/* pool: the list of a shared pool, one word with the first block's number and a version.
 *
 * Mirrors push_numbers and pop_number (src/forms/pool.c). Where threads have hands, each block here
 * stands for a batch, of which it is the first; the others are touched by whoever has that one.
 *
 * Two threads, or with -DTHREE three, take and give back three blocks, each three times (once),
 * holding up to two. A
 * taker reads the word, then the first block's link, then swaps. Between the reads
 * another thread may have got the block, written anything over the link, and given
 * it back: the version has changed, and the swap fails. Taken blocks are written to at once.
 *
 * Without a version the swap would succeed on a link of long ago
 * (MISTAKE_NO_VERSION); one that only takers change is not enough to be wrong here, so
 * both change it. MISTAKE_LINK_AFTER: a giver links his block after the swap.
 */
#define NB 3
#ifdef THREE
#define ROUNDS 1
#else
#define ROUNDS 3
#endif
#define ANYTHING 9 /* what a program writes */

byte first = 1;
byte version;
byte link[NB + 1];
bool out[NB + 1];

#ifdef MISTAKE_NO_VERSION
#define NEXT_VERSION version
#else
#define NEXT_VERSION version + 1
#endif

inline pop(b) {
  do
  :: atomic { seen = first; seen_version = version };
     if
     :: seen == 0 -> b = 0; break
     :: else
     fi;
     next = link[seen];
     if
     :: atomic {
          first == seen && version == seen_version ->
          assert(next <= NB); /* a link that somebody wrote over */
          first = next;
          version = NEXT_VERSION;
          b = seen;
          assert(!out[b]); /* handed out twice */
          out[b] = true;
          break
        }
     :: else
     fi
  od;
  if
  :: b != 0 -> link[b] = ANYTHING
  :: else
  fi
}

inline push(b) {
  do
  :: atomic { seen = first; seen_version = version };
#ifndef MISTAKE_LINK_AFTER
     link[b] = seen;
#endif
     if
     :: atomic {
          first == seen && version == seen_version ->
          assert(out[b]);
          out[b] = false;
          first = b;
          version = NEXT_VERSION;
          break
        }
     :: else
     fi
  od
#ifdef MISTAKE_LINK_AFTER
  ; link[b] = seen
#endif
}

proctype user() {
  byte seen, seen_version, next, mine, other, rounds;
  do
  :: rounds < ROUNDS ->
     rounds++;
     pop(mine);
     if
     :: mine != 0 -> pop(other)
     :: mine != 0
     :: else
     fi;
     if
     :: mine != 0 -> push(mine)
     :: else
     fi;
     if
     :: other != 0 -> push(other)
     :: else
     fi;
     mine = 0;
     other = 0
  :: else -> break
  od
}

init {
  byte i, left;
  atomic {
    link[1] = 2;
    link[2] = 3;
    run user();
#ifdef THREE
    run user();
#endif
    run user()
  };
  _nr_pr == 1;
  /* Nothing is lost. */
  do
  :: first != 0 -> left++; first = link[first]
  :: else -> break
  od;
  assert(left == NB)
}
