#include "unit.h"

#include "base/atomic.h"
#include "pages/meta.h"

enum { ALIGN = 128 };

static void objects_are_apart_and_zero(void **state) {
  enum { OBJECTS = 3000 };
  static char *objects[OBJECTS];
  static size_t sizes[OBJECTS];
  uint64_t seed = 3;
  (void)state;
  for (int i = 0; i < OBJECTS; i++) {
    sizes[i] = random_next(&seed) % (i % 10 ? 1000 : 40000) + 1;
    objects[i] = meta_alloc(sizes[i]);
    assert_non_null(objects[i]);
    assert_int_equal((uintptr_t)objects[i] % ALIGN, 0);
    assert_true(all_bytes(objects[i], sizes[i], 0));
    memset(objects[i], i % 255 + 1, sizes[i]);
  }
  for (int i = 0; i < OBJECTS; i++)
    assert_true(all_bytes(objects[i], sizes[i], i % 255 + 1));
}

static void what_is_used_is_counted(void **state) {
  (void)state;
  size_t before = meta_used();
  assert_non_null(meta_alloc(1));
  assert_int_equal(meta_used() - before, ALIGN);
  assert_non_null(meta_alloc(ALIGN));
  assert_int_equal(meta_used() - before, 2 * ALIGN);
  assert_non_null(meta_alloc(ALIGN + 1));
  assert_int_equal(meta_used() - before, 4 * ALIGN);
}

static void larger_than_a_chunk(void **state) {
  (void)state;
  for (size_t size = MIB - ALIGN; size < 5 * MIB; size += 700 * KIB) {
    char *p = meta_alloc(size);
    assert_non_null(p);
    assert_true(all_bytes(p, size, 0));
    memset(p, 1, size);
    char *small = meta_alloc(64);
    assert_non_null(small);
    assert_true(all_bytes(small, 64, 0));
  }
}

/* ---- Many threads ---- */

enum { THREADS = 3, EACH = 20000 };
static uint32_t *theirs[THREADS][EACH];
static atomic_u32 arrived;

static void *allocate(void *argument) {
  uint32_t id = (uint32_t)(uintptr_t)argument;
  run_on(id);
  for (uint32_t i = 0; i < EACH; i++) {
    if (i % 256 == 0)
      meet(&arrived, THREADS);
    uint32_t *p = meta_alloc(256);
    REQUIRE(p && p[0] == 0 && p[63] == 0);
    p[0] = p[63] = id * EACH + i + 1;
    theirs[id][i] = p;
  }
  return NULL;
}

static void threads_get_objects_of_their_own(void **state) {
  pthread_t threads[THREADS];
  (void)state;
  for (uintptr_t i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, allocate, (void *)i), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  for (uint32_t id = 0; id < THREADS; id++)
    for (uint32_t i = 0; i < EACH; i++) {
      assert_int_equal(theirs[id][i][0], id * EACH + i + 1);
      assert_int_equal(theirs[id][i][63], id * EACH + i + 1);
    }
}

/* ---- Short of memory ---- */

static void run_out(void) {
  /* A chunk of its own, so that nothing is left of any. Then room for less than
   * another: a small one serves. */
  REQUIRE(meta_alloc(1 * MIB) != NULL);
  limit_address_space(256 * KIB);
  size_t got = 0;
  while (meta_alloc(16 * KIB))
    got += 16 * KIB;
  REQUIRE(got >= 128 * KIB);
  size_t used = meta_used();
  REQUIRE(meta_alloc(64 * KIB) == NULL);
  REQUIRE(meta_used() == used);
  unlimit_address_space();
  char *p = meta_alloc(64 * KIB);
  REQUIRE(p && all_bytes(p, 64 * KIB, 0));
}

static void when_memory_runs_out(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(run_out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(objects_are_apart_and_zero),
      cmocka_unit_test(what_is_used_is_counted),
      cmocka_unit_test(larger_than_a_chunk),
      cmocka_unit_test(threads_get_objects_of_their_own),
      cmocka_unit_test(when_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
