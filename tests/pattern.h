/* pattern: what several folders of tests need to look at memory. */
#ifndef MASU_TESTS_PATTERN_H
#define MASU_TESTS_PATTERN_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

constexpr size_t KIB = 1024, MIB = 1024 * KIB;

/* A byte pattern that depends on the seed and on the place. */
inline unsigned char pattern_at(size_t seed, size_t i) {
  return static_cast<unsigned char>((seed * 167 + i * 31 + (i >> 8) * 7) ^ (i >> 16));
}
inline void pattern_write(void *p, size_t n, size_t seed) {
  auto *bytes = static_cast<unsigned char *>(p);
  for (size_t i = 0; i < n; i++)
    bytes[i] = pattern_at(seed, i);
}
/* The index of the first wrong byte, n when all are right. */
inline size_t pattern_mismatch(const void *p, size_t n, size_t seed) {
  auto *bytes = static_cast<const unsigned char *>(p);
  size_t i = 0;
  while (i < n && bytes[i] == pattern_at(seed, i))
    i++;
  return i;
}
inline bool all_zero(const void *p, size_t n) {
  auto *bytes = static_cast<const unsigned char *>(p);
  return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* The same sequence for the same seed. */
class random_numbers {
  uint64_t state;

public:
  explicit random_numbers(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t below(uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state * 0x2545f4914f6cdd1d >> 16) % n;
  }
};

/* Kibibytes of this process that are resident. */
inline size_t resident_kib() {
  size_t kib = 0;
  char line[256];
  if (FILE *f = fopen("/proc/self/smaps_rollup", "r")) {
    while (fgets(line, sizeof line, f))
      if (sscanf(line, "Rss: %zu kB", &kib) == 1)
        break;
    fclose(f);
  }
  return kib;
}

#endif
