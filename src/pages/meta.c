#include "pages/meta.h"

#include "base/atomic.h"
#include "os/lock.h"
#include "os/os.h"

/* At the start of a page lies what programs touch most, and all of it competes for the same
 * sets of the cache: what masu has of a thread doesn't begin there. */
enum { META_ALIGN = 128, META_SKEW = 5 * META_ALIGN };
#define META_CHUNK (1 * MIB)

/* At the start of each chunk. */
typedef struct meta_chunk {
  struct meta_chunk *before;
  size_t size; /* bytes, all of it */
} meta_chunk;
_Static_assert(sizeof(meta_chunk) <= META_SKEW, "in front of the first object");

static struct {
  char *next, *end; /* what is left of the newest chunk; guarded by LOCK_META */
  meta_chunk *chunks;
  atomic_u64 used;
} meta;

/* Objects larger than a chunk get a chunk of their own size. Where address space
 * is short, a chunk just large enough is tried. */
static bool meta_refill(size_t size) {
  size = ROUND_UP(size + META_SKEW, 64 * KIB);
  size_t wanted = max_size(META_CHUNK, size);
  meta_chunk *chunk = os_map(wanted, os_page());
  if (!chunk) {
    wanted = size;
    chunk = os_map(wanted, os_page());
  }
  if (!chunk)
    return false;
  os_avoid_huge_pages(chunk, wanted);
  *chunk = (meta_chunk){meta.chunks, wanted};
  meta.chunks = chunk;
  meta.next = (char *)chunk + META_SKEW;
  meta.end = (char *)chunk + wanted;
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

internal bool meta_prewarm(size_t size) {
  lock_take(LOCK_META);
  bool room = size <= (size_t)(meta.end - meta.next) || meta_refill(size);
  if (room) /* adding 0 is harmless to what is there */
    for (char *p = meta.chunks ? (char *)meta.chunks : meta.end; p < meta.end; p += os_page())
      add_relaxed((_Atomic(char) *)p, 0);
  lock_drop(LOCK_META);
  return room;
}

/* Chunks stay, and come in front. */
static meta_chunk *newest_chunk(void) {
  lock_take(LOCK_META);
  meta_chunk *c = meta.chunks;
  lock_drop(LOCK_META);
  return c;
}

internal int meta_lock(bool lock) {
  int why = 0;
  for (meta_chunk *c = newest_chunk(); c && !why; c = c->before)
    why = os_lock_memory(c, c->size, lock);
  return why;
}

internal void meta_for_each(void (*visit)(void *start, size_t size, void *context), void *context) {
  for (meta_chunk *c = newest_chunk(); c; c = c->before)
    visit(c, c->size, context);
}

static void add_resident(void *start, size_t size, void *bytes) {
  *(size_t *)bytes += os_resident_in(start, size);
}

internal size_t meta_resident(void) {
  size_t bytes = 0;
  meta_for_each(add_resident, &bytes);
  return bytes;
}

internal size_t meta_used(void) { return load_relaxed(&meta.used); }
