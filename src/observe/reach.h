/* reach: which of a set of blocks pointers lead to, and how those are connected that none
 * leads to.
 *
 * Any aligned word that is the address of one of a block's bytes leads to it; a word is
 * taken for an address whatever it is, so what is found lost is lost, and what is found
 * in use may be lost all the same. What a block leads to is looked at in turn. An array of
 * no objects that C++ keeps the length of is led to by the address behind it as well.
 *
 *     every block is LOST at first; it is FOUND if a root leads to it, or a block that is FOUND,
 *     or if it was forgotten
 *     afterwards each lost one is DIRECT or INDIRECT: no DIRECT one is led to by another
 *     lost block, unless those lead to each other in a ring, of which the one with the lowest
 *     address is DIRECT if nothing lost outside the ring leads to it
 *     every INDIRECT one is led to by a DIRECT one, perhaps through others
 *
 * Memory is read so that what is not there, or may not be read, counts as zero.
 *
 * Threads: a set belongs to one. Nothing is allocated but one mapping for the whole of it.
 */
#ifndef MASU_OBSERVE_REACH_H
#define MASU_OBSERVE_REACH_H

#include "base/attr.h"

typedef enum reach_state { REACH_LOST, REACH_FOUND, REACH_DIRECT, REACH_INDIRECT } reach_state;
/* While roots are followed; then, twice, what is lost. */
typedef enum reach_phase { REACH_ROOTS, REACH_CANDIDATES, REACH_CHOICE } reach_phase;

typedef struct reach_block {
  uintptr_t start;
  size_t size; /* bytes that count; one at least does */
  const void *what; /* the caller's */
  reach_state state;
  bool passed; /* while it is chosen which are direct */
} reach_block;

typedef struct reach {
  reach_block *blocks; /* once they are sorted, in order of address */
  size_t count, room;
  uintptr_t low, span; /* no address outside is in a block */
  size_t *waiting;     /* blocks to be looked at */
  size_t waiting_count;
  reach_phase phase;
  uintptr_t *words; /* read last */
  void *memory;
  size_t memory_size;
} reach;

/* An empty set for that many blocks. False: out of memory. */
internal bool reach_make(reach *r, size_t room);
internal void reach_drop(reach *r);
internal void reach_add(reach *r, const void *start, size_t size, const void *what);
/* All are there. */
internal void reach_sort(reach *r);

/* The block of which `address` is a byte, or NULL. */
internal reach_block *reach_at(const reach *r, uintptr_t address);
/* Roots: a block, a word, the words of a part of memory. */
internal void reach_root(reach *r, reach_block *b);
internal void reach_word(reach *r, uintptr_t word);
internal void reach_range(reach *r, uintptr_t start, uintptr_t end);
/* All roots are known: what do they lead to? */
internal void reach_follow(reach *r);
/* Afterwards: a lost block that nobody asks about. It leads to none. */
internal void reach_forget(reach_block *b);
/* At last: how is the rest connected? */
internal void reach_divide(reach *r);

#endif
