/* ledger: what changes while it is read, and what there is no room for. What it says otherwise,
 * tests/forms/stats.cc looks at. */
#include "unit.h"

#include "heap/roster.h"
#include "observe/ledger.h"

static ledger *read_ledger(void) {
  ledger *l = ledger_make();
  assert_non_null(l);
  assert_int_equal(ledger_read(l), 0);
  return l;
}

/* A block that went to its heap's front after the walk over descriptors had passed. */
static void a_front_has_what_was_not_seen(void **state) {
  enum { SLICES = 100 };
  heap *h = roster_join(NULL);
  (void)state;
  assert_non_null(h);
  store_relaxed(&h->hot.front[SLICES % FRONT_COUNT], SLICES);
  ledger *l = read_ledger();
  store_relaxed(&h->hot.front[SLICES % FRONT_COUNT], 0);
  assert_int_equal(l->process.front, SLICES * SLICE_SIZE);
  assert_int_equal(l->process.large, 0);
  assert_int_equal(l->process.large_blocks, 0);
  assert_true(l->process.peak_live < 1024 * MIB);
  ledger_end(l);
  roster_leave(h);
}

enum { NAMED = LEDGER_LIMBS + 3, BLOCKS = 1000, SIZE = 8192 };
static masu_heap *named[NAMED];

static void *allocates(void *unused) {
  for (int i = 0; i < BLOCKS; i++)
    REQUIRE(masu_heap_malloc(named[0], SIZE));
  return unused;
}

/* What this thread holds ready it sees, of others in the same row it sees nothing. */
static void the_row_of_what_has_none(void **state) {
  pthread_t other;
  (void)state;
  for (int i = 0; i < NAMED; i++) {
    assert_non_null(named[i] = masu_heap_create("named"));
    assert_non_null(masu_heap_malloc(named[i], 100));
  }
  assert_int_equal(pthread_create(&other, NULL, allocates, NULL), 0);
  pthread_join(other, NULL);
  ledger *l = read_ledger();
  assert_true(l->counts[LEDGER_HEAP].more > 0);
  assert_in_range(l->process.ready_most, BLOCKS * SIZE, l->process.live);
  ledger_end(l);
  for (int i = 0; i < NAMED; i++)
    masu_heap_destroy(named[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_front_has_what_was_not_seen),
      cmocka_unit_test(the_row_of_what_has_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
