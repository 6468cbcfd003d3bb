/* ledger: what changes while it is read, and what there is no room for. What it says otherwise,
 * tests/forms/stats.cc looks at. */
#include "unit.h"

#include "heap/front.h"
#include "heap/roster.h"
#include "observe/ledger.h"

static ledger *read_ledger(void) {
  ledger *l = ledger_make();
  assert_non_null(l);
  assert_int_equal(ledger_read(l), 0);
  return l;
}

static void what_is_kept_in_front_is_nobodys(void **state) {
  enum { SLICES = 100 };
  size_t dirty;
  heap *h = roster_join(NULL);
  slab *s = large_take(SLICES * SLICE_SIZE, 1, &dirty);
  (void)state;
  assert_non_null(h);
  assert_non_null(s);
  front_claim(h, s);
  ledger *l = read_ledger();
  assert_int_equal(l->process.front, 0);
  assert_int_equal(l->process.large, SLICES * SLICE_SIZE);
  assert_int_equal(l->process.large_blocks, 1);
  ledger_end(l);
  assert_true(front_give(h, s));
  l = read_ledger();
  assert_int_equal(l->process.front, SLICES * SLICE_SIZE);
  assert_int_equal(l->process.large, 0);
  assert_int_equal(l->process.large_blocks, 0);
  size_t rows = 0;
  for (size_t n = 0; n < LEDGER_HEAPS; n++)
    if (l->heaps[n].heap == h->hot.tag) {
      assert_int_equal(l->heaps[n].front, SLICES * SLICE_SIZE);
      rows++;
    }
  assert_int_equal(rows, 1);
  ledger_end(l);
  assert_int_equal(front_give_back(h), SLICES * SLICE_SIZE);
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
      cmocka_unit_test(what_is_kept_in_front_is_nobodys),
      cmocka_unit_test(the_row_of_what_has_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
