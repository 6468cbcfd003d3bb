#include "heap/heap.h"

#include "base/options.h"
#include "heap/budget.h"
#include "heap/front.h"
#include "heap/mail.h"
#include "heap/outbox.h"
#include "heap/spares.h"
#include "heap/sparse.h"
#include "os/bell.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/purge.h"

enum {
  ROTATIONS = 4,     /* slabs with few free blocks passed over in a refill */
  PLENTY = 32,       /* free blocks that are never few */
  SPARSE_DELAYS = 4, /* purge delays that a sparse slab waits */
  LARGER_BLOCKS = 32,
  LARGER_SLICES = 16,
};
_Static_assert(2 * LARGER_BLOCKS * SLAB_SEEN_LEAST <= SLICE_SIZE, "bits for all blocks, also of what slices_of_next makes");
#define UPKEEP_PURGE (256 * KIB)

internal void heap_init(heap *h, map_tag tag) {
  h->hot.tag = tag;
  h->empty.tag = TAG_NO_HEAP;
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    list_init(&h->avail[c]);
  list_init(&h->vacant);
  list_init(&h->sparse);
  list_init(&h->sparse_old);
  list_init(&h->idle);
}

/* ---- Slabs coming and going ---- */

static uint32_t need_of(const slab *s) { return load_relaxed(&s->need); }
static void set_need(slab *s, uint32_t need) { store_release(&s->need, need); }
static void set_reserve(slab *s, uint32_t some) { store_release(&s->reserve, some); }
static uint32_t out_of(const slab *s) { return need_of(s) + load_relaxed(&s->reserve); }
static uint32_t within(const slab *s) {
  return s->threaded - (load_relaxed(&s->purged) ? sparse_blocks(s) : 0);
}
static uint32_t free_count(const slab *s) { return within(s) - out_of(s); }

/* Bytes of the sparse slabs that wait in all heaps: of those in which something is
 * out, and of those that are empty but the only open ones of their class. */
static atomic_word sparse_bytes, vacant_bytes;

/* Bit 0 of `waiting` tells which; bytes are even. */
static void sparse_join(slab *s, list_node *list, bool vacant) {
  if (!list_empty(&s->sparse))
    return;
  uint32_t bytes = (uint32_t)(within(s) * s->block_size);
  list_push_back(list, &s->sparse);
  s->waiting = bytes | vacant;
  add_relaxed(vacant ? &vacant_bytes : &sparse_bytes, bytes);
}

static void sparse_leave(slab *s) {
  if (LIKELY(list_empty(&s->sparse)))
    return;
  uint32_t bytes = s->waiting;
  list_remove(&s->sparse);
  add_relaxed(bytes & 1 ? &vacant_bytes : &sparse_bytes, -(size_t)(bytes & ~1u));
}

static void slab_open(heap *h, slab *s) {
  list_push_back(&h->avail[s->size_class], &s->avail);
}

/* A sender ended this slab; nobody but its list knows the descriptor. */
static void slab_bury(slab *s) {
  list_remove(&s->avail);
  sparse_leave(s);
  slab_descriptor_give(s);
}

/* An OPEN slab of which every block is on the local list leaves the heap's list. */
static void slab_retire(heap *h, slab *s) {
  list_remove(&s->avail);
  sparse_leave(s);
  spare_keep(h, s);
}

/* Every block of s is out and in need: forget it until some come back. False: mail
 * came instead. need is lowered behind the changed word, and reserve raised before. */
static bool slab_park(heap *h, slab *s) {
  if (!mail_park(s))
    return false;
  h->full[s->size_class] += s->slices;
  set_reserve(s, s->threaded - slab_wake(s));
  set_need(s, slab_wake(s));
  list_remove(&s->avail);
  return true;
}

/* Nothing of s is out, so no sender can interfere. The only open slab of a class in
 * frequent use stays open. */
static bool slab_stays(heap *h, slab *s) {
  if (s->block_size <= TABLE_MAX && heap_slab_is_alone(s))
    return true;
  slab_retire(h, s);
  return false;
}

static void slab_emptied(heap *h, slab *s) {
  if (slab_stays(h, s) && !load_relaxed(&s->purged) && heap_program_is_large())
    sparse_join(s, &h->vacant, true);
}

/* ---- Sparse slabs ---- */

static void chain_join(block *chain, block *rest) {
  while (chain->next)
    chain = chain->next;
  chain->next = rest;
}

/* Adds a chain of count blocks, which are in need, to the local list. */
static void take_in(slab *s, block *chain, uint32_t count) {
  if (s->free && free_count(s) < count) {
    chain_join(s->free, chain);
  } else {
    if (s->free)
      chain_join(chain, s->free);
    s->free = chain;
  }
  set_need(s, need_of(s) - count);
}

/* Everything of an OPEN slab that is not out comes on the local list, and nothing is
 * held back. `more` keeps need above what is out, so that no sender can end the slab.
 * False: one has. */
static bool slab_gather(slab *s, uint32_t more) {
  block *chain;
  uint32_t count;
  set_need(s, out_of(s) + more);
  if (!mail_take(s, &chain, &count))
    return false;
  set_reserve(s, 0);
  if (chain)
    take_in(s, chain, count);
  return true;
}

/* How much may be out of a sparse slab. */
static uint32_t sparse_most(const slab *s) { return s->capacity / 4; }

/* Asks for an event when the slab becomes sparse, or when half of that is left. reserve
 * is raised first. One that waits to be purged already needs none. */
static void slab_arm(slab *s) {
  if (LIKELY(!heap_program_is_large()))
    return;
  uint32_t most = sparse_most(s), out = need_of(s);
  if (out <= most)
    most /= 2;
  if (!most || out <= most)
    return;
  set_reserve(s, most);
  set_need(s, out - most);
}

/* The pages of an OPEN slab that nobody uses. */
static size_t slab_purge(heap *h, slab *s) {
  sparse_leave(s);
  if (!slab_gather(s, 1)) {
    slab_bury(s);
    return 0;
  }
  size_t before = sparse_charged(s), bytes = sparse_purge(s);
  account_discharge(load_relaxed(&h->account), before - sparse_charged(s));
  set_need(s, need_of(s) - 1);
  if (need_of(s))
    slab_arm(s);
  else
    slab_stays(h, s); /* and waits no more, even if it had no empty page */
  return bytes;
}

static size_t purge_list(heap *h, list_node *list, size_t budget) {
  size_t bytes = 0, visits = 0;
  while (!list_empty(list) && bytes + visits * os_page() < budget) {
    bytes += slab_purge(h, CONTAINER_OF(list->next, slab, sparse));
    visits++;
  }
  supply_note_purged(bytes);
  return bytes;
}

/* Those that have waited for some time. Slabs in use wait longer. */
static void purge_sparse_aged(heap *h, uint64_t now) {
  if (!purge_is_due(h->sparse_moved, now, SPARSE_DELAYS * option_get(OPTION_purge_delay)))
    return;
  if (load_relaxed(&sparse_bytes) + load_relaxed(&vacant_bytes) > supply_regretted())
    purge_list(h, &h->sparse_old, UPKEEP_PURGE);
  if (!list_empty(&h->sparse_old))
    return;
  h->sparse_moved = now;
  list_move_all(&h->vacant, &h->sparse_old);
  list_move_all(&h->sparse, &h->sparse_old);
}

/* A program that sleeps later does nothing then: what is too much goes now. Some
 * sparse slabs are part of any busy program. */
static void purge_sparse_excess(heap *h) {
  bool vacant = load_relaxed(&vacant_bytes) > PURGE_KEEP_LEAST,
       sparse = load_relaxed(&sparse_bytes) > max_size(2 * PURGE_KEEP_LEAST, supply_used() / 8);
  if (LIKELY(!vacant && !sparse))
    return;
  size_t regretted = supply_regretted();
  if (vacant && load_relaxed(&vacant_bytes) > PURGE_KEEP_LEAST + regretted)
    purge_list(h, &h->vacant, UPKEEP_PURGE);
  if (sparse && load_relaxed(&sparse_bytes) > supply_used() / 8 + regretted &&
      purge_list(h, &h->sparse_old, UPKEEP_PURGE) == 0)
    purge_list(h, &h->sparse, UPKEEP_PURGE);
}

/* need is 0, but for what was held back. */
static void slab_thinned(heap *h, slab *s) {
  if (!slab_gather(s, 0)) {
    slab_bury(s);
    return;
  }
  if (!need_of(s)) {
    slab_emptied(h, s);
    return;
  }
  sparse_join(s, &h->sparse, false);
  purge_sparse_excess(h);
}

/* ---- The slab event ---- */

/* It is not full any more. */
static void count_opened(heap *h, const slab *s) {
  h->full[s->size_class] -= (uint32_t)min_size(h->full[s->size_class], s->slices);
}

/* Some blocks of a PARKED slab are free again. If it is QUEUED by now, the queue
 * will open it; if it is DEAD they were the last. */
static void slab_wakes(heap *h, slab *s) {
  set_need(s, out_of(s));
  bool opened = mail_unpark(s);
  set_reserve(s, 0);
  if (opened) {
    count_opened(h, s);
    slab_open(h, s);
    if (need_of(s))
      slab_arm(s);
    else
      slab_emptied(h, s);
  }
}

internal bool heap_hand_back_asked(heap *h, slab *s) {
  if (!heap_hand_to_back(h, s) || (s->free->next && !heap_hand_back_count(s)) || !budget_is_asked(h))
    return false;
  if (!h->hot.asked)
    budget_unseen(h, s->size_class);
  return heap_hand_back(h, s, s->free) || s->block_size > TABLE_MAX;
}

internal void heap_slab_event(heap *h, slab *s) {
  if (list_empty(&s->avail))
    slab_wakes(h, s);
  else if (load_relaxed(&s->reserve))
    slab_thinned(h, s);
  else {
    slab_emptied(h, s);
    purge_sparse_excess(h);
  }
}

/* The event comes again with the next free. If a sender has ended the slab, its owner
 * will find out. */
internal void heap_slab_event_nested(slab *s) {
  set_need(s, 1);
  if (mail_touch(s))
    set_reserve(s, load_relaxed(&s->reserve) - 1);
}

/* Opens the slabs that mail was queued for. False: there were none. */
static bool queue_drain(heap *h) {
  slab *s = load_relaxed(&h->queue) ? exchange_acquire(&h->queue, NULL) : NULL;
  bool any = s != NULL;
  while (s) {
    slab *next = s->queued;
    count_opened(h, s);
    if (slab_gather(s, 0)) {
      slab_open(h, s);
      if (!need_of(s))
        slab_emptied(h, s);
    } else {
      slab_descriptor_give(s);
    }
    s = next;
  }
  return any;
}

internal void heap_free_own(heap *h, slab *s, block *b) {
  b->next = s->free;
  s->free = b;
  if (count_down_release(&s->need))
    heap_slab_event(h, s);
}

/* ---- Refill ---- */

/* Few enough that a refill from another slab will last longer. */
static bool has_few(const slab *s) {
  return free_count(s) < PLENTY && free_count(s) * 8 < s->capacity;
}

/* Takes blocks out of an OPEN slab: its local list, else its mail, else more of what
 * is not threaded, if the account allows. Parks it if nothing remains. *count of them.
 * *dead: a sender ended it. Every way raises need before it changes the mail word, and touches blocks
 * after. */
static block *slab_take_blocks(heap *h, slab *s, uint32_t *count, bool *dead) {
  uint32_t before = out_of(s), mailed, local = within(s) - before;
  uint32_t more = s->free ? 0 : load_relaxed(&s->purged) ? sparse_step(s) : slab_unthreaded_step(s);
  block *list = s->free, *chain = NULL;
  set_need(s, s->threaded + more);
  *dead = false;
  if (s->threaded == s->capacity && !load_relaxed(&s->purged) && slab_park(h, s)) {
    sparse_leave(s);
    s->free = NULL;
    *count = local;
    return list;
  }
  *dead = !mail_take(s, &chain, &mailed);
  if (*dead)
    return NULL;
  sparse_leave(s);
  set_reserve(s, 0);
  s->free = list ? chain : NULL; /* what is not taken now is for the next time */
  if (list || chain) {
    set_need(s, list ? within(s) - mailed : before);
    slab_arm(s);
    *count = list ? local : mailed;
    return list ? list : chain;
  }
  if (!account_charge(load_relaxed(&h->account), more * s->block_size)) {
    set_need(s, before);
    h->refused = true;
    return NULL;
  }
  set_need(s, before + more);
  *count = more;
  if (load_relaxed(&s->purged)) {
    supply_note_sparse_reuse(more * s->block_size);
    return sparse_thread(s);
  }
  return more ? slab_thread(s, more) : NULL;
}

/* Free blocks from the class's OPEN slabs, oldest first. One that the account lets have
 * no more memory goes behind those that may have free blocks. */
static block *refill_from_open(heap *h, unsigned size_class, uint32_t *count) {
  list_node *list = &h->avail[size_class];
  unsigned rotations = ROTATIONS;
  const slab *refused = NULL; /* the first */
  while (!list_empty(list)) {
    slab *s = CONTAINER_OF(list->next, slab, avail);
    bool dead;
    h->refused = s == refused;
    if (UNLIKELY(h->refused))
      return NULL;
    if (list->prev != &s->avail && rotations && s->free && has_few(s)) {
      rotations--;
      list_remove(&s->avail);
      list_push_back(list, &s->avail);
      continue;
    }
    block *blocks = slab_take_blocks(h, s, count, &dead);
    if (blocks)
      return blocks;
    if (dead) {
      slab_bury(s);
    } else if (UNLIKELY(h->refused)) {
      refused = refused ? refused : s;
      list_remove(&s->avail);
      list_push_back(list, &s->avail);
    }
  }
  h->refused = false;
  return NULL;
}

/* A class that has filled as much as a huge page will fill the next slab as well. Of blocks above a
 * page the program may not touch all. */
static bool is_dense(const heap *h, unsigned size_class) {
  return h->full[size_class] >= HUGE_SLICES && class_size(size_class) <= os_page();
}

static uint32_t chain_length(const block *b) {
  uint32_t n = 0;
  for (; b; b = b->next)
    n++;
  return n;
}

static void give_chain(slab *s, block *chain) {
  if (!chain)
    return;
  chain_join(chain, s->free);
  s->free = chain;
}

static bool is_chain_of(const slab *s, const block *chain) {
  return !chain || slab_of_entry(map_get(chain)) == s;
}

/* The blocks of an OPEN slab that are in the hand or held go back to it, if nothing else of it is out. True: it is
 * empty; then no sender is about. */
static bool slab_collect(heap *h, slab *s) {
  if (!out_of(s))
    return true;
  uint32_t count = 0;
  block *hand = heap_hand_off(h, s->size_class);
  const block *held = budget_held(h, s->size_class, &count);
  if (!is_chain_of(s, hand) || !is_chain_of(s, held) || chain_length(hand) + count != out_of(s)) {
    h->hot.hand[s->size_class] = hand;
    return false;
  }
  give_chain(s, hand);
  give_chain(s, budget_release(h, s->size_class, &count));
  set_reserve(s, 0);
  set_need(s, 0);
  return true;
}

/* Of classes with blocks of many pages what is empty, but for the hand, makes room for another. */
static void wide_collect(heap *h) {
  for (unsigned c = class_of(WIDE_ABOVE) + 1; c < CLASS_COUNT; c++) {
    const list_node *list = &h->avail[c];
    slab *s = list_empty(list) ? NULL : CONTAINER_OF(list->next, slab, avail);
    if (!s || !heap_slab_is_alone(s) || !slab_collect(h, s))
      continue;
    list_remove(&s->avail);
    sparse_leave(s);
    spare_keep_wanted(h, s);
  }
}

/* Each slab is parked, opened and emptied at a cost, however few blocks it has: a class that has filled
 * many gets larger ones, up to a fourth of what it has filled. Not out of memory that was
 * prepared for slabs as they are else. */
static unsigned slices_of_next(const heap *h, unsigned size_class) {
  unsigned least = class_slices(size_class), slices = least;
  size_t most = min_size(LARGER_SLICES, h->full[size_class] / 4);
  while (slices + least <= most && slices * SLICE_SIZE < LARGER_BLOCKS * class_size(size_class))
    slices += least;
  return UNLIKELY(supply_is_prewarmed()) ? least : slices;
}

static slab *slab_make_for(heap *h, unsigned size_class, unsigned slices, bool dense) {
  slab *s = slab_make(size_class, slices, h, h->hot.tag, dense);
  if (s && UNLIKELY(h->taker != TAG_NONE))
    slab_watch_all(s, h->taker);
  return s;
}

static slab *slab_find(heap *h, unsigned size_class) {
  slab *s = spare_take(h, size_class);
  if (!s && class_size(size_class) > WIDE_ABOVE)
    wide_collect(h);
  if (s)
    return s;
  unsigned slices = slices_of_next(h, size_class), least = class_slices(size_class);
  bool dense = is_dense(h, size_class);
  s = slab_make_for(h, size_class, slices, dense);
  return s || slices == least ? s : slab_make_for(h, size_class, least, dense);
}

static block *refill_from_slabs(heap *h, unsigned size_class, uint32_t *count) {
  block *list;
  do
    list = refill_from_open(h, size_class, count);
  while (!list && queue_drain(h));
  if (!list && !h->refused) {
    slab *s = slab_find(h, size_class);
    bool dead;
    if (!s)
      return NULL;
    list_push_front(&h->avail[size_class], &s->avail);
    list = slab_take_blocks(h, s, count, &dead);
  }
  return list;
}

/* Of a list of count blocks the first, and the others to the hand. */
static ALWAYS_INLINE block *deal(heap *h, unsigned size_class, block *list, uint32_t count) {
  if (LIKELY(heap_charge(&h->hot.hand[size_class], count)))
    h->hot.hand[size_class] = list->next;
  else
    budget_ration(h, size_class, list, count);
  return list;
}

internal block *heap_refill(heap *h, unsigned size_class) {
  uint32_t count;
  block *list = refill_from_slabs(h, size_class, &count);
  return LIKELY(list != NULL) ? deal(h, size_class, list, count) : NULL;
}

internal NOINLINE block *heap_refill_held(heap *h, unsigned size_class) {
  uint32_t count;
  block *list = budget_release(h, size_class, &count);
  return list ? deal(h, size_class, list, count) : heap_refill(h, size_class);
}

/* ---- Upkeep ---- */

static void tidy_slab(heap *h, slab *s) {
  if (!slab_gather(s, 0))
    slab_bury(s);
  else if (!need_of(s))
    slab_retire(h, s);
}

static void tidy_class(heap *h, list_node *list) {
  for (list_node *n = list->next, *next; n != list; n = next) {
    next = n->next;
    tidy_slab(h, CONTAINER_OF(n, slab, avail));
  }
}

internal size_t heap_give_back_spares(heap *h) {
  return spares_give_back(h) + front_give_back(h);
}

internal void heap_tidy(heap *h) {
  outbox_flush(h);
  queue_drain(h);
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    tidy_class(h, &h->avail[c]);
  purge_list(h, &h->sparse_old, SIZE_MAX);
  purge_list(h, &h->vacant, SIZE_MAX);
  purge_list(h, &h->sparse, SIZE_MAX);
  heap_give_back_spares(h);
}

internal void heap_upkeep_now(heap *h) {
  uint64_t now = os_now_ms();
  if (UNLIKELY(load_relaxed(&h->seat) != NULL))
    bell_ring(); /* when its thread sleeps the helper has to look */
  if (now - h->tidied < option_get(OPTION_purge_delay))
    return;
  h->tidied = now;
  outbox_flush(h);
  spares_upkeep(h);
  queue_drain(h);
  purge_sparse_aged(h, now);
  supply_purge_aged(now, UPKEEP_PURGE);
}

static void flush_list(heap *h, block *b) {
  while (b) {
    block *next = b->next;
    heap_free_own(h, slab_of_entry(map_get(b)), b);
    b = next;
  }
}

internal void heap_flush(heap *h) {
  outbox_flush(h);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint32_t count;
    flush_list(h, heap_hand_off(h, c));
    flush_list(h, budget_release(h, c, &count));
  }
}

internal size_t heap_ready(const heap *h, unsigned size_class) {
  uint32_t count = 0;
  budget_held(h, size_class, &count);
  return chain_length(h->hot.hand[size_class]) + count;
}

/* ---- Accounts that end ---- */

/* On a list or not: a parked one is on none. One that a sender ended has no memory, nor
 * one that a thread which fork cut off was just giving back. */
static void release_if_charged(slab *s, void *a) {
  if (heap_account_of(s) != a)
    return;
  if (slab_of_entry(map_get(s->start)) != s) {
    sparse_leave(s);
    slab_descriptor_give(s);
    return;
  }
  if (s->kind != SLAB_SMALL) {
    large_give(s);
    return;
  }
  sparse_leave(s);
  if (mail_state_of(load_acquire(&s->mail)) == MAIL_DEAD)
    slab_descriptor_give(s);
  else
    slab_release(s);
}

internal void heap_release_account(account *a) { slab_for_each(release_if_charged, a); }

internal void heap_forget_all(heap *h) {
  uint32_t count;
  heap_init(h, h->hot.tag);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    h->hot.hand[c] = NULL;
    h->full[c] = 0;
    budget_release(h, c, &count);
    store_relaxed(&h->spare[c], NULL);
  }
  store_relaxed(&h->spared, 0);
  store_relaxed(&h->queue, NULL);
  h->is_blank = true;
  store_release(&h->account, NULL); /* from now on the helper looks at it */
}

/* ---- After fork ---- */

/* The thread may have pushed a block without counting it, or counted it without
 * seeing to the event. Counting anew settles the first, the event the second. */
static void repair_slab(slab *s, void *unused) {
  block *chain;
  heap *h = load_acquire(&s->owner);
  uint32_t count;
  (void)unused;
  if (s->kind != SLAB_SMALL || !h)
    return;
  if (!h->needs_repair && !h->is_sampled)
    return;
  if (load_relaxed(&slab_stand_in(s)->reserve)) /* it was used; what is on its list now stays there */
    store_relaxed(&slab_stand_in(s)->need, 1);
  if (!h->needs_repair)
    return;
  mail_state state = mail_state_of(load_acquire(&s->mail));
  if (state == MAIL_OPEN) {
    /* On no list: a spare, or on its way back to the supply. */
    if (list_empty(&s->avail))
      return;
    /* Other threads of the child may send meanwhile, and must not end the slab. */
    set_need(s, s->threaded);
    if (!mail_take(s, &chain, &count)) {
      slab_bury(s);
      return;
    }
    set_reserve(s, 0);
    if (chain)
      take_in(s, chain, count);
    set_need(s, within(s) - chain_length(s->free));
    if (!need_of(s))
      slab_emptied(h, s);
  } else if (state != MAIL_DEAD && s->free) {
    /* One too high for the walk. */
    set_need(s, need_of(s) + 1);
    if (!mail_touch(s))
      return;
    set_need(s, s->threaded - chain_length(s->free) - load_relaxed(&s->reserve));
    if (!need_of(s))
      heap_slab_event(h, s);
  }
}

internal void heap_repair_all(void) { slab_for_each(repair_slab, NULL); }

/* ---- Checking ---- */

static unsigned check_blocks(const slab *s) {
  for (const block *b = s->free; b; b = b->next) {
    size_t offset = (size_t)((const char *)b - s->start);
    if (offset >= s->threaded * s->block_size || offset % s->block_size)
      return report_violation(true, "free list leaves the slab", s);
    if (load_relaxed(&s->purged) && sparse_is_purged(s, b))
      return report_violation(true, "free block in a purged page", s);
  }
  return 0;
}

static unsigned check_slab(const heap *h, const slab *s) {
  unsigned wrong = check_blocks(s);
  map_tag tag = h->is_sampled ? map_entry_tag(map_get(s->start)) : h->hot.tag;
  map_entry entry = map_entry_of(slab_is_watched(s) ? slab_stand_in(s) : s, tag);
  wrong += report_violation(!wrong && chain_length(s->free) + out_of(s) != within(s),
                    "threaded != |free| + need + reserve + purged", s);
  wrong += report_violation(s->threaded > s->capacity, "threaded > capacity", s);
  wrong += report_violation(!need_of(s) && load_relaxed(&s->reserve), "reserve without need", s);
  wrong += report_violation(mail_state_of(load_relaxed(&s->mail)) != MAIL_OPEN,
                    "on a list but not OPEN", s);
  wrong += report_violation(load_relaxed(&s->owner) != h, "on another heap's list", s);
  for (uint32_t i = 0; i < s->slices; i++)
    wrong += report_violation(map_get(s->start + i * SLICE_SIZE) != entry, "pagemap entry", s);
  return wrong;
}

internal unsigned heap_check(heap *h) {
  unsigned wrong = 0;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    list_node *list = &h->avail[c];
    for (list_node *n = list->next; n != list; n = n->next) {
      slab *s = CONTAINER_OF(n, slab, avail);
      if (mail_state_of(load_relaxed(&s->mail)) != MAIL_DEAD)
        wrong += check_slab(h, s);
    }
    slab *spares = exchange_acq_rel(&h->spare[c], NULL); /* out of the helper's reach */
    for (slab *s = spares; s; s = s->queued)
      wrong += check_slab(h, s) + report_violation(need_of(s), "spare in use", s);
    if (spares)
      store_release(&h->spare[c], spares);
  }
  for (send_slot *s = h->slots; s < h->slots + SLOT_COUNT; s++)
    wrong += report_violation(!s->slab != !s->count || (s->slab && s->count >= s->most) ||
                                chain_length(s->count ? s->head : NULL) != s->count,
                              "slot", s->slab);
  return wrong;
}
