/* heap: what one thread allocates from.
 *
 * For each class a heap has a hand of blocks ready to be given out, a list of OPEN
 * slabs with (perhaps) free blocks, and a stack of empty slabs to spare (spares.h). Blocks
 * of other heaps that its thread frees wait in slots until a batch is worth an atomic
 * operation. Slabs in which other threads' frees woke something are on its queue.
 *
 *     tag is unique among heaps; heaps and tags are never destroyed
 *     a slab whose owner is h has h's tag in its pagemap entries, one of a sampled heap perhaps that of `taker`
 *     a slab on avail[c] is OPEN; an OPEN slab is on avail[c] or on spare[c]
 *     a slot is empty (slab NULL) or holds count < most blocks
 *
 * Threads: a heap is used by one thread at a time (its owner, or who took it from
 * the roster). Others touch only `queue` (push), `spare` (exchange: all or none) and
 * `front` (exchange).
 * `busy` is set while a slow path is inside, for fork: see roster.h.
 */
#ifndef MASU_HEAP_HEAP_H
#define MASU_HEAP_HEAP_H

#include <string.h>

#include "heap/account.h"
#include "heap/large.h"
#include "heap/slab.h"
#include "pages/purge.h"

enum {
  UPKEEP_TICKS = 64, /* slow paths between two upkeeps */
  SLOT_COUNT = 64,
  HAND_BACK_BYTES = 8192,
  WIDE_ABOVE = 8192, /* bytes; classes of larger blocks make room for each other */
  FRONT_COUNT = 8,    /* freed large blocks a heap keeps ready */
  HANDS_KNOWN = 8,
};

#define HEAP_USER_UNKNOWN UINT32_MAX

/* A batch of one slab's blocks on its way out; it leaves when there are `most`. */
typedef struct send_slot {
  slab *slab;
  block *head, *tail;
  uint32_t count, most;
} send_slot;

/* A hand of a shared pool that the thread used lately (forms/hands.h), by the pool's number; 0: none. */
typedef struct known_hand {
  uint64_t pool;
  void *hand;
} known_hand;

/* What the fast paths read. A thread without a heap points at a constant one with
 * TAG_NO_HEAP and empty hands, so that it needs no test of its own. */
typedef struct heap_hot {
  map_tag tag;
  block *hand[CLASS_COUNT];
  /* Large blocks freed last: start | slices, 0: none. The one for n
   * slices stands at n modulo FRONT_COUNT. Anybody may take one by exchange, only
   * the owner puts one in. See front.h. */
  atomic_u64 front[FRONT_COUNT];
  /* See budget.h. */
  uint64_t asked;      /* budget_interval, when this and heap.left were drawn */
  uint64_t large_left; /* bytes before the next look at a large block */
  uint32_t front_taken; /* slices so far, modulo 2^32 */
  /* The thread's limbs, the one used last first, and what the forms keep for it. They
   * stand here because thread-local memory is short. */
  struct heap *limbs;
  void *scopes;
  uint64_t hands_of; /* its number among threads with hands of shared pools; 0: it has none */
  known_hand hands[HANDS_KNOWN];
} heap_hot;

typedef struct heap {
  heap_hot hot; /* first, so that the two pointers convert */
  _Alignas(64) bool busy; /* begins a line: sixteen bytes further on a pair of large blocks took 1.02 of its time */
  bool sealed;      /* lost in fork: never used again */
  bool needs_repair; /* cut off by fork, not recounted yet */
  bool is_parked;
  bool is_blank;    /* a limb until its named heap was destroyed; holds nothing */
  bool is_sampled;  /* of blocks that an observer looks at; no thread's: under LOCK_SAMPLES */
  map_tag taker;    /* is_sampled, but of no named heap: stands in the entries of its slabs, see sampled.h; else TAG_NONE */
  bool refused;     /* the last refill met the hard limit of the account */
  uintptr_t hand_guess;  /* the hand that blocks went back to last */
  uintptr_t front_guess; /* the entry that was put in front last */
  uint32_t front_given;  /* less hot.front_taken: slices in front, at most */
  atomic_u32 slow_paths; /* so far */
  uint64_t tidied;  /* ms, when upkeep last looked at the clock's demands */
  list_node avail[CLASS_COUNT];
  list_node vacant;     /* empty slabs that stay open, the oldest first */
  list_node sparse;     /* slabs in which little is in use */
  list_node sparse_old; /* both, those that have waited longer */
  uint64_t sparse_moved; /* ms, when they were put there */
  /* See spares.h; in slices. */
  uint32_t spares_wanted;
  uint32_t let_go;    /* since the last upkeep */
  uint32_t collected; /* slabs, since the last upkeep: see spare_keep_wanted */
  uint32_t misses; /* slabs made since a spare was last used: its time may be over */
  uint32_t full[CLASS_COUNT]; /* slices of slabs that are parked or queued; fork may leave it wrong */
  /* See budget.h. */
  struct heap_budget *budget; /* NULL until somebody looks at allocations */
  uint64_t front_due[FRONT_COUNT]; /* the interval for which the block there is to be looked at; 0: it isn't */
  uint64_t left[CLASS_COUNT]; /* blocks that may go into the hand before the next question */
  send_slot slots[SLOT_COUNT];
  struct heap *next;   /* of all heaps */
  struct heap *parked; /* next parked limb */
  list_node idle;      /* of parked heaps that are no limbs */

  /* A limb, the part of a named heap that one thread allocates from: whose. NULL: a
   * thread's own heap, or a limb whose named heap was destroyed. */
  _Atomic(account *) account;
  struct heap *host;    /* of a limb in use: the own heap of the thread that uses it */
  struct heap *sibling; /* next limb of the same thread */
  atomic_u32 user;      /* 0: no thread; with the options `live` and `sleepers` its number */

  /* See sleepers.h. seat and stack are written with LOCK_ROSTER, and relied on only with it. */
  _Atomic(heap_hot **) seat; /* the thread's word that points at hot; NULL: the heap can't be taken, or was */
  uintptr_t stack;           /* above the thread's frames */
  uint32_t seen, looks;      /* the helper's: slow paths when it looked, and how often since these changed */
  heap_hot empty;            /* what that word points at instead: as for a thread without a heap */

  /* Other threads'. */
  _Alignas(128) _Atomic(slab *) queue;
  _Atomic(slab *) spare[CLASS_COUNT]; /* linked by `queued` */
  atomic_u32 spared; /* slices of them; may lag behind */
} heap;

/* The hand of a class, by class_offset. Its address is worked out before it is used:
 * processors hand what was just stored faster to the next load where the address
 * needs no index (docs/decisions/0006). */
static ALWAYS_INLINE block **heap_hand_at(heap_hot *hot, size_t offset) {
  char *at = (char *)hot + offset;
#ifdef __x86_64__
  __asm__("" : "+d"(at)); /* rax is for the result */
#else
  __asm__("" : "+r"(at));
#endif
  return ((heap_hot *)(void *)at)->hand;
}

internal void heap_init(heap *h, map_tag tag);

/* Its thread has no hands of shared pools any more. */
static inline void heap_forget_hands(heap *h) {
  h->hot.hands_of = 0;
  memset(h->hot.hands, 0, sizeof h->hot.hands);
}

/* Charges blocks that go into that hand of a heap, whether somebody looks or not; false: one of them may have to be
 * looked at, or nobody has been asked for long. What is charged lies as far behind each hand. */
static ALWAYS_INLINE bool heap_charge(block **hand, uint32_t count) {
  uint64_t *left = (uint64_t *)(void *)((char *)hand + (offsetof(heap, left) - offsetof(heap, hot.hand)));
  if (UNLIKELY(*left < count))
    return false;
  *left -= count; /* of a countdown from before the interval was changed, too: it will be drawn anew */
  return true;
}

/* Whose account a block of s is on; NULL: nobody's. */
static inline account *heap_account_of(const slab *s) {
  const heap *h = load_relaxed(&s->owner);
  return UNLIKELY(h != NULL) ? load_relaxed(&h->account) : NULL;
}

/* Fills the hand of the class, which is empty, and returns its first block; NULL:
 * out of memory, or of what the account allows (refused). */
internal block *heap_refill(heap *h, unsigned size_class);
/* The same where blocks may be held: `left` is 0 then. */
internal block *heap_refill_held(heap *h, unsigned size_class);
/* The same where the hand may have blocks, too: of a heap that was just joined, filled while
 * joining or left by a thread that fork cut off. */
static inline block *heap_take_block(heap *h, unsigned size_class) {
  block *b = h->hot.hand[size_class];
  if (!b)
    return LIKELY(h->left[size_class] != 0) ? heap_refill(h, size_class) : heap_refill_held(h, size_class);
  h->hot.hand[size_class] = b->next;
  return b;
}
/* How many blocks of the class are ready: in the hand, or held back from it (budget.h). Its
 * thread. */
internal size_t heap_ready(const heap *h, unsigned size_class);
/* The owner's free of a block of s has counted s->need down to 0. */
internal void heap_slab_event(heap *h, slab *s);
/* The same in a signal handler that interrupted a slow path, of a slab with a reserve. */
internal void heap_slab_event_nested(slab *s);

/* Small programs are spared whatever purges inside slabs, and those that want no page
 * faults. */
static ALWAYS_INLINE bool heap_program_is_large(void) {
  return supply_used() >= PURGE_KEEP_LEAST && !supply_is_prewarmed();
}

/* Is s, which may be on no list, the only open slab of its class? Then both its neighbours are the list's head. */
static ALWAYS_INLINE bool heap_slab_is_alone(const slab *s) {
  return (s->avail.next == s->avail.prev) & !list_empty(&s->avail);
}
/* Takes the hand off, out of reach of a signal handler's malloc: that finds none and keeps off. */
static inline block *heap_hand_off(heap *h, unsigned size_class) {
  block *hand = __atomic_exchange_n(&h->hot.hand[size_class], NULL, __ATOMIC_RELAXED);
  compiler_fence();
  return hand;
}
/* Bytes between two looks at allocations on average; 0: nobody looks. See budget.h. */
internal_data atomic_u64 budget_interval;

/* The same value, which the processor has sooner: it guesses that this is what it was the last time, and looks
 * afterwards. For what the next call reads a block from, which else would wait until this one's place in the page map, its
 * descriptor and what stands there were read, one after the other (docs/decisions/0006). */
static ALWAYS_INLINE uintptr_t heap_guessed(uintptr_t *last, uintptr_t value) {
  uintptr_t guess = *last, same = guess;
  __asm__("" : "+r"(same)); /* or the compiler takes the one that it compares with */
  return LIKELY(guess == value) ? same : (*last = value);
}

/* The event's short cut: the class's only open slab is empty and the hand as well, so
 * the blocks go straight back, all of them if they are small. A program that takes and
 * frees a few blocks again and again stays within few instructions, and of larger
 * ones within one block. Nothing is out, so no sender is about. NULL: not now; else the hand,
 * by its plain address. */
static ALWAYS_INLINE block **heap_hand_to_back(heap *h, const slab *s) {
  block **at = heap_hand_at(&h->hot, s->size_class * sizeof *at);
  block **hand = (block **)heap_guessed(&h->hand_guess, (uintptr_t)at);
  uintptr_t otherwise = (uintptr_t)*hand | load_relaxed(&s->reserve) | !heap_slab_is_alone(s); /* one jump for all of them */
  return UNLIKELY(otherwise) ? NULL : hand;
}
/* How many of several; 0: not now. */
static inline uint32_t heap_hand_back_count(const slab *s) {
  if (UNLIKELY(load_relaxed(&s->purged)))
    return 1;
  if (LIKELY(s->threaded * s->block_size <= HAND_BACK_BYTES))
    return s->threaded;
  return !list_empty(&s->sparse) || !heap_program_is_large(); /* else it waits to be purged from now on */
}
/* rest: what stays of the list. For fork: at no moment is a block in two places, at worst in none. */
static ALWAYS_INLINE void heap_hand_back_so_many(block **hand, slab *s, block *b, block *rest, uint32_t count) {
  s->free = rest;
  store_release(&s->need, count);
  compiler_fence();
  *hand = b;
}
static inline bool heap_hand_back_some(block **hand, slab *s, block *b) {
  uint32_t count = heap_hand_back_count(s);
  block *rest = NULL;
  if (UNLIKELY(!count) || !heap_charge(hand, count))
    return false;
  if (UNLIKELY(count == 1)) {
    rest = b->next;
    b->next = NULL;
  }
  heap_hand_back_so_many(hand, s, b, rest, count);
  return true;
}
/* The block that is the only one, told apart: what is then written does not depend on what was just read, for which the
 * next call would have to wait. */
static ALWAYS_INLINE bool heap_hand_back_one(block **hand, slab *s, block *b) {
  if (!heap_charge(hand, 1))
    return false;
  heap_hand_back_so_many(hand, s, b, NULL, 1);
  return true;
}
/* b: the block that was freed, the first of the slab's list. False: not now, or a block may have to be looked at. */
static inline bool heap_hand_back(heap *h, slab *s, block *b) {
  block **hand = heap_hand_to_back(h, s);
  if (!hand)
    return false;
  return b->next ? heap_hand_back_some(hand, s, b) : heap_hand_back_one(hand, s, b);
}
/* After that was false: asks. True: it went back after all, or a slab of larger blocks stays as it would with them in the
 * hand, so that other classes find it. */
internal bool heap_hand_back_asked(heap *h, slab *s);
/* Frees a block of an own slab, as the fast path does. */
internal void heap_free_own(heap *h, slab *s, block *b);

/* At the end of every slow path: now and then what is due by count or by clock. */
internal void heap_upkeep_now(heap *h);
static inline void heap_upkeep(heap *h) {
  uint32_t count = load_relaxed(&h->slow_paths) + 1;
  store_relaxed(&h->slow_paths, count);
  if (UNLIKELY(count % UPKEEP_TICKS == 0))
    heap_upkeep_now(h);
}
/* Takes in all mail, sends all slots, gives back what is empty. */
internal void heap_tidy(heap *h);
/* Gives back the empty slabs and runs that a heap keeps ready. Any thread; returns
 * their bytes. */
internal size_t heap_give_back_spares(heap *h);
/* Empties slots and hands, for a heap that nobody will use for a while. */
internal void heap_flush(heap *h);
/* The memory of every slab and large block of the account goes back, whatever is out;
 * nobody uses the heaps meanwhile. */
internal void heap_release_account(account *a);
/* Afterwards: blank and on no account. */
internal void heap_forget_all(heap *h);
/* In a forked child: recounts the slabs of all heaps marked needs_repair, whose
 * threads were anywhere in a fast path. */
internal void heap_repair_all(void);

/* Returns the number of violated invariants, reporting each. */
internal unsigned heap_check(heap *h);

#endif
