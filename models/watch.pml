/* watch: blocks that an observer wants to see freed, in a slab of others that it does not.
 *
 * Mirrors slab_see, slab_unsee, slab_watch_no_more (src/heap/slab.c), sampled_take_own and sampled_free
 * (src/api/sampled.c), and of free that it reads the block's entry in the page map once and goes by that.
 *
 * The owner takes blocks of one slab, seen or not, and keeps them or passes them on; he and another thread free what they
 * have. Each block lies in a slice of its own, whose entries are written one after the other. How free blocks get back to the
 * owner is mail.pml's business: here they are back at once.
 *
 * A block that is freed is on the record no more when it can be taken again; one that was not on it is not
 * told of. Bits are changed in one step, since both threads change others of the same word
 * (MISTAKE_BIT_IN_TWO_STEPS). The block is given out last (MISTAKE_GIVEN_OUT_FIRST). The owner puts the entries back
 * when he frees a block and finds none seen. If the other thread did so, it could be behind an owner who has
 * just found the slab watched (MISTAKE_ANYBODY_ENDS_IT).
 */
#define NB 2
#define STEPS 7 /* of the owner */

mtype = { FREE, OWNERS, OTHERS };
mtype at[NB] = FREE;
bool watched[NB]; /* in the block's entry */
bool recorded[NB];
byte seen;        /* bits */
bool done;

#ifdef MISTAKE_BIT_IN_TWO_STEPS
#define CHANGE(to) word = to; seen = word
#else
#define CHANGE(to) seen = to
#endif

inline see(b) {
  recorded[b] = true;
  CHANGE(seen | 1 << b);
  if
  :: watched[0]
  :: !watched[0] -> watched[0] = true; watched[1] = true
  fi
}

inline tell(b) {
  assert(recorded[b]); /* nobody asked for it */
  recorded[b] = false
}

inline watch_no_more() {
  if
  :: !seen -> watched[0] = false; watched[1] = false
  :: else
  fi
}

inline free(b, is_owner) {
  is_watched = watched[b];
  if
  :: is_watched && (seen & 1 << b) ->
     CHANGE(seen & (255 - (1 << b)));
     tell(b)
  :: else
  fi;
  if
#ifdef MISTAKE_ANYBODY_ENDS_IT
  :: is_watched -> watch_no_more()
#else
  :: is_owner && is_watched -> watch_no_more()
#endif
  :: else
  fi;
  atomic {
    assert(!recorded[b]); /* freed, and still on the record */
    at[b] = FREE
  }
}

inline give_out(b) {
  if
  :: at[b] = OWNERS
  :: at[b] = OTHERS
  fi
}

inline take(b) {
  if
  :: give_out(b)
#ifdef MISTAKE_GIVEN_OUT_FIRST
  :: give_out(b); see(b)
#else
  :: see(b); give_out(b)
#endif
  fi
}

active proctype owner() {
  byte steps, word;
  bool is_watched;
  do
  :: steps < STEPS && at[0] == FREE -> steps++; take(0)
  :: steps < STEPS && at[1] == FREE -> steps++; take(1)
  :: at[0] == OWNERS -> free(0, true)
  :: at[1] == OWNERS -> free(1, true)
  :: steps == STEPS && at[0] != OWNERS && at[1] != OWNERS -> break
  od;
  done = true
}

active proctype other() {
  byte word;
  bool is_watched;
  do
  :: at[0] == OTHERS -> free(0, false)
  :: at[1] == OTHERS -> free(1, false)
  :: done && at[0] != OTHERS && at[1] != OTHERS -> break
  od;
  assert(!seen)
}
