/* Requests that cannot be met: NULL and ENOMEM, EINVAL where alignment is wrong,
 * nothing changed by the failing call, and the next call works. */
#include "api.h"

class Errors : public ApiTest {};
FOR_BOTH_NAMES(Errors);

static const size_t impossible[] = {
    PTRDIFF_MAX,     (size_t)PTRDIFF_MAX + 1, SIZE_MAX,         SIZE_MAX - 1,
    SIZE_MAX - 7,    SIZE_MAX - 15,           SIZE_MAX - 16,    SIZE_MAX - 4095,
    SIZE_MAX - 4096, SIZE_MAX - 65535,        SIZE_MAX - 65536, SIZE_MAX - (2 << 20),
    SIZE_MAX / 2,    (size_t)1 << 62,         (size_t)1 << 50};

TEST_P(Errors, ImpossibleSizes) {
  for (size_t n : impossible) {
    SCOPED_TRACE(n);
    EXPECT_ENOMEM(a.malloc(n));
    EXPECT_ENOMEM(a.calloc(1, n));
    EXPECT_ENOMEM(a.calloc(n, 1));
    EXPECT_ENOMEM(a.realloc(nullptr, n));
    EXPECT_ENOMEM(a.reallocf(nullptr, n));
    EXPECT_ENOMEM(a.reallocarray(nullptr, n, 1));
    EXPECT_ENOMEM(a.aligned_alloc(64, n));
    EXPECT_ENOMEM(a.memalign(1 << 20, n));
    EXPECT_ENOMEM(a.valloc(n));
    EXPECT_ENOMEM(a.pvalloc(n));
  }
}

TEST_P(Errors, OverflowingProducts) {
  const std::pair<size_t, size_t> products[] = {
      {SIZE_MAX, 2},
      {2, SIZE_MAX},
      {SIZE_MAX, SIZE_MAX},
      {SIZE_MAX / 2 + 1, 2},
      {2, SIZE_MAX / 2 + 1},
      {(size_t)1 << 32, (size_t)1 << 32},
      {SIZE_MAX / 3 + 1, 3},
      {SIZE_MAX / 16 + 2, 16},
      {((size_t)1 << 32) + 1, ((size_t)1 << 32) - 1}};
  void *kept = a.malloc(100);
  pattern_write(kept, 100, 1);
  for (auto [count, size] : products) {
    SCOPED_TRACE(testing::Message() << count << " * " << size);
    EXPECT_ENOMEM(a.calloc(count, size));
    EXPECT_ENOMEM(a.reallocarray(nullptr, count, size));
    EXPECT_ENOMEM(a.reallocarray(kept, count, size));
    EXPECT_EQ(pattern_mismatch(kept, 100, 1), 100u);
  }
  a.free(kept);
}

TEST_P(Errors, ReallocKeepsTheBlockWhenItFails) {
  for (size_t n : {1ul, 100ul, 5000ul, 100 * KIB, 3 * MIB, 80 * MIB}) {
    void *p = a.malloc(n);
    size_t looked_at = std::min(n, 1 * MIB);
    pattern_write(p, looked_at, n);
    for (size_t huge : impossible)
      EXPECT_ENOMEM(a.realloc(p, huge));
    EXPECT_EQ(pattern_mismatch(p, looked_at, n), looked_at);
    EXPECT_GE(a.usable_size(p), n);
    a.free(p);
  }
}

/* reallocf frees the block when it fails: by resident memory. */
TEST_P(Errors, ReallocfFreesTheBlockWhenItFails) {
  auto round = [&](size_t n) {
    void *p = a.malloc(n);
    ASSERT_NE(p, nullptr);
    memset(p, 1, n);
    EXPECT_ENOMEM(a.reallocf(p, PTRDIFF_MAX));
  };
  for (size_t n : {1000ul, 100 * KIB, 8 * MIB}) {
    for (int i = 0; i < 10; i++)
      round(n);
    size_t before = resident_kib();
    for (size_t total = 0; total < 200 * MIB; total += n)
      round(n);
    EXPECT_LE(resident_kib(), before + 50 * KIB) << n << " bytes each";
  }
}

TEST_P(Errors, BadAlignments) {
  void *const mark = &errno;
  for (size_t alignment :
       {0ul, 1ul, 2ul, 3ul, 4ul, 5ul, 7ul, 9ul, 12ul, 24ul, 100ul, 4097ul, SIZE_MAX}) {
    void *out = mark;
    EXPECT_EQ(KEEPS_ERRNO(a.posix_memalign(&out, alignment, 100)), EINVAL) << alignment;
    EXPECT_EQ(out, mark) << alignment;
  }
#ifndef MASU_TEST_SYSTEM /* glibc before 2.38 rounds up here */
  for (size_t alignment : {0ul, 3ul, 5ul, 24ul, 4097ul, SIZE_MAX}) {
    errno = 0;
    EXPECT_EQ(a.aligned_alloc(alignment, 100), nullptr) << alignment;
    EXPECT_EQ(errno, EINVAL) << alignment;
  }
#endif
  for (size_t alignment : {0ul, 1ul, 2ul, 3ul, 5ul, 24ul, 100ul, 4097ul}) {
    void *p = KEEPS_ERRNO(a.memalign(alignment, 100));
    ASSERT_NE(p, nullptr) << alignment;
    size_t rounded = 1;
    while (rounded < alignment)
      rounded *= 2;
    EXPECT_TRUE(aligned_to(p, rounded)) << alignment;
    a.free(p);
  }
}

TEST_P(Errors, AbsurdAlignments) {
  void *const mark = &errno;
  for (size_t alignment : {(size_t)1 << 48, (size_t)1 << 62, (size_t)1 << 63}) {
    SCOPED_TRACE(alignment);
    void *out = mark;
    errno = 0;
    EXPECT_EQ(a.posix_memalign(&out, alignment, 100), ENOMEM);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(out, mark);
    EXPECT_EQ(a.aligned_alloc(alignment, 100), nullptr);
    EXPECT_EQ(a.memalign(alignment, 100), nullptr);
  }
  for (size_t n : impossible) {
    void *out = mark;
    EXPECT_EQ(a.posix_memalign(&out, 4096, n), ENOMEM) << n;
    EXPECT_EQ(out, mark);
  }
}

/* Failures must leave nothing behind. */
TEST_P(Errors, WorksAfterManyFailures) {
  size_t before = resident_kib();
  for (int i = 0; i < 20000; i++) {
    EXPECT_EQ(a.malloc(impossible[i % (sizeof impossible / sizeof *impossible)]),
              nullptr);
    EXPECT_EQ(a.memalign((size_t)1 << 47, 1), nullptr);
  }
  EXPECT_LE(resident_kib(), before + 4 * KIB);
  void *p = a.malloc(1 * MIB);
  EXPECT_NE(p, nullptr);
  a.free(p);
}
