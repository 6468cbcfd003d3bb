#include "os/bell.h"

#include "base/atomic.h"
#include "os/os.h"

/* ThreadSanitizer does not know fences; all that they order here is atomic. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

static atomic_u32 armed;

internal_def atomic_u32 bell_enabled;

internal void bell_enable(bool enabled) { store_relaxed(&bell_enabled, enabled); }

internal void bell_ring_loud(void) {
  atomic_thread_fence(memory_order_seq_cst);
  if (UNLIKELY(load_relaxed(&armed)) && exchange_acq_rel(&armed, 0))
    os_wake_one(&armed);
}

internal void bell_arm(void) {
  store_relaxed(&armed, 1);
  atomic_thread_fence(memory_order_seq_cst);
}

internal void bell_sleep(uint32_t timeout_ms) {
  do
    os_wait(&armed, 1, timeout_ms);
  while (!timeout_ms && load_relaxed(&armed));
  bell_disarm();
}

internal void bell_disarm(void) { store_relaxed(&armed, 0); }
