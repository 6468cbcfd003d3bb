/* C++ operator new and delete in all forms, and the new-handler's rules: it is
 * called until there is memory or it gives up, nothrow gives nullptr. */
#include "api.h"

#include <sys/resource.h>

#include <new>

class Operators : public testing::Test {
protected:
  void TearDown() override {
    std::set_new_handler(nullptr);
#ifndef MASU_TEST_SYSTEM
    EXPECT_EQ(masu_check(), 0);
#endif
  }
};

static const size_t sizes[] = {0,    1,    8,        15,        16,      100,
                               1000, 5000, 32 * KIB, 100 * KIB, 2 * MIB, 40 * MIB};

static void use(void *p, size_t n, size_t alignment) {
  ASSERT_NE(p, nullptr);
  ASSERT_TRUE(aligned_to(p, alignment)) << n;
  ASSERT_TRUE(well_aligned(p, n)) << n;
  ASSERT_GE(malloc_usable_size(p), n);
  memset(p, 1, n);
}

TEST_F(Operators, PlainForms) {
  for (size_t n : sizes) {
    void *p;
    use(p = KEEPS_ERRNO(operator new(n)), n, 1), operator delete(p);
    use(p = KEEPS_ERRNO(operator new[](n)), n, 1), operator delete[](p);
    use(p = operator new(n), n, 1), operator delete(p, n);
    use(p = operator new[](n), n, 1), operator delete[](p, n);
    use(p = operator new(n, std::nothrow), n, 1), operator delete(p, std::nothrow);
    use(p = operator new[](n, std::nothrow), n, 1), operator delete[](p, std::nothrow);
  }
}

TEST_F(Operators, AlignedForms) {
  for (size_t alignment : {8ul, 16ul, 32ul, 64ul, 256ul, 4096ul, 64 * KIB, 1 * MIB})
    for (size_t n : sizes) {
      std::align_val_t al{alignment};
      void *p;
      use(p = KEEPS_ERRNO(operator new(n, al)), n, alignment), operator delete(p, al);
      use(p = KEEPS_ERRNO(operator new[](n, al)), n, alignment), operator delete[](p, al);
      use(p = operator new(n, al), n, alignment), operator delete(p, n, al);
      use(p = operator new[](n, al), n, alignment), operator delete[](p, n, al);
      use(p = operator new(n, al, std::nothrow), n, alignment), operator delete(
                                                                    p, al, std::nothrow);
      use(p = operator new[](n, al, std::nothrow), n, alignment), operator delete[](
                                                                      p, al,
                                                                      std::nothrow);
    }
}

TEST_F(Operators, DeleteNull) {
  void *const nothing = nullptr;
  std::align_val_t al{64};
  KEEPS_ERRNO_VOID(operator delete(nothing));
  KEEPS_ERRNO_VOID(operator delete[](nothing));
  KEEPS_ERRNO_VOID(operator delete (nothing, size_t{8}));
  KEEPS_ERRNO_VOID(operator delete[](nothing, size_t{8}));
  KEEPS_ERRNO_VOID(operator delete(nothing, std::nothrow));
  KEEPS_ERRNO_VOID(operator delete[](nothing, std::nothrow));
  KEEPS_ERRNO_VOID(operator delete(nothing, al));
  KEEPS_ERRNO_VOID(operator delete[](nothing, al));
  KEEPS_ERRNO_VOID(operator delete (nothing, size_t{64}, al));
  KEEPS_ERRNO_VOID(operator delete[](nothing, size_t{64}, al));
}

/* new and malloc share one heap. */
TEST_F(Operators, MixWithMalloc) {
  free(operator new(100));
  operator delete(malloc(100));
  void *p = realloc(operator new(100), 1000);
  operator delete(p);
}

struct alignas(128) wide {
  char bytes[300];
};
struct counted {
  static inline int alive = 0;
  counted() { alive++; }
  ~counted() { alive--; }
  std::string text = "long enough not to be kept inside the string object";
};

TEST_F(Operators, Expressions) {
  wide *w = new wide[7];
  EXPECT_TRUE(aligned_to(w, 128));
  delete[] w;
  counted *c = new counted[100];
  EXPECT_EQ(counted::alive, 100);
  delete[] c;
  EXPECT_EQ(counted::alive, 0);
}

/* ---- Without memory ---- */

static volatile size_t absurd = (size_t)1 << 60;
static int handler_calls;

template <class F> static bool throws_bad_alloc(F f) {
  try {
    f();
  } catch (const std::bad_alloc &) {
    return true;
  }
  return false;
}

TEST_F(Operators, ThrowsBadAlloc) {
  std::align_val_t al{64};
  EXPECT_TRUE(throws_bad_alloc([] { operator delete(operator new(absurd)); }));
  EXPECT_TRUE(throws_bad_alloc([] { operator delete[](operator new[](absurd)); }));
  EXPECT_TRUE(throws_bad_alloc([&] { operator delete(operator new(absurd, al), al); }));
  EXPECT_TRUE(
      throws_bad_alloc([&] { operator delete[](operator new[](absurd, al), al); }));
  EXPECT_TRUE(throws_bad_alloc([] { operator delete(operator new(SIZE_MAX)); }));
  EXPECT_TRUE(throws_bad_alloc([] {
    char *volatile p = new char[absurd];
    delete[] p;
  }));
}

/* libstdc++'s own aligned forms round SIZE_MAX up to 0 and succeed. */
TEST_F(Operators, NothrowGivesNull) {
  std::align_val_t al{64};
  for (size_t n : {(size_t)absurd, (size_t)SIZE_MAX, (size_t)PTRDIFF_MAX}) {
    EXPECT_EQ(operator new(n, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](n, std::nothrow), nullptr);
    EXPECT_EQ(operator new(n, al, std::nothrow), nullptr);
    EXPECT_EQ(operator new[](n, al, std::nothrow), nullptr);
  }
}

/* The handler runs as often as it returns; then what it throws comes out, or for
 * nothrow a nullptr. */
TEST_F(Operators, HandlerIsCalledUntilItGivesUp) {
  std::align_val_t al{4096};
  auto gives_up_after_3 = [] {
    if (++handler_calls == 3)
      throw std::bad_alloc();
  };
  auto calls = [&](auto f) {
    handler_calls = 0;
    std::set_new_handler(gives_up_after_3);
    f();
    return handler_calls;
  };
  EXPECT_EQ(calls([] {
              EXPECT_TRUE(
                  throws_bad_alloc([] { operator delete(operator new(absurd)); }));
            }),
            3);
  EXPECT_EQ(calls([] {
              EXPECT_TRUE(
                  throws_bad_alloc([] { operator delete[](operator new[](absurd)); }));
            }),
            3);
  EXPECT_EQ(calls([&] {
              EXPECT_TRUE(throws_bad_alloc(
                  [&] { operator delete(operator new(absurd, al), al); }));
            }),
            3);
  EXPECT_EQ(calls([&] {
              EXPECT_TRUE(throws_bad_alloc(
                  [&] { operator delete[](operator new[](absurd, al), al); }));
            }),
            3);
  EXPECT_EQ(calls([] { EXPECT_EQ(operator new(absurd, std::nothrow), nullptr); }), 3);
  EXPECT_EQ(calls([] { EXPECT_EQ(operator new[](absurd, std::nothrow), nullptr); }), 3);
  EXPECT_EQ(calls([&] { EXPECT_EQ(operator new(absurd, al, std::nothrow), nullptr); }),
            3);
  EXPECT_EQ(calls([&] { EXPECT_EQ(operator new[](absurd, al, std::nothrow), nullptr); }),
            3);
}

TEST_F(Operators, HandlerMayUninstallItself) {
  handler_calls = 0;
  std::set_new_handler([] {
    handler_calls++;
    std::set_new_handler(nullptr);
  });
  EXPECT_TRUE(throws_bad_alloc([] { operator delete(operator new(absurd)); }));
  EXPECT_EQ(handler_calls, 1);
}

/* malloc knows no handler. */
TEST_F(Operators, MallocDoesNotCallTheHandler) {
  handler_calls = 0;
  std::set_new_handler([] {
    handler_calls++;
    throw std::bad_alloc();
  });
  EXPECT_EQ(malloc(absurd), nullptr);
  EXPECT_EQ(handler_calls, 0);
}

/* The real use: the handler frees a reserve and the request then succeeds. */
static std::vector<void *> reserve;

TEST_F(Operators, HandlerFreesMemoryAndTheRequestSucceeds) {
  constexpr size_t chunk = 256 * MIB;
  reserve.reserve(64);
  rlimit old, tight;
  getrlimit(RLIMIT_AS, &old);
  size_t pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  ASSERT_EQ(fscanf(f, "%zu", &pages), 1);
  fclose(f);
  tight = {pages * 4096 + 1024 * MIB, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  while (void *p = malloc(chunk)) {
    if (reserve.size() == 63)
      break; /* something does not keep the limit; seen below */
    reserve.push_back(p);
  }
  size_t filled = reserve.size();
  handler_calls = 0;
  std::set_new_handler([] {
    handler_calls++;
    if (reserve.empty())
      throw std::bad_alloc();
    free(reserve.back());
    reserve.pop_back();
  });
  void *p = nullptr;
  bool thrown = throws_bad_alloc([&] { p = operator new(chunk); });
  int calls = handler_calls;
  void *q = operator new(chunk, std::nothrow);
  std::set_new_handler(nullptr);
  setrlimit(RLIMIT_AS, &old);
  EXPECT_GE(filled, 1u);
  EXPECT_LE(filled, 8u);
  EXPECT_FALSE(thrown);
  EXPECT_NE(p, nullptr);
  EXPECT_GE(calls, 1);
  EXPECT_TRUE(q != nullptr || reserve.empty());
  operator delete(p);
  operator delete(q, std::nothrow);
  for (void *r : reserve)
    free(r);
  reserve.clear();
}
