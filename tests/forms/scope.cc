/* Autorelease scopes: order, nesting, handing on, threads that end. */
#include <masu/scope.h>

#include <pthread.h>

#include <climits>
#include <csetjmp>

#include "forms.h"

static std::vector<long> released;
static void note(void *p) { released.push_back(reinterpret_cast<long>(p)); }
static void *number(long n) { return reinterpret_cast<void *>(n); }

class Scope : public FormTest {
protected:
  void SetUp() override { released.clear(); }
  void TearDown() override {
    EXPECT_EQ(masu_scope_count(), 0u);
    FormTest::TearDown();
  }
};

TEST_F(Scope, ReleasesInReverseOrder) {
  masu_scope s;
  masu_scope_open(&s, nullptr);
  for (long i = 1; i <= 1000; i++)
    EXPECT_EQ(masu_scope_add(number(i), note), number(i));
  void *p = masu_scope_alloc(100);
  memset(p, 1, 100);
  EXPECT_EQ(masu_scope_count(), 1001u);
  masu_scope_close(&s);
  ASSERT_EQ(released.size(), 1000u);
  for (long i = 0; i < 1000; i++)
    EXPECT_EQ(released[i], 1000 - i);
}

TEST_F(Scope, NestsAndHandsOn) {
  masu_scope outer, empty, inner;
  masu_scope_open(&outer, nullptr);
  masu_scope_add(number(1), note);
  masu_scope_open(&empty, nullptr);
  masu_scope_open(&inner, nullptr);
  for (long i = 2; i <= 5; i++)
    masu_scope_add(number(i), note);
  EXPECT_EQ(masu_scope_hand_out(number(3)), number(3)); /* to `empty` */
  EXPECT_EQ(masu_scope_keep(number(4)), number(4));
  EXPECT_EQ(masu_scope_keep(number(4)), nullptr);
  EXPECT_EQ(masu_scope_hand_out(number(77)), nullptr);
  masu_scope_close(&inner);
  EXPECT_EQ(released, (std::vector<long>{5, 2}));
  EXPECT_EQ(masu_scope_hand_out(number(3)), number(3)); /* to `outer` */
  masu_scope_close(&empty);
  EXPECT_EQ(released.size(), 2u);
  masu_scope_open(&inner, nullptr);
  masu_scope_add(number(6), note);
  EXPECT_EQ(masu_scope_keep(number(1)), number(1)); /* of a scope further out */
  masu_scope_close(&inner);
  masu_scope_close(&outer);
  EXPECT_EQ(released, (std::vector<long>{5, 2, 6, 3}));
}

TEST_F(Scope, ClosingAnOuterOneClosesInnerOnes) {
  static masu_scope outer, inner;
  static jmp_buf back;
  masu_scope_open(&outer, nullptr);
  masu_scope_add(number(1), note);
  if (setjmp(back) == 0) {
    masu_scope_open(&inner, nullptr);
    masu_scope_add(number(2), note);
    memset(masu_scope_temp(1000), 1, 1000);
    longjmp(back, 1);
  }
  masu_scope_close(&outer);
  EXPECT_EQ(released, (std::vector<long>{2, 1}));
  masu_scope_close(&inner); /* already closed */
  masu_scope_close(&outer);
  EXPECT_EQ(released.size(), 2u);
}

TEST_F(Scope, ReleaseMayUseScopes) {
  masu_scope s;
  masu_scope_open(&s, nullptr);
  masu_scope_add(number(1), [](void *p) {
    masu_scope nested;
    masu_scope_open(&nested, nullptr);
    masu_scope_alloc(10);
    masu_scope_close(&nested);
    for (long i = 10; i < 110; i++) /* the stack of values moves */
      masu_scope_add(number(i), note);
    note(p);
  });
  masu_scope_close(&s);
  EXPECT_EQ(released.size(), 101u);
  EXPECT_EQ(released[0], 1);
}

TEST_F(Scope, BlocksAreOrdinaryOnes) {
  masu_heap *heap = masu_heap_create("home");
  masu_scope s, inner;
  masu_scope_open(&s, heap);
  auto *p = static_cast<char *>(masu_scope_alloc(100));
  EXPECT_EQ(masu_heap_of(p), heap);
  pattern_write(p, 100, 1);
  p = static_cast<char *>(masu_scope_realloc(p, 100000));
  EXPECT_EQ(pattern_mismatch(p, 100, 1), 100u);
  masu_scope_open(&inner, nullptr);
  void *q = masu_scope_alloc(100);
  EXPECT_EQ(masu_heap_of(q), nullptr);
  EXPECT_EQ(masu_scope_keep(q), q);
  masu_scope_realloc(nullptr, 50);
  masu_scope_close(&inner);
  masu_free(q);
  EXPECT_FAILS_WITH(ENOMEM, masu_scope_alloc(SIZE_MAX));
  EXPECT_FAILS_WITH(ENOMEM, masu_scope_realloc(p, SIZE_MAX));
  EXPECT_EQ(masu_scope_count(), 1u);
  masu_scope_close(&s);
  masu_heap_figures f;
  masu_heap_read(heap, &f, sizeof f);
  EXPECT_EQ(f.blocks, 0u);
  masu_heap_destroy(heap);
}

TEST_F(Scope, TemporaryMemoryGoesBack) {
  masu_scope outer, middle, inner;
  masu_scope_open(&outer, nullptr);
  void *first = masu_scope_temp(16);
  for (int i = 0; i < 100; i++) {
    masu_scope_open(&middle, nullptr);
    masu_scope_open(&inner, nullptr);
    void *p = masu_scope_temp(100);
    EXPECT_EQ(p, static_cast<char *>(first) + 16); /* the same place each time */
    memset(p, 1, 100);
    masu_scope_close(&inner);
    EXPECT_EQ(masu_scope_temp(100), p);
    masu_scope_close(&middle);
  }
  masu_scope_close(&outer);
}

/* One name and one limit for all that a scope takes. */
TEST_F(Scope, TemporaryMemoryOfAHeapIsTheHeaps) {
  masu_heap *heap = masu_heap_create("home");
  masu_heap_figures before, f;
  masu_heap_read(heap, &before, sizeof before);
  masu_scope general, outer, inner;
  masu_scope_open(&general, nullptr);
  void *first = masu_scope_temp(16);
  for (int i = 0; i < 3; i++) {
    masu_scope_open(&outer, heap);
    masu_scope_add(masu_scope_temp(200 * KIB), [](void *p) { memset(p, 1, 200 * KIB); }); /* it is still there */
    masu_heap_read(heap, &f, sizeof f);
    EXPECT_GE(f.used, before.used + 200 * KIB);
    masu_scope_open(&inner, nullptr);
    EXPECT_EQ(masu_scope_temp(16), static_cast<char *>(first) + 16);
    masu_scope_close(&inner);
    masu_heap_set_budget(heap, 0, f.used);
    EXPECT_FAILS_WITH(ENOMEM, masu_scope_temp(MIB));
    masu_scope_open(&inner, heap);
    EXPECT_FAILS_WITH(ENOMEM, masu_scope_temp(MIB)); /* its first */
    masu_scope_close(&inner);
    masu_heap_set_budget(heap, 0, 0);
    EXPECT_TRUE(multiple_of(masu_scope_temp(MIB), 16));
    masu_scope_close(&outer);
    masu_heap_read(heap, &f, sizeof f);
    EXPECT_EQ(f.live, 0u);
  }
  EXPECT_EQ(masu_scope_temp(16), static_cast<char *>(first) + 16);
  masu_scope_close(&general);
  masu_heap_destroy(heap);
}

/* What is handed out of a scope stays behind its temporary memory, and what is left open keeps it. */
TEST_F(Scope, TemporaryMemoryOfAHeapGoesLast) {
  masu_heap *heap = masu_heap_create("home");
  masu_scope outer, left, other;
  masu_scope_open(&outer, heap);
  masu_scope_add(number(1), note);
  masu_scope_temp(100);
  masu_scope_open(&left, heap);
  masu_scope_add(number(2), note);
  void *p = masu_scope_temp(100);
  pattern_write(p, 100, 1);
  masu_scope_hand_out(number(2));
  masu_scope_open(&other, nullptr);
  masu_scope_open(&left, nullptr); /* where it was left open */
  masu_scope_close(&left);
  masu_scope_close(&other);
  EXPECT_EQ(pattern_mismatch(p, 100, 1), 100u);
  masu_scope_close(&outer);
  EXPECT_EQ(released, (std::vector<long>{2, 1}));
  masu_heap_figures f;
  masu_heap_read(heap, &f, sizeof f);
  EXPECT_EQ(f.live, 0u);
  masu_heap_destroy(heap);
}

/* The callback comes as the scope's arena is made. */
TEST_F(Scope, TheCallbackMayUseTheScope) {
  masu_heap *heap = masu_heap_create("home");
  static int calls;
  calls = 0;
  masu_heap_on_soft(heap, [](masu_heap *, size_t, void *) {
    masu_scope inner[50]; /* the stack of scopes moves */
    calls++;
    pattern_write(masu_scope_temp(1000), 1000, 1);
    for (masu_scope &s : inner)
      masu_scope_open(&s, nullptr);
    masu_scope_close(&inner[0]);
  }, nullptr);
  masu_scope s;
  masu_scope_open(&s, heap);
  masu_heap_set_budget(heap, 1, 0);
  void *p = masu_scope_temp(1000);
  pattern_write(p, 1000, 2);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(masu_scope_count(), 1u); /* one arena */
  EXPECT_EQ(pattern_mismatch(p, 1000, 2), 1000u);
  masu_scope_close(&s);
  masu_heap_destroy(heap);
}

__attribute__((noinline)) static void leave_one_open(jmp_buf back) {
  masu_scope inner;
  masu_scope_open(&inner, nullptr);
  masu_scope_add(number(2), note);
  longjmp(back, 1);
}
__attribute__((noinline)) static size_t open_and_close() {
  volatile char clobber[2000];
  memset(const_cast<char *>(clobber), 0x5a, sizeof clobber);
  masu_scope s;
  EXPECT_EQ(masu_scope_open(&s, nullptr), 0);
  masu_scope_add(number(3), note);
  masu_scope_close(&s);
  return clobber[7];
}

/* The frames that scopes lay in are gone, and others are where they were. */
TEST_F(Scope, WhatLongjmpLeftIsClosedInTheEnd) {
  static masu_scope outer;
  static jmp_buf back;
  masu_scope_open(&outer, nullptr);
  masu_scope_add(number(1), note);
  for (volatile int i = 0; i < 3; i = i + 1)
    if (setjmp(back) == 0)
      leave_one_open(back);
  open_and_close();
  memset(masu_scope_alloc(100), 1, 100);
  masu_scope_close(&outer);
  EXPECT_EQ(released.size(), 5u);
  EXPECT_EQ(released.back(), 1);
}

/* `left` is an address that several frames have in turn; the first was left by longjmp. What came
 * since is not its. */
TEST_F(Scope, OpeningWhereOneWasLeftClosesNothing) {
  masu_scope outer, left, other;
  masu_scope_open(&outer, nullptr);
  void *first = masu_scope_temp(16);
  masu_scope_open(&left, nullptr);
  masu_scope_add(number(1), note);
  void *temporary = masu_scope_temp(16);
  masu_scope_open(&other, nullptr);
  masu_scope_add(number(2), note);
  masu_scope_open(&left, nullptr);
  EXPECT_NE(masu_scope_temp(16), temporary);
  masu_scope_close(&left);
  EXPECT_TRUE(released.empty());
  masu_scope_close(&other);
  EXPECT_EQ(released, (std::vector<long>{2}));
  masu_scope_close(&outer);
  EXPECT_EQ(released, (std::vector<long>{2, 1}));
  masu_scope_open(&outer, nullptr);
  EXPECT_EQ(masu_scope_temp(16), first); /* all of it came back */
  masu_scope_close(&outer);
}

TEST_F(Scope, WhatIsHandedOutToOneThatWasLeftLivesOn) {
  masu_scope outer, left, other;
  masu_scope_open(&outer, nullptr);
  masu_scope_open(&left, nullptr);
  masu_scope_open(&other, nullptr);
  masu_scope_add(number(1), note);
  masu_scope_hand_out(number(1));
  masu_scope_close(&other);
  masu_scope_open(&left, nullptr);
  masu_scope_close(&left);
  EXPECT_TRUE(released.empty());
  masu_scope_close(&outer);
  EXPECT_EQ(released, (std::vector<long>{1}));
}

/* The scope that is closing moves down, and is closed all the same. */
TEST_F(Scope, AReleaseMayOpenWhereOneWasLeft) {
  static masu_scope left;
  masu_scope outer, closing;
  masu_scope_open(&outer, nullptr);
  masu_scope_open(&left, nullptr);
  masu_scope_open(&closing, nullptr);
  masu_scope_add(number(1), note);
  masu_scope_add(number(2), [](void *p) {
    masu_scope_open(&left, nullptr);
    masu_scope_close(&left);
    note(p);
  });
  masu_scope_close(&closing);
  EXPECT_EQ(released, (std::vector<long>{2, 1}));
  masu_scope_close(&outer);
}

TEST_F(Scope, AReleaseMayHandOnItsNeighbours) {
  static masu_scope outer, inner;
  masu_scope_open(&outer, nullptr);
  masu_scope_open(&inner, nullptr);
  masu_scope_add(number(1), note);
  masu_scope_add(number(2), note);
  masu_scope_add(number(3), [](void *p) {
    masu_scope_hand_out(number(1));
    masu_scope_keep(number(2));
    note(p);
  });
  masu_scope_close(&inner);
  EXPECT_EQ(released, (std::vector<long>{3}));
  masu_scope_close(&outer);
  EXPECT_EQ(released, (std::vector<long>{3, 1}));
}

/* Scopes at any addresses are opened, opened again and closed in any order, against a list of what
 * each has. The first one stays open till the end. */
TEST_F(Scope, AgainstAnOracle) {
  struct level {
    masu_scope *key;
    std::vector<long> values;
  };
  masu_scope scopes[30], outer;
  std::vector<level> open = {{&outer, {}}};
  std::vector<long> expected;
  random_numbers random(2);
  masu_scope_open(&outer, nullptr);
  for (long i = 1; i <= 20000; i++) {
    masu_scope *s = &scopes[random.below(30)];
    size_t at = 1;
    while (at < open.size() && open[at].key != s)
      at++;
    if (random.below(3)) {
      masu_scope_open(s, nullptr);
      if (at < open.size()) { /* was left: what it had is the one's around it */
        auto &around = open[at - 1].values;
        around.insert(around.end(), open[at].values.begin(), open[at].values.end());
        open.erase(open.begin() + static_cast<ptrdiff_t>(at));
      }
      open.push_back({s, {i}});
      masu_scope_add(number(i), note);
      continue;
    }
    masu_scope_close(s);
    for (; open.size() > at; open.pop_back())
      expected.insert(expected.end(), open.back().values.rbegin(), open.back().values.rend());
    ASSERT_EQ(released, expected);
    released.clear();
    expected.clear();
  }
  masu_scope_close(&outer);
}

/* One scope for each call of a deep recursion: with a search among all that are open this would not
 * come to its end. */
TEST_F(Scope, AMillionDeep) {
  std::vector<masu_scope> stack(1000000);
  for (size_t i = stack.size(); i-- > 0;)
    ASSERT_EQ(masu_scope_open(&stack[i], nullptr), 0);
  masu_scope_add(number(1), note);
  for (masu_scope &s : stack)
    masu_scope_close(&s);
  EXPECT_EQ(released, (std::vector<long>{1}));
}

/* Where nothing would close it: in the destructors of keys, after masu's own has run for the last
 * time. */
TEST_F(Scope, PastTheLastDestructorThereIsNone) {
  static pthread_key_t key;
  static int refused;
  refused = 0;
  masu_free(masu_malloc(10)); /* its key comes first */
  ASSERT_EQ(pthread_key_create(&key, [](void *left) {
    masu_scope s;
    if (masu_scope_open(&s, nullptr) == ENOMEM) {
      refused++;
      EXPECT_FAILS_WITH(ENOMEM, masu_scope_add(number(1), note));
      EXPECT_FAILS_WITH(ENOMEM, masu_scope_alloc(100));
      EXPECT_FAILS_WITH(ENOMEM, masu_scope_temp(100));
    } else {
      masu_scope_close(&s);
    }
    pthread_setspecific(key, static_cast<char *>(left) - 1);
  }), 0);
  std::thread([] {
    masu_free(masu_malloc(10));
    pthread_setspecific(key, number(PTHREAD_DESTRUCTOR_ITERATIONS));
  }).join();
  pthread_key_delete(key);
  EXPECT_EQ(refused, 1);
  EXPECT_TRUE(released.empty());
}

TEST_F(Scope, AThreadThatEndsClosesAll) {
  std::thread([] {
    masu_scope s; /* its frame is gone when the thread's end closes it */
    masu_scope_add(number(1), note); /* outside of every scope */
    masu_scope_open(&s, nullptr);
    masu_scope_add(number(2), note);
    masu_scope_alloc(100);
    masu_scope_temp(100);
  }).join();
  EXPECT_EQ(released, (std::vector<long>{2, 1}));
}
