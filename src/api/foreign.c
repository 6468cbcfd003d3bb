#include "api/foreign.h"

#include <errno.h>

#include "api/thread.h"
#include "os/report.h"

internal_def foreign_allocator foreign_next;

/* Checked builds. A block of it was freed long ago, or went with its heap. */
static void check_foreign(const void *p, const char *what) {
  if (thread_busy)
    return;
  heap *h = thread_enter_if_joined();
  bool owned = supply_owns(p);
  thread_leave(h);
  if (owned)
    report_misuse(what, p);
}

internal void foreign_free(void *p) {
  int saved = errno;
  if (CHECKED)
    check_foreign(p, "free of a pointer into free memory");
  if (foreign_next.free)
    foreign_next.free(p);
  else
    report("free of a pointer that is not masu's: %p", p);
  errno = saved;
}

internal void *foreign_realloc(void *p, size_t size) {
  if (CHECKED)
    check_foreign(p, "realloc of a pointer into free memory");
  if (foreign_next.realloc)
    return foreign_next.realloc(p, size);
  report("realloc of a pointer that is not masu's: %p", p);
  errno = ENOMEM;
  return NULL;
}

internal size_t foreign_usable_size(void *p) {
  return foreign_next.usable_size ? foreign_next.usable_size(p) : 0;
}
