/* regions: reservations of address space, cut into pages of 2 MiB.
 *
 * A region is reserved without access and without charge; its pages are made accessible by
 * the supply, from the low end on. Structs of regions that are gone are used again.
 *
 * Threads: LOCK_SUPPLY guards everything here.
 */
#ifndef MASU_PAGES_REGIONS_H
#define MASU_PAGES_REGIONS_H

#include "pages/bins.h"

typedef struct region {
  struct region *next; /* of all regions, or of the unused structs */
  char *base;
  unsigned count;    /* huge pages */
  unsigned touched;  /* pages[0 .. touched) were ever committed or tried */
  unsigned used;     /* hpages with used != 0 */
  hpage *pages;      /* room for `room` of them */
  unsigned room;
} region;

/* All of them, linked by next. */
internal region *regions_first(void);

/* A page that is not committed: one that was put back, or the next that never was. NULL: all
 * are. */
internal hpage *regions_next_page(void);
/* Such a page is not committed, or no longer: it comes before those that never were. first: and
 * before others that were put back. */
internal void regions_put_back(hpage *page, bool first);

/* One region more; bytes of its address space, 0: none is to be had. `reserved`: of all
 * that there are. Called and left with the lock held, drops it for the system
 * call. */
internal size_t regions_add(size_t reserved);
/* Takes a region of which nothing is used off the list; NULL: there is none. Its pages are the
 * caller's to forget, its address space to unmap. */
internal region *regions_take_empty(void);
/* Keeps its struct for another one. */
internal void regions_forget(region *r);

#endif
