#include "os/lock.h"

#include "base/atomic.h"
#include "os/os.h"

enum { FREE, HELD, HELD_WITH_WAITERS };
enum { SPINS = 40, UNSAID_TRIES = 20 };

/* Each on a cache line of its own. */
static struct {
  _Alignas(64) atomic_u32 word;
  atomic_word owner; /* os_thread_self of who holds it; 0: nobody, or not yet said */
} locks[LOCK_COUNT];

/* The thread that is inside fork, or 0; and the locks that it held before, when a
 * signal handler that interrupted masu forks. */
static atomic_word forker;
static uint32_t held_before_fork;
static unsigned nested_forks; /* forks by signal handlers inside the fork itself */

static bool forking_here(void) {
  uintptr_t thread = load_relaxed(&forker);
  return UNLIKELY(thread) && thread == os_thread_self();
}

static void wait_and_take(atomic_u32 *word) {
  for (int i = 0; i < SPINS; i++) {
    uint32_t expected = FREE;
    if (load_relaxed(word) == FREE && cas_acquire(word, &expected, HELD))
      return;
    __builtin_ia32_pause();
  }
  while (exchange_acquire(word, HELD_WITH_WAITERS) != FREE)
    os_wait(word, HELD_WITH_WAITERS, 0);
}

internal void lock_take(lock_rank rank) {
  atomic_u32 *word = &locks[rank].word;
  uint32_t expected = FREE;
  if (UNLIKELY(!cas_acquire(word, &expected, HELD))) {
    if (forking_here())
      return;
    wait_and_take(word);
  }
  store_relaxed(&locks[rank].owner, os_thread_self());
}

static void drop(lock_rank rank) {
  store_relaxed(&locks[rank].owner, 0);
  if (UNLIKELY(exchange_release(&locks[rank].word, FREE) == HELD_WITH_WAITERS))
    os_wake_one(&locks[rank].word);
}

internal void lock_drop(lock_rank rank) {
  if (!forking_here())
    drop(rank);
}

/* For a signal handler that interrupted masu: takes the lock, or finds that its own
 * thread has it. Between taking a lock and saying who did are a few instructions: a
 * lock whose owner stays unsaid was taken by the code that the handler interrupted. */
static bool take_unless_own(lock_rank rank) {
  unsigned unsaid = 0;
  uint32_t expected = FREE;
  while (!cas_acquire(&locks[rank].word, &expected, HELD)) {
    uintptr_t owner = load_relaxed(&locks[rank].owner);
    unsaid = owner ? 0 : unsaid + 1;
    if (owner == os_thread_self() || unsaid == UNSAID_TRIES)
      return false;
    os_sleep_ms(1);
    expected = FREE;
  }
  store_relaxed(&locks[rank].owner, os_thread_self());
  return true;
}

internal void locks_fork_prepare(bool interrupted) {
  uint32_t held = 0;
  if (forking_here()) {
    nested_forks++;
    return;
  }
  for (lock_rank r = 0; r < LOCK_COUNT; r++)
    if (!interrupted)
      lock_take(r);
    else if (!take_unless_own(r))
      held |= 1u << r;
  held_before_fork = held;
  store_relaxed(&forker, os_thread_self());
}

internal void locks_fork_release(void) {
  if (nested_forks) {
    nested_forks--;
    return;
  }
  store_relaxed(&forker, 0);
  for (lock_rank r = LOCK_COUNT; r-- > 0;)
    if (!(held_before_fork >> r & 1))
      drop(r);
}
