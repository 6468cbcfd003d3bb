/* aligned_alloc, memalign, posix_memalign, valloc, pvalloc. */
#include "api.h"

#include <unistd.h>

class Aligned : public ApiTest {};
FOR_BOTH_NAMES(Aligned);

TEST_P(Aligned, EveryAlignmentAndSize) {
  const size_t sizes[] = {0,     1,     7,     8,     15,        16,      17,
                          63,    64,    100,   1000,  4095,      4096,    4097,
                          10000, 65535, 65536, 65537, 300 * KIB, 1 * MIB, 3 * MIB + 1};
  for (size_t alignment = 8; alignment <= 64 * MIB; alignment *= 2)
    for (size_t n : sizes) {
      SCOPED_TRACE(testing::Message() << n << " bytes aligned to " << alignment);
      void *out = nullptr;
      void *blocks[] = {KEEPS_ERRNO(a.aligned_alloc(alignment, n)),
                        KEEPS_ERRNO(a.memalign(alignment, n)),
                        KEEPS_ERRNO(a.posix_memalign(&out, alignment, n)) == 0 ? out
                                                                               : nullptr};
      for (void *p : blocks) {
        ASSERT_NE(p, nullptr);
        ASSERT_TRUE(aligned_to(p, alignment)) << p;
        ASSERT_TRUE(well_aligned(p, n)) << p;
        size_t usable = a.usable_size(p);
        ASSERT_GE(usable, n);
        pattern_write(p, std::min(n, 10 * KIB), alignment ^ n);
        if (usable) /* its last byte is ours too */
          static_cast<unsigned char *>(p)[usable - 1] =
              pattern_at(alignment ^ n, usable - 1);
      }
      for (void *p : blocks) {
        size_t looked_at = std::min(n, 10 * KIB);
        ASSERT_EQ(pattern_mismatch(p, looked_at, alignment ^ n), looked_at);
      }
      KEEPS_ERRNO_VOID(a.free(blocks[0]));
      KEEPS_ERRNO_VOID(a.free_aligned_sized(blocks[1], alignment, n));
      KEEPS_ERRNO_VOID(a.free(blocks[2]));
    }
}

/* Many at once, freed in another order: aligned blocks share their memory with
 * ordinary ones. */
TEST_P(Aligned, ManyTogether) {
  struct block {
    void *p;
    size_t alignment, n;
  };
  std::vector<block> blocks;
  for (size_t i = 0; i < 4000; i++) {
    size_t alignment = (size_t)8 << (i * 7 % 14), n = i * 37 % 3000;
    void *p = i % 5 ? a.aligned_alloc(alignment, n) : a.malloc(n);
    ASSERT_NE(p, nullptr);
    ASSERT_TRUE(i % 5 == 0 || aligned_to(p, alignment));
    pattern_write(p, n, i);
    blocks.push_back({p, alignment, n});
  }
  for (size_t step = 0, i = 0; step < blocks.size();
       step++, i = (i + 1237) % blocks.size()) {
    ASSERT_EQ(pattern_mismatch(blocks[i].p, blocks[i].n, i), blocks[i].n) << i;
    a.free(blocks[i].p);
  }
}

TEST_P(Aligned, SmallAlignmentsAreOrdinary) {
  for (size_t alignment : {1ul, 2ul, 4ul}) {
    void *p = a.aligned_alloc(alignment, 100);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(aligned_to(p, 16));
    a.free(p);
  }
}

TEST_P(Aligned, SizeNeedNotBeAMultiple) { /* C17, against C11 */
  void *p = a.aligned_alloc(4096, 5);
  EXPECT_NE(p, nullptr);
  a.free(p);
}

TEST_P(Aligned, Pages) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t n : {0ul, 1ul, page - 1, page, page + 1, 10 * page + 3, 3 * MIB}) {
    void *p = KEEPS_ERRNO(a.valloc(n));
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(aligned_to(p, page)) << n;
    EXPECT_GE(a.usable_size(p), n);
    a.free(p);
    p = KEEPS_ERRNO(a.pvalloc(n));
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(aligned_to(p, page)) << n;
    size_t whole_pages = (n + page - 1) / page * page;
    EXPECT_GE(a.usable_size(p), whole_pages);
    memset(p, 1, whole_pages);
    a.free(p);
  }
}

/* Alignment must not cost memory that stays: 4 KiB blocks on 4 KiB borders. */
TEST_P(Aligned, DoesNotLeak) {
  auto rounds = [&](int count) {
    for (int i = 0; i < count; i++)
      for (size_t alignment : {64ul, 4096ul, 65536ul, 2 * MIB}) {
        void *p = a.aligned_alloc(alignment, 40000);
        memset(p, 1, 40000);
        a.free(p);
      }
  };
  rounds(10);
  size_t before = resident_kib();
  rounds(1000);
  EXPECT_LE(resident_kib(), before + 20 * KIB);
}
