/* account: what a named heap uses, and how much it may.
 *
 *     used == sum of threaded blocks in the heap's slabs (those in purged pages
 *             excluded) + sum of its large blocks, in bytes
 *
 * so `used` is the memory that the heap has touched, and grows in steps of a page: the
 * hit path counts nothing.
 *
 * Threads: any, without locks; two threads may overshoot neither limit.
 */
#ifndef MASU_HEAP_ACCOUNT_H
#define MASU_HEAP_ACCOUNT_H

#include "base/atomic.h"
#include "base/attr.h"

struct heap;

typedef struct account {
  atomic_word used, peak;
  atomic_word hard, soft; /* SIZE_MAX: no limit */
  atomic_u64 refused;     /* allocations that the hard limit turned away */
  struct heap *parked;    /* limbs that no thread uses; the roster's */
  struct heap *sampled;   /* the limb of blocks that an observer looks at; under LOCK_SAMPLES */
  atomic_u32 has_samples; /* an observer knows of blocks, or did */
  void (*exceeded)(struct account *a); /* called when used gets above soft; NULL: nothing is */
  atomic_u32 is_above;    /* it was called, and used did not fall below soft since */
} account;

static inline void account_init(account *a) {
  store_relaxed(&a->used, 0);
  store_relaxed(&a->peak, 0);
  store_relaxed(&a->hard, SIZE_MAX);
  store_relaxed(&a->soft, SIZE_MAX);
  store_relaxed(&a->refused, 0);
  a->parked = NULL;
  a->sampled = NULL;
  store_relaxed(&a->has_samples, 0);
  a->exceeded = NULL;
  store_relaxed(&a->is_above, 0);
}

/* a NULL: nobody's account. False: it would go beyond the hard limit; nothing changed. */
static inline bool account_charge(account *a, size_t bytes) {
  if (LIKELY(!a || !bytes))
    return true;
  size_t used = load_relaxed(&a->used), peak = load_relaxed(&a->peak);
  do {
    size_t hard = load_relaxed(&a->hard);
    if (bytes > hard || used > hard - bytes)
      return false;
  } while (!cas_acq_rel(&a->used, &used, used + bytes));
  while (peak < used + bytes && !cas_acq_rel(&a->peak, &peak, used + bytes))
    ;
  return true;
}

/* After memory was taken, outside of every slow path. */
static inline void account_notice(account *a) {
  if (UNLIKELY(load_relaxed(&a->used) > load_relaxed(&a->soft)) && !exchange_acq_rel(&a->is_above, 1) &&
      a->exceeded)
    a->exceeded(a);
}

static inline void account_discharge(account *a, size_t bytes) {
  if (LIKELY(!a))
    return;
  if (sub_relaxed(&a->used, bytes) - bytes <= load_relaxed(&a->soft))
    store_relaxed(&a->is_above, 0);
}

#endif
