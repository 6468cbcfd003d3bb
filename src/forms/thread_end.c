#include "forms/thread_end.h"

#include "api/thread.h"
#include "forms/hands.h"
#include "forms/sized.h"

/* Values that die may use sized blocks and shared pools, so the scopes go first. */
static void forms_thread_ends(void) {
  scope_thread_ends();
  sized_thread_ends();
  hands_thread_ends();
}

internal bool forms_watch_thread(void) {
  heap *h = thread_enter();
  bool has_end = h && h == thread_heap();
  thread_leave(h);
  store_relaxed(&thread_exit_hook, forms_thread_ends);
  return has_end;
}
