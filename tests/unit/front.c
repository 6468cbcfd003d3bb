#include "heaps.h"

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
  assert_true(front_keeps(three));
  assert_int_equal(front_keeper(three), owner->hot.tag);
  assert_false(front_give(owner, again)); /* the place is taken */
  assert_false(front_keeps(again));
  assert_false(front_give(owner, eleven)); /* the same place: 11 % 8 */
  assert_true(front_give(owner, forty));
  assert_null(front_take(&owner->hot, 11));
  assert_null(front_take(&owner->hot, 8)); /* 40 stands there */
  assert_null(front_take(&other->hot, 3));
  assert_ptr_equal(front_take(&owner->hot, 3), three);
  assert_false(front_keeps(three));
  assert_null(front_take(&owner->hot, 3));
  assert_true(front_give(owner, eleven));
  assert_ptr_equal(front_take(&owner->hot, 40), forty);
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
  assert_ptr_equal(front_take(&owner->hot, FRONT_SLICES), most);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_large_block_in_front),
      TEST(the_front_is_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
