// fuzz_api: random sequences of every call, from several threads, against a shadow
// of what should be true. The shadow's memory is mapped, never masu's.
//
//   every live block holds its pattern         (contents, writes by others)
//   no granule of 8 bytes is in two blocks     (shadow bitmap of the address space)
//   alignment and usable size are as promised
//   what failed left everything as it was
//
// Blocks wander: threads swap them through a common table, and every few thousand
// steps a thread ends and a new one goes on with its blocks.
//
//   fuzz_api [--seed N] [--steps N] [--threads N] [--seconds N]
// runs `steps` steps per thread, with --seconds one seed after the other until the
// time is over. A failure prints the command that repeats it and aborts.
// With MASU_LIBFUZZER the bytes of libFuzzer take the random numbers' place.
#include <masu.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr size_t KIB = 1024, MIB = 1024 * KIB;

struct {
  uint64_t seed = 1, steps = 20000;
  unsigned threads = 4;
  unsigned long seconds = 0;
} settings;

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vdprintf(2, format, args);
  va_end(args);
  dprintf(2, "\nrepeat with: fuzz_api --seed %lu --steps %lu --threads %u\n",
          settings.seed, settings.steps, settings.threads);
  abort();
}

template <class T> T *map_table(size_t count) {
  void *p = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail("no memory for the shadow");
  return static_cast<T *>(p);
}

// ---- Where the choices come from: random numbers, or the fuzzer's bytes ----

class source {
  uint64_t state;
  const uint8_t *bytes = nullptr;
  size_t left = 0;

public:
  explicit source(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15 + 1) {}
  source(const uint8_t *data, size_t size) : state(0), bytes(data), left(size) {}

  bool empty() const { return bytes && left == 0; }
  uint64_t next() {
    if (bytes) {
      uint64_t value = 0;
      size_t taken = left < 4 ? left : 4;
      memcpy(&value, bytes, taken);
      bytes += taken, left -= taken;
      return value;
    }
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545f4914f6cdd1d >> 16;
  }
  uint64_t below(uint64_t n) { return next() % n; }

  // Every power of two is equally likely, small ones more often than large.
  size_t size() {
    unsigned kind = static_cast<unsigned>(below(64));
    unsigned bits = kind < 48               ? kind % 12
                    : kind < 62             ? 12 + kind % 5
                    : kind < 63 || below(4) ? 17 + kind % 4
                                            : 22;
    return below((2ull << bits) + 1);
  }
  size_t alignment() { return size_t{1} << (below(16) ? below(13) : below(23)); }
};

// ---- The shadow: which granules of 8 bytes belong to a live block ----

// One bit per granule; a page of bits covers 64 MiB and is mapped when needed.
class shadow_map {
  static constexpr unsigned AREA_BITS = 26;
  using word = std::atomic<uint64_t>;
  std::atomic<word *> *areas =
      map_table<std::atomic<word *>>(size_t{1} << (47 - AREA_BITS));

  word *area_of(uintptr_t address) {
    auto &slot = areas[address >> AREA_BITS];
    word *area = slot.load(std::memory_order_acquire);
    if (!area) {
      constexpr size_t words = (size_t{1} << AREA_BITS) / 8 / 64;
      word *fresh = map_table<word>(words);
      if (slot.compare_exchange_strong(area, fresh))
        return fresh;
      munmap(fresh, words * sizeof(word));
    }
    return area;
  }
  // Calls f(word, mask) for the granules of [p, p + n), in at most 512 bytes each.
  template <class F> void for_each(const void *p, size_t n, F f) {
    auto at = reinterpret_cast<uintptr_t>(p) / 8,
         end = (reinterpret_cast<uintptr_t>(p) + n + 7) / 8;
    while (at < end) {
      unsigned bit = at % 64;
      uint64_t count = end - at < 64 - bit ? end - at : 64 - bit;
      uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << bit;
      f(area_of(at * 8)[(at * 8 & ((uintptr_t{1} << AREA_BITS) - 1)) / 512], mask);
      at += count;
    }
  }

public:
  void take(const void *p, size_t n) {
    for_each(p, n, [&](word &w, uint64_t mask) {
      if (uint64_t both = w.fetch_or(mask, std::memory_order_relaxed) & mask)
        fail("block %p of %zu bytes overlaps a live one (granules %016lx)", p, n, both);
    });
  }
  void give(const void *p, size_t n) {
    for_each(p, n, [&](word &w, uint64_t mask) {
      if ((w.fetch_and(~mask, std::memory_order_relaxed) & mask) != mask)
        fail("the shadow lost block %p of %zu bytes", p, n);
    });
  }
};
shadow_map shadow;

// ---- Blocks ----

struct block {
  unsigned char *p;
  size_t size; // asked for
  size_t usable; // what the shadow holds as taken
  size_t filled; // bytes with the pattern: size or usable
  size_t alignment; // asked for, 0: malloc's
  bool sized; // may be given to the sized frees
  uint64_t key;
};

// Words of the block that carry the pattern: all near the ends, few in between.
bool is_marked(size_t word, size_t words) {
  return word < 96 || word + 32 >= words || word % 509 == 0;
}
uint64_t mark_of(uint64_t key, size_t word) { return (key + word) * 0x9e3779b97f4a7c15; }

template <class F> void for_each_marked(size_t words, F f) {
  for (size_t i = 0; i < words;) {
    if (is_marked(i, words))
      f(i), i++;
    else { // on to the next one
      size_t next = (i / 509 + 1) * 509, tail = words - 32;
      i = next < tail ? next : tail;
    }
  }
}

void fill(block &b) {
  auto *words = reinterpret_cast<uint64_t *>(b.p);
  for_each_marked(b.filled / 8, [&](size_t i) { words[i] = mark_of(b.key, i); });
  for (size_t i = b.filled & ~size_t{7}; i < b.filled; i++)
    b.p[i] = static_cast<unsigned char>(b.key + i);
}
// What is left of block b in the first n bytes at p.
void check_contents(const block &b, const unsigned char *p, size_t n, const char *when) {
  auto *words = reinterpret_cast<const uint64_t *>(p);
  size_t all = b.filled / 8;
  n = n < b.filled ? n : b.filled;
  for_each_marked(all, [&](size_t i) {
    if (i < n / 8 && words[i] != mark_of(b.key, i))
      fail("%s: block %p (at %p before), %zu bytes asked, %zu filled: word %zu is %016lx",
           when, static_cast<const void *>(p), static_cast<void *>(b.p), b.size, b.filled,
           i, words[i]);
  });
  for (size_t i = b.filled & ~size_t{7}; i < n; i++)
    if (p[i] != static_cast<unsigned char>(b.key + i))
      fail("%s: block %p, %zu bytes asked, %zu filled: byte %zu", when,
           static_cast<const void *>(p), b.size, b.filled, i);
}

// The blocks of one thread, or in libFuzzer's case of the process.
constexpr size_t SLOTS = 700;
struct world {
  block blocks[SLOTS];
  size_t live_bytes;
};

bool too_much(const world &w, size_t more) {
  return w.live_bytes + more > 512 * MIB / settings.threads;
}

// Blocks on their way between threads.
class place {
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  block inside = {};

public:
  void swap(block &b) {
    while (busy.test_and_set(std::memory_order_acquire))
      std::this_thread::yield();
    std::swap(inside, b);
    busy.clear(std::memory_order_release);
  }
};
place exchange[256];
std::atomic<uint64_t> keys{1};

// A new block: all that can be said about it is checked, then it is filled.
block adopt(source &in, void *p, size_t size, size_t alignment) {
  block b = {};
  if (!p)
    return b;
  size_t promised = alignment ? alignment : 8;
  if (promised < 16 && size >= 16)
    promised = 16;
  if (reinterpret_cast<uintptr_t>(p) % promised)
    fail("%p for %zu bytes is not aligned to %zu", p, size, promised);
  b = {static_cast<unsigned char *>(p),
       size,
       masu_malloc_usable_size(p),
       size,
       alignment,
       true,
       keys++};
  if (b.usable < size)
    fail("usable size %zu of %p, %zu asked", b.usable, p, size);
  shadow.take(p, b.usable);
  if (in.below(4) == 0)
    b.filled = b.usable;
  fill(b);
  return b;
}
void out_of_memory(void *p) {
  if (!p && errno != ENOMEM)
    fail("NULL with errno %d", errno);
}

void drop(source &in, world &w, block &b) {
  check_contents(b, b.p, b.filled, "before free");
  if (masu_malloc_usable_size(b.p) != b.usable)
    fail("the usable size of %p was %zu, is %zu", static_cast<void *>(b.p), b.usable,
         masu_malloc_usable_size(b.p));
  shadow.give(b.p, b.usable);
  w.live_bytes -= b.usable;
  errno = 77;
  switch (b.sized ? in.below(3) : 1 + in.below(2)) {
  case 0:
    if (b.alignment)
      masu_free_aligned_sized(b.p, b.alignment, b.size);
    else
      masu_free_sized(b.p, b.size);
    break;
  case 1:
    if (in.below(8) == 0) {
      if (masu_realloc(b.p, 0))
        fail("realloc to 0 is not NULL");
      break;
    }
    [[fallthrough]];
  default:
    masu_free(b.p);
  }
  if (errno != 77)
    fail("free set errno to %d", errno);
  b = {};
}

void allocate(source &in, world &w, block &b) {
  size_t size = in.size(), alignment = 0;
  if (too_much(w, size))
    return;
  void *p = nullptr;
  errno = 0;
  uint64_t how = in.below(10);
  switch (how) {
  default:
    p = masu_malloc(size);
    break;
  case 4:
  case 5: {
    size_t count = 1 + in.below(4);
    size = size / count * count;
    p = masu_calloc(count, size / count);
    auto *bytes = static_cast<unsigned char *>(p);
    for (size_t i = 0; p && i < size; i += i < 4096 || i + 512 > size ? 1 : 61)
      if (bytes[i])
        fail("calloc(%zu, %zu): byte %zu of %p is %02x", count, size / count, i, p,
             bytes[i]);
    break;
  }
  case 6:
    alignment = in.alignment();
    p = masu_aligned_alloc(alignment, size);
    break;
  case 7:
    alignment = in.alignment();
    p = masu_memalign(alignment, size);
    break;
  case 8: {
    alignment = in.alignment();
    alignment = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    int fault = masu_posix_memalign(&p, alignment, size);
    if (fault && (fault != ENOMEM || p))
      fail("posix_memalign gives %d", fault);
    errno = ENOMEM;
    break;
  }
  case 9: {
    static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    alignment = page;
    if (in.below(2)) {
      p = masu_valloc(size);
    } else {
      size = (size + page - 1) / page * page;
      p = masu_pvalloc(size ? size - in.below(page < size ? page : size) : 0);
    }
    break;
  }
  }
  out_of_memory(p);
  b = adopt(in, p, size, alignment);
  b.sized = how != 9; // valloc and pvalloc have no sized free
  size_t good = masu_malloc_good_size(size);
  bool exact = how != 4 && how != 5; // calloc prefers memory that is zero already
  if (p && !alignment && (exact ? b.usable != good : b.usable < good))
    fail("malloc(%zu) has %zu usable bytes, good_size says %zu", size, b.usable, good);
  w.live_bytes += b.usable;
}

void resize(source &in, world &w, block &b) {
  size_t size = in.below(3) == 0 ? b.size + in.below(b.size / 2 + 100) : in.size();
  size = size ? size : 1;
  if (too_much(w, size))
    return;
  block old = b;
  check_contents(old, old.p, old.filled, "before realloc");
  shadow.give(old.p, old.usable);
  void *p;
  errno = 0;
  unsigned kind = static_cast<unsigned>(in.below(4));
  if (kind == 0) {
    size_t count = 1 + in.below(4);
    size = (size + count - 1) / count * count;
    p = masu_reallocarray(old.p, count, size / count);
  } else
    p = kind == 1 ? masu_reallocf(old.p, size) : masu_realloc(old.p, size);
  out_of_memory(p);
  if (!p && kind == 1) { // reallocf has freed it
    w.live_bytes -= old.usable;
    b = {};
    return;
  }
  if (!p) {
    shadow.take(old.p, old.usable);
    check_contents(old, old.p, old.filled, "after a failed realloc");
    return;
  }
  check_contents(old, static_cast<unsigned char *>(p), size, "after realloc");
  w.live_bytes -= old.usable;
  b = adopt(in, p, size, 0);
  w.live_bytes += b.usable;
}

// Requests that cannot be met leave the block alone.
void ask_the_impossible(source &in, block &b) {
  size_t size = PTRDIFF_MAX + in.below(PTRDIFF_MAX);
  void *const mark = &b;
  void *out = mark;
  errno = 0;
  if (masu_malloc(size) || masu_calloc(size / 2, 3) ||
      masu_reallocarray(b.p, SIZE_MAX / 2, 4) || (b.p && masu_realloc(b.p, size)) ||
      masu_aligned_alloc(64, size) || masu_posix_memalign(&out, 24, 100) != EINVAL ||
      out != mark || masu_posix_memalign(&out, 64, size) != ENOMEM || out != mark ||
      errno != ENOMEM)
    fail("an impossible request was met, errno %d", errno);
  if (b.p)
    check_contents(b, b.p, b.filled, "after impossible requests");
}

// Puts a block into the exchange and takes what was there.
void hand_over(source &in, world &w, block &b) {
  w.live_bytes -= b.usable;
  exchange[in.below(std::size(exchange))].swap(b);
  w.live_bytes += b.usable;
  if (b.p)
    check_contents(b, b.p, b.filled, "after the hand-over");
}

void step(source &in, world &w) {
  block &b = w.blocks[in.below(SLOTS)];
  uint64_t what = in.below(100);
  if (what == 0 && in.below(20) == 0) {
    if (in.below(8) == 0)
      masu_malloc_trim(in.below(2) * MIB);
    else if (masu_mallinfo2().uordblks == ~size_t{0})
      fail("mallinfo2");
    uint64_t value;
    if (masu_ctl("stats.live", &value, nullptr) != 0)
      fail("masu_ctl");
  } else if (what < 3)
    ask_the_impossible(in, b);
  else if (what < 18)
    hand_over(in, w, b);
  else if (!b.p)
    allocate(in, w, b);
  else if (what < 40)
    resize(in, w, b);
  else if (what < 45)
    check_contents(b, b.p, b.filled, "in between");
  else
    drop(in, w, b);
}

void drop_all(source &in, world &w) {
  for (block &b : w.blocks)
    if (b.p)
      drop(in, w, b);
}
void drop_exchange(source &in, world &w) {
  for (place &from : exchange) {
    block b = {};
    from.swap(b);
    w.live_bytes += b.usable;
    if (b.p)
      drop(in, w, b);
  }
}

#ifndef MASU_LIBFUZZER

// A world outlives the threads that run it: a new one for every few thousand steps.
void live(world &w, uint64_t seed) {
  source in(seed);
  for (uint64_t done = 0; done < settings.steps;) {
    uint64_t lifetime = 500 + in.below(6000);
    std::thread([&] {
      for (uint64_t i = 0; i < lifetime && done < settings.steps; i++, done++)
        step(in, w);
    }).join();
  }
  if (in.below(2))
    drop_all(in, w); // else it is dropped by the main thread
}

// Large programs have more to give back: every other seed is one.
void *ballast[12];
void weigh_down(bool heavily) {
  for (void *&p : ballast) {
    free(p);
    p = heavily ? malloc(2 * MIB - 4096) : nullptr;
  }
}

void run_seed(world *worlds) {
  std::thread threads[64];
  weigh_down(settings.seed % 2);
  for (unsigned i = 0; i < settings.threads; i++)
    threads[i] = std::thread([=] { live(worlds[i], settings.seed * 1000 + i); });
  for (unsigned i = 0; i < settings.threads; i++)
    threads[i].join();
  source in(settings.seed);
  for (unsigned i = 0; i < settings.threads; i++)
    drop_all(in, worlds[i]);
  drop_exchange(in, worlds[0]);
  weigh_down(false);
  if (masu_check() != 0)
    fail("masu_check");
}

#endif
} // namespace

#ifdef MASU_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static world *w = map_table<world>(1);
  source in(data, size);
  while (!in.empty())
    step(in, *w);
  source rest(1);
  drop_all(rest, *w);
  drop_exchange(rest, *w);
  if (masu_check() != 0)
    fail("masu_check");
  return 0;
}

#else

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i += 2) {
    auto is = [&](const char *name) { return strcmp(argv[i], name) == 0; };
    uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], nullptr, 10) : 0;
    if (is("--seed"))
      settings.seed = value;
    else if (is("--steps"))
      settings.steps = value;
    else if (is("--threads") && value >= 1 && value <= 64)
      settings.threads = static_cast<unsigned>(value);
    else if (is("--seconds"))
      settings.seconds = value;
    else {
      fprintf(stderr,
              "usage: fuzz_api [--seed N] [--steps N] [--threads 1..64] [--seconds N]\n");
      return 2;
    }
  }
  auto *worlds = map_table<world>(settings.threads);
  auto start = std::chrono::steady_clock::now();
  do {
    run_seed(worlds);
    settings.seed++;
  } while (std::chrono::steady_clock::now() - start <
           std::chrono::seconds(settings.seconds));
}

#endif
