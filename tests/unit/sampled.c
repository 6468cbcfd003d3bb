#include "unit.h"

#include "api/checked.h"
#include "api/fast.h"
#include "api/sampled.h"
#include "masu.h"

enum { SMALL = 128, LARGER = 2048, EVERY = 1, NEARLY_EVERY = 2 };

static const void *taken_last, *freed_last;
static unsigned taken, freed;
static size_t used;

static void on_taken(void *p, size_t size, size_t usable, const account *a, double weight) {
  (void)size, (void)usable, (void)a, (void)weight;
  taken_last = p;
  taken++;
}
static void on_freed(void *p) {
  freed_last = p;
  freed++;
}
static bool on_resized(void *p, size_t size) {
  (void)p, (void)size;
  return true;
}
static size_t on_used(void *p) {
  used += p != NULL;
  return 0;
}
static const sample_observer observer = {on_taken, on_freed, on_resized, on_used};

static int begin(void **state) {
  (void)state;
  alarm(60);
  masu_free(masu_malloc(1)); /* the thread has a heap */
  taken = freed = 0;
  used = 0;
  return 0;
}

static int end(void **state) {
  (void)state;
  sample_start(&observer, 0);
  assert_int_equal(freed, taken);
  return 0;
}

/* What is ready in the hand is given out unseen before it. */
static void *sample_of(size_t size, uint64_t interval) {
  unsigned before = taken;
  void *p = NULL;
  sample_start(&observer, interval);
  for (int i = 0; taken == before && i < 1000; i++)
    assert_non_null(p = masu_malloc(size));
  sample_start(&observer, 0);
  assert_int_equal(taken, before + 1);
  assert_ptr_equal(taken_last, p);
  return p;
}

static void assert_ready_for_events(const slab *s) {
  assert_null(slab_stand_in(s)->free);
  assert_int_equal(load_relaxed(&slab_stand_in(s)->need), 1);
}

/* Told of once, though the thread's own tag is there. */
static void free_and_hear(void *p) {
  slab *s = slab_of_entry(map_get(p));
  unsigned before = freed;
  masu_free(p);
  assert_int_equal(freed, before + 1);
  assert_ptr_equal(freed_last, p);
  assert_ready_for_events(s);
}

static void samples_have_the_tag_of_the_only_taker(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    void *p = sample_of(SMALL, EVERY);
    map_entry e = map_get(p);
    assert_true(slab_entry_is_watched(e));
    assert_int_equal(map_entry_tag(e), thread_hot->tag);
    assert_false(slab_entry_is_plain(e, thread_hot->tag));
    assert_true(sampled_is(e, p));
    free_and_hear(p);
  }
}

static void larger_ones_stay_in_a_slab_of_the_thread(void **state) {
  (void)state;
  void *p = sample_of(LARGER, NEARLY_EVERY), *before = masu_malloc(LARGER), *after = masu_malloc(LARGER);
  map_entry e = map_get(p);
  slab *s = slab_of_entry(e);
  assert_ptr_equal(s->owner, (heap *)thread_hot);
  assert_int_equal(map_entry_tag(e), thread_hot->tag);
  assert_true(slab_entry_is_watched(e) && sampled_is(e, p));
  assert_ptr_equal(slab_of_entry(map_get(before)), s);
  assert_false(sampled_is(e, before) || sampled_is(e, after));
  assert_int_equal(masu_malloc_usable_size(before), LARGER);
  assert_int_equal(used, 0);
  assert_int_equal(masu_malloc_usable_size(p), LARGER);
  assert_int_equal(used, 1);
  assert_ptr_equal(masu_realloc(p, LARGER - 100), p);
  unsigned heard = freed;
  masu_free(before);
  assert_int_equal(freed, heard);
  assert_ready_for_events(s);
  free_and_hear(p);
  e = map_get(after);
  assert_true(slab_entry_is_plain(e, thread_hot->tag));
  assert_ptr_equal(map_entry_descriptor(e), s);
  assert_int_equal(masu_malloc_usable_size(after), LARGER);
  masu_free(after);
  assert_int_equal(heap_check((heap *)thread_hot), 0);
}

/* Between what free does there: the block is on the list, and not counted yet, or counted and the event didn't begin. */
static void a_handler_frees_another_of_the_slab(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    size_t size = i ? LARGER : SMALL;
    block *first = sample_of(size, i ? NEARLY_EVERY : EVERY), *second = sample_of(size, i ? NEARLY_EVERY : EVERY);
    slab *instead = map_entry_descriptor(map_get(first)), *s = slab_stood_for(instead);
    assert_ptr_equal(slab_of_entry(map_get(second)), s);
    unsigned before = freed;
    if (CHECKED)
      checked_give(s, first);
    first->next = instead->free;
    instead->free = first;
    masu_free(second);
    assert_int_equal(freed, before + 1);
    assert_ptr_equal(freed_last, second);
    assert_ptr_equal(instead->free, first);
    block *third = sample_of(size, i ? NEARLY_EVERY : EVERY);
    assert_ptr_equal(slab_of_entry(map_get(third)), s);
    assert_true(count_down_release(&instead->need));
    masu_free(third);
    assert_int_equal(freed, before + 1);
    free_event(first, instead);
    assert_int_equal(freed, before + 3);
    assert_ready_for_events(s);
  }
}

static void *free_it(void *p) {
  masu_free(p);
  return NULL;
}

static void another_thread_frees_one(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    void *p = i ? sample_of(LARGER, NEARLY_EVERY) : sample_of(SMALL, EVERY);
    pthread_t thread;
    unsigned before = freed;
    assert_int_equal(pthread_create(&thread, NULL, free_it, p), 0);
    pthread_join(thread, NULL);
    assert_int_equal(freed, before + 1);
    assert_ptr_equal(freed_last, p);
  }
}

static void *take_one(void *size) { return sample_of(*(size_t *)size, EVERY); }

/* From then on new slabs of theirs are nobody's; those that are there stay as they are. */
static void two_threads_take_samples(void **state) {
  size_t size = 4 * SMALL;
  void *mine = sample_of(SMALL, EVERY), *others;
  pthread_t thread;
  (void)state;
  assert_int_equal(map_entry_tag(map_get(mine)), thread_hot->tag);
  assert_int_equal(pthread_create(&thread, NULL, take_one, &size), 0);
  pthread_join(thread, &others);
  assert_true(slab_entry_is_watched(map_get(others)));
  assert_int_equal(map_entry_tag(map_get(others)), slab_of_entry(map_get(others))->owner->hot.tag);
  void *again = sample_of(size, EVERY);
  assert_int_not_equal(map_entry_tag(map_get(again)), thread_hot->tag);
  unsigned before = freed;
  masu_free(again);
  masu_free(others);
  assert_int_equal(freed, before + 2);
  free_and_hear(mine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(samples_have_the_tag_of_the_only_taker, begin, end),
      cmocka_unit_test_setup_teardown(larger_ones_stay_in_a_slab_of_the_thread, begin, end),
      cmocka_unit_test_setup_teardown(a_handler_frees_another_of_the_slab, begin, end),
      cmocka_unit_test_setup_teardown(another_thread_frees_one, begin, end),
      cmocka_unit_test_setup_teardown(two_threads_take_samples, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
