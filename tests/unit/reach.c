/* reach: what leads to what, on blocks in an array. */
#include "unit.h"

#include "observe/reach.h"

enum { BLOCKS = 16, WORDS = 4 };

static uintptr_t memory[BLOCKS][WORDS];
static uintptr_t roots[4];

static uintptr_t address(size_t block) { return (uintptr_t)memory[block]; }

/* Blocks of 24 bytes, every 32, added in no order. */
static reach make(size_t count) {
  reach r;
  assert_true(reach_make(&r, count));
  for (size_t i = 0; i < count; i++)
    reach_add(&r, memory[(i * 7 + 3) % count], 24, memory[(i * 7 + 3) % count]);
  reach_sort(&r);
  return r;
}

static reach_state state_of(const reach *r, size_t block) {
  reach_block *b = reach_at(r, address(block));
  assert_non_null(b);
  assert_ptr_equal(b->what, memory[block]);
  return b->state;
}

static void finish(reach *r) {
  reach_follow(r);
  reach_divide(r);
}

static void finish_with_roots(reach *r) {
  reach_range(r, (uintptr_t)roots, (uintptr_t)(roots + 4));
  finish(r);
}

static int clear(void **state) {
  (void)state;
  memset(memory, 0, sizeof memory);
  memset(roots, 0, sizeof roots);
  return 0;
}

static void test_any_byte_counts_and_no_other(void **state) {
  (void)state;
  roots[0] = address(0);
  roots[1] = address(1) + 23;
  roots[2] = address(2) + 24; /* behind it */
  roots[3] = address(3) - 1;
  reach r = make(BLOCKS);
  finish_with_roots(&r);
  assert_int_equal(state_of(&r, 0), REACH_FOUND);
  assert_int_equal(state_of(&r, 1), REACH_FOUND);
  for (size_t i = 2; i < BLOCKS; i++)
    assert_int_equal(state_of(&r, i), REACH_DIRECT);
  reach_drop(&r);
}

static void test_chains_are_followed(void **state) {
  (void)state;
  roots[0] = address(5);
  for (size_t i = 5; i < 12; i++)
    memory[i][i % 3] = address(i + 1);
  memory[12][3] = address(2); /* not part of the block */
  reach r = make(BLOCKS);
  finish_with_roots(&r);
  for (size_t i = 0; i < BLOCKS; i++)
    assert_int_equal(state_of(&r, i), i >= 5 && i <= 12 ? REACH_FOUND : REACH_DIRECT);
  reach_drop(&r);
}

static void test_only_aligned_words_count(void **state) {
  (void)state;
  uintptr_t word = address(0);
  memcpy((char *)roots + 4, &word, sizeof word);
  reach r = make(2);
  finish_with_roots(&r);
  assert_int_equal(state_of(&r, 0), REACH_DIRECT);
  reach_drop(&r);
}

static void test_what_lost_blocks_lead_to_is_indirect(void **state) {
  (void)state;
  memory[4][0] = address(2); /* 4 -> 2 -> 6, 2 -> 2 */
  memory[2][0] = address(6);
  memory[2][1] = address(2);
  memory[3][2] = address(3); /* to itself: direct all the same */
  reach r = make(8);
  finish(&r);
  const reach_state expected[] = {REACH_DIRECT, REACH_DIRECT, REACH_INDIRECT, REACH_DIRECT,
                                  REACH_DIRECT, REACH_DIRECT, REACH_INDIRECT, REACH_DIRECT};
  for (size_t i = 0; i < 8; i++)
    assert_int_equal(state_of(&r, i), expected[i]);
  reach_drop(&r);
}

static void ring(size_t first, size_t last) {
  for (size_t i = first; i < last; i++)
    memory[i][0] = address(i + 1);
  memory[last][0] = address(first);
}

static void test_of_a_ring_one_is_direct(void **state) {
  (void)state;
  ring(1, 4);
  memory[2][1] = address(0); /* which lies before the ring and is looked at first */
  ring(5, 7);
  ring(8, 9); /* which leads to the one before it */
  memory[9][2] = address(6);
  memory[4][3] = address(10); /* not part of the block */
  reach r = make(11);
  finish(&r);
  for (size_t i = 0; i < 11; i++)
    assert_int_equal(state_of(&r, i), i == 1 || i == 8 || i == 10 ? REACH_DIRECT : REACH_INDIRECT);
  reach_drop(&r);
}

static void test_a_found_block_is_none_of_the_lost(void **state) {
  (void)state;
  memory[1][0] = address(2);
  roots[0] = address(2);
  reach r = make(4);
  finish_with_roots(&r);
  assert_int_equal(state_of(&r, 1), REACH_DIRECT);
  assert_int_equal(state_of(&r, 2), REACH_FOUND);
  reach_drop(&r);
}

static void test_what_was_forgotten_leads_to_none(void **state) {
  (void)state;
  memory[0][0] = address(1);
  memory[1][0] = address(2);
  reach r = make(3);
  reach_follow(&r);
  reach_forget(reach_at(&r, address(0)));
  reach_divide(&r);
  assert_int_equal(state_of(&r, 0), REACH_FOUND);
  assert_int_equal(state_of(&r, 1), REACH_DIRECT);
  assert_int_equal(state_of(&r, 2), REACH_INDIRECT);
  reach_drop(&r);
}

static void test_roots_by_word_and_by_block(void **state) {
  (void)state;
  memory[1][0] = address(2);
  memory[4][0] = address(5);
  reach r = make(8);
  reach_word(&r, address(1) + 8);
  reach_root(&r, reach_at(&r, address(4)));
  finish(&r);
  for (size_t i = 0; i < 8; i++)
    assert_int_equal(state_of(&r, i), i == 1 || i == 2 || i == 4 || i == 5 ? REACH_FOUND : REACH_DIRECT);
  reach_drop(&r);
}

/* The C++ runtime keeps the length before the array, and hands out what is behind it. */
static void test_the_length_of_an_empty_array(void **state) {
  (void)state;
  for (int neighbour = 0; neighbour < 2; neighbour++) {
    reach r;
    memory[0][0] = 0;
    memory[1][0] = 1; /* not empty: its address is never one behind */
    roots[0] = address(0) + 8;
    roots[1] = address(1) + 8;
    assert_true(reach_make(&r, 3));
    reach_add(&r, memory[0], 8, memory[0]);
    reach_add(&r, memory[1], 8, memory[1]);
    if (neighbour)
      reach_add(&r, &memory[0][1], 8, &memory[0][1]);
    reach_sort(&r);
    finish_with_roots(&r);
    assert_int_equal(state_of(&r, 0), REACH_FOUND);
    assert_int_equal(state_of(&r, 1), REACH_DIRECT);
    if (neighbour)
      assert_int_equal(reach_at(&r, address(0) + 8)->state, REACH_FOUND);
    reach_drop(&r);
  }
}

static void test_what_cannot_be_read_counts_as_nothing(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t *three = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  size_t words = page / sizeof *three;
  three[0] = address(0);
  three[words] = address(1);
  three[3 * words - 1] = address(2);
  assert_int_equal(mprotect(three + words, page, PROT_NONE), 0);
  reach r = make(3);
  reach_range(&r, (uintptr_t)three, (uintptr_t)(three + 3 * words));
  reach_range(&r, 16, 4096);
  finish(&r);
  assert_int_equal(state_of(&r, 0), REACH_FOUND);
  assert_int_equal(state_of(&r, 1), REACH_DIRECT);
  assert_int_equal(state_of(&r, 2), REACH_FOUND);
  reach_drop(&r);
  munmap(three, 3 * page);
}

static void test_a_range_longer_than_one_read(void **state) {
  (void)state;
  enum { MANY = 100000 };
  static uintptr_t many[MANY];
  many[0] = address(0);
  many[8191] = address(1);
  many[8192] = address(2);
  many[MANY - 1] = address(3);
  reach r = make(5);
  reach_range(&r, (uintptr_t)many, (uintptr_t)(many + MANY));
  finish(&r);
  for (size_t i = 0; i < 5; i++)
    assert_int_equal(state_of(&r, i), i < 4 ? REACH_FOUND : REACH_DIRECT);
  reach_drop(&r);
}

static void test_no_blocks(void **state) {
  (void)state;
  reach r;
  assert_true(reach_make(&r, 0));
  reach_sort(&r);
  finish_with_roots(&r);
  assert_null(reach_at(&r, address(0)));
  reach_drop(&r);
}

/* Sorting, and a list that would be deep if it were followed by calls. */
static void test_many_blocks(void **state) {
  (void)state;
  enum { MANY = 200000 };
  static uintptr_t list[MANY][2];
  reach r;
  assert_true(reach_make(&r, MANY));
  for (size_t i = 0; i < MANY; i++) {
    size_t k = i * 77777 % MANY; /* all of them: 77777 has no factor of MANY */
    list[i][0] = i + 1 < MANY ? (uintptr_t)list[i + 1] : 0;
    reach_add(&r, list[k], sizeof list[k], NULL);
  }
  reach_sort(&r);
  for (size_t i = 0; i < MANY; i++)
    assert_true(r.blocks[i].start == (uintptr_t)list[i]);
  reach_word(&r, (uintptr_t)list[MANY / 2]);
  finish(&r);
  for (size_t i = 0; i < MANY; i++)
    assert_true(r.blocks[i].state == (i >= MANY / 2 ? REACH_FOUND : i ? REACH_INDIRECT : REACH_DIRECT));
  reach_drop(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_any_byte_counts_and_no_other, clear),
      cmocka_unit_test_setup(test_chains_are_followed, clear),
      cmocka_unit_test_setup(test_only_aligned_words_count, clear),
      cmocka_unit_test_setup(test_what_lost_blocks_lead_to_is_indirect, clear),
      cmocka_unit_test_setup(test_of_a_ring_one_is_direct, clear),
      cmocka_unit_test_setup(test_a_found_block_is_none_of_the_lost, clear),
      cmocka_unit_test_setup(test_what_was_forgotten_leads_to_none, clear),
      cmocka_unit_test_setup(test_roots_by_word_and_by_block, clear),
      cmocka_unit_test_setup(test_the_length_of_an_empty_array, clear),
      cmocka_unit_test_setup(test_what_cannot_be_read_counts_as_nothing, clear),
      cmocka_unit_test_setup(test_a_range_longer_than_one_read, clear),
      cmocka_unit_test_setup(test_no_blocks, clear),
      cmocka_unit_test_setup(test_many_blocks, clear),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
