#include "heaps.h"

#include "os/lock.h"
#include "os/os.h"

#include <signal.h>

static void one_more_empty_slab_is_kept(void **state) {
  (void)state;
  take_blocks(3 * PER_SLAB);
  slab *first = slab_of(blocks[0]), *second = slab_of(blocks[PER_SLAB]);
  slab *third = slab_of(blocks[2 * PER_SLAB]);
  give_blocks(0, PER_SLAB);
  assert_ptr_equal(spare_of(owner, CLASS), first);
  assert_true(list_empty(&first->avail));
  assert_int_equal(slices_used(), 3);
  assert_sound();
  give_blocks(PER_SLAB, PER_SLAB);
  assert_ptr_equal(spare_of(owner, CLASS), second); /* the warm one */
  assert_int_equal(first->kind, SLAB_UNUSED);
  assert_int_equal(slices_used(), 2);
  assert_sound();
  give_blocks(2 * PER_SLAB, PER_SLAB);
  assert_ptr_equal(spare_of(owner, CLASS), second);
  assert_true(heap_slab_is_alone(third));
  assert_int_equal(slices_used(), 2);
  assert_sound();
}

static void the_kept_slab_is_used_before_a_new_one(void **state) {
  (void)state;
  take_blocks(2 * PER_SLAB);
  slab *s = slab_of(blocks[0]);
  give_blocks(0, PER_SLAB);
  assert_ptr_equal(spare_of(owner, CLASS), s);
  for (unsigned i = 0; i < PER_SLAB; i++) {
    blocks[i] = take(owner, CLASS);
    assert_ptr_equal(slab_of(blocks[i]), s);
  }
  assert_null(spare_of(owner, CLASS));
  assert_int_equal(slices_used(), 2);
  assert_sound();
  give_blocks(0, 2 * PER_SLAB);
}

static void spares_are_given_back(void **state) {
  (void)state;
  take_blocks(2 * PER_SLAB);
  void *big = take(owner, CLASS_COUNT - 1);
  slab *s = slab_of(blocks[0]);
  give_blocks(0, PER_SLAB);
  assert_int_equal(heap_give_back_spares(owner), SLICE_SIZE);
  assert_null(spare_of(owner, CLASS));
  assert_int_equal(s->kind, SLAB_UNUSED);
  assert_int_equal(map_get(blocks[0]), MAP_NONE);
  assert_int_equal(heap_give_back_spares(owner), 0);
  give_blocks(PER_SLAB, PER_SLAB);
  give(owner, big);
}

static void slabs_that_come_and_go_are_spared_for_a_while(void **state) {
  enum { SLABS = 8 };
  (void)state;
  for (int round = 0; round < 3; round++) {
    take_blocks(SLABS * PER_SLAB);
    assert_int_equal(slices_used(), SLABS);
    give_blocks(0, SLABS * PER_SLAB);
    assert_sound();
    assert_int_equal(slices_used(), round == 0 ? 2 : round == 1 ? SLABS - 1 : SLABS);
  }
  assert_int_equal(load_relaxed(&owner->spared), SLABS - 1); /* one stays open */
  option_set(OPTION_purge_delay, 0);
  heap_upkeep_now(owner); /* half as many are wanted now */
  assert_int_equal(slices_used(), 2);
  assert_int_equal(load_relaxed(&owner->spared), 1);
  assert_sound();
}

/* A named heap that is refused memory does not hide some in empty slabs. */
static void a_limb_spares_one_of_each_class(void **state) {
  account a = {.hard = SIZE_MAX, .soft = SIZE_MAX};
  (void)state;
  store_relaxed(&owner->account, &a);
  for (int round = 0; round < 3; round++) {
    take_blocks(5 * PER_SLAB);
    give_blocks(0, 5 * PER_SLAB);
    assert_int_equal(slices_used(), 2);
  }
  heap_tidy(owner);
  assert_int_equal(slices_used(), 0);
  store_relaxed(&owner->account, NULL);
}

static void spares_are_taken_all_at_once(void **state) {
  (void)state;
  for (int round = 0; round < 3; round++) {
    take_blocks(5 * PER_SLAB);
    give_blocks(0, 5 * PER_SLAB);
  }
  assert_int_equal(heap_give_back_spares(owner), 4 * SLICE_SIZE);
  assert_int_equal(load_relaxed(&owner->spared), 0);
  assert_null(spare_of(owner, CLASS));
  assert_int_equal(slices_used(), 1);
}

static void a_spare_is_in_order_again(void **state) {
  (void)state;
  enum { STRIDE = 37 };
  unsigned c = class_of(64), most = 0;
  for (unsigned round = 0; round < 2; round++) {
    blocks[0] = take(owner, c);
    most = slab_of(blocks[0])->capacity;
    for (unsigned i = 1; i < 2 * most; i++)
      assert_non_null(blocks[i] = take(owner, c));
    /* One slab's stays open when all are free, the other is spared. */
    unsigned next_to_each_other = 0;
    for (unsigned i = most + 1; round && i < 2 * most; i++)
      next_to_each_other += (char *)blocks[i] == (char *)blocks[i - 1] + slab_of(blocks[i])->block_size;
    assert_true(!round || next_to_each_other > most / 10 * 9);
    for (unsigned i = 0; i < 2 * most; i++)
      give(owner, blocks[(size_t)i * STRIDE % (2 * most)]);
    assert_sound();
  }
}

/* ---- Classes that make room for each other ---- */

static void empty_wide_slabs_make_room(void **state) {
  (void)state;
  unsigned first = first_wide(), second = first_wide() + 3;
  give(owner, take(owner, first));
  assert_int_equal(slices_used(), class_slices(first));
  void *p = take(owner, second);
  assert_int_equal(slices_used(), class_slices(second));
  assert_null(owner->hot.hand[first]);
  assert_sound();
  void *q = take(owner, first); /* one that is used does not */
  give(owner, take(owner, second + 1));
  assert_int_equal(slices_used(), class_slices(first) + class_slices(second) + class_slices(second + 1));
  give(owner, p);
  give(owner, q);
}

static void unless_they_are_wanted_again_and_again(void **state) {
  (void)state;
  unsigned first = first_wide(), second = first_wide() + 3, made = 0;
  owner->tidied = os_now_ms();
  for (unsigned i = 0; i < 1000; i++) {
    uint32_t before = slices_used();
    give(owner, take(owner, i % 2 ? first : second));
    made += slices_used() != before;
  }
  assert_in_range(made, 10, 100);
  assert_int_equal(slices_used(), class_slices(first) + class_slices(second));
  assert_sound();
}

/* Small ones stay: they hold a few pages, and are made again at once. */
static void small_ones_do_not(void **state) {
  (void)state;
  give(owner, take(owner, first_wide() - 1));
  give(owner, take(owner, CLASS_COUNT - 1));
  assert_false(list_empty(&owner->avail[first_wide() - 1]));
}

#ifdef __x86_64__

/* A signal handler takes a block from the hand of the class that makes room, at one instruction of a
 * hundred and fifty in turn. */
enum { MOMENTS = 150 };
static unsigned instructions, handler_comes_at;
static block *of_the_handler;

static void handler_takes_a_block(int signal) {
  (void)signal;
  block **hand = &owner->hot.hand[first_wide()];
  if (++instructions != handler_comes_at || !*hand)
    return;
  of_the_handler = *hand;
  *hand = of_the_handler->next;
  memset(of_the_handler, 0xff, sizeof(block));
}

static void make_room_while_a_handler_comes(unsigned at) {
  enum { COUNT = 8 };
  for (unsigned i = 0; i < COUNT; i++)
    blocks[i] = take(owner, first_wide());
  give_blocks(0, COUNT);
  give(owner, take(owner, first_wide())); /* the others are in the hand */
  instructions = 0;
  handler_comes_at = at;
  of_the_handler = NULL;
  STEP_BY_STEP;
  void *p = take(owner, first_wide() + 3);
  AT_FULL_SPEED;
  assert_sound();
  if (of_the_handler) {
    assert_int_equal(slab_of(of_the_handler)->size_class, first_wide());
    give(owner, of_the_handler);
  }
  give(owner, p);
  heap_flush(owner);
  heap_tidy(owner);
}

static void a_handlers_block_is_its_own(void **state) {
  unsigned taken = 0;
  (void)state;
  if (SANITIZED)
    skip();
  signal(SIGTRAP, handler_takes_a_block);
  make_room_while_a_handler_comes(0);
  for (unsigned i = 1, all = instructions; i <= MOMENTS; i++) {
    make_room_while_a_handler_comes(i * all / MOMENTS);
    taken += of_the_handler != NULL;
  }
  signal(SIGTRAP, SIG_DFL);
  assert_in_range(taken, 1, MOMENTS - 1);
}

#endif

/* ---- While the helper takes them ---- */

static atomic_u32 stop;

static void *take_spares_away(void *unused) {
  (void)unused;
  run_on(1);
  while (!load_relaxed(&stop))
    heap_give_back_spares(owner);
  return NULL;
}

static void a_spare_belongs_to_who_takes_it(void **state) {
  pthread_t helper;
  unsigned c = CLASS_COUNT - 1;
  void *p[5];
  (void)state;
  run_on(0);
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&helper, NULL, take_spares_away, NULL), 0);
  for (int round = 0; round < 30000; round++) {
    for (int i = 0; i < 5; i++)
      REQUIRE((p[i] = take(owner, c)) != NULL);
    for (int i = 0; i < 5; i++) /* two slabs empty, one after the other */
      give(owner, p[i]);
  }
  store_relaxed(&stop, 1);
  pthread_join(helper, NULL);
  run_anywhere();
}

static void *give_all_back(void *unused) {
  (void)unused;
  heap_give_back_spares(owner);
  return NULL;
}

/* The thread that gives them back is not in the child; one slab may be lost with it. */
static void a_child_of_fork_finds_what_is_on_its_way(void **state) {
  enum { SLABS = 8 };
  pthread_t helper;
  (void)state;
  for (int round = 0; round < 3; round++) {
    take_blocks(SLABS * PER_SLAB);
    give_blocks(0, SLABS * PER_SLAB);
  }
  lock_take(LOCK_SUPPLY); /* nothing gets there */
  assert_int_equal(pthread_create(&helper, NULL, give_all_back, NULL), 0);
  while (spare_of(owner, CLASS))
    sched_yield();
  lock_take(LOCK_META);
  pid_t child = _Fork();
  lock_drop(LOCK_META);
  lock_drop(LOCK_SUPPLY);
  if (child == 0) {
    alarm(300);
    heap_give_back_spares(owner);
    _exit(slices_used() > 2);
  }
  pthread_join(helper, NULL);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(one_more_empty_slab_is_kept),
      TEST(the_kept_slab_is_used_before_a_new_one),
      TEST(spares_are_given_back),
      TEST(slabs_that_come_and_go_are_spared_for_a_while),
      TEST(a_limb_spares_one_of_each_class),
      TEST(spares_are_taken_all_at_once),
      TEST(a_spare_is_in_order_again),
      TEST(empty_wide_slabs_make_room),
      TEST(unless_they_are_wanted_again_and_again),
      TEST(small_ones_do_not),
#ifdef __x86_64__
      TEST(a_handlers_block_is_its_own),
#endif
      TEST(a_spare_belongs_to_who_takes_it),
      TEST(a_child_of_fork_finds_what_is_on_its_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
