/* realloc, reallocarray, reallocf: contents kept however the block moves. */
#include "api.h"

#include <algorithm>

class Realloc : public ApiTest {};
FOR_BOTH_NAMES(Realloc);

TEST_P(Realloc, GrowsStepByStepTo64MiB) {
  size_t n = 1;
  auto *p = static_cast<unsigned char *>(a.malloc(n));
  pattern_write(p, n, 3);
  while (n < 64 * MIB) {
    size_t larger = n + 1 + n / 3;
    p = static_cast<unsigned char *>(KEEPS_ERRNO(a.realloc(p, larger)));
    ASSERT_NE(p, nullptr) << larger;
    ASSERT_TRUE(well_aligned(p, larger));
    ASSERT_GE(a.usable_size(p), larger);
    ASSERT_EQ(pattern_mismatch(p, n, 3), n) << n << " -> " << larger;
    for (size_t i = n; i < larger; i++)
      p[i] = pattern_at(3, i);
    n = larger;
  }
  while (n > 0) { /* and back */
    size_t smaller = n - n / 3 - 1;
    if (smaller == 0)
      break;
    p = static_cast<unsigned char *>(KEEPS_ERRNO(a.realloc(p, smaller)));
    ASSERT_NE(p, nullptr);
    ASSERT_GE(a.usable_size(p), smaller);
    ASSERT_EQ(pattern_mismatch(p, smaller, 3), smaller) << n << " -> " << smaller;
    n = smaller;
  }
  a.free(p);
}

/* From every size to every other, neighbours in place so that growth in place is
 * sometimes possible and sometimes not. */
TEST_P(Realloc, BetweenAllKindsOfSizes) {
  const size_t sizes[] = {1,      8,       9,        16,      100,    1000,  4096,
                          5000,   20000,   32 * KIB, 32769,   65536,  65537, 200 * KIB,
                          700000, 1 * MIB, 1048577,  2 * MIB, 5 * MIB};
  for (size_t from : sizes)
    for (size_t to : sizes) {
      void *before = a.malloc(from);
      void *p = a.malloc(from);
      void *after = a.malloc(from);
      pattern_write(p, from, from);
      memset(before, 0xaa, from);
      memset(after, 0xbb, from);
      if (to % 2) { /* half of the time the neighbour is free */
        a.free(after);
        after = nullptr;
      }
      p = KEEPS_ERRNO(a.realloc(p, to));
      ASSERT_NE(p, nullptr);
      size_t kept = std::min(from, to);
      ASSERT_EQ(pattern_mismatch(p, kept, from), kept) << from << " -> " << to;
      memset(p, 0xcc, a.usable_size(p));
      auto is_all = [&](void *q, unsigned char byte) {
        auto *bytes = static_cast<unsigned char *>(q);
        return bytes[0] == byte && memcmp(bytes, bytes + 1, from - 1) == 0;
      };
      ASSERT_TRUE(is_all(before, 0xaa)) << from << " -> " << to;
      ASSERT_TRUE(!after || is_all(after, 0xbb)) << from << " -> " << to;
      a.free(p);
      a.free(before);
      a.free(after);
    }
}

TEST_P(Realloc, WithinTheUsableSizeKeepsThePlace) {
  for (size_t n : {1ul, 24ul, 100ul, 3000ul, 30000ul, 100 * KIB, 2 * MIB}) {
    void *p = a.malloc(n);
    void *same = a.realloc(p, n);
    EXPECT_EQ(same, p) << n;
    p = a.realloc(same, a.usable_size(same));
    EXPECT_EQ(p, same) << n;
    a.free(p);
  }
}

/* A copy costs more than some room that is left over; much of it goes back. */
TEST_P(Realloc, ShrinkingALittleKeepsThePlace) {
  for (size_t n : {128ul, 512ul, 1 * KIB, 8 * KIB, 128 * KIB}) {
    size_t least = n < 1 * KIB ? n / 2 : n / 4;
    void *p = a.malloc(n);
    EXPECT_EQ(a.realloc(p, least), p) << n;
    void *moved = a.realloc(p, least * 3 / 4);
    EXPECT_LT(a.usable_size(moved), n) << n;
    a.free(moved);
  }
}

TEST_P(Realloc, ShrinkingALotGivesMemoryBack) {
  auto *p = static_cast<unsigned char *>(a.malloc(200 * MIB));
  memset(p, 5, 200 * MIB);
  size_t before = resident_kib();
  p = static_cast<unsigned char *>(a.realloc(p, 1 * MIB));
  a.malloc_trim(0);
  EXPECT_LE(resident_kib() + 190 * KIB, before);
  EXPECT_TRUE(p[0] == 5 && memcmp(p, p + 1, 1 * MIB - 1) == 0);
  a.free(p);
}

TEST_P(Realloc, NullAndZero) {
  void *p = KEEPS_ERRNO(a.realloc(nullptr, 100));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(KEEPS_ERRNO(a.realloc(p, 0)), nullptr);
  p = KEEPS_ERRNO(a.realloc(nullptr, 0));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(a.realloc(p, 0), nullptr);

  p = KEEPS_ERRNO(a.reallocarray(nullptr, 10, 10));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(KEEPS_ERRNO(a.reallocarray(p, 0, 10)), nullptr);
  p = a.malloc(10);
  EXPECT_EQ(a.reallocarray(p, SIZE_MAX, 0), nullptr);

  p = KEEPS_ERRNO(a.reallocf(nullptr, 100));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(KEEPS_ERRNO(a.reallocf(p, 0)), nullptr);
}

/* Size 0 frees the block: memory must not grow. */
TEST_P(Realloc, ZeroFrees) {
  auto rounds = [&](int count) {
    for (int i = 0; i < count; i++)
      for (size_t n : {100ul, 20000ul, 500 * KIB}) {
        void *p = a.malloc(n);
        memset(p, 1, n);
        EXPECT_EQ(a.realloc(p, 0), nullptr);
      }
  };
  rounds(20);
  size_t before = resident_kib();
  rounds(500);
  EXPECT_LE(resident_kib(), before + 20 * KIB);
}

TEST_P(Realloc, ArrayAndF) {
  void *p = a.malloc(10 * KIB);
  pattern_write(p, 10 * KIB, 1);
  p = KEEPS_ERRNO(a.reallocarray(p, 300, 1000));
  ASSERT_NE(p, nullptr);
  EXPECT_GE(a.usable_size(p), 300000u);
  EXPECT_EQ(pattern_mismatch(p, 10 * KIB, 1), 10 * KIB);
  p = KEEPS_ERRNO(a.reallocf(p, 5 * MIB));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(pattern_mismatch(p, 10 * KIB, 1), 10 * KIB);
  a.free(p);
}

TEST_P(Realloc, OfAlignedBlocks) {
  for (size_t alignment : {32ul, 256ul, 4096ul, 65536ul, 1 * MIB, 4 * MIB})
    for (size_t n : {1ul, 200ul, 9000ul, 300 * KIB, 3 * MIB}) {
      void *p = a.aligned_alloc(alignment, n);
      ASSERT_NE(p, nullptr);
      pattern_write(p, n, n);
      size_t larger = n * 3 + 50;
      p = KEEPS_ERRNO(a.realloc(p, larger));
      ASSERT_NE(p, nullptr);
      ASSERT_EQ(pattern_mismatch(p, n, n), n) << alignment << ", " << n;
      memset(p, 1, larger);
      p = a.realloc(p, 1 + n / 10);
      ASSERT_NE(p, nullptr);
      a.free(p);
    }
}
