/* ticks: the recorder's clock. It counts as os_now_ns does, but reads the processor's counter
 * itself where that is what the system's clock is made from, which takes a fraction of the time.
 *
 * The counter's rate is measured at the start, to about 1 in 10,000; by so much the clock may
 * run faster or slower than the system's. A child of fork goes on with its parent's.
 *
 * Threads: any, after ticks_start.
 */
#ifndef MASU_OBSERVE_TICKS_H
#define MASU_OBSERVE_TICKS_H

#include "base/atomic.h"
#include "os/os.h"

/* A moment on both clocks, and nanoseconds per tick in units of 2^-32; 0: os_now_ns is asked. */
typedef struct tick_scale {
  uint64_t ticks, ns, ns_per_tick;
} tick_scale;
internal_data tick_scale ticks_scale;

/* Once, in a process of one thread. Takes some 0.2 ms. */
internal void ticks_start(void);

/* in_order: after all that the thread read from memory so far, so that what one thread saw of
 * another comes later than what that one did before. A processor reads its counter early otherwise. */
static ALWAYS_INLINE uint64_t ticks_now_ns(bool in_order) {
#ifdef __x86_64__
  __extension__ typedef unsigned __int128 wide;
  if (LIKELY(ticks_scale.ns_per_tick != 0)) {
    if (in_order)
      __builtin_ia32_lfence();
    uint64_t passed = __builtin_ia32_rdtsc() - ticks_scale.ticks;
    return ticks_scale.ns + (uint64_t)((wide)passed * ticks_scale.ns_per_tick >> 32);
  }
#endif
  (void)in_order;
  return os_now_ns();
}

#endif
