/* foreign: pointers that aren't masu's: memory from before the preload, or from
 * another allocator. They go to the next allocator in link order, which override/
 * finds at start; where there is none, one line names them and they are left alone.
 */
#ifndef MASU_API_FOREIGN_H
#define MASU_API_FOREIGN_H

#include "base/attr.h"

/* NULL until found, or where there is none. */
typedef struct foreign_allocator {
  void (*free)(void *);
  void *(*realloc)(void *, size_t);
  size_t (*usable_size)(void *);
} foreign_allocator;

internal_data foreign_allocator foreign_next;

internal void foreign_free(void *p);
internal void *foreign_realloc(void *p, size_t size);
internal size_t foreign_usable_size(void *p);

#endif
