#include "forms/pool.h"

#include <errno.h>
#include <string.h>

#include "api/thread.h"
#include "base/bits.h"
#include "base/figures.h"
#include "forms/hands.h"
#include "os/os.h"
#include "os/report.h"

enum { FEWEST = 8 };
#define INDEX_MASK ((1u << NUMBER_SHIFT) - 1)
#define CHUNK_LEAST (4 * KIB)
#define MAKE_STEP (16 * KIB) /* most bytes made ready at a time */

static pool *pool_of(const masu_pool *head) {
  pool *p = (pool *)(uintptr_t)head;
  tenant_used(&p->tenant, p);
  return p;
}
static bool has_runs(const pool *p) { return !p->head.alloc; }
static bool is_shared(const pool *p) { return p->flags & MASU_POOL_SHARED; }

/* ---- Numbers ---- */

internal char *block_at(const pool *p, uint32_t number) {
  uint32_t n = number - 1;
  return load_relaxed(&p->chunk[n >> NUMBER_SHIFT].start) + (size_t)(n & INDEX_MASK) * p->head.size;
}

/* The newest chunks are the largest, so they are looked at first. */
internal uint32_t number_of(const pool *p, const char *b) {
  for (uint32_t which = load_acquire(&p->slots); which-- > 0;) {
    const chunk *c = &p->chunk[which];
    size_t offset = (uintptr_t)b - (uintptr_t)load_relaxed(&c->start), index = offset / p->head.size;
    if (offset < load_relaxed(&c->capacity) * p->head.size)
      return index >= load_relaxed(&c->made) || offset % p->head.size
                 ? 0
                 : (which << NUMBER_SHIFT | (uint32_t)index) + 1;
  }
  return 0;
}

/* ---- The numbered list ---- */

/* Of a block that another thread may have got meanwhile; then the swap fails. */
__attribute__((no_sanitize("thread"))) internal uint32_t next_of(const pool *p, const char *b) {
  return *(const volatile number_link *)(const void *)(b + p->link);
}

static uint64_t with_top(uint64_t seen, uint32_t number) {
  return ((seen >> 32) + 1) << 32 | number;
}

internal void push_numbers(pool *p, uint32_t first, char *last) {
  uint64_t seen = load_relaxed(&p->top);
  do
    set_next(p, last, (uint32_t)seen);
  while (!cas_release(&p->top, &seen, with_top(seen, first)));
}

internal char *pop_number(pool *p) {
  uint64_t seen = load_acquire(&p->top);
  char *b;
  do {
    if (!(uint32_t)seen)
      return NULL;
    b = block_at(p, (uint32_t)seen);
  } while (!cas_acq_rel(&p->top, &seen, with_top(seen, next_of(p, b))));
  return b;
}

/* ---- Chunks ---- */

/* Checked builds begin further in, so that no block of the pool is where one of the heap is: free
 * would take it for that. */
static size_t chunk_head(const pool *p) { return CHECKED ? max_size(p->align, 16) : 0; }

static void drop_chunk(const pool *p, const chunk *c) {
  masu_free((void *)c->live);
  if (c->start)
    masu_free(c->start - chunk_head(p));
}

static void remove_chunk(pool *p, uint32_t which) {
  chunk *c = &p->chunk[which];
  p->held -= c->capacity * p->head.size;
  if (p->hands.id || has_runs(p))
    p->head.made -= c->made * p->head.size;
  drop_chunk(p, c);
  c->start = NULL;
  c->live = NULL;
  c->capacity = 0;
  store_relaxed(&c->made, 0);
}

static size_t live_words(const chunk *c) { return c->capacity / 64 + 1; }

/* Room for at least n more blocks. What malloc rounds up to is room as well. */
static bool add_chunk(pool *p, size_t n) {
  size_t dirty, least = max_size(max_size(n, FEWEST) * p->head.size, max_size(CHUNK_LEAST, p->held / 3));
  uint32_t which = 0;
  while (which < CHUNKS && p->chunk[which].start)
    which++;
  if (which == CHUNKS || n > INDEX_MASK || n > LARGE_MOST / p->head.size)
    return false;
  char *memory = form_take(p->tenant.heap, least + chunk_head(p), p->align, &dirty);
  if (!memory)
    return false;
  chunk c = {.start = memory + chunk_head(p)};
  size_t bytes = masu_malloc_usable_size(memory) - chunk_head(p);
  c.capacity = (uint32_t)min_size(bytes / p->head.size, INDEX_MASK);
  if (p->flags & MASU_POOL_CHECKED) {
    if (!(c.live = form_take(p->tenant.heap, live_words(&c) * 8, 16, &dirty))) {
      drop_chunk(p, &c);
      return false;
    }
    memset((void *)c.live, 0, live_words(&c) * 8);
  }
  p->chunk[which].start = c.start;
  p->chunk[which].capacity = c.capacity;
  p->chunk[which].live = c.live;
  p->held += c.capacity * p->head.size;
  p->current = (uint32_t)min_size(p->current, which);
  store_release(&p->slots, (uint32_t)max_size(p->slots, which + 1));
  return true;
}

/* ---- Making blocks ready ---- */

/* How many blocks of a chunk are made ready at a time: where nothing is written to them,
 * all. */
static uint32_t step_of(const pool *p, const chunk *c) {
  size_t bytes = max_size(os_page(), min_size(c->made * p->head.size, MAKE_STEP));
  uint32_t left = c->capacity - c->made;
  return has_runs(p) ? left : (uint32_t)min_size(max_size(bytes / p->head.size, 1), left);
}

/* Blocks that were never used. */
static void add_run(pool *p, char *start, char *end) {
  masu_runs *f = &p->head.free;
  p->head.made += (size_t)(end - start);
  if (f->at == f->end)
    f->at = f->end = start;
  if (f->end == start)
    f->end = end;
  else
    masu_runs_list(f, start, end, p->head.size, 1);
}

static void number_blocks(pool *p, uint32_t number, char *first, char *last) {
  uint32_t next = number + 1;
  for (char *b = first; b < last; b += p->head.size)
    set_next(p, b, next++);
  push_numbers(p, number, last);
}

/* The next n blocks of a chunk become free. */
static void make(pool *p, uint32_t which, uint32_t n) {
  chunk *c = &p->chunk[which];
  uint32_t made = c->made;
  char *first = c->start + made * p->head.size, *last = first + (n - 1) * p->head.size;
  store_relaxed(&c->made, made + n);
  if (p->hands.id)
    hands_add(p, first, last + p->head.size);
  else if (!has_runs(p))
    number_blocks(p, (which << NUMBER_SHIFT | made) + 1, first, last);
  else
    add_run(p, first, last + p->head.size);
}

static chunk *unfinished(pool *p) {
  while (p->current < CHUNKS) {
    chunk *c = &p->chunk[p->current];
    if (c->made < c->capacity)
      return c;
    p->current++;
  }
  return NULL;
}

static bool make_some(pool *p) {
  chunk *c = unfinished(p);
  if (!c && add_chunk(p, 1))
    c = unfinished(p);
  if (!c)
    return false;
  make(p, p->current, step_of(p, c));
  return true;
}

/* Who comes second finds what the first has made. */
internal bool make_some_shared(pool *p) {
  thread_hold(LOCK_POOLS);
  bool any = (uint32_t)load_acquire(&p->top) || make_some(p);
  thread_let_go(LOCK_POOLS);
  return any;
}

/* ---- Checked pools ---- */

/* Can that be the link in a free block? What is written there after free seldom is a number. */
static bool is_link(const pool *p, uint32_t number) {
  uint32_t n = number - 1, which = n >> NUMBER_SHIFT;
  return !number || (which < load_acquire(&p->slots) && (n & INDEX_MASK) < load_relaxed(&p->chunk[which].made));
}

static bool flip_live(pool *p, uint32_t number, bool live) {
  uint32_t n = number - 1, index = n & INDEX_MASK;
  atomic_u64 *word = &p->chunk[n >> NUMBER_SHIFT].live[index / 64];
  uint64_t bit = (uint64_t)1 << index % 64;
  uint64_t before = live ? atomic_fetch_or(word, bit) : atomic_fetch_and(word, ~bit);
  return (before & bit) != (live ? bit : 0);
}

/* ---- Allocating and freeing ---- */

/* In pools of numbers: a block more or less is in use. */
static void pool_count(pool *p, size_t change) {
  if (p->flags & MASU_POOL_UNCOUNTED)
    return;
  if (is_shared(p))
    add_relaxed(&p->shared_live, change);
  else
    p->head.made += change * p->head.size;
}

static char *alloc_number(pool *p) {
  char *b;
  while (!(b = pop_number(p)))
    if (!(is_shared(p) ? make_some_shared(p) : make_some(p)))
      return NULL;
  if (p->flags & MASU_POOL_CHECKED && (!is_link(p, next_of(p, b)) || !flip_live(p, number_of(p, b), true)))
    report_misuse("block of a pool written to after free", b);
  pool_count(p, 1);
  return b;
}

static void *numbers_alloc(masu_pool *head) {
  pool *p = pool_of(head);
  void *b = alloc_number(p);
  if (b)
    form_taken(p->tenant.heap);
  else
    errno = ENOMEM;
  return b;
}

static void numbers_free(masu_pool *head, void *b) {
  pool *p = pool_of(head);
  uint32_t number = number_of(p, b);
  if (UNLIKELY(!number))
    report_misuse("free of a pointer that is no block of this pool", b);
  if (p->flags & MASU_POOL_CHECKED && !flip_live(p, number, false))
    report_misuse("double free in a pool", b);
  push_numbers(p, number, b);
  pool_count(p, (size_t)-1);
}

PUBLIC void *masu_pool_alloc_slow(masu_pool *head) {
  pool *p = pool_of(head);
  if (!make_some(p)) {
    errno = ENOMEM;
    return NULL;
  }
  void *b = take_free(&head->free, head->size);
  form_taken(p->tenant.heap);
  return b;
}

/* ---- Coming and going ---- */

/* For other threads as well. */
static size_t used_of(const pool *p) {
  if (p->flags & MASU_POOL_UNCOUNTED)
    return 0;
  if (is_shared(p) && !p->hands.id)
    return load_relaxed(&p->shared_live) * p->head.size;
  size_t made = tenant_peek(&p->head.made);
  return made - min_size(made, p->hands.id ? hands_bytes(p) : free_bytes(&p->head.free, p->head.size));
}

static void pool_figures(const tenant *t, size_t *used, size_t *held) {
  const pool *p = CONTAINER_OF(t, pool, tenant);
  *used = used_of(p);
  *held = tenant_peek(&p->held);
}

static void pool_shut(tenant *t) {
  masu_pool *head = &CONTAINER_OF(t, pool, tenant)->head;
  guide(head, numbers_alloc, numbers_free);
}

/* In parentheses: the macro of that name adds the flags of who calls. */
PUBLIC masu_pool *(masu_pool_create_in)(masu_heap *in, const char *name, size_t size,
                                        size_t align, unsigned flags) {
  unsigned known = MASU_POOL_SHARED | MASU_POOL_CHECKED | MASU_POOL_UNCOUNTED;
  if (!align)
    align = min_size(max_size(size & -size, 4), 16);
  if (!size || size > LARGE_MOST / CHUNKS || !is_pow2(align) || align > SLICE_SIZE || flags & ~known) {
    errno = EINVAL;
    return NULL;
  }
  if (CHECKED)
    flags |= MASU_POOL_CHECKED;
  pool *p = tenant_make(in, sizeof *p, _Alignof(pool));
  if (!p)
    return NULL;
  memset(p, 0, sizeof *p);
  p->flags = flags;
  p->align = max_size(align, 4);
  p->head.size = ROUND_UP(ROUND_UP(size, 4), p->align);
  if (p->head.size < sizeof(void *) || flags & (MASU_POOL_SHARED | MASU_POOL_CHECKED)) {
    guide(&p->head, numbers_alloc, numbers_free);
  }
  p->tenant = (tenant){.figures = pool_figures, .shut = pool_shut};
  if (flags & MASU_POOL_SHARED && !(flags & MASU_POOL_CHECKED))
    hands_init(p);
  tenant_join(&p->tenant, in, "pool", name);
  form_taken(in);
  return &p->head;
}

PUBLIC void masu_pool_destroy(masu_pool *head) {
  if (!head)
    return;
  pool *p = pool_of(head);
  tenant_leave(&p->tenant); /* from now on no thread that ends has a hand here */
  hands_end(p);
  for (uint32_t i = 0; i < CHUNKS; i++)
    drop_chunk(p, &p->chunk[i]);
  tenant_drop(p);
}

/* ---- All at once ---- */

static void forget_blocks(pool *p) {
  hands_forget(p);
  p->head.free = (masu_runs){.ready = has_runs(p) ? NULL : MASU_POOL_GUIDED};
  p->head.made = 0;
  store_relaxed(&p->shared_live, 0);
  store_relaxed(&p->top, with_top(load_relaxed(&p->top), 0));
  p->current = 0;
}

PUBLIC void masu_pool_reset(masu_pool *head) {
  pool *p = pool_of(head);
  hands_hold(p);
  forget_blocks(p);
  hands_let_go(p);
  for (uint32_t i = 0; i < CHUNKS; i++) {
    chunk *c = &p->chunk[i];
    c->made = 0;
    if (c->live)
      memset((void *)c->live, 0, live_words(c) * 8);
  }
}

/* Memory of blocks that nobody has. */
static void touch(const char *from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += os_page())
    *(volatile char *)(from + at) = 0;
  if (bytes)
    *(volatile char *)(from + bytes - 1) = 0;
}

/* Blocks side by side that are free. Their first `links` bytes are the list itself: who leaves that as it is
 * doesn't write there. */
typedef void run_visitor(const pool *p, char *start, const char *end, size_t links, void *to);

static void each_of_runs(const pool *p, free_run r, size_t links, run_visitor *visit, void *to) {
  for (bool more = true; more;) {
    free_run seen = r;
    size_t known = links;
    more = next_free_run(&r, p->head.size); /* before a visitor writes over its links */
    links = (size_t)(r.end - r.start) == p->head.size ? sizeof(masu_link) : 2 * sizeof(masu_link);
    visit(p, seen.start, seen.end, known, to);
  }
}

/* Nobody else uses the pool. */
static void each_free(pool *p, run_visitor *visit, void *to) {
  hands_gather(p);
  if (has_runs(p))
    each_of_runs(p, first_free_run(&p->head.free, p->head.size), 0, visit, to);
  for (uint32_t number = (uint32_t)load_relaxed(&p->top), next; number; number = next) {
    char *b = block_at(p, number);
    next = next_of(p, b);
    if (p->hands.id)
      each_of_runs(p, batch_runs(p, b), BATCH_HEAD, visit, to);
    else
      visit(p, b, b + p->head.size, sizeof(number_link), to);
  }
}

typedef struct ready_blocks {
  size_t count, wanted;
} ready_blocks;

/* Touches as many as are wanted, those that are handed out first. */
static void touch_ready(const pool *p, char *start, const char *end, size_t links, void *to) {
  ready_blocks *r = to;
  size_t bytes = min_size((size_t)(end - start), (r->wanted - min_size(r->count, r->wanted)) * p->head.size);
  if (bytes > links)
    touch(start + links, bytes - links);
  r->count += (size_t)(end - start) / p->head.size;
}

static int pool_reserve(pool *p, size_t n) {
  if (n > LARGE_MOST / p->head.size)
    return ENOMEM;
  ready_blocks r = {.wanted = n};
  hands_hold(p);
  each_free(p, touch_ready, &r);
  hands_let_go(p);
  while (r.count < n) {
    chunk *c = unfinished(p);
    if (!c) {
      if (!add_chunk(p, min_size(n - r.count, INDEX_MASK)))
        return ENOMEM;
      c = unfinished(p);
    }
    uint32_t some = (uint32_t)min_size(n - r.count, c->capacity - c->made);
    touch(c->start + c->made * p->head.size, some * p->head.size);
    make(p, p->current, some);
    r.count += some;
  }
  return 0;
}

PUBLIC int masu_pool_reserve(masu_pool *head, size_t n) {
  pool *p = pool_of(head);
  int why = pool_reserve(p, n);
  form_taken(p->tenant.heap);
  return why;
}

static void tally(const pool *p, char *start, const char *end, size_t links, void *counts) {
  (void)links;
  for (const char *b = start; b < end; b += p->head.size)
    ((uint32_t *)counts)[(number_of(p, b) - 1) >> NUMBER_SHIFT]++;
}

/* The new list, of one kind or the other. */
typedef struct kept_blocks {
  const uint32_t *free; /* in each chunk */
  uint32_t number;
  masu_runs runs;
} kept_blocks;

/* Puts a block on the new list unless its chunk goes. */
static void keep_block(const pool *p, char *b, kept_blocks *k) {
  uint32_t number = number_of(p, b), which = (number - 1) >> NUMBER_SHIFT;
  if (k->free[which] == p->chunk[which].made)
    return;
  if (p->hands.id || has_runs(p)) {
    masu_runs_give(&k->runs, b, p->head.size, 1);
  } else {
    set_next(p, b, k->number);
    k->number = number;
  }
}

static void keep_run(const pool *p, char *start, const char *end, size_t links, void *to) {
  (void)links;
  for (char *b = start; b < end; b += p->head.size)
    keep_block(p, b, to);
}

/* The last run becomes the first. */
static masu_runs reversed(masu_runs from, size_t size) {
  masu_runs to = {0};
  first_free_run(&from, size);
  while (from.at != from.end || masu_runs_next(&from, size, 1)) {
    if (to.at != to.end)
      masu_runs_list(&to, to.at, to.end, size, 1);
    to.at = from.at;
    to.end = from.end;
    from.at = from.end;
  }
  return to;
}

PUBLIC size_t masu_pool_trim(masu_pool *head) {
  pool *p = pool_of(head);
  uint32_t free_in[CHUNKS] = {0};
  kept_blocks k = {.free = free_in};
  size_t before = p->held;
  hands_hold(p);
  each_free(p, tally, free_in);
  each_free(p, keep_run, &k);
  store_relaxed(&p->top, with_top(load_relaxed(&p->top), k.number));
  if (p->hands.id)
    hands_restart(p, k.runs);
  else if (has_runs(p))
    head->free = reversed(k.runs, head->size); /* fresh blocks stay the last */
  hands_let_go(p);
  for (uint32_t i = 0; i < CHUNKS; i++)
    if (p->chunk[i].start && free_in[i] == p->chunk[i].made)
      remove_chunk(p, i);
  return before - p->held;
}

typedef struct live_blocks {
  uint64_t *free; /* one bit a block */
  size_t start[CHUNKS]; /* the first bit of a chunk */
} live_blocks;

static void mark_free(const pool *p, char *start, const char *end, size_t links, void *to) {
  live_blocks *l = to;
  (void)links;
  for (const char *b = start; b < end; b += p->head.size) {
    uint32_t n = number_of(p, b) - 1;
    size_t bit = l->start[n >> NUMBER_SHIFT] + (n & INDEX_MASK);
    l->free[bit / 64] |= (uint64_t)1 << bit % 64;
  }
}

PUBLIC int masu_pool_for_each(masu_pool *head, void (*visit)(void *p, void *context),
                              void *context) {
  pool *p = pool_of(head);
  live_blocks l;
  size_t bits = 0;
  for (uint32_t i = 0; i < CHUNKS; bits += p->chunk[i++].made)
    l.start[i] = bits;
  if (!(l.free = masu_calloc(bits / 64 + 1, sizeof *l.free)))
    return ENOMEM;
  hands_hold(p);
  each_free(p, mark_free, &l);
  hands_let_go(p);
  for (uint32_t i = 0; i < CHUNKS; i++)
    for (uint32_t b = 0; b < p->chunk[i].made; b++)
      if (!(l.free[(l.start[i] + b) / 64] >> (l.start[i] + b) % 64 & 1))
        visit(p->chunk[i].start + b * p->head.size, context);
  masu_free(l.free);
  return 0;
}

PUBLIC int masu_pool_read(const masu_pool *head, masu_pool_figures *out, size_t size) {
  const pool *p = pool_of(head);
  if (!FIGURES_FIT(size, masu_pool_figures, held))
    return EINVAL;
  masu_pool_figures now = {.block = p->head.size, .live = used_of(p) / p->head.size, .held = p->held};
  for (uint32_t i = 0; i < CHUNKS; i++)
    now.room += p->chunk[i].capacity;
  figures_give(out, size, &now, sizeof now);
  return 0;
}
