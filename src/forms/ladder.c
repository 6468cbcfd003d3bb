/* ladder: a list of growing pools behind one malloc, realloc and free (masu/fixed.h).
 *
 * A step's blocks lie in chunks of 1 MiB, aligned to their size, so that a block's address
 * leads to its chunk, whose first 64 bytes say which step it is of. Addresses that are
 * multiples of a slice are blocks above the last step; a step's block that would start there
 * is never used.
 *
 *     step:  |ready| + blocks in use == sum of made - unused over its chunks
 */
#include "masu/fixed.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/list.h"
#include "forms/named.h"
#include "heap/sizes.h"
#include "heap/slab.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/slice.h"

enum { STEPS = 64, CHUNK_HEAD = 64 };
#define LADDER_CHUNK MIB
#define LADDER_MOST (256 * KIB)

typedef struct ladder_step {
  void *ready;
  size_t size;
  list_node chunks; /* the one that isn't made entirely comes first */
} ladder_step;

typedef struct ladder_chunk {
  masu_ladder *ladder;
  ladder_step *step;
  list_node list;
  uint32_t made, capacity;
  uint32_t unused; /* of those made */
  uint32_t free;   /* while trimming */
} ladder_chunk;
_Static_assert(sizeof(ladder_chunk) <= CHUNK_HEAD, "before the first block");

struct masu_ladder {
  size_t count, held, live; /* bytes of chunks; blocks in use */
  masu_heap *heap;
  tenant tenant;
  uint8_t by_size[LADDER_MOST / 16 / 16 + 1]; /* steps by size / 16 up to 16 KiB */
  ladder_step step[STEPS];
};

static ladder_chunk *ladder_chunk_of(const void *p) {
  return (ladder_chunk *)((uintptr_t)p & ~(uintptr_t)(LADDER_CHUNK - 1));
}
static bool is_above_steps(const void *p) { return (uintptr_t)p % SLICE_SIZE == 0; }
static char *ladder_block(const ladder_chunk *c, uint32_t i) {
  return (char *)c + CHUNK_HEAD + i * c->step->size;
}

/* ---- Coming and going ---- */

static void ladder_figures(const tenant *t, size_t *used, size_t *held) {
  const masu_ladder *l = CONTAINER_OF(t, masu_ladder, tenant);
  *used = tenant_peek(&l->live);
  *held = tenant_peek(&l->held);
}

/* Four in each doubling, 16 apart at first: of a block at most a fifth is lost, or 15 bytes. */
static size_t usual_step(size_t before) {
  return before + (before < 64 ? 16 : (size_t)1 << (bit_high64(before) - 2));
}

/* steps NULL: the usual ones. */
static bool set_steps(masu_ladder *l, const size_t *steps, size_t count) {
  size_t i = 0, before = 0;
  for (; steps ? i < count : before < LADDER_MOST; i++) {
    size_t size = steps ? steps[i] : usual_step(before);
    if (size <= before || size > LADDER_MOST)
      return false;
    l->step[i].size = size <= 8 && !CHECKED ? 8 : ROUND_UP(size, 16);
    list_init(&l->step[i].chunks);
    before = size;
  }
  l->count = count = i;
  for (size_t at = i = 0; at < sizeof l->by_size; at++) {
    while (i < count && l->step[i].size < at * 16)
      i++;
    l->by_size[at] = (uint8_t)i;
  }
  return true;
}

PUBLIC masu_ladder *masu_ladder_create_in(masu_heap *in, const char *name, const size_t *steps,
                                          size_t count) {
  if (steps && (!count || count > STEPS)) {
    errno = EINVAL;
    return NULL;
  }
  masu_ladder *l = tenant_make(in, sizeof *l, 16);
  if (!l)
    return NULL;
  memset(l, 0, sizeof *l);
  l->heap = in;
  if (!set_steps(l, steps, count)) {
    masu_free(l);
    errno = EINVAL;
    return NULL;
  }
  l->tenant = (tenant){.figures = ladder_figures};
  tenant_join(&l->tenant, in, "ladder", name);
  form_taken(in);
  return l;
}

static void drop_chunks(masu_ladder *l, ladder_step *s, bool all) {
  for (list_node *n = s->chunks.next, *next; n != &s->chunks; n = next) {
    ladder_chunk *c = CONTAINER_OF(n, ladder_chunk, list);
    next = n->next;
    if (!all && c->free != c->made - c->unused)
      continue;
    list_remove(n);
    l->held -= LADDER_CHUNK;
    masu_free(c);
  }
}

PUBLIC void masu_ladder_destroy(masu_ladder *l) {
  if (!l)
    return;
  tenant_used(&l->tenant, l);
  for (size_t i = 0; i < l->count; i++)
    drop_chunks(l, &l->step[i], true);
  tenant_end(&l->tenant, l);
}

/* ---- Checked builds ---- */

/* There free blocks bear a mark in their second word, for which a step has 16 bytes at least;
 * whether one that bears it is free, its step's list says. */
static uintptr_t *mark_of(void *p) { return (uintptr_t *)p + 1; }
static uintptr_t free_mark(const void *p) { return ~(uintptr_t)p; }

/* p must be a block of a step, and in use: if_free says what else it is. */
static void check_block(const masu_ladder *l, void *p, const char *if_free) {
  const ladder_chunk *c = ladder_chunk_of(p);
  map_entry e = map_get(c);
  const slab *s = map_entry_descriptor(e);
  size_t offset = (size_t)((const char *)p - (const char *)c - CHUNK_HEAD);
  if (e == MAP_NONE || s->kind != SLAB_RUN || s->start != (const char *)c || c->ladder != l ||
      offset % c->step->size || offset / c->step->size >= c->made)
    report_misuse("a pointer that is no block of this ladder", p);
  for (char *b = *mark_of(p) == free_mark(p) ? c->step->ready : NULL; b; b = *(masu_link *)b)
    if (b == p)
      report_misuse(if_free, p);
}

/* ---- Allocating ---- */

static void put_ready(ladder_step *s, void *p) {
  *(masu_link *)p = s->ready;
  s->ready = p;
  if (CHECKED)
    *mark_of(p) = free_mark(p);
}

static ladder_chunk *add_ladder_chunk(masu_ladder *l, ladder_step *s) {
  size_t dirty;
  ladder_chunk *c = form_take(l->heap, LADDER_CHUNK, LADDER_CHUNK, &dirty);
  if (!c)
    return NULL;
  *c = (ladder_chunk){.ladder = l, .step = s};
  c->capacity = (uint32_t)((LADDER_CHUNK - CHUNK_HEAD) / s->size);
  list_push_front(&s->chunks, &c->list);
  l->held += LADDER_CHUNK;
  return c;
}

static bool grow_step(masu_ladder *l, ladder_step *s) {
  ladder_chunk *c = list_empty(&s->chunks) ? NULL : CONTAINER_OF(s->chunks.next, ladder_chunk, list);
  if ((!c || c->made == c->capacity) && !(c = add_ladder_chunk(l, s)))
    return false;
  size_t n = min_size(max_size(os_page() / s->size, 1), c->capacity - c->made);
  for (size_t i = n; i-- > 0;) {
    char *b = ladder_block(c, c->made + (uint32_t)i);
    if (UNLIKELY(is_above_steps(b))) {
      c->unused++;
      continue;
    }
    put_ready(s, b);
  }
  c->made += (uint32_t)n;
  return s->ready || grow_step(l, s);
}

static ladder_step *step_for(masu_ladder *l, size_t size) {
  size_t i = min_size(size, LADDER_MOST + 1) / 16 + (size % 16 != 0);
  if (i < sizeof l->by_size) {
    i = l->by_size[i];
    i -= i && size <= l->step[i - 1].size; /* a step of 8 */
  } else {
    for (i = l->by_size[sizeof l->by_size - 1]; i < l->count && l->step[i].size < size;)
      i++;
  }
  return i < l->count ? &l->step[i] : NULL;
}

static COLD void *take_above_steps(masu_ladder *l, size_t size) {
  size_t dirty;
  void *p = form_take(l->heap, size, SLICE_SIZE, &dirty);
  form_taken(l->heap);
  return p;
}

static inline void *take_ready(masu_ladder *l, ladder_step *s) {
  void *p = s->ready;
  s->ready = *(masu_link *)p;
  if (CHECKED)
    *mark_of(p) = 0;
  l->live += s->size;
  return p;
}

static NOINLINE void *take_growing(masu_ladder *l, ladder_step *s) {
  if (!grow_step(l, s))
    return NULL;
  void *p = take_ready(l, s);
  form_taken(l->heap);
  return p;
}

PUBLIC void *masu_ladder_alloc(masu_ladder *l, size_t size) {
  tenant_used(&l->tenant, l);
  ladder_step *s = step_for(l, size);
  if (UNLIKELY(!s))
    return take_above_steps(l, size);
  return LIKELY(s->ready) ? take_ready(l, s) : take_growing(l, s);
}

PUBLIC void masu_ladder_free(masu_ladder *l, void *p) {
  tenant_used(&l->tenant, l);
  if (UNLIKELY(is_above_steps(p))) {
    masu_free(p);
    return;
  }
  if (CHECKED)
    check_block(l, p, "double free in a ladder");
  ladder_step *s = ladder_chunk_of(p)->step;
  put_ready(s, p);
  l->live -= s->size;
}

PUBLIC void *masu_ladder_realloc(masu_ladder *l, void *p, size_t size) {
  tenant_used(&l->tenant, l);
  if (!p)
    return masu_ladder_alloc(l, size);
  bool above = is_above_steps(p);
  if (CHECKED && !above)
    check_block(l, p, "use of a freed block");
  size_t kept = above ? masu_malloc_usable_size(p) : ladder_chunk_of(p)->step->size;
  if (above && size > SMALL_MAX)
    return masu_realloc(p, size); /* stays a run or mapping, at the start of a slice */
  if (size <= kept && (!above || size > l->step[l->count - 1].size))
    return p;
  int saved = errno;
  void *q = masu_ladder_alloc(l, size);
  if (q) {
    memcpy(q, p, min_size(kept, size));
    masu_ladder_free(l, p);
  } else if (size <= kept) {
    errno = saved;
    return p;
  }
  return q;
}

/* ---- Giving back ---- */

static void trim_step(masu_ladder *l, ladder_step *s) {
  masu_link kept = NULL;
  for (list_node *n = s->chunks.next; n != &s->chunks; n = n->next)
    CONTAINER_OF(n, ladder_chunk, list)->free = 0;
  for (char *b = s->ready; b; b = *(masu_link *)b)
    ladder_chunk_of(b)->free++;
  for (char *b = s->ready, *next; b; b = next) {
    const ladder_chunk *c = ladder_chunk_of(b);
    next = *(masu_link *)b;
    if (c->free != c->made - c->unused) {
      *(masu_link *)b = kept;
      kept = b;
    }
  }
  s->ready = kept;
  drop_chunks(l, s, false);
}

PUBLIC size_t masu_ladder_trim(masu_ladder *l) {
  tenant_used(&l->tenant, l);
  size_t before = l->held;
  for (size_t i = 0; i < l->count; i++)
    trim_step(l, &l->step[i]);
  return before - l->held;
}
