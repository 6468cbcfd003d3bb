/* hammer: threads that allocate and free all the time, with blocks under way
 * between them. What stands in `parcels` is a live, stamped block at any moment,
 * so that also the child of a fork may take and free it. */
#ifndef MASU_TESTS_HAMMER_H
#define MASU_TESTS_HAMMER_H

#include <stdatomic.h>

#include "gate.h"

enum { HAMMER_THREADS = 6, HAMMER_PARCELS = 512, HAMMER_OWN = 64 };

struct parcel {
  uint32_t size;
  unsigned char mark;
};
static _Atomic(struct parcel *) parcels[HAMMER_PARCELS];
static _Atomic(struct parcel *) hammer_own[HAMMER_THREADS][HAMMER_OWN];
static atomic_bool hammer_stop;
static pthread_t hammer_threads[HAMMER_THREADS];

static inline struct parcel *parcel_stamp(struct parcel *p, size_t size) {
  p->size = (uint32_t)size;
  p->mark = (unsigned char)((uintptr_t)p >> 4);
  ((unsigned char *)p)[size - 1] = p->mark;
  return p;
}
static inline struct parcel *parcel_make(uint64_t *random) {
  size_t size = sizeof(struct parcel) + random_size(random);
  struct parcel *p = malloc(size);
  return p ? parcel_stamp(p, size) : NULL;
}
static inline void parcel_check(struct parcel *p) {
  CHECK(p->mark == (unsigned char)((uintptr_t)p >> 4) &&
            ((unsigned char *)p)[p->size - 1] == p->mark,
        "block %p was overwritten", (void *)p);
}
static inline void parcel_free(struct parcel *p) {
  if (p) {
    parcel_check(p);
    free(p);
  }
}
static inline struct parcel *parcel_resize(struct parcel *p, uint64_t *random) {
  parcel_check(p);
  size_t size = sizeof(struct parcel) + random_size(random);
  struct parcel *q = realloc(p, size);
  return q ? parcel_stamp(q, size) : parcel_stamp(p, p->size);
}

static inline void hammer_step(unsigned me, uint64_t *random) {
  _Atomic(struct parcel *) *own = &hammer_own[me][next_random(random) % HAMMER_OWN];
  switch (next_random(random) % 4) {
  case 0: /* swap with somebody */
    parcel_free(atomic_exchange(&parcels[next_random(random) % HAMMER_PARCELS],
                                parcel_make(random)));
    break;
  case 1: {
    struct parcel *p = atomic_exchange(own, NULL);
    atomic_store(own, p ? parcel_resize(p, random) : parcel_make(random));
    break;
  }
  default:
    parcel_free(atomic_exchange(own, NULL));
    atomic_store(own, parcel_make(random));
  }
}
static inline void *hammer_body(void *argument) {
  unsigned me = (unsigned)(uintptr_t)argument;
  uint64_t random = 77 + me;
  while (!atomic_load_explicit(&hammer_stop, memory_order_relaxed))
    hammer_step(me, &random);
  return NULL;
}
static inline void hammer_start(void) {
  for (uintptr_t i = 0; i < HAMMER_THREADS; i++)
    hammer_threads[i] = start(hammer_body, (void *)i);
}
/* Every block of every thread, also after fork. */
static inline void hammer_free_all(void) {
  for (unsigned i = 0; i < HAMMER_PARCELS; i++)
    parcel_free(atomic_exchange(&parcels[i], NULL));
  for (unsigned t = 0; t < HAMMER_THREADS; t++)
    for (unsigned i = 0; i < HAMMER_OWN; i++)
      parcel_free(atomic_exchange(&hammer_own[t][i], NULL));
}
static inline void hammer_finish(void) {
  atomic_store(&hammer_stop, true);
  for (unsigned i = 0; i < HAMMER_THREADS; i++)
    finish(hammer_threads[i]);
  hammer_free_all();
}

#endif
