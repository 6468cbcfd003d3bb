// fuzz_forms: random sequences of calls of all the special forms at once, from several threads,
// against what should be true: every live block holds its pattern, is aligned, and what is
// given back as a whole is gone. Blocks of forms that threads share wander between them.
//
//   fuzz_forms [--seed N] [--steps N] [--threads N] [--seconds N]
// runs `steps` steps per thread, with --seconds one seed after the other until the time is over.
// A failure prints the command that repeats it and aborts.
#include <masu/arena.h>
#include <masu/fixed.h>
#include <masu/scope.h>
#include <masu/sized.h>

#include <atomic>
#include <chrono>
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "pattern.h"

namespace {

struct {
  uint64_t seed = 1, steps = 20000;
  unsigned threads = 4;
  unsigned long seconds = 0;
} settings;

[[noreturn]] void fail(const char *what, const void *p) {
  fprintf(stderr, "%s: %p\nrepeat with: fuzz_forms --seed %lu --steps %lu --threads %u\n", what, p,
          settings.seed, settings.steps, settings.threads);
  abort();
}
void *got(void *p) {
  if (!p)
    fail("out of memory", p);
  return p;
}

size_t random_size(random_numbers &random) {
  return random.below(size_t{2} << random.below(random.below(8) ? 10 : 17)) + 1;
}

// ---- What is shared ----

constexpr size_t SHARED_BLOCK = 72;
masu_heap *common;
masu_pool *shared_pool;

enum form { SIZED, HEAP, SHARED_POOL, FREE_FORMS, POOL = FREE_FORMS, FIXED, LADDER, OWN_HEAP, FORMS };

// Lies at the start of each block that may wander, so that whoever gets it can check it.
struct block {
  unsigned char *p = nullptr;
  size_t size = 0, seed = 0;
  form of = SIZED;
};

std::atomic<block *> table[256];

void fill(block &b) { pattern_write(b.p, b.size, b.seed); }
void check(const block &b) {
  if (pattern_mismatch(b.p, b.size, b.seed) != b.size)
    fail("a block was overwritten", b.p);
}

// ---- A thread ----

class worker {
  random_numbers random;
  masu_heap *own = masu_heap_create("fuzz");
  size_t pool_block = 1 + random.below(300);
  masu_pool *pool = masu_pool_create_in(own, "fuzz", pool_block, 0, 0);
  masu_fixed *fixed = masu_fixed_create(1 + random.below(500), 1 + random.below(200), MASU_FIXED_FALLBACK);
  masu_ladder *ladder = masu_ladder_create(nullptr, 0);
  masu_arena *arena = masu_arena_create(1 + random.below(5000));
  std::vector<block> live, in_arena;

  block make() {
    block b;
    b.of = static_cast<form>(random.below(FORMS));
    b.size = b.of == SHARED_POOL ? SHARED_BLOCK : b.of == POOL ? pool_block : random_size(random);
    b.seed = random.below(1 << 30);
    void *p = nullptr;
    switch (b.of) {
    case SIZED:
      p = masu_sized_alloc(b.size);
      break;
    case HEAP:
      p = masu_heap_malloc(common, b.size);
      break;
    case SHARED_POOL:
      p = masu_pool_alloc(shared_pool);
      break;
    case POOL:
      p = masu_pool_alloc(pool);
      break;
    case FIXED:
      p = masu_fixed_alloc(fixed, b.size);
      break;
    case LADDER:
      p = masu_ladder_alloc(ladder, b.size);
      break;
    default:
      p = masu_heap_malloc(own, b.size);
    }
    b.p = static_cast<unsigned char *>(got(p));
    fill(b);
    return b;
  }

  void drop(const block &b) {
    check(b);
    switch (b.of) {
    case SIZED:
      return masu_sized_free(b.p, b.size);
    case SHARED_POOL:
      return masu_pool_free(shared_pool, b.p);
    case POOL:
      return masu_pool_free(pool, b.p);
    case FIXED:
      return masu_fixed_free(fixed, b.p);
    case LADDER:
      return masu_ladder_free(ladder, b.p);
    case HEAP:
      return masu_heap_free(common, b.p);
    default:
      return masu_free(b.p);
    }
  }

  void resize(block &b) {
    size_t size = random_size(random);
    void *p = nullptr;
    if (b.of == FIXED)
      p = masu_fixed_realloc(fixed, b.p, size);
    else if (b.of == LADDER)
      p = masu_ladder_realloc(ladder, b.p, size);
    else if (b.of == HEAP || b.of == OWN_HEAP)
      p = masu_heap_realloc(nullptr, b.p, size);
    else
      return;
    size_t kept = std::min(size, b.size);
    b.p = static_cast<unsigned char *>(got(p));
    if (pattern_mismatch(b.p, kept, b.seed) != kept)
      fail("realloc lost contents", b.p);
    b.size = size;
    fill(b);
  }

  // Swaps a block with the table; what may wander is freed by anybody.
  void wander(block &b) {
    if (b.of >= FREE_FORMS)
      return;
    auto *parcel = new block(b);
    parcel = table[random.below(256)].exchange(parcel);
    if (parcel) {
      b = *parcel;
      delete parcel;
    } else {
      b = make();
    }
  }

  void use_arena() {
    if (random.below(200) == 0) {
      for (const block &b : in_arena)
        check(b);
      masu_arena_reset(arena);
      if (random.below(4) == 0)
        masu_arena_trim(arena);
      in_arena.clear();
    }
    block b;
    b.size = random.below(3000);
    b.seed = random.below(1 << 30);
    bool zero = random.below(3) == 0;
    b.p = static_cast<unsigned char *>(
        got(zero ? masu_arena_calloc(arena, 1, b.size)
                 : masu_arena_aligned_alloc(arena, size_t{1} << random.below(8), b.size)));
    if (zero && !all_zero(b.p, b.size))
      fail("not zero", b.p);
    fill(b);
    in_arena.push_back(b);
  }

  void use_scopes(unsigned depth) {
    masu_scope scope;
    masu_scope_open(&scope, random.below(2) ? own : nullptr);
    size_t before = masu_scope_count();
    std::vector<block> mine;
    for (uint64_t n = random.below(6); n > 0; n--) {
      block value = {static_cast<unsigned char *>(got(masu_scope_alloc(40))), 40, n};
      mine.push_back({static_cast<unsigned char *>(got(masu_scope_temp(n * 50))), n * 50, n});
      fill(value);
      fill(mine.back());
      if (depth && random.below(3) == 0)
        masu_scope_hand_out(value.p);
      else if (random.below(5) == 0)
        masu_free(masu_scope_keep(value.p));
      else
        mine.push_back(value);
    }
    if (depth < 5 && random.below(2))
      use_scopes(depth + 1);
    for (const block &b : mine)
      check(b);
    masu_scope_close(&scope);
    if (depth == 0 && masu_scope_count() > before)
      fail("a scope kept its values", &scope);
  }

  // All blocks of one's own heap at once.
  void renew_heap() {
    std::vector<block> kept;
    for (const block &b : live)
      if (b.of == OWN_HEAP || b.of == POOL)
        check(b);
      else
        kept.push_back(b);
    live = kept;
    masu_heap_destroy(own); /* the pool with it */
    own = masu_heap_create("fuzz again");
    pool_block = 1 + random.below(300);
    pool = masu_pool_create_in(own, nullptr, pool_block, 0, 0);
  }

public:
  explicit worker(uint64_t seed) : random(seed) {}

  void run(uint64_t steps) {
    for (uint64_t i = 0; i < steps; i++) {
      size_t at = live.empty() ? 0 : random.below(live.size());
      switch (random.below(16)) {
      case 0:
        use_arena();
        break;
      case 1:
        use_scopes(0);
        break;
      case 2:
      case 3:
        if (!live.empty())
          wander(live[at]);
        break;
      case 4:
      case 5:
        if (!live.empty())
          resize(live[at]);
        break;
      case 6:
        if (random.below(500) == 0)
          renew_heap();
        if (random.below(100) == 0)
          masu_pool_trim(pool), masu_ladder_trim(ladder), masu_heap_trim(common);
        if (random.below(500) == 0)
          masu_sized_trim();
        break;
      default:
        if (live.size() < 400 && random.below(live.size() + 200) < 200) {
          live.push_back(make());
        } else if (!live.empty()) {
          std::swap(live[at], live.back());
          drop(live.back());
          live.pop_back();
        }
      }
    }
  }

  ~worker() {
    for (const block &b : live)
      drop(b);
    masu_arena_destroy(arena);
    masu_ladder_destroy(ladder);
    masu_fixed_destroy(fixed);
    masu_heap_figures f;
    masu_heap_read(own, &f, sizeof f);
    masu_heap_destroy(own);
  }
};

void run_seed() {
  common = masu_heap_create("common");
  shared_pool = masu_pool_create_in(common, "shared", SHARED_BLOCK, 0, MASU_POOL_SHARED);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < settings.threads; t++)
    threads.emplace_back([t] { worker(settings.seed * 1000 + t).run(settings.steps); });
  for (auto &t : threads)
    t.join();
  for (auto &slot : table)
    if (block *b = slot.exchange(nullptr)) {
      check(*b);
      if (b->of == SIZED)
        masu_sized_free(b->p, b->size);
      delete b; /* those of the heap and the pool go with the heap */
    }
  masu_heap_destroy(common);
  masu_sized_trim();
  for (unsigned i = 0; i < MASU_SIZE_INDEXES; i++) {
    masu_sized_figures f;
    masu_sized_read(i, &f, sizeof f);
    if (f.live)
      fail("sized blocks were lost", nullptr);
  }
  if (masu_check())
    fail("masu_check", nullptr);
}

} // namespace

int main(int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string_view name = argv[i];
    uint64_t value = strtoull(argv[i + 1], nullptr, 10);
    if (name == "--seed")
      settings.seed = value;
    else if (name == "--steps")
      settings.steps = value;
    else if (name == "--threads")
      settings.threads = static_cast<unsigned>(value);
    else if (name == "--seconds")
      settings.seconds = value;
    else
      return fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(settings.seconds);
  do
    run_seed();
  while (settings.seed++, std::chrono::steady_clock::now() < end);
  printf("fuzz_forms: no failure up to seed %lu\n", settings.seed - 1);
}
