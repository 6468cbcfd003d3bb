#include "unit.h"

#include <math.h>

#include "heap/budget.h"
#include "heap/roster.h"
#include "os/os.h"

static heap *h;

static int begin(void **state) {
  (void)state;
  alarm(300);
  h = roster_join(NULL);
  assert_non_null(h);
  return 0;
}

static int end(void **state) {
  (void)state;
  budget_start(0);
  heap_flush(h);
  heap_tidy(h);
  assert_int_equal(heap_check(h), 0);
  roster_leave(h);
  assert_int_equal(supply_check(), 0);
  return 0;
}

static void probability_is_exact(void **state) {
  (void)state;
  for (double size = 8; size < 1e9; size *= 1.7)
    for (double interval = 2; interval < 1e12; interval *= 3.1) {
      double want = -expm1(-floor(size) / floor(interval));
      double have = budget_probability((size_t)size, (uint64_t)interval);
      assert_true(fabs(have - want) <= 1e-7 * want);
    }
  assert_true(budget_probability(1, 1) == 1);
}

/* A refill of one block. Looked at: the interval. */
static uint64_t give_one(unsigned class) {
  uint64_t interval = budget_due(h, class);
  if (!interval)
    assert_true(heap_charge(&h->hot.hand[class], 1));
  return interval;
}

/* Blocks of the class that are given out until one is due. */
static size_t until_due(unsigned class) {
  size_t n = 0;
  while (!give_one(class))
    n++;
  return n;
}

/* At once, as if all before it had been given out. */
static uint64_t look(unsigned class) {
  h->left[class] = 0;
  return budget_due(h, class);
}

static uint64_t left_now(unsigned class) {
  const budget_class *c = h->budget ? &h->budget->of[class] : NULL;
  return c && c->held ? c->left : h->left[class];
}

static void looks_come_by_chance(void **state) {
  enum { LOOKS = 20000, INTERVAL = 5000 };
  double sum = 0, square = 0, p = -expm1(-(double)class_size(3) / INTERVAL);
  (void)state;
  store_relaxed(&budget_interval, INTERVAL);
  for (int i = 0; i < LOOKS; i++) {
    double n = (double)until_due(3);
    sum += n, square += n * n;
  }
  /* geometric: mean (1-p)/p, variance (1-p)/p^2 */
  double mean = sum / LOOKS, variance = square / LOOKS - mean * mean;
  assert_true(fabs(mean - (1 - p) / p) < 5 * sqrt((1 - p) / LOOKS) / p);
  assert_true(fabs(variance * p * p / (1 - p) - 1) < 0.1);
}

static void interval_1_looks_at_all(void **state) {
  (void)state;
  store_relaxed(&budget_interval, 1);
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    for (int i = 0; i < 100; i++)
      assert_true(give_one(c));
}

static unsigned length_of(const block *b) {
  unsigned n = 0;
  for (; b; b = b->next)
    n++;
  return n;
}

/* The hand never has a block that is due, and no block is lost on the way. */
static void hands_hold_what_is_paid_for(void **state) {
  enum { CLASS = 5, TAKEN = 30000 };
  static block *taken[TAKEN];
  unsigned looks = 0;
  (void)state;
  store_relaxed(&budget_interval, 4096);
  for (int i = 0; i < TAKEN; i++) {
    bool refill = !h->hot.hand[CLASS];
    if (refill && budget_due(h, CLASS)) { /* which is no block of the heap then */
      looks++;
      continue;
    }
    uint64_t left = left_now(CLASS);
    taken[i] = heap_take_block(h, CLASS);
    assert_non_null(taken[i]);
    if (refill) {
      unsigned given = 1 + length_of(h->hot.hand[CLASS]);
      assert_true(given <= left);
      assert_int_equal(left - left_now(CLASS), given);
    }
    assert_int_equal(length_of(h->budget->of[CLASS].held), h->budget->of[CLASS].held_count);
  }
  double expected = TAKEN * -expm1(-(double)class_size(CLASS) / 4096);
  assert_true(fabs(looks - expected) < 6 * sqrt(expected));
  for (int i = 0; i < TAKEN; i++)
    if (taken[i])
      heap_free_own(h, map_entry_descriptor(map_get(taken[i])), taken[i]);
}

static void flush_takes_what_is_held(void **state) {
  (void)state;
  store_relaxed(&budget_interval, 2000);
  for (unsigned c = 0; c < 20; c++) {
    budget_due(h, c);
    block *b = heap_take_block(h, c);
    assert_non_null(b);
    heap_free_own(h, map_entry_descriptor(map_get(b)), b);
  }
  heap_flush(h);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    assert_null(h->hot.hand[c]);
    assert_null(h->budget->of[c].held);
  }
}

/* So much by now, on average. */
static void looks_take(uint64_t ns) {
  for (int i = 0; i < 1000; i++)
    budget_look_took(ns);
}

/* CPU time: what a heap earns by. */
static void work_ms(unsigned ms) {
  for (uint64_t start = os_cpu_ns(0); os_cpu_ns(0) - start < (uint64_t)ms * 1000000;)
    ;
}

static uint64_t interval_now(unsigned class) { return h->hot.asked << h->budget->doublings[class]; }

/* A look each time, which is a hundred times as many as a part of the time allows. */
static void looks_keep_a_pace(void **state) {
  (void)state;
  looks_take(500);
  budget_start(BUDGET_INTERVAL);
  budget_due(h, 3);
  assert_int_equal(interval_now(3), BUDGET_INTERVAL);
  while (interval_now(3) < 16 * BUDGET_INTERVAL)
    look(3);
  assert_int_equal(budget_widest(), interval_now(3));
  while (interval_now(3) > BUDGET_INTERVAL) { /* looks have become rare */
    work_ms(100);
    look(3);
  }
  assert_true(budget_widest() >= 16 * BUDGET_INTERVAL);
  budget_start(4096);
  budget_due(h, 3);
  for (int i = 0; i < 10000; i++)
    assert_int_equal(look(3), 4096);
  assert_int_equal(budget_widest(), 4096);
}

static void begin_anew(void) {
  looks_take(500);
  budget_start(0);
  budget_ask(h);
  budget_start(BUDGET_INTERVAL);
  budget_ask(h);
}

enum { EACH_NS = 2000, START_NS = 1 << 25, START_TIMES = 4 };

static void wait_until(uint64_t ns) {
  while (os_now_ns() < ns)
    ;
}

/* However fast looks come, each that isn't earned makes the interval twice as wide. Asked in less time than earns one. */
static void few_looks_at_the_start(void **state) {
  enum { LOOKS = 10 };
  uint64_t took = UINT64_MAX;
  (void)state;
  while (took >= (uint64_t)EACH_NS * BUDGET_SHARE / START_TIMES) {
    begin_anew();
    uint64_t start = os_now_ns();
    for (int i = 0; i < LOOKS; i++)
      look(3);
    took = os_now_ns() - start;
  }
  assert_in_range(h->budget->doublings[3], LOOKS - 1, LOOKS);
}

/* Looks at different classes, in less time than earns one, from the first class on. */
static void begin_with_looks_at(unsigned classes) {
  uint64_t took = UINT64_MAX;
  while (took >= (uint64_t)EACH_NS * BUDGET_SHARE / START_TIMES) {
    begin_anew();
    uint64_t start = os_now_ns();
    for (unsigned c = 0; c <= classes; c++)
      look(c % classes); /* one more, as the first may be earned */
    took = os_now_ns() - start;
  }
}

/* Where those at some classes were too many all become wider, also those that were not looked at. */
static void looks_at_many_classes_widen_all(void **state) {
  enum { MANY = 5, OTHER = 30 };
  (void)state;
  begin_with_looks_at(MANY - 1);
  assert_int_equal(h->budget->doublings[OTHER], 0);
  begin_with_looks_at(MANY);
  assert_int_equal(h->budget->doublings[OTHER], 1);
  for (unsigned c = 0; c < MANY; c++)
    assert_in_range(h->budget->doublings[c], 1, 3);
}

/* One each time that what the start brings beside is enough for it: it is earned. False: it was interrupted for so long that
 * the start was over. */
static bool looks_are_earned_at_the_start(void) {
  enum { GIVEN_NS = EACH_NS * BUDGET_SHARE / (START_TIMES - 1), LOOKS = 20 };
  begin_anew();
  uint64_t start = os_now_ns();
  for (int i = 0; i < LOOKS; i++) {
    wait_until(os_now_ns() + GIVEN_NS);
    look(3);
    if (os_now_ns() - start >= START_NS)
      return false;
    assert_int_equal(interval_now(3), BUDGET_INTERVAL);
  }
  return true;
}

static void the_start_earns_more(void **state) {
  (void)state;
  while (!looks_are_earned_at_the_start())
    ;
}

/* As a thread that begins has it, which has not worked yet, if no other left it behind. */
static heap *begin_another(heap *first) {
  h = roster_join(NULL);
  assert_non_null(h);
  assert_ptr_not_equal(h, first);
  h->hot.asked = 0;
  budget_ask(h);
  (void)os_cpu_ns(0); /* what the system has noted is up to date */
  h->budget->paced_cpu = os_cpu_coarse_ns();
  return h;
}

static void leave_for(heap *first) {
  roster_leave(h);
  h = first;
}

/* And a heap that looks too seldom is told so by the first look, not after many. */
static void the_start_narrows_at_once(void **state) {
  enum { LOOKS = 8, WAIT_NS = START_NS / 2 };
  uint64_t start, wide;
  (void)state;
  do {
    begin_anew();
    start = os_now_ns();
    for (int i = 0; i < LOOKS; i++)
      look(3);
    wide = interval_now(3);
    wait_until(os_now_ns() + WAIT_NS);
    look(3);
  } while (os_now_ns() - start >= START_NS);
  assert_in_range(interval_now(3), BUDGET_INTERVAL, wide / 4);
}

enum { WHILE_MS = 12, WORKS_NS = 1 << 20 };

/* False: it took so long that the start was over. */
static bool start_pays_for(void pass(unsigned ms), uint64_t *saved) {
  begin_anew();
  uint64_t start = os_now_ns();
  (void)os_cpu_ns(0); /* what the system has noted is up to date */
  h->budget->paced_cpu = os_cpu_coarse_ns();
  pass(WHILE_MS);
  look(3);
  *saved = h->budget->saved;
  return os_now_ns() - start < START_NS;
}

/* Of a while without a look it brings what the thread has worked, or that of a millisecond. */
static void the_start_brings_little_to_who_waits(void **state) {
  uint64_t saved;
  (void)state;
  while (!start_pays_for(os_sleep_ms, &saved))
    ;
  assert_in_range(saved, 1, 2 * (START_TIMES - 1) * WORKS_NS / BUDGET_SHARE);
  while (!start_pays_for(work_ms, &saved))
    ;
  assert_in_range(saved, (START_TIMES - 1) * (WHILE_MS - 2) * 1000000 / BUDGET_SHARE, UINT64_MAX);
}

/* Afterwards it pays for its looks itself. */
static void a_heap_is_on_its_own_after_the_start(void **state) {
  (void)state;
  begin_anew();
  uint64_t start = os_now_ns();
  wait_until(start + START_NS / 2);
  look(3);
  assert_true(!h->budget->begun || os_now_ns() - start >= START_NS);
  wait_until(start + START_NS);
  for (int i = 0; !h->budget->begun && i < 1000; i++)
    look(3);
  assert_true(h->budget->begun);
}

/* What the start brings is the process's, of which one heap has it; the others come to where it is by their first look, and
 * those that begin later begin there. False: it was interrupted for so long that this may have earned what the last one looks
 * for. */
static bool begin_at_the_process_cost(heap *first) {
  enum { HEAPS = 40, ROUNDS = 20, EARNS_NS = EACH_NS * BUDGET_SHARE / START_TIMES };
  heap *other[HEAPS];
  begin_anew();
  uint64_t start = os_now_ns(), last = start, looks = 0;
  for (int i = 0; i < HEAPS; i++) {
    other[i] = begin_another(first);
    assert_int_equal(h->budget->doublings[3], 0);
  }
  for (int i = 0; i < HEAPS; i++) {
    h = other[i];
    h->budget->paced = os_now_ns(); /* else it had earned while the others were made */
    while (!h->budget->doublings[3])
      looks += look(3) != 0;
  }
  uint64_t earned = START_TIMES * (os_now_ns() - start) / BUDGET_SHARE;
  assert_in_range(looks, HEAPS, HEAPS + earned / EACH_NS);
  for (int i = 0; i < ROUNDS * HEAPS; i++) {
    h = other[i % HEAPS];
    last = os_now_ns();
    look(3);
  }
  begin_another(first);
  unsigned begun = h->budget->doublings[3];
  assert_int_equal(h->budget->of[3].drawn_for, (uint64_t)BUDGET_INTERVAL << begun);
  assert_in_range(budget_widest(), (uint64_t)BUDGET_INTERVAL << begun, UINT64_MAX);
  look(5);
  uint64_t now = os_now_ns();
  bool soon = now - last < EARNS_NS && now - start < START_NS;
  unsigned have = h->budget->doublings[3], least = UINT_MAX;
  leave_for(first);
  for (int i = HEAPS; i--; leave_for(first)) {
    h = other[i];
    least = (unsigned)min_size(least, h->budget->doublings[3]);
  }
  if (soon) {
    assert_in_range(begun, max_size(least, 1), UINT_MAX);
    assert_in_range(have, begun, UINT_MAX);
  }
  return soon;
}

static void heaps_begin_at_the_process_cost(void **state) {
  heap *first = h;
  (void)state;
  while (!begin_at_the_process_cost(first))
    ;
}

/* One that begins later may look as often as the first. */
static void the_process_earns_for_heaps_that_begin(void **state) {
  enum { USE_UP = 3, LOOKS = 60 };
  heap *first = h, *other[USE_UP + 1];
  (void)state;
  begin_anew();
  while (interval_now(3) < 16 * BUDGET_INTERVAL)
    look(3);
  for (int i = 0; i < USE_UP; i++)
    for (other[i] = begin_another(first); !h->budget->doublings[3];)
      look(3);
  h = first;
  work_ms(500);
  look(3);
  other[USE_UP] = begin_another(first);
  for (int i = 0; i < LOOKS; i++)
    look(3);
  assert_int_equal(h->budget->doublings[3], 0);
  for (int i = USE_UP; i >= 0; leave_for(first))
    h = other[i--];
}

/* Waiting for a processor is no look. */
static void a_look_that_was_interrupted_counts_as_one(void **state) {
  (void)state;
  looks_take(500);
  budget_look_took(1000000000);
  budget_start(0);
  budget_due(h, 3);
  budget_start(BUDGET_INTERVAL);
  budget_due(h, 3);
  wait_until(os_now_ns() + START_NS);
  int looks = 0;
  do {
    assert_true(look(3));
    budget_look_took(500);
    looks++;
  } while (h->budget->looks); /* until the pace is judged */
  assert_in_range(looks, 32, 64);
}

enum { JUDGED_NS = 128000 };

static void look_until_judged(void) {
  do
    look(3);
  while (h->budget->looks);
}

/* The start is over, it has saved nothing, and owes nothing. */
static void begin_on_its_own(void) {
  begin_anew();
  wait_until(os_now_ns() + START_NS);
  do
    look_until_judged();
  while (!h->budget->begun);
  h->budget->saved = h->budget->owed = 0;
}

/* What would have been earned is too much after what was not. */
static void looks_that_were_too_many_are_owed(void **state) {
  (void)state;
  begin_on_its_own();
  look_until_judged();
  assert_in_range(h->budget->owed, JUDGED_NS / 2, JUDGED_NS);
  unsigned before = h->budget->doublings[3];
  work_ms(JUDGED_NS * BUDGET_SHARE / 1000000 * 5 / 4);
  look_until_judged();
  assert_in_range(h->budget->doublings[3], before + 1, UINT_MAX);
  assert_int_equal(h->budget->saved, 0);
  work_ms(400);
  look(3);
  assert_int_equal(h->budget->owed, 0);
  assert_true(h->budget->saved > 0);
}

/* Those of another class, which is looked at seldom, are as near as before. */
static void the_pace_is_kept_where_it_is_lost(void **state) {
  enum { BUSY = 3, QUIET = 5, SELDOM_TIMES = 100 };
  (void)state;
  looks_take(500);
  budget_start(0);
  budget_due(h, BUSY);
  budget_start(BUDGET_INTERVAL);
  do {
    for (int i = 0; i < SELDOM_TIMES; i++)
      look(BUSY);
    look(QUIET);
  } while (interval_now(BUSY) < 16 * BUDGET_INTERVAL);
  assert_in_range(interval_now(QUIET), BUDGET_INTERVAL, interval_now(BUSY) / 4);
}

static void looks_are_saved(void **state) {
  (void)state;
  looks_take(500);
  budget_start(BUDGET_INTERVAL);
  budget_due(h, 3);
  for (int i = 0; i < 2; i++) {
    uint32_t before = h->budget->saved;
    work_ms(300);
    look(3);
    assert_true(h->budget->saved >= before + 300000000 / BUDGET_SHARE - 64 * 2000);
  }
}

static void who_waits_earns_nothing(void **state) {
  (void)state;
  begin_anew();
  heap_budget *b = h->budget;
  work_ms(300);
  look(3); /* from here on it is known what it had worked before */
  uint32_t before = b->saved;
  os_sleep_ms(300);
  look(3);
  assert_int_equal(b->saved, before);
  work_ms(300);
  look(3);
  assert_true(b->saved > before);
}

/* The clock of the next one may be behind that of the one before, or ahead of it. */
static void a_heap_changes_threads(void **state) {
  (void)state;
  looks_take(500);
  for (uint64_t i = 0; i < 2; i++) {
    budget_start(0);
    budget_due(h, 3);
    budget_start(BUDGET_INTERVAL);
    budget_due(h, 3);
    heap_budget *b = h->budget;
    uint64_t start = b->paced, most;
    uint32_t before = b->saved;
    b->paced_cpu = i ? UINT64_MAX : 0;
    work_ms(300);
    look(3);
    most = (os_now_ns() - start + (START_TIMES - 1) * START_NS) / BUDGET_SHARE;
    assert_in_range(b->saved, before + 300000000 / BUDGET_SHARE - 64 * 2000, before + most);
  }
}

/* Each block that is looked at stands for 1 / p of them, p by the interval of that moment. */
static void sums_are_right_at_any_pace(void **state) {
  enum { BLOCKS = 4000000, SIZE = 64 << 10 };
  double sum = 0, variance = 0;
  unsigned class = class_above_table(SIZE);
  (void)state;
  assert_int_equal(class_size(class), SIZE);
  budget_start(BUDGET_INTERVAL);
  for (int i = 0; i < BLOCKS; i++) {
    uint64_t interval = give_one(class);
    if (interval) {
      double objects = 1 / budget_probability(SIZE, interval);
      sum += objects, variance += objects * (objects - 1);
    }
  }
  assert_true(budget_widest() > BUDGET_INTERVAL);
  assert_true(fabs(sum - BLOCKS) < 6 * sqrt(variance));
}

/* What an observer allocates itself is given out unseen, also where the countdown stops, which says nothing about
 * what the program takes after it. */
static void observers_are_not_looked_at(void **state) {
  enum { LOOKS = 2000, INTERVAL = 5000 };
  double sum = 0, p = -expm1(-(double)class_size(3) / INTERVAL);
  (void)state;
  store_relaxed(&budget_interval, INTERVAL);
  budget_due(h, 3);
  for (int i = 0; i < LOOKS; i++) {
    h->budget->quiet = true;
    h->left[3] = 0;
    for (int own = 0; own < 100; own++) {
      assert_false(budget_due(h, 3));
      (void)heap_charge(&h->hot.hand[3], 1);
    }
    h->budget->quiet = false;
    sum += (double)until_due(3);
  }
  assert_true(fabs(sum / LOOKS - (1 - p) / p) < 5 * sqrt((1 - p) / LOOKS) / p);
}

/* The same of large blocks, however the countdown stands when an observer begins. */
static void observers_are_not_looked_at_for_large_blocks(void **state) {
  enum { LOOKS = 4000, INTERVAL = 512 * KIB - 1, OWN = 20 };
  double sum = 0, p = -expm1(-(double)SLICE_SIZE / INTERVAL);
  (void)state;
  store_relaxed(&budget_interval, INTERVAL);
  budget_ask(h);
  for (int i = 0; i < LOOKS; i++) {
    h->budget->quiet = true;
    for (int own = 0; own < OWN; own++)
      assert_false(budget_due_large(h, SLICE_SIZE));
    h->budget->quiet = false;
    for (; h->hot.large_left >= SLICE_SIZE; h->hot.large_left -= SLICE_SIZE)
      sum++;
  }
  assert_true(fabs(sum / LOOKS - (1 - p) / p) < 5 * sqrt((1 - p) / LOOKS) / p);
}

static void nobody_looks_any_more(void **state) {
  (void)state;
  store_relaxed(&budget_interval, 100);
  assert_true(until_due(3) < 1000);
  store_relaxed(&budget_interval, 0);
  for (int i = 0; i < 1000; i++)
    assert_false(budget_due(h, 3));
  assert_true(heap_charge(&h->hot.hand[3], 1000));
}

/* Takes a block and frees it; true: it went straight back into the hand. */
static bool back_and_forth(unsigned class) {
  block *b = heap_take_block(h, class);
  slab *s = map_entry_descriptor(map_get(b));
  b->next = s->free;
  s->free = b;
  if (!count_down_release(&s->need))
    return false;
  if (heap_hand_back(h, s, b))
    return true;
  if (!heap_hand_back_asked(h, s))
    heap_slab_event(h, s);
  return h->hot.hand[class] != NULL;
}

/* As often as the countdown says, with no other question. */
static void what_goes_straight_back_is_charged(void **state) {
  (void)state;
  unsigned class = class_above_table(64 << 10);
  store_relaxed(&budget_interval, (uint64_t)1 << 30);
  budget_ask(h);
  back_and_forth(class);
  for (uint64_t left; (left = h->left[class]) != 0;) {
    assert_true(back_and_forth(class));
    assert_int_equal(h->left[class], left - 1);
  }
  assert_false(back_and_forth(class));
  assert_true(budget_due(h, class));
}

/* It goes on without a slow path where nobody looks, but not for ever: somebody may. */
static void who_never_asks_learns_of_it(void **state) {
  (void)state;
  unsigned class = class_above_table(64 << 10);
  budget_ask(h); /* what is left of an earlier test's countdown would last longer */
  back_and_forth(class);
  for (size_t n = 0; n < 4 * BUDGET_UNSEEN; n += class_size(class))
    assert_true(back_and_forth(class));
  store_relaxed(&budget_interval, BUDGET_INTERVAL);
  size_t bytes = 0;
  for (; back_and_forth(class); bytes += class_size(class))
    assert_in_range(bytes, 0, BUDGET_UNSEEN + class_size(class));
  budget_due(h, class);
  assert_int_equal(h->hot.asked, BUDGET_INTERVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(probability_is_exact, begin, end),
      cmocka_unit_test_setup_teardown(looks_come_by_chance, begin, end),
      cmocka_unit_test_setup_teardown(interval_1_looks_at_all, begin, end),
      cmocka_unit_test_setup_teardown(hands_hold_what_is_paid_for, begin, end),
      cmocka_unit_test_setup_teardown(flush_takes_what_is_held, begin, end),
      cmocka_unit_test_setup_teardown(looks_keep_a_pace, begin, end),
      cmocka_unit_test_setup_teardown(few_looks_at_the_start, begin, end),
      cmocka_unit_test_setup_teardown(looks_at_many_classes_widen_all, begin, end),
      cmocka_unit_test_setup_teardown(the_start_earns_more, begin, end),
      cmocka_unit_test_setup_teardown(the_start_narrows_at_once, begin, end),
      cmocka_unit_test_setup_teardown(the_start_brings_little_to_who_waits, begin, end),
      cmocka_unit_test_setup_teardown(a_heap_is_on_its_own_after_the_start, begin, end),
      cmocka_unit_test_setup_teardown(heaps_begin_at_the_process_cost, begin, end),
      cmocka_unit_test_setup_teardown(the_process_earns_for_heaps_that_begin, begin, end),
      cmocka_unit_test_setup_teardown(a_look_that_was_interrupted_counts_as_one, begin, end),
      cmocka_unit_test_setup_teardown(looks_that_were_too_many_are_owed, begin, end),
      cmocka_unit_test_setup_teardown(the_pace_is_kept_where_it_is_lost, begin, end),
      cmocka_unit_test_setup_teardown(looks_are_saved, begin, end),
      cmocka_unit_test_setup_teardown(who_waits_earns_nothing, begin, end),
      cmocka_unit_test_setup_teardown(a_heap_changes_threads, begin, end),
      cmocka_unit_test_setup_teardown(sums_are_right_at_any_pace, begin, end),
      cmocka_unit_test_setup_teardown(observers_are_not_looked_at, begin, end),
      cmocka_unit_test_setup_teardown(observers_are_not_looked_at_for_large_blocks, begin, end),
      cmocka_unit_test_setup_teardown(nobody_looks_any_more, begin, end),
      cmocka_unit_test_setup_teardown(what_goes_straight_back_is_charged, begin, end),
      cmocka_unit_test_setup_teardown(who_never_asks_learns_of_it, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
