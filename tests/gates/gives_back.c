/* Gate: freed memory goes back to the system while the program sleeps and calls
 * nothing. 400 MiB are allocated and freed; 3 s later at most 25 % are left in a
 * program that never made a thread, 5 % in one that did. Waiting is the subject
 * here, so this test waits.
 *   gives_back WHO SIZES
 *   WHO:   alone     no thread was ever made
 *          threaded  a thread was made, the main thread does the work
 *          worker    a thread allocates and frees, then sleeps
 *          remote    a thread allocates and then sleeps, the main thread frees
 *          gone      a thread allocates and ends, the main thread frees
 *          forked    as worker, in the child of a process with threads
 *   SIZES: small (16 to 4096 bytes), medium (40 KiB to 1 MiB), large (5 to 20 MiB) */
#include "gate.h"

enum { TOTAL_MIB = 400 };

static struct {
  const char *name;
  size_t low, high;
} kinds[] = {
    {"small", 16, 4096}, {"medium", 40 * KIB, 1 * MIB}, {"large", 5 * MIB, 20 * MIB}};
static size_t low, high, count;
static void *blocks[400000];
static size_t before;

static void *allocate(void *unused) {
  uint64_t random = 5;
  for (size_t total = 0; total < TOTAL_MIB * MIB; count++) {
    size_t n = low + next_random(&random) % (high - low + 1);
    CHECK(count < COUNT(blocks) && (blocks[count] = malloc(n)), "no memory");
    touch(blocks[count], n);
    total += n;
  }
  return unused;
}
static void *release(void *unused) {
  size_t used = resident_kib();
  CHECK(used >= before + TOTAL_MIB * KIB * 9 / 10, "only %zu KiB are resident", used);
  while (count > 0)
    free(blocks[--count]);
  return unused;
}

static void *nothing(void *unused) { return unused; }

static pthread_barrier_t barrier;
static void *sleeps(void *unused) {
  pthread_barrier_wait(&barrier);
  for (;;)
    pause();
  return unused;
}
static void *works_then_sleeps(void *unused) {
  allocate(NULL);
  release(NULL);
  return sleeps(unused);
}
static void *allocates_then_sleeps(void *unused) {
  allocate(NULL);
  return sleeps(unused);
}

int main(int argc, char **argv) {
  gate_begin(300);
  CHECK(argc == 3, "usage: gives_back WHO SIZES");
  const char *who = argv[1];
  for (size_t i = 0; i < COUNT(kinds); i++)
    if (strcmp(kinds[i].name, argv[2]) == 0)
      low = kinds[i].low, high = kinds[i].high;
  CHECK(high, "unknown sizes: %s", argv[2]);
  pthread_barrier_init(&barrier, NULL, 2);
  touch(blocks, sizeof blocks);
  before = resident_kib();
  if (strcmp(who, "forked") == 0) {
    finish(start(nothing, NULL));
    pid_t child = fork();
    if (child != 0) {
      wait_for(child, "child");
      return 0;
    }
    before = resident_kib();
    who = "worker";
  }
  if (strcmp(who, "alone") == 0) {
    allocate(NULL);
    release(NULL);
  } else if (strcmp(who, "threaded") == 0) {
    start(sleeps, NULL);
    pthread_barrier_wait(&barrier);
    allocate(NULL);
    release(NULL);
  } else if (strcmp(who, "worker") == 0) {
    start(works_then_sleeps, NULL);
    pthread_barrier_wait(&barrier);
  } else if (strcmp(who, "remote") == 0) {
    start(allocates_then_sleeps, NULL);
    pthread_barrier_wait(&barrier);
    release(NULL);
  } else if (strcmp(who, "gone") == 0) {
    finish(start(allocate, NULL));
    release(NULL);
  } else
    CHECK(false, "unknown: %s", who);
  sleep_ms(3000);
  size_t after = resident_kib(), left = after > before ? after - before : 0;
  size_t percent = strcmp(who, "alone") == 0 ? 25 : 5;
  dprintf(1, "%s %s: %zu of %d MiB left\n", who, argv[2], left / KIB, TOTAL_MIB);
  CHECK(left <= TOTAL_MIB * KIB * percent / 100, "%zu MiB of %d are left", left / KIB,
        TOTAL_MIB);
  return 0;
}
