/* Gate: programs whose threads only allocate, only free, or live for a moment: the
 * resident memory of the first quarter, at its highest, is not exceeded at the end.
 * growth.c free_only | pool | short_threads | many_consumers */
#include <stdatomic.h>

#include "gate.h"

/* ---- A bounded ring between threads, without allocation ---- */

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  void *blocks[1024];
  size_t put, taken;
} ring = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void ring_put(void **blocks, size_t count) {
  pthread_mutex_lock(&ring.mutex);
  for (size_t i = 0; i < count; i++) {
    while (ring.put - ring.taken == COUNT(ring.blocks))
      pthread_cond_wait(&ring.changed, &ring.mutex);
    ring.blocks[ring.put++ % COUNT(ring.blocks)] = blocks[i];
  }
  pthread_cond_broadcast(&ring.changed);
  pthread_mutex_unlock(&ring.mutex);
}
/* At most one NULL, and that the last: each tells one thread to end. */
static size_t ring_take(void **blocks, size_t most) {
  size_t count = 0;
  pthread_mutex_lock(&ring.mutex);
  while (ring.put == ring.taken)
    pthread_cond_wait(&ring.changed, &ring.mutex);
  while (count < most && ring.taken < ring.put)
    if (!(blocks[count++] = ring.blocks[ring.taken++ % COUNT(ring.blocks)]))
      break;
  pthread_cond_broadcast(&ring.changed);
  pthread_mutex_unlock(&ring.mutex);
  return count;
}

static void compare(size_t quarter, size_t end, size_t slack_mib) {
  CHECK(end <= quarter + slack_mib * KIB, "%zu KiB after a quarter, %zu at the end",
        quarter, end);
}

/* ---- One allocates, one only frees: neither's memory comes from itself ---- */

static void *frees(void *unused) {
  void *blocks[256];
  for (;;)
    for (size_t count = ring_take(blocks, COUNT(blocks)), i = 0; i < count; i++) {
      if (!blocks[i])
        return unused;
      free(blocks[i]);
    }
}
/* The highest resident memory of many moments. */
static size_t allocate(size_t total, uint64_t *random) {
  void *blocks[64];
  size_t highest = 0;
  for (size_t done = 0; done < total; done += COUNT(blocks)) {
    size_t now = done % 1024 == 0 ? resident_kib() : 0;
    highest = now > highest ? now : highest;
    for (size_t i = 0; i < COUNT(blocks); i++) {
      size_t n = random_size(random);
      CHECK((blocks[i] = malloc(n)), "no memory");
      touch(blocks[i], n);
    }
    ring_put(blocks, COUNT(blocks));
  }
  return highest;
}
static void free_only(int consumers) {
  uint64_t random = 4;
  pthread_t threads[16];
  void *end = NULL;
  for (int i = 0; i < consumers; i++)
    threads[i] = start(frees, NULL);
  size_t quarter = allocate(150000, &random);
  compare(quarter, allocate(450000, &random), 24);
  for (int i = 0; i < consumers; i++)
    ring_put(&end, 1);
  for (int i = 0; i < consumers; i++)
    finish(threads[i]);
}
static void free_only_one(void) { free_only(1); }
static void many_consumers(void) { free_only(12); }

/* ---- A pool of threads: each task is allocated by the main thread, worked on
 * (with memory of its own) and freed by whichever worker gets it ---- */

static void *works(void *seed) {
  uint64_t random = (uintptr_t)seed;
  void *blocks[8], *mine[50];
  for (;;)
    for (size_t count = ring_take(blocks, COUNT(blocks)), i = 0; i < count; i++) {
      if (!blocks[i])
        return NULL;
      for (size_t k = 0; k < COUNT(mine); k++)
        touch(mine[k] = malloc(1 + next_random(&random) % 2000), 1);
      blocks[i] = realloc(blocks[i], 5000);
      for (size_t k = 0; k < COUNT(mine); k++)
        free(mine[k]);
      free(blocks[i]);
    }
}
static void pool(void) {
  uint64_t random = 4;
  pthread_t threads[16];
  void *end = NULL;
  for (uintptr_t i = 0; i < COUNT(threads); i++)
    threads[i] = start(works, (void *)(i + 1));
  size_t quarter = allocate(50000, &random);
  compare(quarter, allocate(150000, &random), 48);
  for (size_t i = 0; i < COUNT(threads); i++)
    ring_put(&end, 1);
  for (size_t i = 0; i < COUNT(threads); i++)
    finish(threads[i]);
}

/* ---- 100,000 threads that live for a moment; what each leaves is freed by one
 * that comes later ---- */

static _Atomic(void *) left_behind[64];

static void *short_life(void *number) {
  uint64_t random = 1 + (uintptr_t)number;
  void *blocks[20];
  for (size_t i = 0; i < COUNT(blocks); i++) {
    size_t n = 1 + next_random(&random) % (i == 0 ? 60000 : 3000);
    touch(blocks[i] = malloc(n), n);
  }
  free(atomic_exchange(&left_behind[(uintptr_t)number % 64], blocks[0]));
  for (size_t i = 1; i < COUNT(blocks); i++)
    free(blocks[i]);
  return NULL;
}
static void run_short(uintptr_t count) {
  for (uintptr_t i = 0; i < count; i += 4) {
    pthread_t threads[4];
    for (uintptr_t k = 0; k < 4; k++)
      threads[k] = start(short_life, (void *)(i + k));
    for (int k = 0; k < 4; k++)
      finish(threads[k]);
  }
}
static void short_threads(void) {
  run_short(25000);
  size_t quarter = resident_kib();
  run_short(75000);
  compare(quarter, resident_kib(), 8);
  CHECK(resident_kib() < 64 * KIB, "%zu KiB for four threads at a time", resident_kib());
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"free_only", free_only_one},
               {"many_consumers", many_consumers},
               {"pool", pool},
               {"short_threads", short_threads}};
  gate_begin(300);
  for (size_t i = 0; i < COUNT(cases); i++)
    if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
      cases[i].run();
      return 0;
    }
  CHECK(false, "usage: growth CASE");
}
