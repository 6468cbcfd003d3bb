/* calloc is zero whatever the memory held before. */
#include "api.h"

class Calloc : public ApiTest {};
FOR_BOTH_NAMES(Calloc);

static void dirty_then_calloc(const api &a, size_t n, int copies) {
  std::vector<void *> blocks(copies);
  for (void *&p : blocks) {
    p = a.malloc(n);
    ASSERT_NE(p, nullptr);
    memset(p, 0xff, a.usable_size(p));
  }
  for (void *p : blocks)
    a.free(p);
  for (void *&p : blocks) {
    p = KEEPS_ERRNO(a.calloc(1, n));
    ASSERT_NE(p, nullptr);
    ASSERT_TRUE(well_aligned(p, n));
    ASSERT_TRUE(all_zero(p, n)) << n << " bytes";
    memset(p, 0xff, a.usable_size(p));
  }
  for (void *p : blocks)
    a.free(p);
}

TEST_P(Calloc, ZeroAfterReuse) {
  for (size_t n : class_borders(a, 64 * KIB))
    dirty_then_calloc(a, n, 20);
  for (size_t n : class_borders(a, 2 * MIB))
    if (n > 64 * KIB)
      dirty_then_calloc(a, n, 3);
}

TEST_P(Calloc, ZeroAfterReuseOfLargeBlocks) {
  for (size_t n :
       {2 * MIB, 2 * MIB + 1, 4 * MIB, 5 * MIB + 5, 16 * MIB, 33 * MIB, 65 * MIB})
    for (int round = 0; round < 3; round++)
      dirty_then_calloc(a, n, 1);
}

/* Memory freed at one size comes back at another. */
TEST_P(Calloc, ZeroAfterReuseAtOtherSizes) {
  const size_t sizes[] = {1 * MIB, 300 * KIB, 64 * KIB,  5000,   700,
                          48,      5,         300 * KIB, 3 * MIB};
  for (size_t dirty : sizes)
    for (size_t n : sizes) {
      std::vector<void *> blocks;
      for (size_t total = 0; total < 4 * MIB; total += dirty + 16) {
        blocks.push_back(a.malloc(dirty));
        memset(blocks.back(), 0xee, a.usable_size(blocks.back()));
      }
      for (void *p : blocks)
        a.free(p);
      blocks.clear();
      for (size_t total = 0; total < 2 * MIB; total += n + 64) {
        blocks.push_back(a.calloc(n, 1));
        ASSERT_NE(blocks.back(), nullptr);
        ASSERT_TRUE(all_zero(blocks.back(), n)) << dirty << " then " << n;
      }
      for (void *p : blocks)
        a.free(p);
    }
}

TEST_P(Calloc, ProductsAreRight) {
  for (size_t count : {1ul, 3ul, 7ul, 1000ul, 4097ul})
    for (size_t size : {1ul, 5ul, 24ul, 1000ul}) {
      void *p = a.calloc(count, size);
      ASSERT_NE(p, nullptr);
      EXPECT_GE(a.usable_size(p), count * size);
      EXPECT_TRUE(all_zero(p, count * size));
      a.free(p);
    }
}

/* A large calloc must not touch what the system gives zeroed. */
TEST_P(Calloc, FreshMemoryIsNotTouched) {
  size_t before = resident_kib();
  void *p = a.calloc(1, 512 * MIB);
  ASSERT_NE(p, nullptr);
  EXPECT_LE(resident_kib(), before + 64 * KIB);
  a.free(p);
}
