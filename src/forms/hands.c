#include "forms/hands.h"

#include <errno.h>

#include "api/thread.h"
#include "base/bits.h"
#include "forms/thread_end.h"
#include "pages/meta.h"

enum { HANDS_KNOWN = 8, BATCH_NEXT = 8, BATCH_BLOCKS = 12, BATCH_HEAD = 16 };
#define HAND_MOST (16 * KIB)

typedef struct pool_hand {
  _Alignas(64) masu_runs runs;
  masu_runs spare; /* `most` bytes or more, or none */
  struct pool_hand *next;
  atomic_u32 owner; /* a thread's number; 0: nobody */
} pool_hand;

/* A thread's number, and the hands that it used last, by the pool's id. */
typedef struct known_hand {
  uint64_t id;
  pool_hand *hand;
} known_hand;
typedef struct thread_hands {
  known_hand known[HANDS_KNOWN];
  uint32_t number;
  struct thread_hands *next; /* of unused ones; LOCK_POOLS */
} thread_hands;

static thread_hands *unused_hands;

/* ---- Batches ---- */

static masu_link *batch_more(char *b) { return (masu_link *)(void *)b; }
static number_link *batch_blocks(char *b) { return (number_link *)(void *)(b + BATCH_BLOCKS); }

static bool any_run(const masu_runs *runs) { return runs->ready || runs->at != runs->end || runs->more; }

/* Not empty; then they are. */
static void batch_push(pool *p, masu_runs *runs) {
  size_t size = p->head.size;
  char *b = take_free(runs, size);
  if (runs->at != runs->end)
    masu_runs_list(runs, runs->at, runs->end, size, 1);
  *batch_more(b) = runs->more;
  *batch_blocks(b) = (uint32_t)(runs->listed / size) + 1;
  add_relaxed(&p->hands.waiting, runs->listed + size);
  *runs = (masu_runs){0};
  push_numbers(p, number_of(p, b), b);
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

/* NULL: find_hand has to look. */
static inline pool_hand *known_hand_of(const pool *p) {
  const thread_hands *mine = thread_hot->hands;
  if (UNLIKELY(!mine))
    return NULL;
  const known_hand *k = (const known_hand *)(const void *)((const char *)mine->known + p->hands.known);
  return LIKELY(k->id == p->hands.id) ? k->hand : NULL;
}

static uint32_t next_hands_thread(void) {
  static atomic_u32 numbers;
  return add_relaxed(&numbers, 1) + 1;
}

/* Lock held. The thread's own; one that has no owner; a new one. NULL: out of memory. */
static pool_hand *claim_hand(pool *p, uint32_t thread) {
  size_t dirty;
  pool_hand *unused = NULL;
  for (pool_hand *h = load_relaxed(&p->hands.first); h; h = h->next) {
    uint32_t owner = load_acquire(&h->owner);
    if (owner == thread)
      return h;
    if (!owner)
      unused = h;
  }
  if (!unused) {
    unused = form_take(p->tenant.heap, sizeof *unused, _Alignof(pool_hand), &dirty);
    if (!unused)
      return NULL;
    *unused = (pool_hand){.next = load_relaxed(&p->hands.first)};
    store_release(&p->hands.first, unused);
  }
  store_relaxed(&unused->owner, thread);
  return unused;
}

static void leave_hand(pool *p, pool_hand *h) {
  empty_hand(p, h);
  store_release(&h->owner, 0);
}

/* A thread past its last destructor, whose end nobody would notice, has a hand for one call only. */
static bool is_guest(void) { return !thread_hot->hands; }

/* Lock held. */
static void join_hands(void) {
  thread_hands *mine = unused_hands;
  if (mine)
    unused_hands = mine->next;
  else if (!(mine = meta_alloc(sizeof *mine)))
    return;
  *mine = (thread_hands){.number = next_hands_thread()};
  thread_heap()->hot.hands = mine;
}

/* The calling thread's hand is not among those that it used last. */
static COLD pool_hand *find_hand(pool *p) {
  bool joins = is_guest() && forms_watch_thread();
  thread_hold(LOCK_POOLS);
  if (joins)
    join_hands();
  thread_hands *mine = thread_hot->hands;
  pool_hand *h = claim_hand(p, mine ? mine->number : next_hands_thread());
  thread_let_go(LOCK_POOLS);
  if (h && mine)
    mine->known[p->hands.id % HANDS_KNOWN] = (known_hand){p->hands.id, h};
  return h;
}

static void hand_thread_ends(tenant *t) {
  pool *p = CONTAINER_OF(t, pool, tenant);
  for (pool_hand *h = load_acquire(&p->hands.first); h; h = h->next)
    if (load_relaxed(&h->owner) == thread_hot->hands->number)
      leave_hand(p, h);
}

internal void hands_thread_ends(void) {
  if (is_guest())
    return;
  tenants_thread_ends();
  thread_hold(LOCK_POOLS);
  thread_hot->hands->next = unused_hands;
  unused_hands = thread_hot->hands;
  thread_let_go(LOCK_POOLS);
  thread_heap()->hot.hands = NULL;
}

/* ---- Allocating and freeing ---- */

static NOINLINE void *refill_hand(pool *p, pool_hand *h) {
  if (any_run(&h->spare)) {
    h->runs = h->spare;
    h->spare = (masu_runs){0};
  } else {
    while (!batch_pop(p, &h->runs))
      if (!make_some_shared(p)) {
        errno = ENOMEM;
        return NULL;
      }
    form_taken(p->tenant.heap);
  }
  return take_free(&h->runs, p->head.size);
}

static inline void *take_from_hand(pool *p, pool_hand *h) {
  char *b = h->runs.ready;
  if (b) {
    h->runs.ready = NULL;
    return b;
  }
  b = masu_runs_take(&h->runs, p->head.size, 1);
  return LIKELY(b) ? b : refill_hand(p, h);
}

static COLD void *alloc_elsewhere(pool *p) {
  pool_hand *h = find_hand(p);
  if (!h) {
    errno = ENOMEM;
    return NULL;
  }
  void *b = take_from_hand(p, h);
  if (is_guest())
    leave_hand(p, h);
  return b;
}

static void *hands_alloc(masu_pool *head) {
  pool *p = (pool *)head;
  pool_hand *h = known_hand_of(p);
  return LIKELY(h) ? take_from_hand(p, h) : alloc_elsewhere(p);
}

static NOINLINE void spill_hand(pool *p, pool_hand *h) {
  if (any_run(&h->spare))
    batch_push(p, &h->spare);
  h->spare = h->runs;
  h->runs = (masu_runs){0};
}

static inline void give_to_hand(pool *p, pool_hand *h, char *b) {
  if (!h->runs.ready) {
    h->runs.ready = b;
    return;
  }
  masu_runs_give(&h->runs, b, p->head.size, 1);
  if (UNLIKELY(h->runs.listed + (size_t)(h->runs.end - h->runs.at) >= p->hands.most))
    spill_hand(p, h);
}

/* Without memory for a hand the block is a batch of its own. */
static COLD void free_elsewhere(pool *p, char *b) {
  int saved = errno; /* a free succeeds all the same */
  pool_hand *h = find_hand(p);
  errno = saved;
  if (!h) {
    batch_push(p, &(masu_runs){.ready = b});
    return;
  }
  give_to_hand(p, h, b);
  if (is_guest())
    leave_hand(p, h);
}

static void hands_free(masu_pool *head, void *b) {
  pool *p = (pool *)head;
  pool_hand *h = known_hand_of(p);
  if (LIKELY(h))
    give_to_hand(p, h, b);
  else
    free_elsewhere(p, b);
}

/* ---- Coming and going, and all together ---- */

internal void hands_init(pool *p) {
  static atomic_u64 ids;
  if (p->head.size < BATCH_HEAD)
    return;
  p->hands.id = add_relaxed(&ids, 1) + 1;
  p->hands.known = p->hands.id % HANDS_KNOWN * sizeof(known_hand);
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
