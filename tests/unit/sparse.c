#include "unit.h"

#include "base/options.h"
#include "heap/heap.h"
#include "heap/mail.h"
#include "heap/outbox.h"
#include "heap/sparse.h"
#include "os/os.h"

/* Stands for a heap; nothing here looks into it. */
static struct heap *const owner = (struct heap *)0x1000;
enum { TAG = TAG_FIRST_HEAP + 5, MOST = SLICE_SIZE / 8 };

static int begin(void **state) {
  (void)state;
  alarm(300);
  supply_set_helped(true);
  return 0;
}

static int end(void **state) {
  (void)state;
  assert_int_equal(supply_check(), 0);
  assert_int_equal(supply_figures_now().used, 0);
  return 0;
}

/* ---- A slab whose blocks are out or on the local list, as the test likes ---- */

static char *block_at(const slab *s, uint32_t i) { return s->start + i * s->block_size; }
static uint32_t number_of(const slab *s, const block *b) {
  return (uint32_t)((size_t)((const char *)b - s->start) / s->block_size);
}

static bool out[MOST];

/* Some more of it threaded, all of that out and filled. */
static bool thread_some(slab *s) {
  uint32_t count = slab_unthreaded_step(s);
  if (!count)
    return false;
  store_release(&s->need, s->need + count);
  for (block *b = slab_thread(s, count), *next; b; b = next) {
    next = b->next;
    out[number_of(s, b)] = true;
    memset(b, (int)number_of(s, b) | 1, s->block_size);
  }
  return true;
}

static slab *make(unsigned size_class, bool whole) {
  slab *s = slab_make(size_class, class_slices(size_class), owner, TAG, false);
  assert_non_null(s);
  memset(out, 0, sizeof out);
  while (thread_some(s) && whole)
    ;
  return s;
}

static void free_block(slab *s, uint32_t i) {
  assert_true(out[i]);
  out[i] = false;
  block *b = (block *)(void *)block_at(s, i);
  b->next = s->free;
  s->free = b;
  store_release(&s->need, s->need - 1);
}

/* What is out is as it was filled; every other block is on the list, or purged. */
static void assert_whole(const slab *s) {
  static bool listed[MOST];
  memset(listed, 0, sizeof listed);
  uint32_t count = 0, purged = 0;
  for (const block *b = s->free; b; b = b->next, count++) {
    assert_false(listed[number_of(s, b)] || out[number_of(s, b)]);
    assert_false(sparse_is_purged(s, b));
    listed[number_of(s, b)] = true;
  }
  for (uint32_t i = 0; i < s->threaded; i++)
    if (out[i])
      assert_true(all_bytes(block_at(s, i), s->block_size, (int)i | 1));
    else if (!listed[i]) {
      assert_true(sparse_is_purged(s, (block *)(void *)block_at(s, i)));
      purged++;
    }
  assert_int_equal(sparse_blocks(s), purged);
  assert_int_equal(s->need + count + purged, s->threaded);
}

/* Is some byte of it out, or never threaded and so perhaps of a block yet to come? */
static bool is_used(const slab *s, size_t from, size_t to) {
  if (s->threaded < s->capacity && to > s->threaded * s->block_size)
    return true;
  for (size_t i = from / s->block_size; i * s->block_size < to && i < s->capacity; i++)
    if (out[i])
      return true;
  return false;
}

/* Pages that could go are gone. With units of several pages some may stay. */
static void assert_purged(const slab *s) {
  size_t page = os_page(), size = s->slices * SLICE_SIZE;
  if (page * 64 < size)
    return;
  for (size_t at = 0; at < size; at += page)
    if (!is_used(s, at, at + page))
      assert_int_equal(resident_pages(s->start + at, page), 0);
}

static void thread_again(slab *s) {
  while (s->purged) {
    uint32_t count = sparse_step(s);
    assert_true(count > 0);
    store_release(&s->need, s->need + count);
    for (block *b = sparse_thread(s), *next; b; b = next, count--) {
      next = b->next;
      assert_false(out[number_of(s, b)]);
      out[number_of(s, b)] = true;
      memset(b, (int)number_of(s, b) | 1, s->block_size);
    }
    assert_int_equal(count, 0);
    assert_whole(s);
  }
}

static void release(slab *s) {
  s->free = NULL;
  store_release(&s->need, 0);
  slab_release(s);
}

/* ---- Purging ---- */

static void a_whole_slab(void **state) {
  (void)state;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    slab *s = make(c, true);
    for (uint32_t i = 0; i < s->threaded; i++)
      free_block(s, i);
    size_t resident = resident_pages(s->start, s->slices * SLICE_SIZE) * os_page();
    assert_true(sparse_purge(s) >= resident);
    assert_int_equal(resident_pages(s->start, s->slices * SLICE_SIZE), 0);
    assert_null(s->free);
    assert_whole(s);
    thread_again(s);
    assert_null(s->free);
    release(s);
  }
}

static void nothing_is_purged_where_all_is_out(void **state) {
  (void)state;
  slab *s = make(class_of(48), true);
  assert_int_equal(sparse_purge(s), 0);
  assert_int_equal(s->purged, 0);
  assert_whole(s);
  release(s);
}

static void one_block_keeps_its_pages(void **state) {
  (void)state;
  slab *s = make(class_of(3000), true);
  for (uint32_t i = 0; i < s->threaded; i++)
    if (i != 4)
      free_block(s, i);
  sparse_purge(s);
  assert_whole(s);
  assert_purged(s);
  assert_true(resident_pages(s->start, SLICE_SIZE) > 0);
  release(s);
}

static void what_is_not_threaded_yet_is_left_alone(void **state) {
  (void)state;
  slab *s = make(class_of(512), false);
  uint32_t threaded = s->threaded;
  assert_true(threaded < s->capacity);
  for (uint32_t i = 0; i < threaded; i++)
    free_block(s, i);
  sparse_purge(s);
  assert_whole(s);
  thread_again(s);
  assert_int_equal(s->threaded, threaded);
  assert_true(thread_some(s));
  assert_whole(s);
  release(s);
}

static void a_second_time(void **state) {
  (void)state;
  slab *s = make(class_of(20000), true);
  free_block(s, 0);
  assert_true(sparse_purge(s) > 0);
  assert_int_equal(sparse_purge(s), 0);
  free_block(s, 2);
  assert_true(sparse_purge(s) > 0);
  assert_whole(s);
  assert_purged(s);
  release(s);
}

/* ---- Chance ---- */

static void free_by_chance(slab *s, uint64_t *seed) {
  uint32_t part = (uint32_t)(random_next(seed) % 100);
  for (uint32_t i = 0; i < s->threaded; i++)
    if (out[i] && random_next(seed) % 100 < part)
      free_block(s, i);
}

static void take_from_the_list(slab *s, uint32_t count) {
  for (; count && s->free; count--) {
    block *b = s->free;
    s->free = b->next;
    out[number_of(s, b)] = true;
    store_release(&s->need, s->need + 1);
    memset(b, (int)number_of(s, b) | 1, s->block_size);
  }
}

static void any_order_of_events(void **state) {
  (void)state;
  uint64_t seed = 1;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    slab *s = make(c, false);
    for (int step = 0; step < 60; step++) {
      switch (random_next(&seed) % 5) {
      case 0: thread_some(s); break;
      case 1: free_by_chance(s, &seed); break;
      case 2: take_from_the_list(s, (uint32_t)(random_next(&seed) % (s->threaded + 1))); break;
      case 3:
        sparse_purge(s);
        assert_purged(s);
        break;
      case 4:
        if (random_next(&seed) % 4 == 0)
          thread_again(s);
        break;
      }
      assert_whole(s);
    }
    release(s);
  }
}

/* ---- In a heap ---- */

/* Small programs are spared all this, so there is something large besides. */
enum { BALLAST = 8, SIZE = 512, PER_SLAB = SLICE_SIZE / SIZE, MANY = 800 };
static run ballast[BALLAST];
static heap real;
static void *blocks[MANY * PER_SLAB];

/* It passes with time: the supply is told of a later hour each time. */
static void forget_regret(void) {
  static uint64_t minutes = 0;
  supply_purge_aged(os_now_ms() + ++minutes * 60000, 0);
}

static int begin_heap(void **state) {
  begin(state);
  memset(&real, 0, sizeof real);
  heap_init(&real, TAG);
  option_set(OPTION_purge_delay, 3600000);
  for (int i = 0; i < BALLAST; i++)
    assert_true(supply_take(HUGE_SLICES, 1, &ballast[i]));
  forget_regret();
  return 0;
}

static void drop_ballast(void) {
  for (int i = 0; i < BALLAST; i++)
    if (ballast[i].slices) {
      supply_give(ballast[i].page, ballast[i].start, ballast[i].slices);
      ballast[i].slices = 0;
    }
}

static int end_heap(void **state) {
  assert_int_equal(heap_check(&real), 0);
  drop_ballast();
  heap_flush(&real);
  heap_tidy(&real);
  return end(state);
}

static slab *slab_of(const void *p) { return slab_of_entry(map_get(p)); }

static block *take_one(void) {
  block **hand = &real.hot.hand[class_of(SIZE)], *b = *hand;
  if (!b)
    return heap_refill(&real, class_of(SIZE));
  *hand = b->next;
  return b;
}

/* `slabs` slabs, every block of them out and filled. */
static void fill(unsigned slabs) {
  for (unsigned i = 0; i < slabs * PER_SLAB; i++) {
    assert_non_null(blocks[i] = take_one());
    memset(blocks[i], (int)i | 1, SIZE);
  }
}

static void drop_own(unsigned i) {
  heap_free_own(&real, slab_of(blocks[i]), blocks[i]);
  blocks[i] = NULL;
}

/* The last `left` blocks of the slab that is number n stay. */
static void thin(unsigned n, unsigned left) {
  for (unsigned i = n * PER_SLAB; i < (n + 1) * PER_SLAB - left; i++)
    drop_own(i);
}

static void drop_rest(void) {
  for (unsigned i = 0; i < MANY * PER_SLAB; i++)
    if (blocks[i]) {
      assert_true(all_bytes(blocks[i], SIZE, (int)i | 1));
      drop_own(i);
    }
}

static size_t returned(void) { return supply_figures_now().returned; }

static void a_slab_becomes_sparse(void **state) {
  (void)state;
  fill(2);
  slab *s = slab_of(blocks[0]);
  thin(0, PER_SLAB / 4 + 1);
  assert_true(list_empty(&real.sparse));
  assert_int_equal(load_relaxed(&s->reserve), PER_SLAB / 4);
  assert_int_equal(heap_check(&real), 0);
  drop_own(PER_SLAB - 1);
  assert_ptr_equal(real.sparse.next, &s->sparse);
  assert_int_equal(load_relaxed(&s->need) + load_relaxed(&s->reserve), PER_SLAB / 4);
  assert_int_equal(heap_check(&real), 0);
  drop_rest();
  assert_true(list_empty(&real.sparse));
}

static void in_a_small_program_it_does_not(void **state) {
  (void)state;
  drop_ballast();
  fill(2);
  thin(0, 1);
  assert_true(list_empty(&real.sparse));
  drop_rest();
}

static void tidying_purges_it(void **state) {
  (void)state;
  fill(2);
  slab *s = slab_of(blocks[0]);
  thin(0, 8);
  heap_tidy(&real);
  assert_int_equal(resident_pages(s->start, SLICE_SIZE) * os_page(), 8 * SIZE);
  assert_int_equal(heap_check(&real), 0);
  drop_rest();
}

static void what_is_needed_again_comes_back(void **state) {
  (void)state;
  fill(3);
  thin(0, 8);
  heap_tidy(&real);
  memmove(blocks, blocks + PER_SLAB - 8, 8 * sizeof *blocks); /* for drop_rest */
  for (unsigned i = 0; i < 8; i++)
    memset(blocks[i], (int)i | 1, SIZE);
  memset(blocks + 8, 0, (PER_SLAB - 8) * sizeof *blocks);
  for (unsigned i = 8; i < PER_SLAB; i++) {
    block *b = take_one();
    assert_ptr_equal(slab_of(b), slab_of(blocks[0])); /* no other is needed */
    blocks[i] = memset(b, (int)i | 1, SIZE);
    assert_int_equal(heap_check(&real), 0);
  }
  assert_int_equal(slab_of(blocks[0])->purged, 0);
  drop_rest();
}

static void a_refill_takes_it_off_the_list(void **state) {
  (void)state;
  fill(2);
  thin(0, 8);
  assert_false(list_empty(&real.sparse));
  blocks[0] = memset(heap_refill(&real, class_of(SIZE)), 1, SIZE);
  assert_true(list_empty(&real.sparse));
  assert_int_equal(heap_check(&real), 0);
  drop_rest();
}

static void waiting_for_the_delay(void **state) {
  (void)state;
  fill(2);
  thin(0, 8);
  option_set(OPTION_purge_delay, 0);
  const slab *s = slab_of(blocks[PER_SLAB - 1]);
  size_t pages = SLICE_SIZE / os_page();
  forget_regret();
  heap_upkeep_now(&real);
  assert_int_equal(resident_pages(s->start, SLICE_SIZE), pages); /* it has begun to wait */
  heap_upkeep_now(&real);
  assert_true(resident_pages(s->start, SLICE_SIZE) < pages);
  assert_int_equal(heap_check(&real), 0);
  drop_rest();
}

static void too_many_do_not_wait(void **state) {
  (void)state;
  fill(MANY);
  size_t before = returned();
  for (unsigned n = 0; n + 1 < MANY; n++)
    thin(n, 8);
  assert_true(returned() > before);
  assert_int_equal(heap_check(&real), 0);
  drop_rest();
}

/* 85 blocks of 48 bytes are not quite a page. */
static void an_empty_slab_without_an_empty_page(void **state) {
  (void)state;
  unsigned c = class_of(48);
  block *b = heap_refill(&real, c);
  slab *s = slab_of(b);
  assert_true(s->threaded * s->block_size < os_page());
  block *rest = real.hot.hand[c];
  real.hot.hand[c] = NULL;
  for (block *next; rest; rest = next) {
    next = rest->next;
    heap_free_own(&real, s, rest);
  }
  heap_free_own(&real, s, b);
  assert_ptr_equal(real.vacant.next, &s->sparse);
  option_set(OPTION_purge_delay, 0);
  forget_regret();
  heap_upkeep_now(&real);
  heap_upkeep_now(&real);
  assert_true(list_empty(&s->sparse));
  assert_int_equal(s->purged, 0);
  assert_int_equal(heap_check(&real), 0);
}

/* The mail brings home what the owner has not freed himself. */
static void a_sender_ends_it(void **state) {
  (void)state;
  for (unsigned left = 1; left < PER_SLAB / 2; left *= 2)
    for (int purged = 0; purged < 2; purged++) {
      fill(2);
      thin(0, left);
      if (purged)
        heap_tidy(&real);
      size_t used = supply_figures_now().used;
      for (unsigned i = PER_SLAB - left; i < PER_SLAB; i++) {
        assert_int_equal(supply_figures_now().used, used);
        outbox_deliver(slab_of(blocks[i]), blocks[i], blocks[i], 1);
        blocks[i] = NULL;
      }
      assert_int_equal(supply_figures_now().used, used - SLICE_SIZE);
      assert_int_equal(heap_check(&real), 0);
      drop_rest();
      heap_flush(&real);
      heap_tidy(&real);
    }
}

/* A signal handler's free, in the middle of a slow path. */
static void an_event_in_a_handler(void **state) {
  (void)state;
  fill(2);
  slab *s = slab_of(blocks[0]);
  thin(0, PER_SLAB / 4 + 1);
  block *b = blocks[PER_SLAB - 1];
  blocks[PER_SLAB - 1] = NULL;
  b->next = s->free;
  s->free = b;
  assert_true(count_down_release(&s->need));
  heap_slab_event_nested(s);
  assert_int_equal(load_relaxed(&s->need), 1);
  assert_int_equal(load_relaxed(&s->reserve), PER_SLAB / 4 - 1);
  assert_int_equal(heap_check(&real), 0);
  drop_rest();
}

#define IN_HEAP(f) cmocka_unit_test_setup_teardown(f, begin_heap, end_heap)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_whole_slab, begin, end),
      cmocka_unit_test_setup_teardown(nothing_is_purged_where_all_is_out, begin, end),
      cmocka_unit_test_setup_teardown(one_block_keeps_its_pages, begin, end),
      cmocka_unit_test_setup_teardown(what_is_not_threaded_yet_is_left_alone, begin, end),
      cmocka_unit_test_setup_teardown(a_second_time, begin, end),
      cmocka_unit_test_setup_teardown(any_order_of_events, begin, end),
      IN_HEAP(a_slab_becomes_sparse),
      IN_HEAP(in_a_small_program_it_does_not),
      IN_HEAP(tidying_purges_it),
      IN_HEAP(what_is_needed_again_comes_back),
      IN_HEAP(a_refill_takes_it_off_the_list),
      IN_HEAP(waiting_for_the_delay),
      IN_HEAP(too_many_do_not_wait),
      IN_HEAP(an_empty_slab_without_an_empty_page),
      IN_HEAP(a_sender_ends_it),
      IN_HEAP(an_event_in_a_handler),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
