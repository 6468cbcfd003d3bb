/* api: every test of this folder runs over the functions under both names: the
 * libc's (malloc) and masu's own (masu_malloc). The tables below are those two
 * sets; ApiTest is parameterised over them and ends with masu_check().
 *
 * Sanitizers own the libc's names: MASU_NO_OVERRIDE leaves only masu's. To try
 * the tests themselves on the system allocator, compile with MASU_TEST_SYSTEM
 * and without masu. */
#ifndef MASU_TESTS_API_H
#define MASU_TESTS_API_H

#include <gtest/gtest.h>
#include <masu.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "pattern.h"

extern "C" {
void *reallocf(void *, size_t);
void free_sized(void *, size_t);
void free_aligned_sized(void *, size_t, size_t);
size_t malloc_good_size(size_t);
void *pvalloc(size_t);
}

struct api {
  const char *name;
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*reallocarray)(void *, size_t, size_t);
  void *(*reallocf)(void *, size_t);
  void (*free)(void *);
  void (*free_sized)(void *, size_t);
  void (*free_aligned_sized)(void *, size_t, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  void *(*memalign)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*valloc)(size_t);
  void *(*pvalloc)(size_t);
  size_t (*usable_size)(void *);
  size_t (*good_size)(size_t);
  struct mallinfo (*mallinfo)(void);
  struct mallinfo2 (*mallinfo2)(void);
  int (*malloc_info)(int, FILE *);
  void (*malloc_stats)(void);
  int (*malloc_trim)(size_t);
  int (*mallopt)(int, int);
};

#define API_COMMON(prefix)                                                         \
  prefix##aligned_alloc, prefix##memalign, prefix##posix_memalign, prefix##valloc, \
      prefix##pvalloc, prefix##malloc_usable_size

#define API_TABLE(title, prefix)                                                        \
  {                                                                                     \
    title, prefix##malloc, prefix##calloc, prefix##realloc, prefix##reallocarray,       \
        prefix##reallocf, prefix##free, prefix##free_sized, prefix##free_aligned_sized, \
        API_COMMON(prefix), prefix##malloc_good_size, prefix##mallinfo,                 \
        prefix##mallinfo2, prefix##malloc_info, prefix##malloc_stats,                   \
        prefix##malloc_trim, prefix##mallopt                                            \
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
inline const std::vector<const api *> &all_apis() {
#ifdef MASU_TEST_SYSTEM
  /* What glibc 2.36 lacks, in terms of what it has. */
  static const api libc = {"libc",
                           malloc,
                           calloc,
                           realloc,
                           reallocarray,
                           [](void *p, size_t n) {
                             void *q = realloc(p, n);
                             if (!q && p && n)
                               free(p);
                             return q;
                           },
                           free,
                           [](void *p, size_t) { free(p); },
                           [](void *p, size_t, size_t) { free(p); },
                           API_COMMON(),
                           [](size_t n) {
                             void *p = malloc(n);
                             size_t usable = malloc_usable_size(p);
                             free(p);
                             return usable;
                           },
                           mallinfo,
                           mallinfo2,
                           malloc_info,
                           malloc_stats,
                           malloc_trim,
                           mallopt};
  static const std::vector<const api *> all = {&libc};
#elif defined MASU_NO_OVERRIDE
  static const api own = API_TABLE("masu", masu_);
  static const std::vector<const api *> all = {&own};
#else
  static const api own = API_TABLE("masu", masu_);
  static const api libc = API_TABLE("libc", );
  static const std::vector<const api *> all = {&own, &libc};
#endif
  return all;
}
#pragma GCC diagnostic pop

class ApiTest : public testing::TestWithParam<const api *> {
protected:
  const api &a = *GetParam();
  void TearDown() override {
#ifndef MASU_TEST_SYSTEM
    EXPECT_EQ(masu_check(), 0) << "masu_check found a broken invariant";
#endif
  }
};

#define FOR_BOTH_NAMES(fixture)                      \
  INSTANTIATE_TEST_SUITE_P(                          \
      names, fixture, testing::ValuesIn(all_apis()), \
      [](const auto &info) { return std::string(info.param->name); })

/* No call that succeeds may touch errno; `expression` is such a call. */
constexpr int UNTOUCHED = 12345;
#define KEEPS_ERRNO(expression)                 \
  [&] {                                         \
    errno = UNTOUCHED;                          \
    auto keeps_errno_result = (expression);     \
    EXPECT_EQ(errno, UNTOUCHED) << #expression; \
    return keeps_errno_result;                  \
  }()
#define KEEPS_ERRNO_VOID(expression)            \
  do {                                          \
    errno = UNTOUCHED;                          \
    expression;                                 \
    EXPECT_EQ(errno, UNTOUCHED) << #expression; \
  } while (0)
#define EXPECT_ENOMEM(expression)                    \
  do {                                               \
    errno = 0;                                       \
    EXPECT_EQ((expression), nullptr) << #expression; \
    EXPECT_EQ(errno, ENOMEM) << #expression;         \
  } while (0)

inline bool aligned_to(const void *p, size_t alignment) {
  return (reinterpret_cast<uintptr_t>(p) & (alignment - 1)) == 0;
}
/* What masu.h promises for a request of n bytes. */
inline bool well_aligned(const void *p, size_t n) {
  return aligned_to(p, n >= 16 ? 16 : 8);
}

/* The last and the first size of every class up to `limit`, and 0. */
inline std::vector<size_t> class_borders(const api &a, size_t limit) {
  std::vector<size_t> sizes = {0};
  for (size_t n = 1; n <= limit;) {
    size_t last = a.good_size(n);
    EXPECT_GE(last, n);
    if (last < n) /* hopeless; the assertion above has said so */
      break;
    sizes.push_back(n);
    if (last > n)
      sizes.push_back(last);
#ifdef MASU_TEST_SYSTEM
    last += n / 64; /* glibc's blocks grow by 16 bytes up to any size */
#endif
    n = last + 1;
  }
  return sizes;
}

#endif
