/* checked: misuse found in checked builds. Every small slab gets two bitmaps: the
 * blocks that are live, and those that were poisoned when they were freed. A misuse
 * prints one line and aborts. In release builds nothing here is called. */
#ifndef MASU_API_CHECKED_H
#define MASU_API_CHECKED_H

#include "heap/slab.h"

/* A block is handed out: it must not be live, its poison untouched. */
internal void checked_take(void *p);
/* A block is freed: it must be the start of a live block. */
internal void checked_give(slab *s, void *p);
/* p must be the start of a live block of s. */
internal void checked_live(slab *s, void *p);
/* What free_sized promises about p. */
internal void checked_sized(void *p, size_t alignment, size_t size);

#endif
