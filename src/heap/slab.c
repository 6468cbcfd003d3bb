#include "heap/slab.h"

#include <string.h>

#include "heap/mail.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/meta.h"

#define THREAD_STEP (16 * KIB) /* most bytes linked up at a time */

enum { FEW_BLOCKS = 8 };

typedef struct slab_chunk {
  struct slab_chunk *next;
  atomic_u32 taken; /* slabs[0 .. taken) were ever in use */
  _Alignas(128) slab slabs[SLABS_AT_ONCE];
  char unused[SLAB_STAND_IN_BIT];
  slab stand_ins[SLABS_AT_ONCE];
} slab_chunk;

_Static_assert(offsetof(slab_chunk, stand_ins) - offsetof(slab_chunk, slabs) == SLAB_STAND_IN, "");

/* Guarded by LOCK_META. */
static struct {
  slab_chunk *chunks; /* the newest first, the only one not entirely taken */
  slab *unused;       /* recycled descriptors */
} descriptors;

static slab *descriptor_find(void) {
  slab *s = descriptors.unused;
  if (s)
    descriptors.unused = s->queued;
  else if (descriptors.chunks && descriptors.chunks->taken < SLABS_AT_ONCE)
    s = &descriptors.chunks->slabs[add_relaxed(&descriptors.chunks->taken, 1)];
  return s;
}

/* All but the bits, which stay with the descriptor. */
static void clear(slab *s) {
  s->free = NULL;
  store_relaxed(&s->need, 0);
  store_relaxed(&s->threaded, 0);
  store_relaxed(&s->block_size, 0);
  store_relaxed(&s->capacity, 0);
  store_relaxed(&s->size_class, 0);
  store_relaxed(&s->reserve, 0);
  list_init(&s->avail);
  list_init(&s->sparse);
  store_relaxed(&s->mail, 0);
  store_relaxed(&s->owner, NULL);
  s->queued = NULL;
  s->start = NULL;
  s->page = NULL;
  store_relaxed(&s->slices, 0);
  s->waiting = 0;
  store_relaxed(&s->purged, 0);
}

internal slab *slab_descriptor_take(slab_kind kind) {
  lock_take(LOCK_META);
  slab *s = descriptor_find();
  lock_drop(LOCK_META);
  if (!s) {
    slab_chunk *chunk = meta_alloc(sizeof *chunk);
    if (!chunk)
      return NULL;
    s = &chunk->slabs[0];
    store_relaxed(&chunk->taken, 1);
    lock_take(LOCK_META);
    /* If two threads bring a chunk at once, the rest of the older one is found
     * unused only by slab_for_each; it is 32 KiB of address space. */
    chunk->next = descriptors.chunks;
    descriptors.chunks = chunk;
    lock_drop(LOCK_META);
  }
  clear(s);
  store_release(&s->kind, (uint8_t)kind);
  return s;
}

internal void slab_descriptor_give(slab *s) {
  store_release(&s->kind, SLAB_UNUSED);
  lock_take(LOCK_META);
  s->queued = descriptors.unused;
  descriptors.unused = s;
  lock_drop(LOCK_META);
}

internal size_t slab_descriptors_room(size_t count) {
  return (count / SLABS_AT_ONCE + 2) * sizeof(slab_chunk);
}

internal void slab_for_each(void (*visit)(slab *s, void *context), void *context) {
  lock_take(LOCK_META);
  slab_chunk *chunk = descriptors.chunks;
  lock_drop(LOCK_META);
  for (; chunk; chunk = chunk->next)
    for (uint32_t i = 0; i < load_acquire(&chunk->taken); i++)
      if (load_acquire(&chunk->slabs[i].kind) != SLAB_UNUSED)
        visit(&chunk->slabs[i], context);
}

/* All blocks neither live nor poisoned. */
static bool reset_bits(slab *s) {
  if (!CHECKED)
    return true;
  if (s->bits)
    memset(s->bits, 0, sizeof *s->bits);
  else
    s->bits = meta_alloc(sizeof *s->bits);
  return s->bits;
}

internal slab *slab_make(unsigned size_class, unsigned slices, struct heap *owner, map_tag tag, bool dense) {
  run r;
  slab *s = slab_descriptor_take(SLAB_SMALL);
  if (!s)
    return NULL;
  if (!reset_bits(s) ||
      !(dense ? supply_take_dense(slices, &r) : supply_take(slices, 1, &r))) {
    slab_descriptor_give(s);
    return NULL;
  }
  s->start = r.start;
  s->page = r.page;
  store_relaxed(&s->slices, r.slices);
  store_relaxed(&s->block_size, class_size(size_class));
  store_relaxed(&s->capacity, (uint16_t)(slices * SLICE_SIZE / class_size(size_class)));
  store_relaxed(&s->size_class, (uint8_t)size_class);
  store_relaxed(&s->owner, owner);
  mail_init(s);
  map_set(s->start, s->slices, map_entry_of(s, tag));
  return s;
}

/* ---- Blocks that an observer looks at ---- */

static atomic_u64 *seen_of(const slab *s) { return &slab_stand_in(s)->seen; }

static uint64_t seen_bit(const slab *s, const void *p) {
  return (uint64_t)1 << (size_t)((const char *)p - s->start) / s->block_size;
}

internal void slab_watch_all(slab *s, map_tag tag) {
  slab *instead = slab_stand_in(s);
  store_relaxed(&instead->need, 1);
  store_relaxed(&instead->reserve, 1);
  store_relaxed(&instead->size_class, s->size_class);
  map_set(s->start, s->slices, map_entry_of(instead, tag));
}

internal void slab_see(slab *s, const block *b, map_tag tag) {
  or_relaxed(seen_of(s), seen_bit(s, b));
  if (!slab_is_watched(s))
    slab_watch_all(s, tag);
}

internal bool slab_sees(slab *s, const void *p) { return load_relaxed(seen_of(s)) & seen_bit(s, p); }

internal bool slab_unsee(slab *s, const void *p) {
  return slab_sees(s, p) && and_relaxed(seen_of(s), ~seen_bit(s, p)) & seen_bit(s, p);
}

/* Only the owner adds to them. */
internal void slab_watch_no_more(slab *s, map_tag tag) {
  if (!load_relaxed(seen_of(s)))
    map_set(s->start, s->slices, map_entry_of(s, tag));
}

/* ---- Its run ---- */

internal void slab_return_run(run r) {
  map_set(r.start, r.slices, MAP_NONE);
  supply_give(r.page, r.start, r.slices);
}

internal void slab_release(slab *s) {
  slab_return_run(slab_run(s));
  slab_descriptor_give(s);
}

/* One page first, so that a slab which is hardly used touches hardly any memory, or
 * two if that is only a few blocks; then as much as is threaded already, up to the
 * step. */
internal uint32_t slab_unthreaded_step(const slab *s) {
  size_t few = min_size(FEW_BLOCKS * s->block_size, 2 * os_page());
  size_t bytes = max_size(max_size(os_page(), few), s->threaded * s->block_size);
  size_t count = max_size(min_size(bytes, THREAD_STEP) / s->block_size, 1);
  return (uint32_t)min_size(count, s->capacity - s->threaded);
}

internal block *slab_chain(slab *s, uint32_t number, uint32_t count) {
  char *first = s->start + number * s->block_size;
  char *last = first + (count - 1) * s->block_size;
  for (char *b = first; b < last; b += s->block_size)
    ((block *)b)->next = (block *)(b + s->block_size);
  ((block *)last)->next = NULL;
  return (block *)first;
}

internal block *slab_thread(slab *s, uint32_t count) {
  uint32_t threaded = load_relaxed(&s->threaded);
  block *chain = slab_chain(s, threaded, count);
  store_relaxed(&s->threaded, threaded + count);
  return chain;
}
