#include "heap/roster.h"

#include "base/options.h"
#include "heap/budget.h"
#include "os/bell.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/meta.h"

enum { RESERVED_TAGS = 2 }; /* for the orphan and for samples, however many threads there are */

/* Guarded by LOCK_ROSTER, orphan by LOCK_ORPHAN, sampled by LOCK_SAMPLES. */
static struct {
  heap *all;
  heap *blank; /* limbs of no named heap */
  unsigned parked_count;
  uint32_t tags, limb_tags; /* given out */
  heap *orphan, *sampled;
  bool repair; /* some heap needs_repair */
  bool untidy; /* some heap was parked since all were tidied */
} roster;
static list_node parked = {&parked, &parked}; /* those that are no limbs, joined from the front */

/* Lock held. */
static heap *heap_make(bool limb, uint32_t reserved) {
  uint32_t *given = limb ? &roster.limb_tags : &roster.tags;
  uint32_t tag = (limb ? TAG_FIRST_LIMB : TAG_FIRST_HEAP) + *given;
  if (tag + reserved >= (limb ? TAG_LIMIT : TAG_FIRST_LIMB))
    return NULL;
  heap *h = meta_alloc(sizeof *h);
  if (!h)
    return NULL;
  heap_init(h, (map_tag)tag);
  ++*given;
  h->next = roster.all;
  roster.all = h;
  return h;
}

static void clear_repair(void) {
  for (heap *h = roster.all; h; h = h->next)
    h->needs_repair = false;
  roster.repair = false;
}

/* Lock held. */
static void parked_push(heap *h, bool front) {
  if (front)
    list_push_front(&parked, &h->idle);
  else
    list_push_back(&parked, &h->idle);
  h->is_parked = true;
  roster.parked_count++;
}

/* Lock held. One pass over all slabs serves all heaps that fork cut off: until then
 * each of them is parked, so nobody uses them. */
static void repair(void) {
  if (UNLIKELY(roster.repair)) {
    heap_repair_all();
    clear_repair();
  }
}

/* Lock held. `wanted` if it is there, else the first. */
static heap *parked_pop(heap *wanted) {
  heap *h = wanted && !list_empty(&wanted->idle) ? wanted
            : list_empty(&parked)                ? NULL
                                                 : CONTAINER_OF(parked.next, heap, idle);
  repair();
  if (h) {
    list_remove(&h->idle);
    h->is_parked = false;
    roster.parked_count--;
  }
  return h;
}

/* Lock held. */
static void limb_push(account *a, heap *h) {
  h->parked = a->parked;
  h->is_parked = true;
  h->host = NULL;
  a->parked = h;
}

/* Lock held. */
static heap *limb_pop(account *a) {
  heap *h = a->parked;
  repair();
  if (h) {
    a->parked = h->parked;
    h->is_parked = false;
  }
  return h;
}

/* Lock held. */
static void blank_push(heap *h) {
  h->parked = roster.blank;
  h->is_parked = true;
  h->host = NULL;
  roster.blank = h;
}

/* Lock held. */
static heap *blank_pop(void) {
  heap *h = roster.blank;
  if (h) {
    roster.blank = h->parked;
    h->is_parked = h->is_blank = false;
  }
  return h;
}

/* The system's number costs a call, and a thread's life may be as short as ten. */
static uint32_t calling_thread(void) {
  return option_get(OPTION_live) || option_get(OPTION_sleepers) ? os_thread_id() : HEAP_USER_UNKNOWN;
}

static heap *join(account *a, heap *wanted, uint32_t reserved) {
  lock_take(LOCK_ROSTER);
  heap *h = a ? limb_pop(a) : parked_pop(wanted);
  if (!h && a)
    h = blank_pop();
  if (!h)
    h = heap_make(a != NULL, reserved);
  if (h) {
    store_relaxed(&h->account, a);
    store_relaxed(&h->user, calling_thread());
    h->hot.limbs = NULL; /* those of a thread that fork cut off */
    h->hot.scopes = NULL;
    heap_forget_hands(h);
  }
  lock_drop(LOCK_ROSTER);
  return h;
}

internal heap *roster_join(account *a) { return join(a, NULL, a ? 0 : RESERVED_TAGS); }
internal heap *roster_join_again(heap *wanted) { return join(NULL, wanted, RESERVED_TAGS); }

/* Lock held. */
static void park(heap *h, bool front) {
  store_relaxed(&h->seat, NULL);
  parked_push(h, front);
  roster.untidy = true;
}

internal void roster_park_sleeper(heap *h) {
  store_relaxed(&h->user, 0);
  park(h, false);
}

internal void roster_leave(heap *h) {
  account *a = load_relaxed(&h->account);
  store_relaxed(&h->user, 0);
  lock_take(LOCK_ROSTER);
  if (a) {
    limb_push(a, h);
  } else if (h->is_blank) {
    blank_push(h);
  } else {
    park(h, true);
  }
  lock_drop(LOCK_ROSTER);
  bell_ring(); /* mail that came to its slabs is the helper's to find */
}

internal void roster_repair(void) {
  lock_take(LOCK_ROSTER);
  repair();
  lock_drop(LOCK_ROSTER);
}

internal void roster_release_account(account *a) {
  roster_repair();
  heap_release_account(a);
  lock_take(LOCK_ROSTER);
  for (heap *h = roster.all; h; h = h->next) {
    if (load_relaxed(&h->account) != a)
      continue;
    heap_forget_all(h);
    if (h->is_parked || h->is_sampled)
      blank_push(h);
    h->is_sampled = false;
  }
  a->sampled = NULL;
  lock_drop(LOCK_ROSTER);
}

internal heap *roster_orphan(void) {
  if (!roster.orphan)
    roster.orphan = join(NULL, NULL, 0);
  return roster.orphan;
}

/* A new one, or a blank limb: nothing else may bear its tag. */
internal heap *roster_sampled(account *a) {
  heap **place = a ? &a->sampled : &roster.sampled;
  if (*place)
    return *place;
  lock_take(LOCK_ROSTER);
  heap *h = a ? blank_pop() : NULL;
  if (!h)
    h = heap_make(a != NULL, 0);
  if (h) {
    store_relaxed(&h->account, a);
    h->is_sampled = true;
  }
  *place = h;
  lock_drop(LOCK_ROSTER);
  return h;
}

static heap *pop_to_visit(unsigned *left, heap *done) {
  lock_take(LOCK_ROSTER);
  if (done) {
    done->busy = false;
    parked_push(done, false);
  }
  *left = min_size(*left, roster.parked_count);
  heap *h = *left ? parked_pop(NULL) : NULL;
  if (h)
    h->busy = true; /* for fork: half done */
  lock_drop(LOCK_ROSTER);
  return h;
}

/* One at a time from the front to the back, so that a thread that starts meanwhile
 * finds the others. */
internal void roster_visit_parked(void (*visit)(heap *h, void *context), void *context) {
  unsigned left = UINT32_MAX;
  heap *h = NULL;
  while ((h = pop_to_visit(&left, h))) {
    compiler_fence();
    visit(h, context);
    compiler_fence();
    left--;
  }
}

static void tidy(heap *h, void *unused) {
  (void)unused;
  heap_flush(h);
  heap_tidy(h);
}

internal void roster_tidy_parked(void) {
  lock_take(LOCK_ROSTER);
  roster.untidy = false;
  lock_drop(LOCK_ROSTER);
  roster_visit_parked(tidy, NULL);
}

internal bool roster_is_untidy(void) {
  lock_take(LOCK_ROSTER);
  bool untidy = roster.untidy;
  lock_drop(LOCK_ROSTER);
  return untidy;
}

internal void roster_for_each(void (*visit)(heap *h, void *context), void *context) {
  lock_take(LOCK_ROSTER);
  heap *h = roster.all;
  lock_drop(LOCK_ROSTER);
  for (; h; h = h->next) /* heaps are only ever added in front */
    if (!h->sealed)
      visit(h, context);
}

static void give_back(heap *h, void *bytes) {
  if (h->hot.tag < TAG_FIRST_LIMB) /* a limb's are its thread's, or gone with it */
    *(size_t *)bytes += heap_give_back_spares(h);
}

internal size_t roster_give_back_spares(void) {
  size_t bytes = 0;
  roster_for_each(give_back, &bytes);
  return bytes;
}

static void check(heap *h, void *wrong) { *(unsigned *)wrong += heap_check(h); }

static void check_if_in_use(heap *h, void *wrong) {
  lock_take(LOCK_ROSTER);
  bool in_use = !h->is_parked && !h->busy;
  lock_drop(LOCK_ROSTER);
  if (in_use)
    check(h, wrong);
}

internal unsigned roster_check(void) {
  unsigned wrong = 0;
  roster_visit_parked(check, &wrong);
  roster_for_each(check_if_in_use, &wrong);
  return wrong;
}

internal unsigned roster_count(void) {
  lock_take(LOCK_ROSTER);
  unsigned n = roster.tags + roster.limb_tags;
  lock_drop(LOCK_ROSTER);
  return n;
}

internal void roster_fork_child(heap *mine) {
  for (heap *h = roster.all; h; h = h->next) {
    bool is_mine = h == mine || (mine && h->host == mine);
    store_relaxed(&h->user, is_mine ? calling_thread() : 0);
    if (h != mine)
      store_relaxed(&h->seat, NULL);
    if (h == mine || h == roster.orphan || h->is_sampled || h->sealed || h->is_parked ||
        (mine && h->host == mine))
      continue;
    if (h->busy) {
      h->sealed = true;
      continue;
    }
    if (h->is_blank) { /* holds nothing to repair */
      blank_push(h);
      continue;
    }
    h->needs_repair = roster.repair = true;
    budget_fork_child(h);
    account *a = load_relaxed(&h->account);
    if (a)
      limb_push(a, h);
    else
      parked_push(h, true);
  }
}
