#include "unit.h"

#include <dirent.h>

#include "base/options.h"
#include "heap/front.h"
#include "heap/helper.h"
#include "heap/outbox.h"
#include "heap/roster.h"
#include "os/bell.h"
#include "os/os.h"

enum { DELAY = 40, SOON_MS = 5000 };

static int begin(void **state) {
  (void)state;
  alarm(300);
  option_set(OPTION_purge_delay, DELAY);
  option_set(OPTION_helper, 1);
  return 0;
}

/* Threads of this process by that name, and how often one went to sleep. */
static unsigned helpers(unsigned long *naps) {
  DIR *d = opendir("/proc/self/task");
  unsigned n = 0;
  REQUIRE(d != NULL);
  for (struct dirent *e; (e = readdir(d));) {
    char path[300], line[128], name[32] = "";
    unsigned long switches = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
    FILE *f = fopen(path, "r");
    if (!f)
      continue;
    while (fgets(line, sizeof line, f)) {
      sscanf(line, "Name: %31s", name);
      sscanf(line, "voluntary_ctxt_switches: %lu", &switches);
    }
    fclose(f);
    if (!strcmp(name, "masu-helper")) {
      n++;
      if (naps)
        *naps = switches;
    }
  }
  closedir(d);
  return n;
}

/* The name is set just after the thread has started. */
static unsigned helpers_soon(void) {
  for (int i = 0; i < 200 && !helpers(NULL); i++)
    sleep_ms(5);
  return helpers(NULL);
}

static bool nothing_idle(void) {
  return supply_figures_now().idle == 0 && supply_figures_now().kept == 0;
}

/* Waits, doing nothing. */
static bool soon(bool (*done)(void)) {
  for (int i = 0; i < SOON_MS / 10 && !done(); i++)
    sleep_ms(10);
  return done();
}

static run make_idle(unsigned slices) {
  run r;
  REQUIRE(supply_take(slices, 1, &r));
  memset(r.start, 1, slices * SLICE_SIZE);
  supply_give(r.page, r.start, slices);
  return r;
}

/* ---- Without one ---- */

static void it_may_be_forbidden(void **state) {
  (void)state;
  option_set(OPTION_helper, 0);
  helper_ensure();
  sleep_ms(30);
  assert_int_equal(helpers(NULL), 0);
}

static void giving_back_all_at_once(void **state) {
  size_t dirty;
  (void)state;
  option_set(OPTION_purge_delay, 3600000);
  heap *h = roster_join(NULL), *other = roster_join(NULL);
  block *b = heap_refill(h, class_of(8192)), *c = heap_refill(other, class_of(64));
  assert_true(b && c);
  outbox_deliver(map_entry_descriptor(map_get(b)), b, b, 1);
  outbox_deliver(map_entry_descriptor(map_get(c)), c, c, 1);
  heap_flush(h);
  roster_leave(h);
  make_idle(16);
  slab *mapping = large_take(3 * MIB, 1, &dirty);
  assert_non_null(mapping);
  memset(mapping->start, 1, 3 * MIB);
  large_give(mapping);
  size_t bytes = helper_give_back_all(0);
  assert_true(bytes >= 3 * MIB + 16 * SLICE_SIZE);
  assert_true(nothing_idle());
  assert_int_equal(supply_figures_now().used,
                   SLICE_SIZE); /* the hand of the one in use */
  assert_int_equal(helper_give_back_all(0), 0);
  make_idle(16);
  assert_int_equal(helper_give_back_all(64 * MIB), 0); /* so much may be kept */
  assert_true(helper_give_back_all(0) >= 16 * SLICE_SIZE);
  heap_flush(other);
  heap_tidy(other);
  roster_leave(other);
  assert_int_equal(supply_figures_now().used, 0);
}

static void no_memory_for_its_stack(void) {
  limit_address_space(32 * KIB);
  helper_ensure();
  unlimit_address_space();
  sleep_ms(20);
  REQUIRE(helpers(NULL) == 0);
  helper_ensure(); /* the next thread creation tries again */
  REQUIRE(helpers_soon() == 1);
}

static void a_start_that_fails(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(no_memory_for_its_stack);
}

/* ---- With one ---- */

static void there_is_only_one(void **state) {
  (void)state;
  helper_ensure();
  assert_int_equal(helpers_soon(), 1);
  for (int i = 0; i < 50; i++)
    helper_ensure();
  sleep_ms(30);
  assert_int_equal(helpers(NULL), 1);
}

static void memory_goes_back_while_we_sleep(void **state) {
  size_t dirty;
  (void)state;
  run r = make_idle(HUGE_SLICES);
  slab *mapping = large_take(5 * MIB, 1, &dirty);
  assert_non_null(mapping);
  char *start = mapping->start;
  memset(start, 1, 5 * MIB);
  large_give(mapping);
  assert_true(soon(nothing_idle));
  assert_false(is_mapped(start));
  if (supply_figures_now().reserved && is_mapped(r.start)) /* else the address may be somebody else's by now */
    assert_int_equal(resident_pages(r.start, HUGE_SIZE), 0);
}

static bool nothing_used(void) { return supply_figures_now().used == 0; }

static heap *sleeping;
enum { BLOCKS = 5 }; /* 4 in a slab */

static bool nothing_spare(void) {
  return !load_relaxed(&sleeping->spare[class_of(TABLE_MAX)]) &&
         supply_figures_now().used == class_slices(class_of(TABLE_MAX)) * SLICE_SIZE;
}

static block *take(heap *h, unsigned c) {
  block *b = h->hot.hand[c];
  if (!b)
    return heap_refill(h, c);
  h->hot.hand[c] = b->next;
  return b;
}

static void give(heap *h, block *b) {
  slab *s = map_entry_descriptor(map_get(b));
  b->next = s->free;
  s->free = b;
  if (count_down_release(&s->need))
    heap_slab_event(h, s);
}

/* What heaps keep ready goes too: of threads that are gone, and of those that sleep. */
static void heaps_are_emptied(void **state) {
  block *p[BLOCKS];
  size_t dirty;
  (void)state;
  heap *gone = roster_join(NULL);
  sleeping = roster_join(NULL);
  block *b = take(gone, class_of(64));
  /* All but this one were in the hand: only tidying sees that all are there. */
  outbox_deliver(map_entry_descriptor(map_get(b)), b, b, 1);
  heap_flush(gone);
  for (int i = 0; i < BLOCKS; i++)
    assert_non_null(p[i] = take(sleeping, class_of(TABLE_MAX)));
  for (int i = 0; i < BLOCKS - 1; i++)
    give(sleeping, p[i]);
  assert_non_null(load_relaxed(&sleeping->spare[class_of(TABLE_MAX)]));
  slab *front = large_take(10 * SLICE_SIZE, 1, &dirty);
  assert_non_null(front);
  front_claim(sleeping, front);
  assert_true(front_give(sleeping, front));
  roster_leave(gone);
  assert_true(soon(nothing_spare));
  give(sleeping, p[BLOCKS - 1]);
  heap_flush(sleeping);
  roster_leave(sleeping);
  assert_true(soon(nothing_used));
  assert_true(soon(nothing_idle));
}

/* No nap begins for so long: once, as a process that was stopped or frozen goes to sleep anew. */
static bool it_sleeps_on(void) {
  for (int window = 0; window < 20; window++) {
    unsigned long before = 0, after = 0;
    REQUIRE(helpers(&before) == 1);
    sleep_ms(300);
    REQUIRE(helpers(&after) == 1);
    if (after == before)
      return true;
  }
  return false;
}

static void it_sleeps_until_it_is_rung(void **state) {
  (void)state;
  for (int round = 0; round < 3; round++) {
    assert_true(soon(nothing_idle));
    sleep_ms(3 * DELAY); /* it has seen that there is nothing to do */
    assert_true(it_sleeps_on());
    make_idle(4);
    assert_true(soon(nothing_idle));
  }
}

/* A helper that keeps what is young. */
static void nothing_goes_before_the_delay(void **state) {
  (void)state;
  option_set(OPTION_purge_delay, 2000);
  sleep_ms(3 * DELAY); /* its nap of before is over */
  uint64_t start = os_now_ms();
  make_idle(8);
  sleep_ms(1200);
  size_t idle = supply_figures_now().idle;
  if (os_now_ms() - start < 2000)
    assert_int_equal(idle, 8 * SLICE_SIZE);
  assert_true(soon(nothing_idle));
}

static void start_again(void) {
  REQUIRE(helpers(NULL) == 0);
  helper_fork_child();
  make_idle(4);
  sleep_ms(3 * DELAY);
  REQUIRE(supply_figures_now().idle > 0); /* nobody there */
  helper_ensure();
  REQUIRE(helpers_soon() == 1);
  REQUIRE(soon(nothing_idle));
}

static void a_child_may_have_its_own(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  assert_int_equal(helpers(NULL), 1);
  in_child(start_again);
  assert_int_equal(helpers(NULL), 1);
}

static bool no_helper(void) { return helpers(NULL) == 0; }

/* A process whose initial thread has ended ends with its last thread, and that must
 * not be a helper that waits. */
static void be_the_last_but_one(void) {
  os_fork_reset();
  helper_fork_child();
  helper_ensure();
  REQUIRE(helpers_soon() == 1);
  sleep_ms(5 * DELAY);
  REQUIRE(helpers(NULL) == 1); /* not yet */
  helper_initial_thread_ends();
  REQUIRE(soon(no_helper));
}

/* Nor one that is between two looks. */
static void be_the_last_but_one_that_looks(void) {
  os_fork_reset();
  helper_fork_child();
  option_set(OPTION_purge_delay, 3600000);
  helper_ensure();
  REQUIRE(helpers_soon() == 1);
  make_idle(4);
  sleep_ms(5 * DELAY);
  helper_initial_thread_ends();
  REQUIRE(soon(no_helper));
}

static void it_does_not_stay_alone(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(be_the_last_but_one);
  in_child(be_the_last_but_one_that_looks);
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(it_may_be_forbidden),
      TEST(giving_back_all_at_once),
      TEST(a_start_that_fails),
      TEST(there_is_only_one),
      TEST(memory_goes_back_while_we_sleep),
      TEST(heaps_are_emptied),
      TEST(it_sleeps_until_it_is_rung),
      TEST(nothing_goes_before_the_delay),
      TEST(a_child_may_have_its_own),
      TEST(it_does_not_stay_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
