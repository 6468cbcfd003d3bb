/* bell: how threads that free memory wake the helper, which sleeps while there is
 * nothing to give back.
 *
 * No ring is lost: the helper arms the bell, then looks for work once more, then
 * sleeps; who makes work makes it visible first, then looks whether the bell is
 * armed. The sequentially consistent fences on both sides leave no order in which
 * both miss.
 */
#ifndef MASU_OS_BELL_H
#define MASU_OS_BELL_H

#include "base/atomic.h"

/* There is work for the helper. Cheap when nobody sleeps, and nearly free while no
 * helper lives; any thread. */
static inline void bell_ring(void);
/* A helper lives, or not. A new helper first looks for work that was made unheard. */
internal void bell_enable(bool enabled);
/* Helper only: from now on bell_ring wakes; look for work once more after it. */
internal void bell_arm(void);
/* Helper only: returns at once if it rang since bell_arm, else at the next ring or
 * after timeout_ms (0: never). Disarms. */
internal void bell_sleep(uint32_t timeout_ms);
internal void bell_disarm(void);

internal_data atomic_u32 bell_enabled;
internal void bell_ring_loud(void);
static inline void bell_ring(void) {
  if (UNLIKELY(load_relaxed(&bell_enabled)))
    bell_ring_loud();
}

#endif
