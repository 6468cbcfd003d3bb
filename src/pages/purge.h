/* purge: when freed memory goes back to the system. Policy only: pure functions
 * over a struct, with the time passed in as milliseconds.
 *
 * Freed slices stay resident for a while, since to fault them in again costs a
 * hundred times what reusing them does. Two rules give them back:
 *   by age, wherever something ticks: a slice that stayed free and untouched
 *     between two visits at least `delay` apart is purged;
 *   by amount, in programs where nothing ticks while they sleep: what is idle
 *     beyond a cap is purged as memory is freed.
 * Both learn by regret. A slice that is needed again soon after it was purged was
 * purged in vain; so many bytes more are kept from then on, and that halves every
 * second.
 */
#ifndef MASU_PAGES_PURGE_H
#define MASU_PAGES_PURGE_H

#include "base/attr.h"

enum {
  PURGE_REGRET_MS = 2000,  /* needed again within this time: regretted */
  PURGE_HALVING_MS = 1000, /* of what regret made us keep */
};
#define PURGE_KEEP_LEAST (16 * MIB)

typedef struct purge_policy {
  size_t regretted;    /* bytes kept beyond the rest, for regret */
  uint64_t halved_at;  /* when that was last halved */
} purge_policy;

/* Times come from different moments: what is ahead of `now` has just happened. */
static inline uint64_t purge_elapsed(uint64_t then, uint64_t now) {
  return now > then ? now - then : 0;
}

static inline bool purge_is_due(uint64_t visited, uint64_t now, uint64_t delay) {
  return purge_elapsed(visited, now) >= delay;
}

/* `size` bytes that were purged at `purged_at` are taken again. */
static inline void purge_note_reuse(purge_policy *policy, size_t size,
                                    uint64_t purged_at, uint64_t now) {
  if (purge_elapsed(purged_at, now) < PURGE_REGRET_MS)
    policy->regretted += size;
}

/* How many idle bytes may stay resident at any age. */
static inline size_t purge_regretted(purge_policy *policy, uint64_t now) {
  uint64_t halvings = purge_elapsed(policy->halved_at, now) / PURGE_HALVING_MS;
  if (halvings) {
    policy->regretted = halvings < 64 ? policy->regretted >> halvings : 0;
    policy->halved_at += halvings * PURGE_HALVING_MS;
  }
  return policy->regretted;
}

/* How many while `used` bytes are in use. */
static inline size_t purge_cap(purge_policy *policy, size_t used, uint64_t now) {
  return max_size(PURGE_KEEP_LEAST, used / 4) + purge_regretted(policy, now);
}

#endif
