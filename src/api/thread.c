#include "api/thread.h"

#include <limits.h>
#include <pthread.h>

#include "api/limb.h"
#include "api/malloc.h"
#include "base/options.h"
#include "heap/helper.h"
#include "heap/outbox.h"
#include "heap/roster.h"
#include "heap/sleepers.h"
#include "os/os.h"

_Static_assert(THREAD_ROUNDS == PTHREAD_DESTRUCTOR_ITERATIONS, "destructor rounds");

enum { FREES_TO_JOIN = 16 };

#define NONE {.tag = TAG_NO_HEAP}
internal_def const heap_hot thread_none[THREAD_ROUNDS + 1] = {NONE, NONE, NONE, NONE, NONE};
#undef NONE

#ifdef MASU_UNITY
#define thread_local_def static __thread
#else
#define thread_local_def __attribute__((visibility("hidden"))) __thread
#endif
thread_local_def heap_hot *thread_hot = (heap_hot *)&thread_none[0];
thread_local_def bool thread_busy;
thread_local_def uint8_t thread_holding;
thread_local_def uint8_t thread_frees;
__attribute__((unused)) thread_local_def uint32_t *thread_untimed; /* but in libmasu-record.so */

static bool is_none(const heap_hot *hot) {
  return hot >= thread_none && hot <= &thread_none[THREAD_ROUNDS];
}

/* The heap of which that is `empty`: it is about to be taken from the thread, or was; or NULL. */
static heap *heap_looked_at(heap_hot *hot) {
  return is_none(hot) || hot->tag != TAG_NO_HEAP ? NULL : CONTAINER_OF(hot, heap, empty);
}

/* A thread that is busy may have the lock: it has the heap if it is inside one of its slow paths. Deferred
 * frees stay for later: a slab may have an event that is not seen to yet. */
internal COLD heap *thread_heap_settled(heap_hot *hot) {
  heap *h = heap_looked_at(hot);
  if (!h)
    return NULL;
  if (thread_busy)
    return h->busy && load_relaxed(&h->seat) == &thread_hot ? h : NULL;
  thread_busy = true;
  compiler_fence();
  lock_take(LOCK_ROSTER);
  bool taken = load_relaxed(&h->seat) != &thread_hot;
  lock_drop(LOCK_ROSTER);
  compiler_fence();
  thread_busy = false;
  return taken ? NULL : h;
}

/* ---- Joining and leaving ---- */

internal_def _Atomic(void (*)(void)) thread_exit_hook;
internal_def _Atomic(void (*)(void)) thread_join_hook;

static void heap_leave(heap *h, size_t rounds) {
  thread_touch(h);
  limbs_leave(h);
  if (helper_is_running()) /* which sees to the hands, unless a new thread has them */
    outbox_flush(h);
  else
    heap_flush(h);
  heap_give_back_spares(h);
  compiler_fence();
  h->busy = false;
  thread_hot = (heap_hot *)&thread_none[rounds];
  roster_leave(h);
  compiler_fence();
  thread_busy = false;
}

/* 0 until it is made; the key plus 1. */
static atomic_u32 exit_key;

/* In every round from the first on, as a heap that is joined in a later one has to be parked. Rounds
 * count from the thread's first allocation: where that comes in a destructor, a heap that is joined in the
 * system's last round is left behind. */
static void thread_exits(void *rounds_so_far) {
  size_t rounds = (size_t)rounds_so_far;
  void (*hook)(void) = load_relaxed(&thread_exit_hook);
  if (hook)
    hook(); /* may allocate */
  heap *h = thread_heap();
  if (h)
    heap_leave(h, rounds);
  thread_hot = (heap_hot *)&thread_none[rounds];
  if (os_thread_is_initial())
    helper_initial_thread_ends();
  if (rounds < THREAD_ROUNDS)
    pthread_setspecific(load_acquire(&exit_key) - 1, (void *)(rounds + 1));
}

static bool find_exit_key(pthread_key_t *key) {
  uint32_t known = load_acquire(&exit_key);
  if (!known) {
    if (pthread_key_create(key, thread_exits) != 0)
      return false;
    if (cas_acq_rel(&exit_key, &known, *key + 1))
      known = *key + 1;
    else
      pthread_key_delete(*key);
  }
  *key = known - 1;
  return true;
}

/* Setting the key may allocate: by then the thread has its heap and isn't busy. In later rounds
 * the heap can't be taken, since the rounds would be counted anew after that. */
static COLD void thread_join(void) {
  heap *taken = heap_looked_at(thread_hot);
  size_t rounds = taken ? 0 : (size_t)(thread_hot - thread_none);
  pthread_key_t key;
  settings_read();
  if (rounds == THREAD_ROUNDS || !find_exit_key(&key))
    return;
  thread_busy = true;
  heap *h = roster_join_again(taken);
  thread_moved();
  if (h)
    thread_hot = &h->hot;
  compiler_fence();
  thread_busy = false;
  if (!h)
    return;
  bool ends = pthread_setspecific(key, (void *)(rounds + 1)) == 0;
  void (*hook)(void) = load_relaxed(&thread_join_hook);
  if (UNLIKELY(hook != NULL))
    hook();
  if (ends && !rounds && UNLIKELY(option_get(OPTION_sleepers))) {
    bool busy = thread_lock(LOCK_ROSTER);
    sleeper_seated(h, &thread_hot);
    thread_unlock(LOCK_ROSTER, busy);
  }
}

static heap *orphan_enter(void) {
  thread_busy = true;
  compiler_fence();
  lock_take(LOCK_ORPHAN);
  heap *h = roster_orphan();
  if (!h)
    lock_drop(LOCK_ORPHAN);
  return h;
}

/* ---- Slow paths ---- */

internal heap *thread_enter(void) {
  if (UNLIKELY(!thread_heap()))
    thread_join();
  heap *h = thread_heap();
  if (UNLIKELY(!h))
    return orphan_enter();
  thread_touch(h);
  return h;
}

internal heap *thread_enter_if_joined(void) {
  heap *h = thread_heap();
  thread_busy = true;
  if (h) {
    h->busy = true;
    compiler_fence();
  }
  return h;
}

/* Not between its destructors: whoever frees there will hardly free much more. */
internal heap *thread_enter_to_free(void) {
  if (UNLIKELY(!thread_heap()) &&
      (heap_looked_at(thread_hot) || (thread_hot == thread_none && ++thread_frees == FREES_TO_JOIN)))
    thread_join();
  return thread_enter_if_joined();
}

/* Upkeep comes last: on entering, a slab may have an event that is not seen to yet,
 * and draining the queue would open it twice. */
internal void thread_leave(heap *h) {
  if (h)
    heap_upkeep(h);
  compiler_fence();
  if (h) {
    h->busy = false;
    heap_hot *hot = thread_hot;
    if (UNLIKELY(hot != &h->hot && hot != &h->empty))
      lock_drop(LOCK_ORPHAN);
  }
  thread_busy = false;
  thread_free_deferred();
  thread_moved(); /* last, for what others freed */
}

/* ---- Deferred frees ---- */

static _Atomic(block *) deferred;

internal void thread_defer_free(void *p) {
  block *b = p, *top = load_relaxed(&deferred);
  do
    b->next = top;
  while (!cas_release(&deferred, &top, b));
}

/* Inside a slow path, where another signal finds the thread busy and keeps off. */
static COLD NOINLINE void free_all_deferred(void) {
  block *b;
  while ((b = exchange_acquire(&deferred, NULL))) {
    heap *h = thread_enter_if_joined();
    for (block *next; b; b = next) {
      next = b->next;
      free_entered(h, b);
    }
    compiler_fence();
    if (h)
      h->busy = false;
    thread_busy = false;
  }
  thread_moved();
}

internal void thread_free_deferred(void) {
  if (UNLIKELY(load_relaxed(&deferred) != NULL))
    free_all_deferred();
}

/* ---- Locks outside of slow paths ---- */

internal bool thread_lock(lock_rank rank) {
  bool busy = thread_busy;
  thread_busy = true;
  compiler_fence();
  lock_take(rank);
  return busy;
}

internal void thread_unlock(lock_rank rank, bool busy) {
  lock_drop(rank);
  compiler_fence();
  thread_busy = busy;
  if (!busy)
    thread_free_deferred();
}

internal void thread_hold(lock_rank rank) {
  thread_holding++;
  compiler_fence();
  lock_take(rank);
}

internal void thread_let_go(lock_rank rank) {
  lock_drop(rank);
  compiler_fence();
  thread_holding--;
}
