#include "pages/meta.h"

#include "base/atomic.h"
#include "os/lock.h"
#include "os/os.h"

enum { META_ALIGN = 128 };
#define META_CHUNK (1 * MIB)

static struct {
  char *next, *end; /* what is left of the newest chunk; guarded by LOCK_META */
  atomic_u64 used;
} meta;

/* Objects larger than a chunk get a chunk of their own size. Where address space
 * is short, a chunk just large enough is tried. */
static bool meta_refill(size_t size) {
  size_t wanted = max_size(META_CHUNK, ROUND_UP(size, 64 * KIB));
  char *chunk = os_map(wanted, 64 * KIB);
  if (!chunk) {
    wanted = ROUND_UP(size, 64 * KIB);
    chunk = os_map(wanted, 64 * KIB);
  }
  if (!chunk)
    return false;
  os_avoid_huge_pages(chunk, wanted);
  meta.next = chunk;
  meta.end = chunk + wanted;
  return true;
}

internal void *meta_alloc(size_t size) {
  void *object = NULL;
  size = ROUND_UP(size, META_ALIGN);
  lock_take(LOCK_META);
  if (size <= (size_t)(meta.end - meta.next) || meta_refill(size)) {
    object = meta.next;
    meta.next += size;
    add_relaxed(&meta.used, size);
  }
  lock_drop(LOCK_META);
  return object;
}

internal size_t meta_used(void) { return load_relaxed(&meta.used); }
