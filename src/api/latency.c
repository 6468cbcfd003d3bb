/* latency: memory that is prepared before it is needed. */
#include <errno.h>

#include "api/malloc.h"
#include "api/thread.h"
#include "pages/meta.h"

/* The bytes of runs that `count` blocks of a size take at most; 0: too many. */
static size_t room_for(size_t size, size_t count) {
  size_t each = ROUND_UP(max_size(size, 1), SLICE_SIZE), total;
  if (size <= SMALL_MAX) {
    unsigned c = class_of(size);
    each = class_slices[c] * SLICE_SIZE;
    count = count / class_capacity(c) + 1;
  }
  return __builtin_mul_overflow(each, count, &total) ? 0 : total;
}

/* Runs are whole slices; and each may need a descriptor. */
static bool prepare_room(size_t bytes) {
  heap *h = thread_enter();
  bool done = meta_prewarm(bytes / SLICE_SIZE * sizeof(slab)) && supply_prewarm(bytes);
  thread_leave(h);
  return done;
}

PUBLIC int masu_prewarm(size_t bytes, const masu_prewarm_class *classes, size_t n) {
  size_t total = ROUND_UP(min_size(bytes, LARGE_MOST), SLICE_SIZE);
  if (thread_busy || bytes > LARGE_MOST)
    return ENOMEM;
  for (size_t i = 0; i < n; i++) {
    size_t room = room_for(classes[i].size, classes[i].count);
    if (classes[i].size > HUGE_SIZE)
      return EINVAL;
    if (!room || __builtin_add_overflow(total, room, &total) || total > LARGE_MOST)
      return ENOMEM;
    masu_free(masu_malloc(classes[i].size)); /* what the class itself needs */
  }
  if (!bytes && !n)
    return prepare_room(0) ? 0 : ENOMEM;
  return prepare_room(total) ? 0 : ENOMEM;
}

PUBLIC int masu_lock(int lock) {
  if (thread_busy)
    return EAGAIN;
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
