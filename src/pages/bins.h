/* bins: committed pages of 2 MiB by the room that is in them.
 *
 * A page is on the bin of its longest free run, and a run comes from the page whose longest
 * free run is the shortest that fits, so that the others can empty. Dense pages (supply.h) have
 * bins of their own.
 *
 * Threads: LOCK_SUPPLY guards pages and bins.
 */
#ifndef MASU_PAGES_BINS_H
#define MASU_PAGES_BINS_H

#include <limits.h>

#include "base/atomic.h"
#include "base/list.h"
#include "pages/slice.h"

struct region;

/* See supply.h. */
typedef struct hpage {
  list_node bin;   /* on a bin, or on the list of pages that are not committed */
  list_node aging; /* pages with idle slices, by time of last visit */
  char *base;
  struct region *region;
  uint32_t used, dirty;
  uint32_t idle;       /* free and dirty already when last visited */
  uint32_t untouched;  /* of a huge page: resident with the rest, but never used: zero */
  uint32_t purged;     /* purged at purged_at, not used since */
  uint64_t visited;    /* ms */
  uint64_t purged_at;  /* ms */
  uint8_t longest;
  bool committed;
  bool prewarmed; /* never ages */
  bool dense;         /* for runs of which nearly every byte is used */
  _Atomic(bool) huge; /* the system was asked to make it one page */
} hpage;

#define BINS_ALL UINT_MAX /* looks */

/* Before anything else. */
internal void bins_prepare(void);
/* By page->used, which is not to change in between. */
internal void bins_enter(hpage *page);
internal void bins_leave(hpage *page);
/* A page with room for a run, and the bits at which it may start. align: in slices, a power of
 * two. Pages of either kind, those for such runs first; a dense run rather has a new page than what
 * is free between others. Where that is not certain to be found no more than `looks` pages are
 * tried. */
internal hpage *bins_find(bool dense, unsigned slices, unsigned align, unsigned looks,
                          uint32_t *starts);

#endif
