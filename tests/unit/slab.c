#include "unit.h"

#include "heap/mail.h"
#include "heap/sizes.h"
#include "heap/slab.h"
#include "os/os.h"
#include "pages/meta.h"

/* Stands for a heap; nothing here looks into it. */
static struct heap *const owner = (struct heap *)0x1000;
enum { TAG = TAG_FIRST_HEAP + 5 };

static int begin(void **state) {
  (void)state;
  alarm(300);
  supply_set_helped(true);
  return 0;
}

static void count_one(slab *s, void *count) {
  (void)s;
  ++*(size_t *)count;
}

static size_t descriptors_in_use(void) {
  size_t count = 0;
  slab_for_each(count_one, &count);
  return count;
}

static int end(void **state) {
  (void)state;
  assert_int_equal(descriptors_in_use(), 0);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(supply_figures_now().used, 0);
  return 0;
}

static slab *make(unsigned size_class) {
  slab *s = slab_make(size_class, class_slices(size_class), owner, TAG, false);
  assert_non_null(s);
  return s;
}

/* ---- A new slab ---- */

static void a_new_slab(void **state) {
  (void)state;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    slab *s = make(c);
    assert_int_equal((uintptr_t)s % 128, 0);
    assert_int_equal((uintptr_t)s->start % SLICE_SIZE, 0);
    assert_int_equal(s->kind, SLAB_SMALL);
    assert_int_equal(s->size_class, c);
    assert_int_equal(s->block_size, class_size(c));
    assert_int_equal(s->capacity, class_capacity(c));
    assert_int_equal(s->slices, class_slices(c));
    assert_ptr_equal(load_relaxed(&s->owner), owner);
    assert_null(s->free);
    assert_int_equal(load_relaxed(&s->need), 0);
    assert_int_equal(s->threaded, 0);
    assert_true(list_empty(&s->avail));
    assert_int_equal(mail_state_of(load_relaxed(&s->mail)), MAIL_OPEN);
    assert_int_equal(mail_count_of(load_relaxed(&s->mail)), 0);
    for (size_t at = 0; at < s->slices * SLICE_SIZE; at += 1000)
      assert_int_equal(map_get(s->start + at), map_entry_of(s, TAG));
    slab_release(s);
  }
}

static void a_released_slab_is_off_the_map(void **state) {
  (void)state;
  slab *s = make(CLASS_COUNT - 1);
  run r = slab_run(s);
  assert_int_equal(r.slices, s->slices);
  slab_release(s);
  for (unsigned i = 0; i < r.slices; i++)
    assert_int_equal(map_get(r.start + i * SLICE_SIZE), MAP_NONE);
  /* In two steps, as who empties the mail does it. */
  s = make(3);
  r = slab_run(s);
  slab_return_run(r);
  assert_int_equal(map_get(r.start), MAP_NONE);
  assert_int_equal(supply_figures_now().used, 0);
  assert_int_equal(descriptors_in_use(), 1);
  slab_descriptor_give(s);
}

/* ---- Threading ---- */

/* Follows the chain: blocks in address order, one after the other. */
static uint32_t assert_chain(const slab *s, const block *chain, uint32_t first) {
  uint32_t count = 0;
  for (const block *b = chain; b; b = b->next)
    assert_ptr_equal(b, s->start + (first + count++) * s->block_size);
  return count;
}

static void threaded_step_by_step(void **state) {
  (void)state;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    slab *s = make(c);
    uint32_t threaded = 0, count;
    for (size_t before = 0; (count = slab_unthreaded_step(s));
         before = count * s->block_size) {
      assert_int_equal(assert_chain(s, slab_thread(s, count), threaded), count);
      threaded += count;
      assert_int_equal(s->threaded, threaded);
      size_t most = max_size(16 * KIB, s->block_size);
      assert_true(count * s->block_size <= most);
      if (!before) /* two pages where one would hold only a few */
        assert_true(
            count * s->block_size <=
            max_size(os_page() * (s->block_size * 8 > os_page() ? 2 : 1), s->block_size));
      else if (threaded < s->capacity) /* it doubles until it has the full step */
        assert_true(count * s->block_size >= before);
    }
    assert_int_equal(threaded, class_capacity(c));
    slab_release(s);
  }
}

/* What is not threaded is not touched. */
static void memory_is_touched_late(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  supply_purge_all(0);
  slab *s = make(class_of(64));
  assert_int_equal(resident_pages(s->start, SLICE_SIZE), 0);
  slab_thread(s, slab_unthreaded_step(s));
  assert_int_equal(resident_pages(s->start, SLICE_SIZE), 1);
  for (int i = 0; i < 2; i++)
    slab_thread(s, slab_unthreaded_step(s));
  assert_int_equal(resident_pages(s->start, SLICE_SIZE),
                   s->threaded * s->block_size / os_page());
  slab_release(s);
}

/* ---- Descriptors ---- */

static void descriptors_serve_again(void **state) {
  (void)state;
  slab *a = slab_descriptor_take(SLAB_RUN), *b = slab_descriptor_take(SLAB_DIRECT);
  assert_non_null(a);
  assert_non_null(b);
  assert_ptr_not_equal(a, b);
  assert_int_equal(a->kind, SLAB_RUN);
  assert_int_equal(b->kind, SLAB_DIRECT);
  assert_int_equal(descriptors_in_use(), 2);
  a->start = (char *)4711;
  a->threaded = 9;
  store_relaxed(&a->need, 9);
  a->free = (block *)4712;
  store_relaxed(&a->mail, 4713);
  slab_descriptor_give(a);
  assert_int_equal(a->kind, SLAB_UNUSED); /* readable, and known to be unused */
  assert_int_equal(descriptors_in_use(), 1);
  slab *again = slab_descriptor_take(SLAB_SMALL);
  assert_ptr_equal(again, a);
  assert_int_equal(again->kind, SLAB_SMALL);
  assert_null(again->start);
  assert_null(again->free);
  assert_int_equal(load_relaxed(&again->need), 0);
  assert_int_equal(again->threaded, 0);
  assert_int_equal(load_relaxed(&again->mail), 0);
  assert_true(list_empty(&again->avail));
  slab_descriptor_give(again);
  slab_descriptor_give(b);
}

enum { MANY = 1000 };

static void mark(slab *s, void *sum) {
  add_relaxed(&s->need, 1);
  *(size_t *)sum += s->threaded;
}

static void each_descriptor_is_visited_once(void **state) {
  static slab *taken[MANY];
  (void)state;
  for (uint32_t i = 0; i < MANY; i++) {
    taken[i] = slab_descriptor_take(SLAB_RUN);
    assert_non_null(taken[i]);
    taken[i]->threaded = i;
  }
  for (int i = 0; i < MANY; i += 3)
    slab_descriptor_give(taken[i]);
  size_t sum = 0, expected = 0;
  slab_for_each(mark, &sum);
  for (uint32_t i = 0; i < MANY; i++)
    if (i % 3) {
      assert_int_equal(load_relaxed(&taken[i]->need), 1);
      assert_int_equal(taken[i]->threaded, i);
      expected += i;
      slab_descriptor_give(taken[i]);
    }
  assert_int_equal(sum, expected);
}

static void none_is_lost(void **state) {
  static slab *taken[MANY];
  size_t meta = 0;
  (void)state;
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < MANY; i++)
      assert_non_null(taken[i] = slab_descriptor_take(SLAB_RUN));
    for (int i = 0; i < MANY; i++)
      slab_descriptor_give(taken[i * 7 % MANY]);
    if (round)
      assert_int_equal(meta_used(), meta);
    meta = meta_used();
  }
}

/* ---- Threads ---- */

static void *take_and_give(void *argument) {
  enum { HELD = 50 };
  slab *held[HELD] = {0};
  uint64_t seed = (uintptr_t)argument;
  run_on((unsigned)seed);
  for (int i = 0; i < 20000; i++) {
    slab **s = &held[random_next(&seed) % HELD];
    if (*s) {
      REQUIRE((*s)->start == (char *)s);
      slab_descriptor_give(*s);
      *s = NULL;
    } else {
      *s = slab_descriptor_take(SLAB_RUN);
      REQUIRE(*s && (*s)->start == NULL);
      (*s)->start = (char *)s;
    }
  }
  for (int i = 0; i < HELD; i++)
    if (held[i])
      slab_descriptor_give(held[i]);
  return NULL;
}

static void threads_get_descriptors_of_their_own(void **state) {
  pthread_t threads[4];
  (void)state;
  for (uintptr_t i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)),
                     0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
}

/* ---- Short of memory ---- */

static void run_out(void) {
  static slab *made[4000];
  size_t n = 0;
  limit_address_space(16 * MIB);
  while (n < 4000 && (made[n] = slab_make(class_of(4096), 1, owner, TAG, false)))
    n++;
  REQUIRE(n > 20 && n < 4000);
  REQUIRE(descriptors_in_use() == n); /* those of failed attempts came back */
  REQUIRE(supply_check() == 0);
  REQUIRE(supply_figures_now().used == n * SLICE_SIZE);
  unlimit_address_space();
  REQUIRE((made[n++] = slab_make(class_of(4096), 1, owner, TAG, false)) != NULL);
  while (n-- > 0)
    slab_release(made[n]);
  REQUIRE(descriptors_in_use() == 0);
  REQUIRE(supply_check() == 0 && supply_figures_now().used == 0);
}

static void when_memory_runs_out(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(run_out);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_new_slab),
      TEST(a_released_slab_is_off_the_map),
      TEST(threaded_step_by_step),
      TEST(memory_is_touched_late),
      TEST(descriptors_serve_again),
      TEST(each_descriptor_is_visited_once),
      TEST(none_is_lost),
      TEST(threads_get_descriptors_of_their_own),
      TEST(when_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
