// forms WORKLOAD FORM [REPEATS]: one workload with one form; prints a figure as JSON.
// `forms --list` names the pairs. Blocks are checked, as in all workloads.
#include "forms.h"

#include <cstring>
#include <ctime>

namespace {

// ---- kmalloc: the round of KMalloc (kclib1, note 4), 10,000 blocks of 1,024 bytes ----

constexpr size_t BLOCKS = 10000, BLOCK_BYTES = 1024, WARM_UP = 10;

template <class Form> void kmalloc_play() {
  static void *block[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    block[i] = got(Form::alloc(BLOCK_BYTES));
    *static_cast<size_t *>(block[i]) = i;
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (*static_cast<size_t *>(block[i]) != i)
      fail("block %zu was overwritten", i);
    Form::free(block[i], BLOCK_BYTES);
  }
}

template <class Form> double kmalloc(size_t repeats) {
  Form::start(BLOCK_BYTES);
  for (size_t i = 0; i < WARM_UP; i++)
    kmalloc_play<Form>();
  uint64_t start = now_ns();
  for (size_t i = 0; i < repeats; i++)
    kmalloc_play<Form>();
  return double(now_ns() - start) / double(repeats * BLOCKS);
}

// ---- tiny: 1,000,000 blocks of 4 bytes, the KiB that the process grows by ----

// VmRSS is counted in batches; this is exact.
long resident_kib() {
  char text[4096];
  int file = open("/proc/self/smaps_rollup", O_RDONLY);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (length < 0)
    fail("/proc/self/smaps_rollup: %s", strerror(errno));
  close(file);
  text[length] = 0;
  const char *line = strstr(text, "Rss:");
  return line ? strtol(line + 4, nullptr, 10) : -1;
}

template <class Form> double tiny(size_t) {
  constexpr size_t COUNT = 1000000;
  static int *block[COUNT];
  memset(block, 1, sizeof block); // resident
  Form::start(4);
  Form::free(got(Form::alloc(4)), 4);
  resident_kib();
  long before = resident_kib();
  for (size_t i = 0; i < COUNT; i++)
    *(block[i] = static_cast<int *>(got(Form::alloc(4)))) = int(i);
  long after = resident_kib();
  for (size_t i = 0; i < COUNT; i++)
    if (*block[i] != int(i))
      fail("block %zu was overwritten", i);
  return double(after - before);
}

// ---- pair: a block of 64 bytes, taken and freed again ----

template <class Form> double pair(size_t repeats) {
  Form::start(64);
  Form::free(got(Form::alloc(64)), 64);
  uint64_t start = now_ns();
  for (size_t i = 0; i < repeats * 1000; i++) {
    void *p = Form::alloc(64);
    __asm__ volatile("" : : "r"(p) : "memory");
    Form::free(p, 64);
  }
  return double(now_ns() - start) / double(repeats * 1000);
}

// ---- replace: 10,000 blocks of 48 bytes, one after the other replaced at random ----

template <class Form> double replace(size_t repeats) {
  static struct mark {
    size_t place;
  } *slot[10000];
  uint32_t random = 1;
  Form::start(48);
  for (size_t i = 0; i < 10000; i++)
    *(slot[i] = static_cast<mark *>(got(Form::alloc(48)))) = {i};
  uint64_t start = now_ns();
  for (size_t n = 0; n < repeats * 10000; n++) {
    size_t i = xorshift32(&random) % 10000;
    if (slot[i]->place != i)
      fail("slot %zu was overwritten", i);
    Form::free(slot[i], 48);
    *(slot[i] = static_cast<mark *>(got(Form::alloc(48)))) = {i};
  }
  return double(now_ns() - start) / double(repeats * 10000);
}

// ---- sizes: the same with sizes from 16 to 512 bytes ----

template <class Form> double sizes(size_t repeats) {
  static struct entry {
    unsigned char *p;
    size_t size;
  } slot[10000];
  uint32_t random = 1;
  Form::start(64);
  for (size_t i = 0; i < 10000; i++) {
    slot[i].size = random_between(&random, 16, 512);
    block_mark(slot[i].p = static_cast<unsigned char *>(got(Form::alloc(slot[i].size))), slot[i].size, i);
  }
  uint64_t start = now_ns();
  for (size_t n = 0; n < repeats * 10000; n++) {
    size_t i = xorshift32(&random) % 10000;
    block_check(slot[i].p, slot[i].size, i);
    Form::free(slot[i].p, slot[i].size);
    slot[i].size = random_between(&random, 16, 512);
    block_mark(slot[i].p = static_cast<unsigned char *>(got(Form::alloc(slot[i].size))), slot[i].size, i);
  }
  return double(now_ns() - start) / double(repeats * 10000);
}

// ---- frame: 100,000 blocks of 48 bytes, then all of them at once ----

template <class Form> double frame(size_t repeats) {
  Form::start(48);
  uint64_t start = 0;
  for (size_t n = 0; n < repeats + 2; n++) {
    if (n == 2)
      start = now_ns();
    size_t *last = nullptr;
    for (size_t i = 0; i < 100000; i++) {
      auto *p = static_cast<size_t *>(Form::alloc(48));
      p[0] = i;
      last = p;
    }
    if (last[0] != 99999)
      fail("the last block was overwritten");
    Form::reset();
  }
  return double(now_ns() - start) / double(repeats * 100000);
}

// As frame, but each block is freed: what a program without such a form does.
template <class Form> double frame_freed(size_t repeats) {
  static size_t *block[100000];
  Form::start(48);
  uint64_t start = 0;
  for (size_t n = 0; n < repeats + 2; n++) {
    if (n == 2)
      start = now_ns();
    for (size_t i = 0; i < 100000; i++)
      *(block[i] = static_cast<size_t *>(got(Form::alloc(48)))) = i;
    for (size_t i = 0; i < 100000; i++)
      Form::free(block[i], 48);
  }
  return double(now_ns() - start) / double(repeats * 100000);
}

// ---- first: 10,000 blocks of 2,000 bytes that are written to for the first time ----

template <class Form> double first(size_t) {
  static unsigned char *block[BLOCKS];
  memset(block, 1, sizeof block); // resident
  Form::start(2000);
  uint64_t start = now_ns();
  for (size_t i = 0; i < BLOCKS; i++)
    block_mark(block[i] = static_cast<unsigned char *>(got(Form::alloc(2000))), 2000, i);
  uint64_t end = now_ns();
  for (size_t i = 0; i < BLOCKS; i++)
    block_check(block[i], 2000, i);
  return double(end - start) / double(BLOCKS);
}

#ifdef WITH_MASU
// The reset alone, after 100,000 blocks.
double arena_reset(size_t repeats) {
  double best = 1e9;
  form_arena::start(0);
  for (size_t n = 0; n < repeats; n++) {
    for (size_t i = 0; i < 100000; i++)
      *static_cast<size_t *>(form_arena::alloc(48)) = i;
    uint64_t start = now_ns();
    form_arena::reset();
    double took = double(now_ns() - start);
    best = took < best ? took : best;
  }
  return best;
}
#endif

#ifdef WITH_MASU
// ---- scope: an empty scope, opened and closed inside of DEPTH - 1 others ----

__attribute__((noinline)) double scope_pairs(size_t repeats) {
  masu_scope s;
  uint64_t start = now_ns();
  for (size_t n = 0; n < repeats * 1000; n++) {
    masu_scope_open(&s, nullptr);
    masu_scope_close(&s);
  }
  return double(now_ns() - start) / double(repeats * 1000);
}

// As in a recursion, each lies below the one around it.
template <size_t DEPTH> double scope(size_t repeats) {
  masu_scope around[DEPTH];
  for (size_t i = DEPTH; i-- > 1;)
    masu_scope_open(&around[i], nullptr);
  return scope_pairs(repeats);
}
#endif

// ---- stackprobe: 14,000 slots, 1 to 10,000 bytes, with realloc; 10,000,000 steps ----
// Two thirds of the slots are full: 10,000 blocks are never all out, 9,000 are, and the rest falls back.

template <class Form> double stackprobe(size_t repeats) {
  static struct entry {
    unsigned char *p;
    size_t size;
  } slot[14000];
  uint32_t random = 2463534242u;
  Form::start(10000);
  uint64_t start = now_ns();
  for (size_t n = 0; n < repeats * 10000; n++) {
    size_t i = xorshift32(&random) % 14000;
    entry *s = &slot[i];
    if (s->p)
      block_check(s->p, s->size, i);
    if (!s->p) {
      s->size = xorshift32(&random) % 10000 + 1;
      s->p = static_cast<unsigned char *>(got(Form::alloc(s->size)));
    } else if (xorshift32(&random) & 1) {
      size_t size = xorshift32(&random) % 10000 + 1;
      s->p = static_cast<unsigned char *>(got(Form::realloc(s->p, s->size, size)));
      s->size = size;
    } else {
      Form::free(s->p, s->size);
      s->p = nullptr;
      continue;
    }
    block_mark(s->p, s->size, i);
  }
  return double(now_ns() - start) / double(repeats * 10000);
}

// ---- tail: calls of stackprobe that take long, and are not the machine's own ----

uint64_t clock_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

// Who waits for the machine in proportion to the time that he takes, so long ones count as LATE.
constexpr uint64_t LATE = 10000;
struct intervals {
  uint64_t ns, late;
  void add(uint64_t from, uint64_t to) {
    late += to - from > LATE;
    ns += to - from > LATE ? LATE : to - from;
  }
};

// Calls above 10 microseconds in a million, less those of an empty loop that takes as long.
template <class Form> double tail(size_t repeats) {
  static unsigned char *slot[14000];
  uint32_t random = 2463534242u;
  size_t steps = repeats * 10000;
  intervals calls = {}, empty = {};
  Form::start(10000);
  for (size_t n = 0; n < steps + 100000; n++) {
    size_t i = xorshift32(&random) % 14000, size = xorshift32(&random) % 10000 + 1;
    uint64_t before = clock_ns();
    if (slot[i]) {
      Form::free(slot[i], size);
      slot[i] = nullptr;
    } else {
      slot[i] = static_cast<unsigned char *>(got(Form::alloc(size)));
    }
    uint64_t after = clock_ns();
    if (n >= 100000) // all slots are filled, all memory is there
      calls.add(before, after);
    while (empty.ns < calls.ns) {
      before = clock_ns();
      empty.add(before, clock_ns());
    }
  }
  return (double(calls.late) - double(empty.late)) * 1e6 / double(steps);
}

// ---- The table of pairs ----

struct entry {
  const char *workload, *form;
  double (*run)(size_t);
  size_t repeats;
  const char *unit;
};

#define TIMED(workload, form, repeats) {#workload, #form, workload<form_##form>, repeats, "ns"}
const entry entries[] = {
#ifdef WITH_MASU
    {"kmalloc", "sized", kmalloc<form_sized>, 1000, "ns"},
    {"kmalloc", "pool", kmalloc<form_pool<0>>, 1000, "ns"},
    {"tiny", "sized", tiny<form_sized>, 1, "KiB"},
    {"tiny", "pool", tiny<form_pool<0>>, 1, "KiB"},
    TIMED(pair, sized, 20000),
    {"pair", "pool", pair<form_pool<0>>, 20000, "ns"},
    {"pair", "shared_pool", pair<form_pool<MASU_POOL_SHARED>>, 20000, "ns"},
    TIMED(pair, heap, 20000),
    TIMED(replace, sized, 300),
    {"replace", "pool", replace<form_pool<0>>, 300, "ns"},
    {"replace", "shared_pool", replace<form_pool<MASU_POOL_SHARED>>, 300, "ns"},
    TIMED(replace, heap, 300),
    TIMED(sizes, sized, 300),
    TIMED(sizes, heap, 300),
    TIMED(sizes, ladder, 300),
    TIMED(sizes, ladder_of_32, 300),
    TIMED(sizes, ladder_of_8, 300),
    TIMED(frame, arena, 100),
    TIMED(frame, scope, 100),
    {"frame", "pool", frame<form_pool<0>>, 100, "ns"},
    {"first", "prepared", first<form_prepared<BLOCKS>>, 1, "ns"},
    {"first", "pool_reserved", first<form_reserved<BLOCKS>>, 1, "ns"},
    {"first", "fixed", first<form_fixed<BLOCKS>>, 1, "ns"},
    {"reset", "arena", arena_reset, 100, "ns"},
    {"scope", "scope", scope<1>, 20000, "ns"},
    {"scope", "scope_1000_deep", scope<1000>, 20000, "ns"},
    {"stackprobe", "fixed", stackprobe<form_fixed<10000>>, 1000, "ns"},
    {"stackprobe", "fixed_9000_blocks", stackprobe<form_fixed<9000>>, 1000, "ns"},
    TIMED(stackprobe, ladder, 1000),
    TIMED(stackprobe, ladder_of_8, 1000),
    {"tail", "fixed", tail<form_fixed<10000>>, 200, "per million"},
    {"kmalloc", "masu", kmalloc<form_malloc>, 1000, "ns"},
    {"tiny", "masu", tiny<form_malloc>, 1, "KiB"},
    {"pair", "masu", pair<form_malloc>, 20000, "ns"},
    {"replace", "masu", replace<form_malloc>, 300, "ns"},
    {"sizes", "masu", sizes<form_malloc>, 300, "ns"},
    {"frame", "masu", frame_freed<form_malloc>, 100, "ns"},
    {"first", "masu", first<form_malloc>, 1, "ns"},
    {"stackprobe", "masu", stackprobe<form_malloc>, 1000, "ns"},
    {"tail", "masu", tail<form_malloc>, 200, "per million"},
#else
    TIMED(kmalloc, malloc, 1000),
    TIMED(kmalloc, floor_list, 1000),
    TIMED(kmalloc, pmr_pool, 1000),
    {"tiny", "malloc", tiny<form_malloc>, 1, "KiB"},
    TIMED(pair, malloc, 20000),
    TIMED(pair, floor_list, 20000),
    TIMED(pair, pmr_pool, 20000),
    TIMED(pair, mi_heap, 20000),
    TIMED(replace, malloc, 300),
    TIMED(replace, floor_list, 300),
    TIMED(replace, pmr_pool, 300),
    TIMED(replace, mi_heap, 300),
    TIMED(sizes, malloc, 300),
    TIMED(sizes, pmr_pool, 300),
    TIMED(sizes, mi_heap, 300),
    {"frame", "malloc", frame_freed<form_malloc>, 100, "ns"},
    TIMED(frame, floor_bump, 100),
    TIMED(frame, pmr_monotonic, 100),
    TIMED(frame, obstack, 100),
    TIMED(first, malloc, 1),
    TIMED(stackprobe, malloc, 1000),
    TIMED(tail, malloc, 200),
#ifdef HAVE_BOOST
    TIMED(kmalloc, boost_pool, 1000),
    TIMED(pair, boost_pool, 20000),
    TIMED(replace, boost_pool, 300),
#endif
#ifdef HAVE_TALLOC
    TIMED(kmalloc, talloc_pool, 100),
    TIMED(pair, talloc_pool, 2000),
    TIMED(replace, talloc_pool, 30),
    TIMED(frame, talloc_pool, 10),
#endif
#endif
};

} // namespace

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--list")) {
    for (const entry &e : entries)
      printf("%s %s\n", e.workload, e.form);
    return 0;
  }
  for (const entry &e : entries)
    if (argc > 2 && !strcmp(argv[1], e.workload) && !strcmp(argv[2], e.form)) {
      size_t repeats = argument(argc, argv, 3, e.repeats, "REPEATS");
      printf("{\"figure\": %.3f}\n", e.run(repeats));
      return 0;
    }
  fprintf(stderr, "usage: %s WORKLOAD FORM [REPEATS]; --list names the pairs\n", argv[0]);
  return 2;
}
