/* latency: memory that is prepared before it is needed. */
#include <errno.h>

#include "api/malloc.h"
#include "api/thread.h"
#include "pages/meta.h"

/* Adds the bytes of the runs that `count` blocks of a size take, those of several slices as
 * they fit into huge pages; false: too many. */
static bool add_room(size_t size, size_t count, size_t *total) {
  size_t slices = ROUND_UP(max_size(size, 1), SLICE_SIZE) >> SLICE_SHIFT, runs = count, room;
  if (!count)
    return true;
  if (size <= SMALL_MAX) {
    unsigned c = class_of(size);
    slices = class_slices(c);
    runs = count / class_capacity(c) + 1;
  }
  size_t in_page = HUGE_SLICES / slices, pages = runs / in_page + (runs % in_page != 0);
  bool over = slices == 1 ? __builtin_mul_overflow(runs, SLICE_SIZE, &room)
                          : __builtin_mul_overflow(pages, HUGE_SIZE, &room);
  return !over && !__builtin_add_overflow(*total, room, total) && *total <= LARGE_MOST;
}

/* Runs are whole slices, and each may need a descriptor. */
static bool prepare_room(size_t bytes) {
  heap *h = thread_enter();
  bool done = (!bytes || meta_prewarm(slab_descriptors_room(bytes / SLICE_SIZE))) && supply_prewarm(bytes);
  thread_leave(h);
  return done;
}

PUBLIC int masu_prewarm(size_t bytes, const masu_prewarm_class *classes, size_t n) {
  if (thread_busy || bytes > LARGE_MOST)
    return ENOMEM;
  size_t total = ROUND_UP(bytes, HUGE_SIZE);
  for (size_t i = 0; i < n; i++) {
    if (classes[i].size > HUGE_SIZE)
      return EINVAL;
    if (!add_room(classes[i].size, classes[i].count, &total))
      return ENOMEM;
  }
  if (n && !total)
    return 0;
  for (size_t i = 0; i < n; i++)
    masu_free(masu_malloc(classes[i].size)); /* what the class itself needs */
  return prepare_room(total) ? 0 : ENOMEM;
}

PUBLIC int masu_lock(int lock) {
  if (thread_busy)
    return ENOMEM;
  heap *h = thread_enter();
  int why = supply_lock(lock);
  if (!why)
    why = meta_lock(lock);
  if (why && lock) {
    supply_lock(false);
    meta_lock(false);
  }
  thread_leave(h);
  return why;
}
