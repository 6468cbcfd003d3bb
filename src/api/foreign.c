#include "api/foreign.h"

#include <errno.h>

#include "os/report.h"

internal_def foreign_allocator foreign_next;

internal void foreign_free(void *p) {
  int saved = errno;
  if (foreign_next.free)
    foreign_next.free(p);
  else
    report("free of a pointer that is not masu's: %p", p);
  errno = saved;
}

internal void *foreign_realloc(void *p, size_t size) {
  if (foreign_next.realloc)
    return foreign_next.realloc(p, size);
  report("realloc of a pointer that is not masu's: %p", p);
  errno = ENOMEM;
  return NULL;
}

internal size_t foreign_usable_size(void *p) {
  return foreign_next.usable_size ? foreign_next.usable_size(p) : 0;
}
