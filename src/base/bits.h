/* bits: arithmetic on 32-bit masks and powers of two. Pure functions. */
#ifndef MASU_BASE_BITS_H
#define MASU_BASE_BITS_H

#include "base/attr.h"

static inline bool is_pow2(size_t x) { return x && !(x & (x - 1)); }

/* Index of the lowest and highest set bit; x != 0. */
static inline unsigned bit_low32(uint32_t x) { return (unsigned)__builtin_ctz(x); }
static inline unsigned bit_low64(uint64_t x) { return (unsigned)__builtin_ctzll(x); }
static inline unsigned bit_high64(uint64_t x) {
  return 63u - (unsigned)__builtin_clzll(x);
}
/* How many bits are set from bit 0 on, up to the first that is not. */
static inline unsigned bit_ones_low64(uint64_t x) { return ~x ? bit_low64(~x) : 64; }
static inline unsigned bit_count32(uint32_t x) {
  return (unsigned)__builtin_popcount(x);
}

/* n bits set, starting at bit `first`; 1 <= n, first + n <= 32. */
static inline uint32_t bit_run32(unsigned first, unsigned n) {
  return (uint32_t)(0xffffffffu >> (32 - n)) << first;
}

/* The bits at which a run of n set bits of x starts. Each step halves what is
 * left to prove: bit i of the result says that bits i .. i+have-1 are set. */
static inline uint32_t bit_run_starts32(uint32_t x, unsigned n) {
  unsigned have = 1;
  while (have < n && x) {
    unsigned step = have < n - have ? have : n - have;
    x &= x >> step;
    have += step;
  }
  return x;
}

/* Length of the longest run of set bits. */
static inline unsigned bit_longest_run32(uint32_t x) {
  unsigned n = 0;
  while (x) {
    x &= x >> 1;
    n++;
  }
  return n;
}

/* The smallest power of two >= x; 0 when there is none. */
static inline size_t pow2_ceil(size_t x) {
  if (x <= 1)
    return 1;
  if (x > SIZE_MAX / 2 + 1)
    return 0;
  return (size_t)1 << (bit_high64(x - 1) + 1);
}

#endif
