/* thread: which heap the calling thread allocates from, and the way in and out of
 * every slow path.
 *
 * A thread's one hot word points at its heap. Before the thread has one
 * it points at thread_none[0], a constant heap with empty hands, so that the first
 * allocation is a refill like any other. When the thread ends its heap is parked and
 * the word points at thread_none[n], n being how many rounds of thread-specific
 * destructors have run; an allocation in a later destructor joins anew. After the
 * last round there is nobody to park a heap, and the orphan heap serves. While a thread sleeps
 * the helper may take its heap (sleepers.h): then the word points at the `empty` of that heap. Since the helper
 * looks at threads that may just have woken, it may do so for a moment too: only fast paths use the word, all else
 * thread_heap(), which waits.
 *
 * thread_busy says that this thread is inside masu. A signal handler that interrupts
 * it there and allocates gets a mapping of its own, one that frees leaves the block
 * on a list for later: it never waits for a lock that its own thread holds. Under LOCK_POOLS
 * and LOCK_SIZED memory is allocated, so a thread that has one of them isn't busy but
 * `holding`: a handler may allocate as well, and what takes these locks, such as fork and the
 * statistics, asks thread_is_inside.
 */
#ifndef MASU_API_THREAD_H
#define MASU_API_THREAD_H

#include "api/settings.h"
#include "heap/heap.h"
#include "os/lock.h"

enum { THREAD_ROUNDS = 4 }; /* PTHREAD_DESTRUCTOR_ITERATIONS */

internal_data const heap_hot thread_none[THREAD_ROUNDS + 1];
#ifdef MASU_UNITY
#define thread_local_data static __thread
#else
#define thread_local_data extern __attribute__((visibility("hidden"))) __thread
#endif
thread_local_data heap_hot *thread_hot;
thread_local_data bool thread_busy;
thread_local_data uint8_t thread_holding; /* locks taken by thread_hold */
thread_local_data uint8_t thread_frees; /* without a heap so far */
thread_local_data uint32_t *thread_untimed; /* the recorder's: see thread_moved */

/* The calling thread's heap or NULL. It stays the thread's until that calls what isn't masu and isn't
 * busy. */
internal heap *thread_heap_settled(heap_hot *hot);
static inline heap *thread_heap(void) {
  heap_hot *hot = thread_hot; /* read once: it may be set back at any time */
  return LIKELY(hot->tag != TAG_NO_HEAP) ? (heap *)hot : thread_heap_settled(hot);
}

/* Called first in each round of a thread's destructors after it got a heap, whether it has one or not;
 * NULL: nothing is. Set once. */
internal_data _Atomic(void (*)(void)) thread_exit_hook;
/* Called when a thread has got its heap, from inside its first allocation. Set once. */
internal_data _Atomic(void (*)(void)) thread_join_hook;

/* Before anything is looked up in the size classes for a block to be taken: they are
 * settled when the first thread gets its heap. False: see settings_read. */
static inline bool thread_knows_sizes(void) {
  return LIKELY(thread_hot->tag != TAG_NO_HEAP) || settings_read();
}

/* Enters a slow path that needs a heap; NULL: there is none to be had, but the thread is inside all
 * the same. The caller has seen that thread_busy is false. */
internal heap *thread_enter(void);
/* Enters a slow path for which the thread's own heap will do; NULL if it has none. */
internal heap *thread_enter_if_joined(void);
/* The same for freeing a block: a thread that never had a heap gets one when it frees again and
 * again, since blocks go home in batches from there. */
internal heap *thread_enter_to_free(void);
/* h: what entering returned. A block that another thread has freed, and the memory of one, comes to this thread in slow
 * paths only: so behind each it has moved. */
internal void thread_leave(heap *h);

/* What the thread is given from now on others may have had. The recorder in libmasu-record.so looks at the clock
 * next time (observe/record.c, "Time"). */
static ALWAYS_INLINE void thread_moved(void) {
#ifdef MASU_RECORD
  thread_untimed = NULL;
#endif
}

/* A block that could not be freed because the thread was busy. Any thread. */
internal void thread_defer_free(void *p);
/* Frees what was deferred. */
internal void thread_free_deferred(void);

/* No more of a slow path than keeps handlers, fork and the helper out, around a few steps. h: the thread's heap. */
static ALWAYS_INLINE void thread_touch(heap *h) {
  thread_busy = true;
  h->busy = true;
  compiler_fence();
}
/* What was deferred meanwhile is still to be freed. */
static ALWAYS_INLINE void thread_touched_so_far(heap *h) {
  compiler_fence();
  h->busy = false;
  thread_busy = false;
}
static ALWAYS_INLINE void thread_touched(heap *h) {
  thread_touched_so_far(h);
  thread_free_deferred();
}

/* ---- Locks outside of slow paths ---- */

/* One under which nothing is allocated or freed: the thread is busy. Returns whether it was
 * before. */
internal bool thread_lock(lock_rank rank);
internal void thread_unlock(lock_rank rank, bool busy);
/* One under which memory is allocated. */
internal void thread_hold(lock_rank rank);
internal void thread_let_go(lock_rank rank);

/* May any lock of masu be this thread's own, for a signal handler that wants it? */
static inline bool thread_is_inside(void) { return thread_busy || thread_holding; }

#endif
