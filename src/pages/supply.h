/* supply: hands out runs of slices, takes them back, and gives idle memory to the
 * system.
 *
 * Address space is reserved in regions. A region is cut into huge pages of 32
 * slices; for each there is an hpage. Invariants, under LOCK_SUPPLY:
 *
 *     used: slices handed out, or in transit (a system call on them is pending)
 *     dirty: slices that may be resident; idle subset of dirty & ~used
 *     longest == length of the longest run of zero bits in `used`
 *     the hpage is on a bin (bins.h) once committed, on none before
 *     figures.idle == sum over hpages of |dirty & ~used| slices
 *     figures.used == sum over hpages of slices handed out
 *
 * Runs come from the committed hpage whose longest free run is the shortest that
 * fits, so that the others can empty. System calls are made without the lock: their
 * slices stand in `used` meanwhile.
 *
 * In a large program (option huge_pages) runs that are dense, of which nearly every byte
 * will be used, come from pages of their own. Those are huge pages of the system's as well, from
 * when they are made accessible until a part is purged: as such a page is resident whole,
 * other runs may have what is left of it before more is made accessible. One that is purged whole
 * counts as not committed: others are used first.
 *
 * Threads: any. Locks: takes LOCK_SUPPLY, then LOCK_MAPPINGS or LOCK_META.
 */
#ifndef MASU_PAGES_SUPPLY_H
#define MASU_PAGES_SUPPLY_H

#include "pages/bins.h"
#include "pages/slice.h"

/* Consecutive slices of one hpage. */
typedef struct run {
  char *start;
  hpage *page;
  unsigned slices; /* 1 .. HUGE_SLICES */
  bool zeroed;     /* all bytes are known to be zero */
} run;

/* align: in slices, a power of two, at most HUGE_SLICES. False: out of memory.
 * The pagemap is prepared for the run. */
internal bool supply_take(unsigned slices, unsigned align, run *out);
/* The same for a run of which nearly every byte will be used. */
internal bool supply_take_dense(unsigned slices, run *out);
/* The run's pagemap entries must be MAP_NONE. */
internal void supply_give(hpage *page, char *start, unsigned slices);
/* Makes the run longer where it stands; false: what follows is not free. */
internal bool supply_extend(hpage *page, char *start, unsigned from, unsigned to);

/* Purges by age; at most about `budget` bytes of slices. Returns the bytes purged. */
internal size_t supply_purge_aged(uint64_t now, size_t budget);
/* Is there anything that will be purged by age? */
internal bool supply_is_aging(void);
/* Purges whatever is idle beyond `keep` bytes, and unmaps regions that are
 * entirely free if keep is 0. Returns the bytes of memory and address space given
 * back; 0 says that a second try at what failed is in vain. */
internal size_t supply_purge_all(size_t keep);
/* Waits a while for the runs in transit; true if there were any. */
internal bool supply_settle(void);

/* So many more bytes of free slices are resident from now on, with their entries in the
 * map, and stay so while they are free. False: out of memory. 0: what was prepared ages
 * like the rest again. */
internal bool supply_prewarm(size_t size);
internal bool supply_is_prewarmed(void);
/* Does p lie in a region? What is there is masu's, handed out or not. */
internal bool supply_owns(const void *p);
/* All memory that was made accessible, as os_lock_memory. */
internal int supply_lock(bool lock);

/* Blocks above a huge page (mappings.h) under the same figures and the same policy.
 * align: in bytes. NULL: out of memory. *dirty: so many bytes at the start may not be
 * zero. */
internal char *supply_map(size_t slices, size_t align, size_t *dirty);
/* A whole mapping, or the end of one. */
internal void supply_unmap(char *start, size_t slices);
/* Make a mapping longer: where it stands, or somewhere else. False, NULL: refused,
 * nothing changed. */
internal bool supply_extend_mapping(char *start, size_t from, size_t to);
internal char *supply_move_mapping(char *start, size_t from, size_t to);

/* Before a part of a page is purged: else the system would fill it up again. */
internal void supply_split(hpage *page);
/* Empty pages inside slabs, which are the heaps' business, under the same policy: how
 * many bytes it regrets now; so many were purged; so many of those are used again. */
internal size_t supply_regretted(void);
internal void supply_note_purged(size_t size);
internal void supply_note_sparse_reuse(size_t size);
/* figures.used and figures.peak, read without the lock. */
internal size_t supply_used(void);
internal size_t supply_peak(void);

/* For fork, with LOCK_SUPPLY held: is a run in transit; and in the child, where
 * the threads that would finish are gone: there is none (their slices are lost). interrupted: a
 * signal handler forks, and the caller itself may be at work here. */
internal bool supply_in_transit(void);
internal void supply_fork_child(bool interrupted);
/* With a helper, it alone purges by age; without, whoever gives memory back. */
internal void supply_set_helped(bool helped);

/* All in bytes. */
typedef struct supply_figures {
  size_t reserved;  /* address space */
  size_t committed; /* of it accessible */
  size_t used;      /* in runs handed out */
  size_t direct;    /* in mappings outside the regions */
  size_t peak;      /* the most that used and direct together ever were */
  size_t idle;      /* in the regions, free and possibly resident */
  size_t kept;      /* in mappings given back, kept for reuse */
  size_t prewarmed; /* to be kept free and resident: what supply_prewarm asked for */
  size_t returned;  /* purged, summed up since start */
} supply_figures;
internal supply_figures supply_figures_now(void);
/* Bytes of the regions that are resident: asks the system page by page. Regions may come and
 * go meanwhile. */
internal size_t supply_resident(void);

/* Returns the number of violated invariants, reporting each. */
internal unsigned supply_check(void);

#endif
