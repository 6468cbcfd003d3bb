/* The leak checker, by its functions: what is planted is found, and what can be reached is not. */
#include <gtest/gtest.h>
#include <masu/heap.h>
#include <masu/leaks.h>
#include <masu/pool.h>
#include <masu/profile.h>
#include <masu/scope.h>
#include <masu/sized.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pattern.h"

#define APART __attribute__((noinline))

/* Tests keep pointers where the compiler has to put them, and nowhere else. */
static void *volatile global;

/* What calls before left on the stack, and in vector registers: the loader puts those on the
 * stack when it looks up a function that is called for the first time. */
static APART void scrub() {
  char bytes[1 << 16];
  memset(bytes, 0, sizeof bytes);
  __asm__ volatile("" : : "r"(bytes) : "memory");
#ifdef __x86_64__
#define CLEAR(n) __asm__ volatile("pxor %%xmm" #n ", %%xmm" #n : : : "xmm" #n)
  CLEAR(0); CLEAR(1); CLEAR(2); CLEAR(3); CLEAR(4); CLEAR(5); CLEAR(6); CLEAR(7);
  CLEAR(8); CLEAR(9); CLEAR(10); CLEAR(11); CLEAR(12); CLEAR(13); CLEAR(14); CLEAR(15);
#endif
}

/* Far below the caller's part of the stack: what is called next from there has words in its own
 * that it never writes. */
template <class F> static APART void deep(F f) {
  volatile char room[4096];
  room[0] = room[4095] = 0;
  f();
  room[0] = 1;
}

static APART masu_leaks look_here(uint64_t begun) {
  masu_leaks found{};
  EXPECT_NE(masu_leaks_begin(), 0U);
  EXPECT_EQ(masu_leaks_end(begun, &found, sizeof found), 0);
  return found;
}

/* Nothing of before is left in what a call will have as its part of the stack. */
static APART masu_leaks look(uint64_t begun) {
  scrub();
  return look_here(begun);
}

/* A region for the length of a test, whatever becomes of it. */
class LeaksTest : public testing::Test {
protected:
  uint64_t begun = 0;
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer holds signals back";
#endif
    begun = masu_leaks_begin();
    ASSERT_NE(begun, 0U);
  }
  void TearDown() override {
    global = nullptr;
    if (begun) {
      EXPECT_EQ(masu_leaks_end(begun, nullptr, 0), 0);
    }
  }
  APART void expect(size_t direct_blocks, size_t direct_bytes, size_t indirect_blocks = 0, size_t indirect_bytes = 0) const {
    scrub();
    expect_here(direct_blocks, direct_bytes, indirect_blocks, indirect_bytes);
  }

private:
  APART void expect_here(size_t direct_blocks, size_t direct_bytes, size_t indirect_blocks, size_t indirect_bytes) const {
    masu_leaks found = look(begun);
    EXPECT_EQ(found.direct_blocks, direct_blocks);
    EXPECT_EQ(found.direct_bytes, direct_bytes);
    EXPECT_EQ(found.indirect_blocks, indirect_blocks);
    EXPECT_EQ(found.indirect_bytes, indirect_bytes);
    /* found.unstopped: a busy machine may keep a thread long where it has signals blocked */
    EXPECT_EQ(found.unrecorded, 0U);
  }
};

static APART void lose(void *p) { global = p, global = nullptr; }

/* What is in it when nobody wrote there may be addresses. */
static APART void *zeroed(size_t size) { return memset(masu_malloc(size), 0, size); }

static void lose_block(size_t size) {
  deep([=] { lose(zeroed(size)); });
}

/* ---- What is lost ---- */

static bool operator==(const masu_leaks &a, const masu_leaks &b) {
  return a.direct_blocks == b.direct_blocks && a.direct_bytes == b.direct_bytes &&
         a.indirect_blocks == b.indirect_blocks && a.indirect_bytes == b.indirect_bytes;
}

/* A word that nobody uses any more may by chance be the address of what is planted: another
 * time it is planted elsewhere. */
template <class F> static APART bool finds(F plant, const masu_leaks &expected, masu_leaks *found) {
  for (int attempt = 0; attempt < 5; attempt++) {
    uint64_t begun = masu_leaks_begin();
    deep(plant);
    *found = look(begun);
    global = nullptr;
    if (masu_leaks_end(begun, nullptr, 0) == 0 && *found == expected)
      return true;
  }
  return false;
}

template <class F>
static APART void loses(F plant, size_t direct_blocks, size_t direct_bytes, size_t indirect_blocks = 0,
                        size_t indirect_bytes = 0) {
  masu_leaks expected{direct_blocks, direct_bytes, indirect_blocks, indirect_bytes, 0, 0}, found{};
  EXPECT_TRUE(finds(plant, expected, &found))
      << "direct " << found.direct_bytes << " in " << found.direct_blocks << " instead of " << direct_bytes
      << " in " << direct_blocks << ", indirect " << found.indirect_bytes << " in " << found.indirect_blocks
      << " instead of " << indirect_bytes << " in " << indirect_blocks;
}

TEST_F(LeaksTest, Nothing) { expect(0, 0); }

TEST_F(LeaksTest, SizesAreThoseThatWereAskedFor) {
  for (size_t size : {size_t{1}, size_t{8}, size_t{24}, size_t{64}, size_t{100}, size_t{1000}, size_t{9999},
                      size_t{40000}, size_t{65536}, size_t{200000}, size_t{300000}, 5 * MIB, 5 * MIB + 1})
    loses([=] { lose(zeroed(size)); }, 1, size);
}

TEST_F(LeaksTest, EveryWayToAllocate) {
  loses([] { lose(masu_calloc(7, 13)); }, 1, 91);
  loses([] { lose(masu_calloc(1, 400001)); }, 1, 400001);
  for (auto [alignment, size] : {std::pair<size_t, size_t>{64, 100}, {64, 64}, {4096, 5000}, {4096, 8192}, {MIB, 3}})
    loses(
        [a = alignment, n = size] {
          void *p = memset(masu_aligned_alloc(a, n), 0, n);
          EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % a, 0U);
          lose(p);
        },
        1, size);
}

/* Moved and in place, larger and smaller. */
TEST_F(LeaksTest, Reallocated) {
  for (auto [from, to] : {std::pair<size_t, size_t>{10, 1000}, {100, 110}, {110, 65}, {100, 112}, {300000, 5 * MIB},
                          {5 * MIB, 3 * MIB + 7}, {3 * MIB, 100}})
    loses([old = from, n = to] { lose(memset(masu_realloc(zeroed(old), n), 0, n)); }, 1, to);
}

TEST_F(LeaksTest, FreedIsNotLost) {
  for (size_t size : {16U, 500U, 300000U, 4000000U})
    masu_free(masu_malloc(size));
  expect(0, 0);
}

TEST_F(LeaksTest, ByAThreadThatEnded) {
  loses([] { std::thread([] { lose_block(77); }).join(); }, 1, 77);
}

/* Some may be led to by chance, and lead to each other. */
TEST_F(LeaksTest, OfManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; t++)
    threads.emplace_back([] {
      for (int i = 0; i < 2000; i++) { /* past what its hands had */
        masu_free(masu_malloc(40));
        masu_free(masu_malloc(300));
      }
      for (int i = 0; i < 100; i++)
        lose_block(300);
    });
  for (auto &t : threads)
    t.join();
  masu_leaks found = look(begun);
  size_t blocks = found.direct_blocks + found.indirect_blocks;
  EXPECT_LE(blocks, 800U);
  EXPECT_GE(blocks, 700U);
  EXPECT_EQ(found.direct_bytes + found.indirect_bytes, 300 * blocks);
}

static APART void *chain(size_t length, size_t size) {
  void *head = nullptr;
  for (size_t i = 0; i < length; i++) {
    void *link = masu_calloc(1, size);
    *static_cast<void **>(link) = head;
    head = link;
  }
  return head;
}

TEST_F(LeaksTest, AChainIsDirectOnceOnly) {
  loses([] { lose(chain(10, 48)); }, 1, 48, 9, 9 * 48);
}

static APART void lose_ring(bool with_a_tail) {
  void **first = static_cast<void **>(masu_malloc(64)), **second = static_cast<void **>(masu_malloc(64)),
       **third = static_cast<void **>(masu_malloc(64));
  memset(first, 0, 64), memset(second, 0, 64), memset(third, 0, 64);
  first[1] = second, second[2] = third, third[0] = first;
  if (with_a_tail)
    second[7] = chain(2, 32);
}

TEST_F(LeaksTest, OfARingOneIsDirect) {
  loses([] { lose_ring(false); }, 1, 64, 2, 128);
  loses([] { lose_ring(true); }, 1, 64, 4, 128 + 2 * 32);
}

static uintptr_t hidden; /* from us, not only from the checker: the mask is not in the code */
static std::atomic<uintptr_t> mask{0x5a5a5a5a5a5a5a5a};
static APART void hide(void *p) { hidden = reinterpret_cast<uintptr_t>(p) ^ mask; }
static APART void *unhidden() { return reinterpret_cast<void *>(hidden ^ mask); }
static void hide_block(size_t size) {
  deep([=] { hide(zeroed(size)); });
}

TEST_F(LeaksTest, APointerInDisguiseIsNone) {
  loses([] { hide(zeroed(33)); }, 1, 33);
}

TEST_F(LeaksTest, OlderBlocksDontCount) {
  lose_block(100);
  loses([] { lose(zeroed(200)); }, 1, 200);
}

/* And lead to none. */
TEST_F(LeaksTest, OlderLostBlocksLeadToNone) {
  static void **older[5], ***next; /* one for each attempt */
  deep([] {
    for (auto &block : older)
      block = static_cast<void **>(zeroed(100));
    next = older;
  });
  loses(
      [] {
        (*next)[3] = zeroed(200);
        *next++ = nullptr;
      },
      1, 200);
}

TEST_F(LeaksTest, MemoryOfTheProgramsOwnIsNotSearched) {
  static void **mapped;
  mapped = static_cast<void **>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  loses(
      [] {
        hide(zeroed(50));
        mapped[3] = unhidden();
      },
      1, 50);
  munmap(mapped, 4096);
}

/* ---- What leads to a block ---- */

TEST_F(LeaksTest, GlobalVariables) {
  global = zeroed(60);
  expect(0, 0);
  masu_free(global);
}

TEST_F(LeaksTest, TheStack) {
  void *volatile here = zeroed(60);
  expect(0, 0);
  masu_free(here);
}

TEST_F(LeaksTest, OtherBlocks) {
  deep([] { global = chain(1000, 40); });
  expect(0, 0);
  loses(
      [] {
        global = chain(10, 40);
        static_cast<void **>(global)[0] = nullptr;
      },
      1, 40, 8, 8 * 40);
}

TEST_F(LeaksTest, AnyByteButNoneBehind) {
  deep([] { global = static_cast<char *>(zeroed(100)) + 99; });
  expect(0, 0);
  deep([] {
    global = masu_realloc(static_cast<char *>(global) - 99, 105); /* in place */
    global = static_cast<char *>(global) + 104;
  });
  expect(0, 0);
  for (size_t size : {100U, 112U, 65536U, 3U << 20})
    loses([=] { global = static_cast<char *>(zeroed(size)) + size; }, 1, size);
}

/* The end of an array is not the address of the block after it: of many small blocks that
 * fill their slabs, those are lost whose neighbour in front is kept by its end only. */
TEST_F(LeaksTest, TheEndOfABlockIsNoOther) {
  enum { BLOCKS = 100 };
  static char *ends[BLOCKS];
  loses(
      [] {
        for (auto &end : ends)
          end = static_cast<char *>(zeroed(64)) + 64;
      },
      BLOCKS, BLOCKS * 64);
}

/* And is told that he lost what he had asked for. */
TEST_F(LeaksTest, WhoAsksForTheUsableSizeHasAllOfIt) {
  ASSERT_EQ(masu_malloc_good_size(100), 112U);
  loses(
      [] {
        global = zeroed(100);
        static_cast<void **>(global)[masu_malloc_usable_size(global) / 8 - 1] = zeroed(20);
        global = nullptr;
      },
      1, 100, 1, 20);
}

TEST_F(LeaksTest, LargeBlocks) {
  deep([] { global = static_cast<char *>(masu_calloc(1, 6 * MIB)) + 5 * MIB; });
  expect(0, 0);
  deep([] {
    global = static_cast<char *>(global) - 5 * MIB;
    static_cast<void **>(global)[6 * MIB / 8 - 1] = zeroed(300001);
  });
  expect(0, 0);
  loses(
      [] {
        global = masu_calloc(1, 6 * MIB);
        static_cast<void **>(global)[6 * MIB / 8 - 1] = zeroed(300001);
        global = nullptr;
      },
      1, 6 * MIB, 1, 300001);
}

TEST_F(LeaksTest, MemoryThatMayNotBeRead) {
  auto *p = static_cast<char *>(masu_aligned_alloc(4096, 3 * 4096));
  global = p;
  memset(p, 0, 3 * 4096);
  reinterpret_cast<void **>(p)[1] = masu_malloc(30);
  reinterpret_cast<void **>(p)[3 * 512 - 1] = masu_malloc(31);
  ASSERT_EQ(mprotect(p + 4096, 4096, PROT_NONE), 0);
  p = nullptr;
  expect(0, 0);
  p = static_cast<char *>(global);
  ASSERT_EQ(mprotect(p + 4096, 4096, PROT_READ | PROT_WRITE), 0);
  masu_free(reinterpret_cast<void **>(p)[1]);
  masu_free(reinterpret_cast<void **>(p)[3 * 512 - 1]);
  masu_free(p);
}

#ifndef MASU_NO_OVERRIDE

struct WithDestructor {
  int n = 1;
  ~WithDestructor() { n = 0; }
};
static WithDestructor *volatile array;

/* The runtime keeps the length in front, and nobody has the address of the block. */
TEST_F(LeaksTest, ArraysWithALength) {
  volatile size_t none = 0;
  array = new WithDestructor[5];
  expect(0, 0);
  delete[] array;
  array = new WithDestructor[none];
  expect(0, 0);
  delete[] array;
  array = nullptr;
  expect(0, 0);
}

#endif

static thread_local void *volatile variable;

TEST_F(LeaksTest, ThreadLocalVariablesOfTheInitialThread) {
  variable = zeroed(70);
  expect(0, 0);
  masu_free(variable);
  variable = nullptr;
}

/* ---- Other threads ---- */

/* Says that it is ready, and waits. */
class Meeting {
  std::atomic<int> step{0};

public:
  void ready() {
    step = 1;
    while (step == 1)
      usleep(500);
  }
  void wait() {
    while (step != 1)
      usleep(500);
  }
  void leave() { step = 2; }
};

/* The thread does something, waits, and undoes it. */
static void while_a_thread_waits(const std::function<void(Meeting &)> &body, const std::function<void()> &check) {
  Meeting meeting;
  std::thread thread([&] { body(meeting); });
  meeting.wait();
  check();
  meeting.leave();
  thread.join();
}

TEST_F(LeaksTest, AThreadsStack) {
  while_a_thread_waits(
      [](Meeting &m) {
        void *volatile here = zeroed(80);
        m.ready();
        masu_free(here);
      },
      [&] { expect(0, 0); });
}

TEST_F(LeaksTest, AThreadsVariables) {
  while_a_thread_waits(
      [](Meeting &m) {
        variable = zeroed(80);
        scrub();
        m.ready();
        masu_free(variable);
      },
      [&] { expect(0, 0); });
}

TEST_F(LeaksTest, AThreadsSpecificData) {
  pthread_key_t keys[40]; /* the first 32 lie in the control block */
  for (auto &key : keys)
    ASSERT_EQ(pthread_key_create(&key, nullptr), 0);
#ifdef MASU_NO_OVERRIDE
  size_t which[] = {0};
#else
  size_t which[] = {0, 39};
#endif
  for (size_t i : which)
    while_a_thread_waits(
        [&](Meeting &m) {
          pthread_setspecific(keys[i], masu_malloc(80));
          scrub();
          m.ready();
          masu_free(pthread_getspecific(keys[i]));
        },
        [&] { expect(0, 0); });
  for (auto &key : keys)
    pthread_key_delete(key);
}

#if !defined(MASU_NO_OVERRIDE)

TEST_F(LeaksTest, DynamicThreadLocalVariables) {
  void *library = dlopen(DYNAMIC_TLS, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  void **(*variables)() = nullptr;
  *reinterpret_cast<void **>(&variables) = dlsym(library, "dynamic_tls");
  ASSERT_NE(variables, nullptr);
  variables()[63] = zeroed(90);
  expect(0, 0);
  while_a_thread_waits(
      [&](Meeting &m) {
        variables()[5] = zeroed(90);
        scrub();
        m.ready();
        masu_free(variables()[5]);
      },
      [&] { expect(0, 0); });
  masu_free(variables()[63]);
  dlclose(library);
}

#endif

#ifdef __x86_64__

static APART void keep_in_a_register(std::atomic<int> *meeting) {
  int *step = reinterpret_cast<int *>(meeting);
  __asm__ volatile("mov %[hidden], %%r12\n"
                   "xor %[mask], %%r12\n"
                   "movl $1, %[step]\n"
                   "1: pause\n"
                   "cmpl $1, %[step]\n"
                   "je 1b\n"
                   : [step] "+m"(*step)
                   : [hidden] "m"(hidden), [mask] "m"(*reinterpret_cast<uintptr_t *>(&mask))
                   : "r12", "memory", "cc");
}

TEST_F(LeaksTest, ARegisterOfAnotherThread) {
  std::atomic<int> step{0};
  std::thread thread([&] {
    hide_block(90);
    scrub();
    keep_in_a_register(&step);
  });
  while (step != 1)
    usleep(500);
  expect(0, 0);
  step = 2;
  thread.join();
}

#endif

static void *waits_with_a_block(void *any) {
  auto *meeting = static_cast<Meeting *>(any);
  void *volatile here = zeroed(80);
  meeting->ready();
  masu_free(here);
  return nullptr;
}

/* Whoever gives a thread its stack may have it from malloc, and forget where. */
TEST_F(LeaksTest, AStackThatIsABlock) {
  Meeting meeting;
  pthread_attr_t attributes;
  pthread_t thread;
  hide(masu_aligned_alloc(4096, 256 * KIB));
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, unhidden(), 256 * KIB);
  ASSERT_EQ(pthread_create(&thread, &attributes, waits_with_a_block, &meeting), 0);
  pthread_attr_destroy(&attributes);
  meeting.wait();
  expect(0, 0);
  meeting.leave();
  pthread_join(thread, nullptr);
  deep([] { masu_free(unhidden()); });
}

/* ---- Threads that are not on their own stack ---- */

static ucontext_t outside, inside;

static void coroutine() {
  void *volatile here = zeroed(40);
  masu_leaks found = look(reinterpret_cast<uintptr_t>(global));
  EXPECT_EQ(found.direct_blocks, 0U);
  swapcontext(&inside, &outside);
  masu_free(here);
}

/* The check is made in the coroutine, then outside: each has a block. */
TEST_F(LeaksTest, Coroutines) {
  std::string stack(256 * KIB, 0); /* a block on record, unless a sanitizer has them all */
  void *volatile here = zeroed(41);
  global = reinterpret_cast<void *>(begun);
  getcontext(&inside);
  inside.uc_stack.ss_sp = stack.data();
  inside.uc_stack.ss_size = stack.size();
  inside.uc_link = &outside;
  makecontext(&inside, coroutine, 0);
  swapcontext(&outside, &inside);
#ifndef MASU_NO_OVERRIDE
  expect(0, 0);
#endif
  swapcontext(&outside, &inside);
  masu_free(here);
  inside = outside = {}; /* the tests after this one search it too */
}

static Meeting in_handler;
static void waits_in_handler(int) { in_handler.ready(); }

/* What a signal handler on another stack interrupted counts as well. */
TEST_F(LeaksTest, AlternateStacks) {
  static char alternate[64 * KIB];
  struct sigaction action {}, before {};
  action.sa_handler = waits_in_handler;
  action.sa_flags = SA_ONSTACK;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::thread thread([] {
    stack_t s{}, usual{}; /* a sanitizer has one */
    s.ss_sp = alternate;
    s.ss_size = sizeof alternate;
    sigaltstack(&s, &usual);
    void *volatile here = zeroed(80);
    raise(SIGUSR1);
    masu_free(here);
    sigaltstack(&usual, nullptr);
  });
  in_handler.wait();
  expect(0, 0);
  in_handler.leave();
  thread.join();
  sigaction(SIGUSR1, &before, nullptr);
  memset(alternate, 0, sizeof alternate);
}

/* It is not known where its stack is: everything that may be it counts. */
TEST_F(LeaksTest, AThreadThatTakesNoSignals) {
  while_a_thread_waits(
      [](Meeting &m) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        void *volatile here = zeroed(80);
        m.ready();
        masu_free(here);
      },
      [&] {
        masu_leaks found = look(begun);
        EXPECT_EQ(found.unstopped, 1U);
        EXPECT_EQ(found.direct_blocks + found.indirect_blocks, 0U);
      });
}

/* ---- Forms ---- */

TEST_F(LeaksTest, WhatFormsKeepIsKept) {
  masu_heap *named = masu_heap_create("named");
  auto *in_heap = static_cast<void **>(masu_heap_malloc(named, 100));
  in_heap[3] = masu_malloc(50);
  in_heap = nullptr; /* a named heap is destroyed as a whole: its blocks are never lost */
  auto **sized = static_cast<void **>(masu_sized_alloc(64));
  sized[2] = masu_malloc(51);
  masu_pool *pool = masu_pool_create(32, 0, 0);
  static_cast<void **>(masu_pool_alloc(pool))[1] = masu_malloc(52);
  masu_scope scope;
  masu_scope_open(&scope, nullptr);
  masu_scope_alloc(53);
  masu_heap_on_soft(named, [](masu_heap *, size_t, void *) {}, masu_malloc(54));
  expect(0, 0);
  masu_scope_close(&scope);
  masu_free(sized[2]);
  sized[2] = nullptr;
  masu_sized_free(sized, 64);
  masu_heap_destroy(named);
  masu_pool_destroy(pool);
}

TEST_F(LeaksTest, WhatADestroyedHeapsCallbackHadIsLost) {
  loses(
      [] {
        masu_heap *named = masu_heap_create("named");
        masu_heap_on_soft(named, [](masu_heap *, size_t, void *) {}, zeroed(55));
        masu_heap_destroy(named);
        masu_heap_create("another"); /* in the same place */
      },
      1, 55);
}

/* They are on record as others are, but what would be the room behind them is on their account. */
TEST_F(LeaksTest, BlocksOfNamedHeapsHaveNoMoreThanTheirSize) {
  masu_heap *named = masu_heap_create("named");
  void *p = masu_heap_malloc(named, 64);
  EXPECT_EQ(masu_heap_realloc(named, p, 64), p);
  masu_heap_destroy(named);
  expect(0, 0);
}

/* ---- The interface ---- */

TEST_F(LeaksTest, Ignored) {
  loses(
      [] {
        EXPECT_EQ(masu_leaks_ignore(chain(3, 56)), 0);
        lose(zeroed(10));
      },
      1, 10);
}

/* Only as long as it lives. */
TEST_F(LeaksTest, IgnoredAndFreed) {
  hide_block(3 * MIB);
  deep([] { EXPECT_EQ(masu_leaks_ignore(unhidden()), 0); });
  expect(0, 0);
  deep([] { masu_free(unhidden()); });
  loses(
      [] {
        for (int i = 0; i < 4; i++)
          lose(zeroed(3 * MIB));
      },
      4, 12 * MIB);
}

TEST_F(LeaksTest, Refusals) {
  masu_leaks found;
  int number;
  EXPECT_EQ(masu_leaks_end(begun, &found, 3), EINVAL);
  EXPECT_EQ(masu_leaks_ignore(nullptr), EINVAL);
  EXPECT_EQ(masu_leaks_ignore(&number), EINVAL);
  EXPECT_EQ(masu_leaks_write(begun, "/nowhere/at/all"), ENOENT);
}

TEST_F(LeaksTest, AFile) {
  std::string path = "/tmp/masu-leaks-test." + std::to_string(getpid());
  lose_block(10);
  EXPECT_EQ(masu_leaks_write(begun, path.c_str()), 0);
  EXPECT_EQ(access(path.c_str(), R_OK), 0);
  unlink(path.c_str());
}

/* ---- While threads work ---- */

/* Blocks are always somewhere: in a slot, or in a register or on a stack of the thread that
 * hands it on. */
TEST_F(LeaksTest, NothingIsLostWhileItIsHandedOn) {
  enum { THREADS = 4, SLOTS = 64 };
  static std::atomic<void **> slots[SLOTS];
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < THREADS; t++)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!stop) {
        size_t n = 16 + random() % (random() % 16 ? 600 : 400000);
        auto **p = static_cast<void **>(masu_calloc(1, n));
        *p = masu_malloc(24);
        p = slots[random() % SLOTS].exchange(p);
        if (p && random() % 4 == 0)
          p = static_cast<void **>(masu_realloc(p, 16 + random() % 500000));
        if (p) {
          masu_free(*p);
          masu_free(p);
        }
      }
    });
  for (int round = 0; round < 40; round++)
    expect(0, 0);
  stop = true;
  for (auto &t : threads)
    t.join();
  for (auto &s : slots)
    if (void **p = s.exchange(nullptr)) {
      masu_free(*p);
      masu_free(p);
    }
  EXPECT_EQ(masu_check(), 0);
}

TEST_F(LeaksTest, TwoChecksAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; i++)
        expect(0, 0);
    });
  for (auto &t : threads)
    t.join();
}

TEST_F(LeaksTest, InAForkedChild) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop)
      masu_free(masu_malloc(100));
  });
  for (int i = 0; i < 10; i++) {
    pid_t child = fork();
    if (child == 0) {
      masu_leaks found{};
      bool right = finds([] { lose(zeroed(123)); }, {1, 123, 0, 0, 0, 0}, &found);
      _exit(right && !found.unstopped ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}
