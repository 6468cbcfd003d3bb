#include "heap/helper.h"

#include "base/options.h"
#include "heap/roster.h"
#include "heap/sleepers.h"
#include "os/bell.h"
#include "os/os.h"

enum { STEP_LEAST_MS = 10, LONELY_STEP_MS = 50 };

static atomic_u32 running;
static atomic_u32 initial_thread_ended;

static void add_spares(heap *h, void *any) {
  if (h->hot.tag >= TAG_FIRST_LIMB)
    return;
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    *(bool *)any |= load_relaxed(&h->spare[c]) != NULL;
  for (unsigned i = 0; i < FRONT_COUNT; i++)
    *(bool *)any |= load_relaxed(&h->hot.front[i]) != 0;
}

static bool anything_idle(void) {
  bool any = supply_is_aging() || roster_is_untidy() || sleepers_to_come();
  if (!any)
    roster_for_each(add_spares, &any);
  return any;
}

static void give_back_aged(uint64_t *spares_at) {
  uint64_t now = os_now_ms();
  if (now - *spares_at >= option_get(OPTION_purge_delay)) {
    *spares_at = now;
    if (sleepers_to_come())
      os_without_files(sleepers_take);
    roster_tidy_parked();
    roster_give_back_spares();
  }
  supply_purge_aged(now, SIZE_MAX);
}

/* The initial thread stays in the count after its end. Threads of masu's own that come or go
 * between the two counts must not stand for one of the program's. Where the system does not say how many there are,
 * nobody may stay for the program's sake. */
internal bool helper_is_last_thread(void) {
  if (!load_relaxed(&initial_thread_ended))
    return false;
  unsigned own = os_thread_own_count(), all = os_thread_count();
  return !all || (all == 1 + own && os_thread_own_count() == own);
}

internal uint32_t helper_step_ms(void) {
  return load_relaxed(&initial_thread_ended) ? LONELY_STEP_MS : 0;
}

/* Between two looks: no longer than a step once the process may end with this thread. */
static void sleep_a_step(void) {
  size_t ms = max_size(option_get(OPTION_purge_delay) / 2, STEP_LEAST_MS);
  if (load_relaxed(&initial_thread_ended))
    os_sleep_ms((uint32_t)min_size(ms, LONELY_STEP_MS));
  else
    os_wait(&initial_thread_ended, 0, (uint32_t)ms);
}

static void *helper_main(void *unused) {
  uint64_t spares_at = os_now_ms();
  (void)unused;
  os_thread_name("masu-helper");
  while (!helper_is_last_thread()) {
    sleep_a_step();
    give_back_aged(&spares_at);
    if (anything_idle())
      continue;
    bell_arm();
    if (anything_idle())
      bell_disarm();
    else
      bell_sleep(helper_step_ms());
  }
  supply_set_helped(false); /* there may be other threads all the same */
  os_thread_ends();
  return NULL;
}

internal_def _Atomic(void (*)(void)) helper_lonely_hook;

internal void helper_initial_thread_ends(void) {
  store_relaxed(&initial_thread_ended, 1);
  os_wake_all(&initial_thread_ended);
  bell_ring();
  void (*hook)(void) = load_relaxed(&helper_lonely_hook);
  if (hook)
    hook();
}

internal void helper_ensure(void) {
  if (!option_get(OPTION_helper) || load_relaxed(&running) ||
      exchange_acq_rel(&running, 1))
    return;
  supply_set_helped(true);
  if (!os_thread_start(helper_main)) {
    supply_set_helped(false);
    store_release(&running, 0);
  }
}

internal bool helper_is_running(void) { return load_relaxed(&running); }

internal void helper_fork_child(void) {
  store_relaxed(&running, 0);
  store_relaxed(&initial_thread_ended, 0);
  supply_set_helped(false);
}

internal size_t helper_give_back_all(size_t keep) {
  roster_tidy_parked();
  roster_give_back_spares();
  return supply_purge_all(keep);
}
