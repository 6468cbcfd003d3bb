#include "forms/hands.h"

#include <errno.h>

#include "api/thread.h"
#include "base/bits.h"
#include "forms/thread_end.h"
#include "os/report.h"

enum { BATCH_NEXT = 8, BATCH_BLOCKS = 12 };
#define HAND_MOST (16 * KIB)

typedef struct pool_hand {
  _Alignas(64) masu_runs runs;
  masu_runs spare; /* `most` bytes or more, or none */
  struct pool_hand *next;
  atomic_u64 owner; /* a thread's number; 0: nobody */
} pool_hand;

/* ---- Batches ---- */

static masu_link *batch_more(char *b) { return (masu_link *)(void *)b; }
static number_link *batch_blocks(char *b) { return (number_link *)(void *)(b + BATCH_BLOCKS); }

static bool any_run(const masu_runs *runs) { return runs->ready || runs->at != runs->end || runs->more; }

/* Not empty; then they are. */
static void batch_push(pool *p, masu_runs *runs) {
  size_t size = p->head.size;
  char *b = take_free(runs, size);
  uint32_t number = number_of(p, b);
  if (UNLIKELY(!number))
    report_misuse("free of a pointer that is no block of this pool", b);
  if (runs->at != runs->end)
    masu_runs_list(runs, runs->at, runs->end, size, 1);
  *batch_more(b) = runs->more;
  *batch_blocks(b) = (uint32_t)(runs->listed / size) + 1;
  add_relaxed(&p->hands.waiting, runs->listed + size);
  *runs = (masu_runs){0};
  push_numbers(p, number, b);
}

static bool batch_pop(pool *p, masu_runs *runs) {
  char *b = pop_number(p);
  if (!b)
    return false;
  size_t others = (*batch_blocks(b) - 1) * p->head.size;
  *runs = (masu_runs){.ready = b, .more = *batch_more(b), .listed = others};
  sub_relaxed(&p->hands.waiting, others + p->head.size);
  return true;
}

internal free_run batch_runs(const pool *p, char *b) {
  return (free_run){b, b + p->head.size, *batch_more(b)};
}

static void empty_hand(pool *p, pool_hand *h) {
  if (any_run(&h->runs))
    batch_push(p, &h->runs);
  if (any_run(&h->spare))
    batch_push(p, &h->spare);
}

/* ---- Whose hand ---- */

static uint64_t next_hands_thread(void) {
  static atomic_u64 numbers;
  return add_relaxed(&numbers, 1) + 1;
}

/* NULL: it has none. Only that thread makes it so. */
static pool_hand *own_hand(const pool *p, uint64_t thread) {
  pool_hand *h = load_acquire(&p->hands.first);
  while (h && load_relaxed(&h->owner) != thread)
    h = h->next;
  return h;
}

/* Lock held. One that has no owner, or a new one. NULL: out of memory. */
static pool_hand *claim_hand(pool *p, uint64_t thread) {
  size_t dirty;
  pool_hand *h = load_relaxed(&p->hands.first);
  while (h && load_acquire(&h->owner))
    h = h->next;
  if (!h) {
    h = form_take(p->tenant.heap, sizeof *h, _Alignof(pool_hand), &dirty);
    if (!h)
      return NULL;
    *h = (pool_hand){.next = load_relaxed(&p->hands.first)};
    store_release(&p->hands.first, h);
  }
  store_relaxed(&h->owner, thread);
  return h;
}

static void leave_hand(pool *p, pool_hand *h) {
  empty_hand(p, h);
  store_release(&h->owner, 0);
}

/* Not by the hot word, which may be set back for a moment (heap/sleepers.h). 0: no number. */
static uint64_t hands_thread(void) {
  const heap *own = thread_heap();
  return own ? own->hot.hands_of : 0;
}

/* 0: no memory, or past the thread's last destructor. */
static uint64_t join_hands(void) {
  uint64_t number = 0;
  if (!forms_watch_thread())
    return 0;
  heap *own = thread_enter();
  if (own && own == thread_heap())
    number = own->hot.hands_of = next_hands_thread();
  thread_leave(own);
  return number;
}

/* The number is never 0, so a thread without hands has none of that pool. */
static ALWAYS_INLINE const known_hand *known_hand_at(const pool *p) {
  return (const known_hand *)(const void *)((const char *)thread_hot + p->hands.known);
}

/* The calling thread's hand is not among those that it used last. A guest, whose end nobody would notice,
 * has one for this call only. */
static COLD pool_hand *find_hand(pool *p, bool *guest) {
  uint64_t thread = hands_thread();
  if (!thread)
    thread = join_hands();
  pool_hand *h = thread ? own_hand(p, thread) : NULL;
  if (!h) {
    thread_hold(LOCK_POOLS);
    h = claim_hand(p, thread ? thread : next_hands_thread());
    thread_let_go(LOCK_POOLS);
  }
  if (h && thread)
    thread_heap()->hot.hands[p->hands.id % HANDS_KNOWN] = (known_hand){p->hands.id, h};
  *guest = !thread;
  return h;
}

static void hand_thread_ends(tenant *t, uint64_t thread) {
  pool *p = CONTAINER_OF(t, pool, tenant);
  pool_hand *h = own_hand(p, thread);
  if (h)
    leave_hand(p, h);
}

internal void hands_thread_ends(void) {
  uint64_t thread = hands_thread();
  if (!thread)
    return;
  thread_hold(LOCK_POOLS);
  tenants_thread_ends(thread);
  heap_forget_hands(thread_heap());
  thread_let_go(LOCK_POOLS);
}

/* ---- Allocating and freeing ---- */

static NOINLINE void *refill_hand(pool *p, pool_hand *h) {
  bool from_list = !any_run(&h->spare);
  if (from_list) {
    while (!batch_pop(p, &h->runs))
      if (!make_some_shared(p)) {
        errno = ENOMEM;
        return NULL;
      }
  } else {
    h->runs = h->spare;
    h->spare = (masu_runs){0};
  }
  void *b = take_free(&h->runs, p->head.size);
  if (from_list)
    form_taken(p->tenant.heap); /* at last: its callback may use the pool */
  return b;
}

static inline void *take_from_hand(pool *p, pool_hand *h) {
  void *b = take_free(&h->runs, p->head.size);
  return LIKELY(b) ? b : refill_hand(p, h);
}

static COLD void *alloc_elsewhere(pool *p) {
  bool guest;
  pool_hand *h = find_hand(p, &guest);
  if (!h) {
    errno = ENOMEM;
    return NULL;
  }
  void *b = take_from_hand(p, h);
  if (guest)
    leave_hand(p, h);
  return b;
}

static void *hands_alloc(masu_pool *head) {
  pool *p = (pool *)head;
  const known_hand *k = known_hand_at(p);
  return LIKELY(k->pool == p->hands.id) ? take_from_hand(p, k->hand) : alloc_elsewhere(p);
}

/* What it has becomes its spare, before it grows: who gives more than he takes would keep it all. */
static NOINLINE void spill_hand(pool *p, pool_hand *h, char *b) {
  if (any_run(&h->spare))
    batch_push(p, &h->spare);
  h->spare = h->runs;
  h->runs = (masu_runs){.ready = b};
}

static inline void give_to_hand(pool *p, pool_hand *h, char *b) {
  if (!h->runs.ready)
    h->runs.ready = b;
  else if (UNLIKELY(h->runs.listed + (size_t)(h->runs.end - h->runs.at) >= p->hands.most))
    spill_hand(p, h, b);
  else
    masu_runs_give(&h->runs, b, p->head.size, 1);
}

/* Without memory for a hand the block is a batch of its own. */
static COLD void free_elsewhere(pool *p, char *b) {
  int saved = errno; /* a free succeeds all the same */
  bool guest;
  pool_hand *h = find_hand(p, &guest);
  errno = saved;
  if (!h) {
    batch_push(p, &(masu_runs){.ready = b});
    return;
  }
  give_to_hand(p, h, b);
  if (guest)
    leave_hand(p, h);
}

static void hands_free(masu_pool *head, void *b) {
  pool *p = (pool *)head;
  const known_hand *k = known_hand_at(p);
  if (LIKELY(k->pool == p->hands.id))
    give_to_hand(p, k->hand, b);
  else
    free_elsewhere(p, b);
}

/* ---- Coming and going, and all together ---- */

internal void hands_init(pool *p) {
  static atomic_u64 ids;
  if (p->head.size < BATCH_HEAD)
    return;
  p->hands.id = add_relaxed(&ids, 1) + 1;
  p->hands.known = offsetof(heap_hot, hands) + p->hands.id % HANDS_KNOWN * sizeof(known_hand);
  p->hands.most = max_size(HAND_MOST, p->head.size);
  p->link = BATCH_NEXT;
  guide(&p->head, hands_alloc, hands_free);
  p->tenant.thread_ends = hand_thread_ends;
}

internal void hands_end(pool *p) {
  for (pool_hand *h = load_relaxed(&p->hands.first), *next; h; h = next) {
    next = h->next;
    masu_free(h);
  }
}

internal void hands_add(pool *p, char *start, char *end) {
  size_t lot = p->hands.most / p->head.size * p->head.size;
  p->head.made += (size_t)(end - start);
  while (end != start) { /* what comes last is the first to be taken */
    char *from = (size_t)(end - start) > lot ? end - lot : start;
    batch_push(p, &(masu_runs){.at = from, .end = end});
    end = from;
  }
}

internal size_t hands_bytes(const pool *p) {
  size_t bytes = load_relaxed(&p->hands.waiting);
  for (const pool_hand *h = load_acquire(&p->hands.first); h; h = h->next)
    bytes += free_bytes(&h->runs, p->head.size) + free_bytes(&h->spare, p->head.size);
  return bytes;
}

internal void hands_hold(const pool *p) {
  if (p->hands.id)
    thread_hold(LOCK_POOLS);
}

internal void hands_let_go(const pool *p) {
  if (p->hands.id)
    thread_let_go(LOCK_POOLS);
}

internal void hands_gather(pool *p) {
  for (pool_hand *h = load_relaxed(&p->hands.first); h; h = h->next)
    empty_hand(p, h);
}

internal void hands_forget(pool *p) {
  for (pool_hand *h = load_relaxed(&p->hands.first); h; h = h->next)
    h->runs = h->spare = (masu_runs){0};
  store_relaxed(&p->hands.waiting, 0);
}

internal void hands_restart(pool *p, masu_runs runs) {
  size_t size = p->head.size;
  masu_runs lot = {0};
  store_relaxed(&p->hands.waiting, 0);
  for (char *b; (b = take_free(&runs, size));) {
    give_run(&lot, b, size);
    if (masu_runs_bytes(&lot, size) >= p->hands.most)
      batch_push(p, &lot);
  }
  if (any_run(&lot))
    batch_push(p, &lot);
}
