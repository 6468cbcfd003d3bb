/* slab: a run of equal blocks, and the descriptor of every block there is.
 *
 * Descriptors lie out of line, 128 bytes each: the first cache line belongs to the
 * owner, the second is what other threads touch. They keep their type forever.
 * Large blocks use the same descriptor: a run or a mapping with one block.
 *
 * Invariants of a small slab (see mail.h for the states):
 *
 *     but DEAD:         threaded == |free| + need + reserve + sparse_blocks,
 *                       need == 0 implies reserve == 0
 *     OPEN:             the slab is on avail of its owner, or among its spares with
 *                       need == 0
 *     PARKED, QUEUED:   threaded == capacity, nothing is purged
 *     DEAD:             the run is gone; the descriptor is still on the owner's avail
 *                       list or queue, who recycles it
 *     blocks [0, threaded) have been handed out at least once, the rest never
 *
 * `need` and `reserve` together count the blocks that the owner does not see as free:
 * held by the program, ready in the owner's hand, in a sender's slot, or in the mail.
 * free() counts need down; when it gets to 0 there is something to do
 * (heap_slab_event): the slab is empty, or it is down to what was held back in
 * reserve. Of an OPEN slab that is so little that it has become sparse; of a PARKED
 * or QUEUED one nearly all: a few blocks of it are free again and make it worth to be
 * opened.
 *
 * What figures are made of is atomic, for whoever reads them meanwhile; only the
 * owner writes it.
 *
 * Only the owner writes need and reserve. Senders read reserve, need, and reserve again: when the
 * mail holds as many blocks as both together, nothing of the slab is out, and the sender
 * may end it (mail_publish). So before the owner takes blocks out, he
 * raises need first and changes the mail word second; whoever counted on the old need
 * fails on the new version. Before he lowers reserve he does the same (to 0 he may at
 * any time, with need raised: who sees it so sees that), and before he lowers need for the sake of
 * reserve he raises reserve.
 */
#ifndef MASU_HEAP_SLAB_H
#define MASU_HEAP_SLAB_H

#include "base/atomic.h"
#include "base/list.h"
#include "heap/sizes.h"
#include "pages/pagemap.h"
#include "pages/supply.h"

/* A free block holds the link to the next one. */
typedef struct block {
  struct block *next;
} block;

typedef enum slab_kind {
  SLAB_UNUSED, /* a descriptor without memory */
  SLAB_SMALL,
  SLAB_RUN,    /* one block in a run of the supply */
  SLAB_DIRECT, /* one block in a mapping of its own */
  SLAB_NESTED, /* a mapping made by a signal handler; the descriptor lies in it */
} slab_kind;

struct heap;

/* Checked builds: one bit a block, by index. */
typedef struct slab_bits {
  atomic_u64 live[SLICE_SIZE / 8 / 64];
  atomic_u64 poisoned[SLICE_SIZE / 8 / 64]; /* was filled with a pattern when freed */
} slab_bits;

typedef struct slab {
  /* The owner's line. */
  _Alignas(64) block *free;
  atomic_u32 need; /* written by the owner only */
  atomic_u32 threaded;
  atomic_word block_size; /* usable bytes of a block */
  atomic_u16 capacity;
  atomic_u8 size_class;
  atomic_u8 kind;
  uint32_t waiting; /* on a list of sparse slabs: its bytes; a sampled large block: its weight */
  list_node avail;  /* on the owner's list of OPEN slabs of the class */
  list_node sparse; /* on one of the owner's lists of sparse slabs */

  /* Everybody's line. start, slices and page do not change while a block of the
   * slab is out. */
  _Alignas(64) atomic_u64 mail;
  _Atomic(struct heap *) owner;
  struct slab *queued; /* next on the owner's queue, or on a list of unused ones */
  char *start;         /* the first block */
  hpage *page;         /* of a run */
  atomic_u32 slices;   /* of the run or mapping, at least 1 */
  atomic_u32 reserve;  /* held back from need; written by the owner only */
  union {
    atomic_u64 purged; /* written by the owner only: see sparse.h */
    _Atomic(struct heap *) claimed; /* a large block: in whose front it may wait (front.h), or NULL */
    atomic_u64 seen; /* a stand-in: one bit a block, by index, see slab_see. 0 unless the slab is watched */
  };
  slab_bits *bits; /* checked builds; stays with the descriptor */
} slab;

_Static_assert(sizeof(slab) == 128, "two cache lines");

/* Of a watched slab the page map has another descriptor, which stands in for its own. So the free of the thread whose tag is
 * there, which asks nothing, leaves the block on that one's list and comes to an event each time (need is 1), which finds no
 * hand for it (reserve is 1, size_class the slab's). By another tag it would take a jump that else it never takes, and a
 * processor that has seen a jump taken may be slower by a cycle for each pair from then on: docs/experiments.md.
 * Of its other fields only `seen` is used.
 * Each descriptor has one, so far behind it: descriptors lie at multiples of 128 bytes, these between them. */
enum { SLABS_AT_ONCE = 128, SLAB_STAND_IN_BIT = 64, SLAB_STAND_IN = SLABS_AT_ONCE * sizeof(slab) + SLAB_STAND_IN_BIT };
static inline slab *slab_stand_in(const slab *s) { return (slab *)((char *)s + SLAB_STAND_IN); }
static inline bool slab_is_stand_in(const void *descriptor) { return (uintptr_t)descriptor & SLAB_STAND_IN_BIT; }
static inline slab *slab_stood_for(const void *descriptor) {
  return (slab *)((char *)descriptor - (slab_is_stand_in(descriptor) ? SLAB_STAND_IN : 0));
}
/* The slab that an entry of the page map is about, and does another descriptor stand in for its own there? */
static inline slab *slab_of_entry(map_entry e) { return slab_stood_for(map_entry_descriptor(e)); }
static inline bool slab_entry_is_watched(map_entry e) { return slab_is_stand_in(map_entry_descriptor(e)); }
/* Is the entry that of a small slab with that tag which isn't watched? Above the tag there are the zeros of a descriptor, and
 * the bit. */
static inline bool slab_entry_is_plain(map_entry e, map_tag tag) {
  return ((uint32_t)e & ((SLAB_STAND_IN_BIT << 17) - 1)) == tag;
}

/* A slab of the class for `owner`, OPEN, nothing threaded, with its pagemap entries. slices: those of
 * the class or a multiple. dense: nearly all of it will be used. NULL: out of memory. */
internal slab *slab_make(unsigned size_class, unsigned slices, struct heap *owner, map_tag tag, bool dense);
/* What of a slab remains to be returned when its descriptor may be gone already. */
static inline run slab_run(const slab *s) {
  return (run){s->start, s->page, s->slices, false};
}
/* So many of his own frees open a slab for its owner. */
static inline uint32_t slab_wake(const slab *s) {
  return 1 + s->capacity / 10;
}
/* From now on all frees of its blocks take the slow path, also of those whose tag that is: its owner's, or of slabs
 * of which all blocks are looked at anybody's. */
internal void slab_watch_all(slab *s, map_tag tag);
static inline bool slab_is_watched(const slab *s) { return slab_entry_is_watched(map_get(s->start)); }
/* An observer wants to see the block freed, which the owner has not given out yet: from now on the slab is watched. Who frees
 * another block meanwhile may read either entry: both lead to the mail if he isn't the owner. Slabs of blocks from
 * SLAB_SEEN_LEAST bytes on, which have at most 64. */
enum { SLAB_SEEN_LEAST = SLICE_SIZE / 64 };
internal void slab_see(slab *s, const block *b, map_tag tag);
/* Is the block, which is the caller's, one of those? slab_unsee: and no more from now on. */
internal bool slab_sees(slab *s, const void *p);
internal bool slab_unsee(slab *s, const void *p);
/* The owner, who has a block of the slab out: if there are none of those any more, it is watched no more. */
internal void slab_watch_no_more(slab *s, map_tag tag);
/* Clears the pagemap, returns the run to the supply. */
internal void slab_return_run(run r);
/* slab_return_run, and the descriptor may be used again. */
internal void slab_release(slab *s);
/* How many blocks slab_thread will link up next; 0: all are. */
internal uint32_t slab_unthreaded_step(const slab *s);
/* Links up the next `count` blocks and returns them as a chain in address order;
 * they must be in need already. */
internal block *slab_thread(slab *s, uint32_t count);
/* Links up count blocks, at least 1, beginning with block number `first`. */
internal block *slab_chain(slab *s, uint32_t first, uint32_t count);

/* A descriptor of kind `kind`, the rest zero; NULL: out of memory. */
internal slab *slab_descriptor_take(slab_kind kind);
internal void slab_descriptor_give(slab *s);

/* Bytes of masu's own memory that so many more descriptors may take. */
internal size_t slab_descriptors_room(size_t count);
/* Calls visit for every descriptor in use. The caller sees to it that none comes
 * or goes meanwhile, or bears with one that is half made. */
internal void slab_for_each(void (*visit)(slab *s, void *context), void *context);

#endif
