/* Gate: the number of mappings stays far below vm.max_map_count (65530), however
 * the heap is cut: blocks of all sizes, every second one freed, memory purged in
 * between, alignment, threads. Huge pages and those that were split are mappings of their own: at
 * most one for each 2 MiB. */
#include <malloc.h>

#include "gate.h"

enum { MOST = 2500, SLOTS = 30000 };

static void *blocks[SLOTS];

static void fill(size_t low, size_t high, size_t step, size_t count, uint64_t *random) {
  for (size_t i = 0; i < count; i += step) {
    size_t n = low + next_random(random) % (high - low + 1);
    free(blocks[i]);
    blocks[i] = i % 16 ? malloc(n) : aligned_alloc(1 << (next_random(random) % 20), n);
    CHECK(blocks[i], "no memory");
    touch(blocks[i], n < 8192 ? n : 8192);
  }
}
static void thin(size_t step) {
  for (size_t i = 0; i < SLOTS; i++)
    if (i % step) {
      free(blocks[i]);
      blocks[i] = NULL;
    }
}
static void look(const char *when) {
  size_t count = mappings();
  CHECK(count <= MOST, "%zu mappings %s", count, when);
}

static void *body(void *unused) {
  static const struct {
    size_t low, high, count;
  } kinds[] = {{16, 1000, SLOTS},           {4000, 64 * KIB, SLOTS},
               {64 * KIB, 70 * KIB, 20000}, {100 * KIB, 2 * MIB, 4000},
               {2 * MIB, 8 * MIB, 1000},    {20 * MIB, 100 * MIB, 200}};
  uint64_t random = 8;
  for (size_t k = 0; k < COUNT(kinds); k++) {
    fill(kinds[k].low, kinds[k].high, 1, kinds[k].count, &random);
    look("full");
    thin(2);
    look("every second one freed");
    malloc_trim(0);
    look("every second one freed, then trimmed");
    fill(16, 100 * KIB, 3, SLOTS, &random);
    thin(7);
    malloc_trim(0);
    look("with other sizes in between");
    thin(SLOTS);
  }
  /* growing and moving blocks */
  for (int i = 0; i < 200; i++)
    blocks[i] = NULL;
  for (size_t n = 1000; n < 30 * MIB; n += n / 3)
    for (int i = 0; i < 200; i++)
      CHECK((blocks[i] = realloc(blocks[i], n + (size_t)i * 4096)), "no memory");
  look("grown by realloc");
  thin(SLOTS);
  return unused;
}

int main(void) {
  gate_begin(300);
  body(NULL);
  finish(start(body, NULL));
  return 0;
}
