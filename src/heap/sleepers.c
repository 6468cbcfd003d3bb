#include "heap/sleepers.h"

#include "heap/budget.h"
#include "heap/roster.h"
#include "os/lock.h"
#include "os/os.h"

/* ThreadSanitizer can't see that a sleeping thread does nothing. */
#ifdef __SANITIZE_THREAD__
enum { CAN_BE_SEEN = false };
#else
enum { CAN_BE_SEEN = true };
#endif

enum {
  LOOKS_MOST = 20, /* since its last slow path: by then it is at something else */
  SEARCH_MOST = 1 << 20, /* bytes that are searched */
};

internal void sleeper_seated(heap *h, heap_hot **seat) {
  h->stack = os_thread_stack();
  store_relaxed(&h->seat, seat);
}

/* An observer that sleeps will use the heap's budget. */
static bool holds_fast(const heap *h) {
  return h->busy || h->hot.limbs || h->hot.scopes || h->hot.hands_of || (h->budget && h->budget->quiet);
}

/* Outside of masu, on the stack below h->stack, beside which its seat lies. */
static bool sleeps_outside(const heap *h, unsigned thread) {
  uintptr_t stack;
  return os_thread_sleeps(thread, &stack) && h->stack - stack <= SEARCH_MOST && !holds_fast(h) &&
         !os_was_interrupted(stack, h->stack);
}

/* Its thread reads the word plainly, which saves an instruction of each call. */
static bool seat_set(heap_hot **seat, heap_hot *expected, heap_hot *hot) {
  return __atomic_compare_exchange_n(seat, &expected, hot, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* LOCK_ROSTER is held. The thread was seen on the stack beside which its word lies, and is h's still. */
static bool park_sleeper(heap *h, unsigned thread, uint64_t switches) {
  uintptr_t stack;
  heap_hot **seat = load_relaxed(&h->seat);
  if (!seat || load_relaxed(&h->user) != thread || !seat_set(seat, &h->hot, &h->empty))
    return false;
  if (!os_thread_sleeps(thread, &stack) || os_thread_switches(thread) != switches) {
    seat_set(seat, &h->empty, &h->hot);
    return false;
  }
  roster_park_sleeper(h);
  return true;
}

internal bool sleeper_take(heap *h) {
  uint32_t thread = load_acquire(&h->user);
  if (!CAN_BE_SEEN || !thread || thread == HEAP_USER_UNKNOWN || !load_relaxed(&h->seat))
    return false;
  uint64_t switches = os_thread_switches(thread);
  if (!switches || !sleeps_outside(h, thread))
    return false;
  lock_take(LOCK_ROSTER);
  bool taken = park_sleeper(h, thread, switches);
  lock_drop(LOCK_ROSTER);
  return taken;
}

static bool was_used(const heap *h) { return load_relaxed(&h->slow_paths) != h->seen; }

static void look(heap *h, void *unused) {
  (void)unused;
  if (was_used(h)) {
    h->seen = load_relaxed(&h->slow_paths);
    h->looks = 0;
  } else if (h->looks < LOOKS_MOST) {
    h->looks++;
    sleeper_take(h);
  }
}

internal void sleepers_take(void) { roster_for_each(look, NULL); }

static void look_ahead(heap *h, void *any) {
  *(bool *)any |= CAN_BE_SEEN && load_relaxed(&h->seat) && (was_used(h) || h->looks < LOOKS_MOST);
}

internal bool sleepers_to_come(void) {
  bool any = false;
  roster_for_each(look_ahead, &any);
  return any;
}
