/* atomic: shared words, with the memory order in the name of every operation.
 *
 * Plain fields are owned by one thread or guarded by a lock. A field that several
 * threads touch without a lock has one of these types and is reached only through
 * these functions, so a reader sees at the call which order was meant.
 */
#ifndef MASU_BASE_ATOMIC_H
#define MASU_BASE_ATOMIC_H

#include "base/attr.h"

#include <stdatomic.h>

typedef _Atomic(uint8_t) atomic_u8;
typedef _Atomic(uint16_t) atomic_u16;
typedef _Atomic(uint32_t) atomic_u32;
typedef _Atomic(uint64_t) atomic_u64;
typedef _Atomic(int64_t) atomic_i64;
typedef _Atomic(uintptr_t) atomic_word;

#define load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
#define sub_release(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_release)
#define and_relaxed(p, v) atomic_fetch_and_explicit((p), (v), memory_order_relaxed)
#define or_relaxed(p, v) atomic_fetch_or_explicit((p), (v), memory_order_relaxed)
#define or_release(p, v) atomic_fetch_or_explicit((p), (v), memory_order_release)
#define exchange_acq_rel(p, v)                                                 \
  atomic_exchange_explicit((p), (v), memory_order_acq_rel)
#define exchange_acquire(p, v)                                                 \
  atomic_exchange_explicit((p), (v), memory_order_acquire)
#define exchange_release(p, v)                                                 \
  atomic_exchange_explicit((p), (v), memory_order_release)
/* On failure *expected holds what was there. */
#define cas_acq_rel(p, expected, v)                                            \
  atomic_compare_exchange_strong_explicit((p), (expected), (v),                \
                                          memory_order_acq_rel,                \
                                          memory_order_acquire)
#define cas_acquire(p, expected, v)                                            \
  atomic_compare_exchange_strong_explicit((p), (expected), (v),                \
                                          memory_order_acquire,                \
                                          memory_order_relaxed)
#define cas_release(p, expected, v)                                            \
  atomic_compare_exchange_strong_explicit((p), (expected), (v),                \
                                          memory_order_release,                \
                                          memory_order_relaxed)

/* The same of a word that no other thread touches meanwhile, but perhaps a signal handler on this one: a single
 * instruction, without what keeps other processors off. */
static inline bool cas_alone(atomic_u64 *p, uint64_t *expected, uint64_t v) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  bool same;
  __asm__ volatile("cmpxchgq %3, %0" : "+m"(*p), "=@ccz"(same), "+a"(*expected) : "r"(v) : "memory");
  return same;
#else
  return cas_acq_rel(p, expected, v);
#endif
}

/* Subtracts 1 from a word that only this thread writes, after everything it wrote
 * before; true: it is 0 now. One instruction on x86, whose stores stay in order; the
 * asm keeps the compiler from moving any across it. */
static inline bool count_down_release(atomic_u32 *p) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  bool zero;
  __asm__ volatile("subl $1, %0" : "+m"(*p), "=@ccz"(zero) : : "memory");
  return zero;
#else
  uint32_t left = load_relaxed(p) - 1;
  store_release(p, left);
  return left == 0;
#endif
}

/* Orders this thread against a signal handler that runs on it, and against the
 * snapshot that fork takes of it; costs no instruction. */
static inline void compiler_fence(void) {
  atomic_signal_fence(memory_order_seq_cst);
}

#endif
