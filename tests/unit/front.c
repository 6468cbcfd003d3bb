#include "heaps.h"

#include <math.h>

#include "heap/front.h"

static slab *large(size_t slices) {
  size_t dirty;
  slab *s = large_take(slices * SLICE_SIZE, 1, &dirty);
  assert_non_null(s);
  front_claim(owner, s);
  return s;
}

static void a_large_block_in_front(void **state) {
  (void)state;
  slab *three = large(3), *again = large(3), *eleven = large(11), *forty = large(40);
  assert_false(front_give(other, three)); /* it was not taken for that one */
  assert_true(front_give(owner, three));
  assert_ptr_equal(front_keeper(three), owner);
  assert_false(front_give(owner, again)); /* the place is taken */
  assert_null(front_keeper(again));
  assert_false(front_give(owner, eleven)); /* the same place: 11 % 8 */
  assert_true(front_give(owner, forty));
  assert_null(front_take(&owner->hot, 11));
  assert_null(front_take(&owner->hot, 8)); /* 40 stands there */
  assert_null(front_take(&other->hot, 3));
  assert_ptr_equal(front_take(&owner->hot, 3), three->start);
  assert_null(front_keeper(three));
  assert_null(front_take(&owner->hot, 3));
  assert_true(front_give(owner, eleven));
  assert_ptr_equal(front_take(&owner->hot, 40), forty->start);
  assert_int_equal(heap_give_back_spares(owner), 11 * SLICE_SIZE);
  assert_null(front_take(&owner->hot, 11));
  large_give(three);
  large_give(again);
  large_give(forty);
  supply_purge_all(SIZE_MAX);
}

static void the_front_is_bounded(void **state) {
  (void)state;
  slab *s[FRONT_COUNT + 1], *most = large(FRONT_SLICES), *more = large(FRONT_SLICES + 1);
  assert_false(front_give(owner, more));
  assert_true(front_give(owner, most));
  slab *one = large(1);
  assert_false(front_give(owner, one)); /* together they would be too many */
  assert_ptr_equal(front_take(&owner->hot, FRONT_SLICES), most->start);
  size_t kept = 0;
  for (unsigned i = 0; i <= FRONT_COUNT; i++) {
    s[i] = large(20 + i);
    if (front_give(owner, s[i]))
      kept += 20 + i;
    else
      large_give(s[i]);
    assert_true(kept <= FRONT_SLICES);
  }
  assert_true(kept > FRONT_SLICES / 2);
  assert_int_equal(heap_give_back_spares(owner), kept * SLICE_SIZE);
  void *p = large_take_nested(100, 8); /* its descriptor goes with it */
  assert_false(front_give(owner, slab_of(p)));
  large_give(slab_of(p));
  large_give(one);
  large_give(most);
  large_give(more);
  supply_purge_all(SIZE_MAX);
}

/* What is taken makes room at once, what others took when it is needed. */
static void what_left_the_front_makes_room(void **state) {
  (void)state;
  slab *most = large(FRONT_SLICES);
  assert_true(front_give(owner, most)); /* from now on the budget isn't asked */
  for (int i = 0; i < 10; i++) {
    assert_ptr_equal(front_take(&owner->hot, FRONT_SLICES), most->start);
    assert_true(front_give_ready(owner, most, most->start + 100));
  }
  assert_int_equal(front_give_back(owner), FRONT_SLICES * SLICE_SIZE);
  slab *other_most = large(FRONT_SLICES);
  assert_false(front_give_ready(owner, other_most, other_most->start));
  assert_true(front_give(owner, other_most));
  assert_int_equal(front_give_back(owner), FRONT_SLICES * SLICE_SIZE);
}

static void ask_for(uint64_t interval) {
  store_relaxed(&budget_interval, interval);
  budget_ask(owner);
}

/* The budget decides when a block is given back, and who takes it learns of it; in between the countdown is another. */
static void a_block_that_is_due_is_marked(void **state) {
  enum { BLOCKS = 4000, SLICES = 3, INTERVAL = 512 * KIB - 1 };
  (void)state;
  double p = budget_probability(SLICES * SLICE_SIZE, INTERVAL), deviation = sqrt(BLOCKS * p * (1 - p));
  int due = 0;
  slab *s = large(SLICES);
  ask_for(INTERVAL);
  for (int i = 0; i < BLOCKS; i++) {
    uint64_t interval = 0;
    assert_true(front_give(owner, s));
    for (int n = 0; n < 3; n++) /* does not change whether this one is looked at */
      budget_due_large(owner, INTERVAL);
    if (front_take(&owner->hot, SLICES))
      continue;
    assert_ptr_equal(front_keeper(s), owner);
    owner->budget->quiet = true;
    assert_null(front_take_due(owner, SLICES, &interval));
    owner->budget->quiet = false;
    assert_null(front_take_due(owner, SLICES + FRONT_COUNT, &interval));
    assert_null(front_take_due(owner, SLICES + FRONT_DUE, &interval)); /* 2 GiB more */
    assert_ptr_equal(front_take_due(owner, SLICES, &interval), s);
    assert_int_equal(interval, INTERVAL);
    due++;
  }
  assert_true(fabs(due - BLOCKS * p) < 5 * deviation);
  large_give(s);
  ask_for(0);
}

/* What waits there was charged for another one. */
static void another_interval_empties_the_front(void **state) {
  (void)state;
  uint64_t interval;
  slab *s = large(3);
  ask_for(1);
  assert_true(front_give(owner, s));
  store_relaxed(&budget_interval, 0);
  assert_null(front_take_due(owner, 3, &interval)); /* nobody looks any more */
  assert_ptr_equal(front_keeper(s), owner);
  slab *four = large(4);
  assert_true(front_give(owner, four)); /* learns of it */
  for (uint64_t asked = 1; asked < 10; asked++) {
    assert_ptr_equal(owner->hot.front[3], 0);
    assert_int_equal(front_give_back(owner), 4 * SLICE_SIZE);
    assert_true(front_give(owner, s = large(3)));
    store_relaxed(&budget_interval, asked % 2 * BUDGET_INTERVAL);
    assert_true(front_give(owner, four = large(4)));
  }
  assert_int_equal(front_give_back(owner), 4 * SLICE_SIZE);
  ask_for(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_large_block_in_front),
      TEST(the_front_is_bounded),
      TEST(what_left_the_front_makes_room),
      TEST(a_block_that_is_due_is_marked),
      TEST(another_interval_empties_the_front),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
