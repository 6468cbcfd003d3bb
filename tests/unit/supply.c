#include "unit.h"

#include "base/bits.h"
#include "base/options.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/meta.h"
#include "pages/pagemap.h"
#include "pages/purge.h"
#include "pages/supply.h"

enum { DELAY = 1000 };
static char descriptor[128];

/* ---- Around every test ---- */

/* With a helper nothing is purged unless a test says so. */
static int begin(void **state) {
  (void)state;
  alarm(300);
  option_set(OPTION_purge_delay, DELAY);
  supply_set_helped(true);
  /* Regret of earlier tests passes: each begins some minutes later, by its account. */
  static uint64_t minutes = 0;
  supply_purge_aged(os_now_ms() + ++minutes * 60000, 0);
  return 0;
}

/* Everything was given back: nothing may be left. */
static int end(void **state) {
  (void)state;
  assert_int_equal(supply_check(), 0);
  assert_int_equal(supply_figures_now().used, 0);
  assert_int_equal(supply_figures_now().direct, 0);
  supply_purge_all(0);
  assert_int_equal(supply_check(), 0);
  supply_figures f = supply_figures_now();
  assert_int_equal(f.idle, 0);
  assert_int_equal(f.committed, 0);
  assert_int_equal(f.kept, 0);
  assert_int_equal(f.reserved, 0);
  assert_false(supply_settle());
  return 0;
}

static run take(unsigned slices, unsigned align) {
  run r;
  assert_true(supply_take(slices, align, &r));
  assert_int_equal(supply_check(), 0);
  assert_int_equal(r.slices, slices);
  return r;
}

static void give_part(run r, unsigned first, unsigned slices) {
  supply_give(r.page, r.start + first * SLICE_SIZE, slices);
  assert_int_equal(supply_check(), 0);
}

static void give(run r) { give_part(r, 0, r.slices); }

static size_t used(void) { return supply_figures_now().used; }
static size_t idle(void) { return supply_figures_now().idle; }

/* ---- Taking and giving ---- */

static void a_run_lies_in_one_huge_page(void **state) {
  (void)state;
  for (unsigned slices = 1; slices <= HUGE_SLICES; slices++) {
    run r = take(slices, 1);
    assert_int_equal((uintptr_t)r.start % SLICE_SIZE, 0);
    assert_int_equal((uintptr_t)r.page->base % HUGE_SIZE, 0);
    assert_true(r.start >= r.page->base);
    assert_true(r.start + slices * SLICE_SIZE <= r.page->base + HUGE_SIZE);
    for (unsigned i = 0; i < slices; i++) {
      assert_int_not_equal(map_leaf(r.start + i * SLICE_SIZE), 0);
      assert_int_equal(map_get(r.start + i * SLICE_SIZE), MAP_NONE);
    }
    memset(r.start, 1, slices * SLICE_SIZE);
    give(r);
  }
}

static void fresh_memory_is_known_to_be_zero(void **state) {
  (void)state;
  run a = take(3, 1), b = take(2, 1);
  assert_true(a.zeroed && b.zeroed);
  assert_true(all_bytes(a.start, 3 * SLICE_SIZE, 0));
  memset(a.start, 1, 3 * SLICE_SIZE);
  give(a);
  run again = take(3, 1);
  assert_ptr_equal(again.start, a.start);
  assert_false(again.zeroed);
  give(again);
  /* The used slices in front and a fresh one behind: not known to be zero. */
  give(b);
  run mixed = take(6, 1);
  assert_ptr_equal(mixed.start, a.start);
  assert_false(mixed.zeroed);
  give(mixed);
}

static void runs_do_not_overlap(void **state) {
  run r[64];
  (void)state;
  for (unsigned i = 0; i < 64; i++) {
    r[i] = take(i % 7 + 1, 1);
    memset(r[i].start, (int)i + 1, r[i].slices * SLICE_SIZE);
  }
  for (unsigned i = 0; i < 64; i++)
    assert_true(all_bytes(r[i].start, r[i].slices * SLICE_SIZE, (int)i + 1));
  for (unsigned i = 0; i < 64; i++)
    give(r[i * 37 % 64]);
}

static void alignment(void **state) {
  (void)state;
  run odd = take(1, 1);
  for (unsigned align = 1; align <= HUGE_SLICES; align *= 2)
    for (unsigned slices = 1; slices <= HUGE_SLICES; slices += 3) {
      run a = take(slices, align), b = take(slices, align);
      assert_int_equal((uintptr_t)a.start % (align * SLICE_SIZE), 0);
      assert_int_equal((uintptr_t)b.start % (align * SLICE_SIZE), 0);
      give(a);
      give(b);
    }
  give(odd);
}

/* Alignment finds room in a page where the longest free run starts unaligned. */
static void alignment_in_a_full_page(void **state) {
  (void)state;
  run page = take(32, 1);
  give_part(page, 5, 7); /* 5 .. 11: aligned to 4 is only 8 */
  run r = take(4, 4);
  assert_ptr_equal(r.start, page.start + 8 * SLICE_SIZE);
  run elsewhere = take(3, 4);
  assert_ptr_not_equal(elsewhere.page, page.page);
  give(elsewhere);
  give(r);
  give_part(page, 0, 5);
  give_part(page, 12, 20);
}

static void aligned_runs_share_a_page(void **state) {
  (void)state;
  run a = take(16, 16), b = take(16, 16);
  assert_ptr_equal(a.page, b.page);
  give(a);
  give(b);
}

static void the_fullest_page_that_fits(void **state) {
  (void)state;
  run a = take(32, 1), b = take(32, 1), c = take(32, 1), empty = take(32, 1);
  give(empty);
  give_part(a, 10, 12);
  give_part(b, 3, 4);
  give_part(c, 20, 8);
  run four = take(4, 1), eight = take(7, 1), twelve = take(9, 1), one = take(1, 1);
  assert_ptr_equal(four.start, b.start + 3 * SLICE_SIZE);
  assert_ptr_equal(eight.start, c.start + 20 * SLICE_SIZE);
  assert_ptr_equal(twelve.start, a.start + 10 * SLICE_SIZE);
  assert_ptr_equal(one.start, c.start + 27 * SLICE_SIZE);
  run beyond = take(4, 1); /* a has three left */
  assert_ptr_equal(beyond.page, empty.page);
  give(beyond);
  give(one);
  give(twelve);
  give(eight);
  give(four);
  give_part(a, 0, 10), give_part(a, 22, 10);
  give_part(b, 0, 3), give_part(b, 7, 25);
  give_part(c, 0, 20), give_part(c, 28, 4);
}

static void what_was_given_in_parts_is_whole_again(void **state) {
  (void)state;
  run page = take(32, 1);
  for (unsigned i = 0; i < 32; i++)
    give_part(page, i * 11 % 32, 1);
  run again = take(32, 1);
  assert_ptr_equal(again.start, page.start);
  give(again);
}

/* ---- Extending ---- */

static void extending(void **state) {
  (void)state;
  run page = take(32, 1);
  give_part(page, 4, 6); /* free: 4 .. 9 */
  size_t before = used();
  assert_true(supply_extend(page.page, page.start, 4, 6));
  assert_int_equal(supply_check(), 0);
  assert_int_equal(used(), before + 2 * SLICE_SIZE);
  assert_false(supply_extend(page.page, page.start, 6, 11)); /* 10 is in use */
  assert_int_equal(used(), before + 2 * SLICE_SIZE);
  assert_true(supply_extend(page.page, page.start, 6, 10));
  assert_false(supply_extend(page.page, page.start, 10, 11));
  assert_int_equal(used(), 32 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  run elsewhere = take(1, 1);
  assert_ptr_not_equal(elsewhere.page, page.page);
  give(elsewhere);
  give(page);
}

static void not_beyond_the_huge_page(void **state) {
  (void)state;
  run a = take(32, 32), b = take(32, 32); /* often neighbours */
  give(a);
  run low = take(16, 1), high = take(16, 1);
  assert_ptr_equal(low.page, high.page);
  give(b);
  for (unsigned to = 17; to <= 40; to++) {
    run upper = high.start > low.start ? high : low;
    assert_false(supply_extend(upper.page, upper.start, 16, to));
  }
  give(low);
  give(high);
}

/* ---- Figures ---- */

static void the_figures(void **state) {
  (void)state;
  supply_figures f = supply_figures_now();
  assert_int_equal(f.reserved, 0);
  size_t returned = f.returned, peak = f.peak;
  run a = take(32, 1), b = take(8, 1);
  f = supply_figures_now();
  assert_int_equal(f.used, 40 * SLICE_SIZE);
  assert_int_equal(f.committed, 2 * HUGE_SIZE);
  assert_true(f.reserved >= f.committed);
  assert_int_equal(f.idle, 0);
  give(a);
  f = supply_figures_now();
  assert_int_equal(f.used, 8 * SLICE_SIZE);
  assert_int_equal(f.idle, 32 * SLICE_SIZE);
  assert_int_equal(f.committed, 2 * HUGE_SIZE);
  assert_int_equal(supply_purge_all(1), 32 * SLICE_SIZE);
  f = supply_figures_now();
  assert_int_equal(f.idle, 0);
  assert_int_equal(f.returned - returned, 32 * SLICE_SIZE);
  assert_true(f.peak >= peak && f.peak >= 40 * SLICE_SIZE);
  give(b);
}

static char *map(size_t slices) {
  size_t dirty;
  char *p = supply_map(slices, SLICE_SIZE, &dirty);
  assert_non_null(p);
  return p;
}

static void mappings_count_for_the_peak(void **state) {
  (void)state;
  size_t slices = supply_figures_now().peak / SLICE_SIZE + 100;
  run a = take(16, 1);
  char *p = map(slices);
  assert_int_equal(supply_figures_now().direct, slices * SLICE_SIZE);
  assert_int_equal(supply_figures_now().peak, (slices + 16) * SLICE_SIZE);
  supply_unmap(p + SLICE_SIZE, slices - 1);
  assert_int_equal(supply_figures_now().direct, SLICE_SIZE);
  supply_unmap(p, 1);
  give(a);
  run b = take(16, 1);
  assert_int_equal(supply_figures_now().peak, (slices + 16) * SLICE_SIZE);
  give(b);
}

static void mappings_are_resized(void **state) {
  (void)state;
  char *p = map(200);
  supply_unmap(p + 100 * SLICE_SIZE, 100);
  assert_int_equal(supply_figures_now().kept, 100 * SLICE_SIZE);
  assert_true(supply_extend_mapping(p, 100, 150));
  assert_int_equal(supply_figures_now().direct, 150 * SLICE_SIZE);
  assert_int_equal(supply_figures_now().kept, 50 * SLICE_SIZE);
  char *q = supply_move_mapping(p, 150, 180);
  assert_int_equal(supply_figures_now().direct, (q ? 180 : 150) * SLICE_SIZE);
  supply_unmap(q ? q : p, q ? 180 : 150);
}

/* ---- Purging by age ---- */

/* What was purged and needed again at once stays the next time. */
static void regretted_memory_stays(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    run a = take(4, 1);
    memset(a.start, 1, 4 * SLICE_SIZE);
    give(a);
    uint64_t due = os_now_ms() + DELAY;
    assert_int_equal(supply_purge_aged(due, SIZE_MAX), i ? 0 : 4 * SLICE_SIZE);
  }
  assert_int_equal(idle(), 4 * SLICE_SIZE);
  assert_true(supply_is_aging());
}

static void nothing_goes_before_the_delay(void **state) {
  (void)state;
  run a = take(4, 1);
  memset(a.start, 1, 4 * SLICE_SIZE);
  assert_false(supply_is_aging());
  uint64_t before = os_now_ms();
  give(a);
  uint64_t after = os_now_ms();
  assert_true(supply_is_aging());
  assert_int_equal(supply_purge_aged(before + DELAY - 1, SIZE_MAX), 0);
  assert_int_equal(idle(), 4 * SLICE_SIZE);
  assert_true(all_bytes(a.start, 4 * SLICE_SIZE, 1));
  assert_int_equal(supply_purge_aged(after + DELAY, SIZE_MAX), 4 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(idle(), 0);
  assert_int_equal(resident_pages(a.start, 4 * SLICE_SIZE), 0);
  assert_false(supply_is_aging());
  run again = take(4, 1);
  assert_ptr_equal(again.start, a.start);
  assert_true(again.zeroed);
  assert_true(all_bytes(again.start, 4 * SLICE_SIZE, 0));
  give(again);
}

static void the_delay_is_an_option(void **state) {
  (void)state;
  run a = take(4, 1);
  assert_true(option_set(OPTION_purge_delay, 60000));
  give(a);
  uint64_t now = os_now_ms();
  assert_int_equal(supply_purge_aged(now + DELAY, SIZE_MAX), 0);
  assert_int_equal(supply_purge_aged(now + 50000, SIZE_MAX), 0);
  assert_true(option_set(OPTION_purge_delay, 0));
  assert_int_equal(supply_purge_aged(now, SIZE_MAX), 4 * SLICE_SIZE);
}

/* What is freed later in a page that ages already waits for another visit. */
static void each_slice_gets_its_time(void **state) {
  (void)state;
  run a = take(16, 1), b = take(16, 1);
  assert_ptr_equal(a.page, b.page);
  give(a);
  give(b);
  uint64_t now = os_now_ms() + DELAY;
  assert_int_equal(supply_purge_aged(now, SIZE_MAX), 16 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(idle(), 16 * SLICE_SIZE);
  assert_int_equal(supply_purge_aged(now + DELAY - 1, SIZE_MAX), 0);
  assert_int_equal(supply_purge_aged(now + DELAY, SIZE_MAX), 16 * SLICE_SIZE);
  assert_int_equal(idle(), 0);
}

static void what_is_used_between_visits_stays(void **state) {
  (void)state;
  run a = take(8, 1);
  memset(a.start, 1, 8 * SLICE_SIZE);
  give(a);
  run front = take(3, 1); /* used, and given again: its time starts anew */
  assert_ptr_equal(front.start, a.start);
  give(front);
  uint64_t now = os_now_ms() + DELAY;
  assert_int_equal(supply_purge_aged(now, SIZE_MAX), 5 * SLICE_SIZE);
  assert_true(all_bytes(a.start, 3 * SLICE_SIZE, 1));
  assert_true(all_bytes(a.start + 3 * SLICE_SIZE, 5 * SLICE_SIZE, 0));
  run mid = take(2, 1);
  assert_int_equal(supply_purge_aged(now + DELAY, SIZE_MAX), 1 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  assert_true(all_bytes(mid.start, 2 * SLICE_SIZE, 1));
  give(mid);
}

static void what_is_in_use_is_not_touched(void **state) {
  (void)state;
  run page = take(32, 1);
  memset(page.start, 1, HUGE_SIZE);
  for (unsigned i = 0; i < 32; i += 2)
    give_part(page, i, 1);
  give_part(page, 7, 1);
  uint64_t now = os_now_ms() + DELAY;
  size_t purged = supply_purge_aged(now, SIZE_MAX);
  assert_int_equal(supply_check(), 0);
  purged += supply_purge_aged(now + DELAY, SIZE_MAX);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(purged, 17 * SLICE_SIZE);
  for (unsigned i = 0; i < 32; i++)
    assert_true(all_bytes(page.start + i * SLICE_SIZE, SLICE_SIZE, i % 2 && i != 7));
  for (unsigned i = 1; i < 32; i += 2)
    if (i != 7)
      give_part(page, i, 1);
}

static void the_oldest_first_within_a_budget(void **state) {
  (void)state;
  run a = take(32, 1), b = take(32, 1), c = take(32, 1);
  uint64_t now = os_now_ms() + DELAY;
  give(b);
  give(c);
  give(a);
  now = os_now_ms() + DELAY;
  assert_int_equal(supply_purge_aged(now, 8 * SLICE_SIZE), 8 * SLICE_SIZE);
  assert_int_equal(bit_count32(b.page->dirty), 24);
  assert_int_equal(supply_purge_aged(now, 40 * SLICE_SIZE), 40 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(bit_count32(c.page->dirty), 0);
  assert_int_equal(bit_count32(a.page->dirty), 24);
  assert_int_equal(bit_count32(b.page->dirty), 24); /* was visited a moment ago */
  assert_int_equal(supply_purge_aged(now, SIZE_MAX), 0);
  assert_int_equal(supply_purge_aged(now + DELAY, SIZE_MAX), 48 * SLICE_SIZE);
  assert_int_equal(supply_purge_aged(now + 9 * DELAY, 0), 0);
}

static void locked_memory_does_not_stop_the_others(void **state) {
  (void)state;
  run a = take(2, 1), b = take(32, 1);
  memset(a.start, 1, 2 * SLICE_SIZE);
  memset(b.start, 1, HUGE_SIZE);
  if (!lock_in_memory(a.start, 4096)) {
    give(a);
    give(b);
    skip();
  }
  give(a);
  give(b);
  uint64_t now = os_now_ms() + DELAY;
  assert_int_equal(supply_purge_aged(now, SIZE_MAX), 32 * SLICE_SIZE);
  assert_int_equal(supply_check(), 0);
  assert_true(all_bytes(a.start, 2 * SLICE_SIZE, 1)); /* refused as a whole */
  supply_purge_all(1); /* comes to an end */
  assert_int_equal(supply_check(), 0);
  unlock_in_memory(a.start, 4096);
  run first = take(32, 1), second = take(32, 1);
  assert_int_equal(first.zeroed, first.page != a.page);
  assert_int_equal(second.zeroed, second.page != a.page);
  give(first);
  give(second);
}

/* ---- Purging at once ---- */

static void purging_all_but_some(void **state) {
  (void)state;
  run r[8];
  for (int i = 0; i < 8; i++)
    r[i] = take(32, 1);
  for (int i = 0; i < 8; i++)
    give(r[i]);
  assert_int_equal(idle(), 8 * HUGE_SIZE);
  size_t gone = supply_purge_all(3 * HUGE_SIZE);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(gone, 5 * HUGE_SIZE);
  assert_int_equal(idle(), 3 * HUGE_SIZE);
  assert_int_equal(supply_purge_all(3 * HUGE_SIZE), 0);
  assert_true(supply_figures_now().reserved > 0);
  size_t returned = supply_figures_now().returned;
  size_t reserved = supply_figures_now().reserved;
  assert_int_equal(supply_purge_all(0), reserved); /* address space, for once */
  assert_int_equal(supply_figures_now().returned, returned + 3 * HUGE_SIZE);
}

static void empty_regions_are_unmapped(void **state) {
  enum { PAGES = 40 };
  run r[PAGES];
  (void)state;
  for (int i = 0; i < PAGES; i++)
    r[i] = take(32, 1);
  size_t reserved = supply_figures_now().reserved;
  for (int i = 1; i < PAGES; i++)
    give(r[i]);
  memset(r[0].start, 1, HUGE_SIZE);
  supply_purge_all(1);
  assert_int_equal(supply_figures_now().reserved, reserved); /* only if nothing is kept */
  supply_purge_all(0);
  assert_int_equal(supply_check(), 0);
  assert_true(supply_figures_now().reserved < reserved);
  assert_true(supply_figures_now().reserved >= HUGE_SIZE);
  assert_true(all_bytes(r[0].start, HUGE_SIZE, 1));
  give(r[0]);
  supply_purge_all(0);
  assert_int_equal(supply_figures_now().reserved, 0);
  for (int i = 0; i < PAGES; i++)
    assert_false(is_mapped(r[i].start));
}

/* Descriptors of regions that are gone serve again. */
static void coming_and_going_costs_no_memory(void **state) {
  (void)state;
  size_t meta = 0;
  for (int i = 0; i < 50; i++) {
    run r = take(5, 1);
    give(r);
    supply_purge_all(0);
    assert_int_equal(supply_figures_now().reserved, 0);
    if (i == 1)
      meta = meta_used();
  }
  assert_int_equal(meta_used(), meta);
}

/* ---- Purging by amount ---- */

static run many[4000];

static void take_many(unsigned runs, unsigned slices) {
  for (unsigned i = 0; i < runs; i++)
    assert_true(supply_take(slices, 1, &many[i]));
}

static void give_many(unsigned first, unsigned runs) {
  for (unsigned i = first; i < first + runs; i++)
    supply_give(many[i].page, many[i].start, many[i].slices);
  assert_int_equal(supply_check(), 0);
}

static void idle_memory_is_bounded(void **state) {
  (void)state;
  assert_true(option_set(OPTION_purge_delay, 3600000));
  for (unsigned slices = 1; slices <= 32; slices *= 2) {
    supply_set_helped(slices % 4 == 0);
    take_many(3200 / slices, slices); /* 200 MiB */
    give_many(0, 3200 / slices);
    assert_in_range(idle(), PURGE_KEEP_LEAST / 2, PURGE_KEEP_LEAST + HUGE_SIZE);
    supply_purge_all(0); /* new regions: the next round regrets nothing */
  }
}

static void while_much_is_used_more_is_kept(void **state) {
  (void)state;
  assert_true(option_set(OPTION_purge_delay, 3600000));
  take_many(220, 32);
  give_many(200, 20);
  assert_int_equal(idle(),
                   20 * HUGE_SIZE); /* a quarter of what is used would be 100 MiB */
  give_many(20, 180);
  assert_in_range(idle(), PURGE_KEEP_LEAST / 2, PURGE_KEEP_LEAST + HUGE_SIZE);
  give_many(0, 20);
}

/* A mapping that is not to be had from what is kept. */
static void room_is_made_for_what_idle_memory_cannot_serve(void **state) {
  (void)state;
  assert_true(option_set(OPTION_purge_delay, 3600000));
  take_many(220, 32);
  give_many(200, 20);
  size_t returned = supply_figures_now().returned;
  char *p = map(4 * HUGE_SLICES);
  assert_int_equal(supply_check(), 0);
  assert_int_equal(idle(), 16 * HUGE_SIZE);
  assert_int_equal(supply_figures_now().returned, returned + 4 * HUGE_SIZE);
  char *q = map(512 * HUGE_SLICES);
  assert_int_equal(idle(), PURGE_KEEP_LEAST);
  supply_unmap(p, 4 * HUGE_SLICES);
  supply_unmap(q, 512 * HUGE_SLICES);
  give_many(0, 200);
}

/* 96 slices are 6 MiB. In a child, where nothing is regretted yet. */
static void keep_some(void) {
  enum { COUNT = 60 };
  static char *taken[COUNT];
  for (int i = 0; i < COUNT; i++)
    taken[i] = map(96);
  for (int i = 0; i < COUNT; i++) {
    supply_unmap(taken[i], 96);
    supply_figures f = supply_figures_now();
    REQUIRE(f.kept <= max_size(PURGE_KEEP_LEAST, (f.used + f.direct) / 4));
  }
  REQUIRE(supply_figures_now().kept == PURGE_KEEP_LEAST);
}

static void kept_mappings_are_bounded(void **state) {
  (void)state;
  in_child(keep_some);
}

/* What was unmapped in vain is kept the next time. */
static void unmap_in_vain(void) {
  supply_unmap(map(800), 800); /* 50 MiB, more than is kept at first */
  REQUIRE(supply_figures_now().kept == PURGE_KEEP_LEAST);
  for (int round = 0; round < 3; round++) {
    supply_unmap(map(800), 800);
    REQUIRE(supply_figures_now().kept >= 40 * MIB);
  }
}

static void mappings_needed_again_are_kept(void **state) {
  (void)state;
  in_child(unmap_in_vain);
}

/* What is kept does not stand beside fresh memory for blocks of other sizes. */
static void small_blocks_take_the_place_of_mappings(void **state) {
  (void)state;
  supply_unmap(map(160), 160);
  assert_int_equal(supply_figures_now().kept, 160 * SLICE_SIZE);
  take_many(10, 16);
  assert_true(supply_figures_now().kept <= 160 * SLICE_SIZE - 4 * HUGE_SIZE);
  give_many(0, 10);
}

static void mappings_age_too(void **state) {
  (void)state;
  supply_unmap(map(160), 160);
  assert_true(supply_is_aging());
  uint64_t now = os_now_ms();
  supply_purge_aged(now + DELAY - 100, SIZE_MAX);
  assert_int_equal(supply_figures_now().kept, 160 * SLICE_SIZE);
  assert_true(supply_purge_aged(now + DELAY + 10, SIZE_MAX) >= 160 * SLICE_SIZE);
  assert_int_equal(supply_figures_now().kept, 0);
}

static void purge_in_vain(void) {
  REQUIRE(option_set(OPTION_purge_delay, 3600000));
  take_many(1600, 2);
  give_many(0, 1600);
  REQUIRE(idle() <= PURGE_KEEP_LEAST + HUGE_SIZE);
  take_many(1600, 2); /* purged in vain a moment ago */
  give_many(0, 1600);
  REQUIRE(idle() > 2 * PURGE_KEEP_LEAST);
}

static void what_is_needed_again_is_kept(void **state) {
  (void)state;
  in_child(purge_in_vain);
}

/* ---- Against an oracle ---- */

enum { RUNS = 300, SET_SIZE = 1 << 14 };

/* The slices that are out, in a hash table: number of the slice, 0 for none. */
static uintptr_t set[SET_SIZE];
static size_t set_count;

static uintptr_t *set_find(const char *slice) {
  uintptr_t number = (uintptr_t)slice >> SLICE_SHIFT;
  size_t i = (number * 0x9e3779b97f4a7c15) >> 50;
  while (set[i] && set[i] != number)
    i = (i + 1) % SET_SIZE;
  return &set[i];
}

static void set_add(const char *slice) {
  uintptr_t *place = set_find(slice);
  assert_int_equal(*place, 0); /* handed out twice */
  *place = (uintptr_t)slice >> SLICE_SHIFT;
  set_count++;
}

/* What follows in the table moves up, so that the search still finds it. */
static void set_remove(const char *slice) {
  uintptr_t *place = set_find(slice);
  assert_int_not_equal(*place, 0);
  *place = 0;
  set_count--;
  for (size_t i = (size_t)(place - set + 1) % SET_SIZE; set[i]; i = (i + 1) % SET_SIZE) {
    uintptr_t number = set[i];
    set[i] = 0;
    *set_find((char *)(number << SLICE_SHIFT)) = number;
  }
}

/* Stamps the first and the last word of every slice. */
static void enter(run *r, unsigned from, unsigned to, bool zeroed) {
  for (unsigned i = from; i < to; i++) {
    char *slice = r->start + i * SLICE_SIZE;
    uintptr_t *first = (uintptr_t *)slice, *last = (uintptr_t *)(slice + SLICE_SIZE) - 1;
    set_add(slice);
    if (zeroed)
      assert_true(*first == 0 && *last == 0);
    assert_int_equal(map_get(slice), MAP_NONE);
    *first = *last = (uintptr_t)r ^ (uintptr_t)slice;
  }
  map_set(r->start + from * SLICE_SIZE, to - from, map_entry_of(descriptor, TAG_SHARED));
}

static void leave(run *r, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) {
    char *slice = r->start + i * SLICE_SIZE;
    assert_int_equal(*(uintptr_t *)slice, (uintptr_t)r ^ (uintptr_t)slice);
    assert_int_equal(((uintptr_t *)(slice + SLICE_SIZE))[-1],
                     (uintptr_t)r ^ (uintptr_t)slice);
    set_remove(slice);
  }
  map_set(r->start + from * SLICE_SIZE, to - from, MAP_NONE);
  supply_give(r->page, r->start + from * SLICE_SIZE, to - from);
}

static void some_run_changes(run *r, uint64_t *seed) {
  unsigned to = r->slices + (unsigned)(random_next(seed) % 4) + 1;
  unsigned less = (unsigned)(random_next(seed) % r->slices);
  if (random_next(seed) % 2) {
    if (to <= HUGE_SLICES && supply_extend(r->page, r->start, r->slices, to)) {
      enter(r, r->slices, to, false);
      r->slices = to;
    }
  } else if (less) {
    leave(r, r->slices - less, r->slices);
    r->slices -= less;
  } else {
    leave(r, 0, r->slices);
    r->slices = 0;
  }
}

static void some_run_appears(run *r, uint64_t *seed) {
  unsigned most = random_next(seed) % 8 ? 5 : HUGE_SLICES;
  unsigned slices = (unsigned)(random_next(seed) % most) + 1;
  unsigned align = random_next(seed) % 4 ? 1 : 1u << random_next(seed) % 6;
  assert_true(supply_take(slices, align, r));
  assert_int_equal(r->slices, slices);
  assert_int_equal((uintptr_t)r->start % (align * SLICE_SIZE), 0);
  enter(r, 0, slices, r->zeroed);
}

static void something_is_purged(uint64_t *seed) {
  option_set(OPTION_purge_delay, random_next(seed) % 2 ? 0 : 3600000);
  supply_set_helped(random_next(seed) % 2);
  if (random_next(seed) % 20 == 0)
    supply_purge_all(random_next(seed) % 3 * HUGE_SIZE);
  else
    supply_purge_aged(os_now_ms(), random_next(seed) % 64 * SLICE_SIZE / 2);
}

static void random_operations(void **state) {
  static run runs[RUNS];
  uint64_t seed = 11;
  (void)state;
  for (int step = 0; step < 20000; step++) {
    run *r = &runs[random_next(&seed) % RUNS];
    if (random_next(&seed) % 10 == 0)
      something_is_purged(&seed);
    else if (r->slices)
      some_run_changes(r, &seed);
    else
      some_run_appears(r, &seed);
    assert_int_equal(used(), set_count * SLICE_SIZE);
    if (step % 16 == 0)
      assert_int_equal(supply_check(), 0);
  }
  for (run *r = runs; r < runs + RUNS; r++)
    if (r->slices)
      leave(r, 0, r->slices);
}

/* ---- Threads ---- */

enum { TAKERS = 3, HELD = 40 };
static atomic_u32 stop;

static void *take_and_give_at_random(void *argument) {
  run held[HELD] = {{0}};
  uint64_t seed = (uintptr_t)argument;
  run_on((unsigned)seed);
  for (int i = 0; i < 6000; i++) {
    run *r = &held[random_next(&seed) % HELD];
    if (r->slices) {
      uintptr_t *last = (uintptr_t *)(r->start + r->slices * SLICE_SIZE) - 1;
      REQUIRE(*(uintptr_t *)r->start == (uintptr_t)r && *last == (uintptr_t)r);
      supply_give(r->page, r->start, r->slices);
      r->slices = 0;
    } else {
      REQUIRE(supply_take((unsigned)(random_next(&seed) % 12) + 1, 1, r));
      uintptr_t *last = (uintptr_t *)(r->start + r->slices * SLICE_SIZE) - 1;
      REQUIRE(!r->zeroed || (*(uintptr_t *)r->start == 0 && *last == 0));
      *(uintptr_t *)r->start = *last = (uintptr_t)r;
    }
  }
  for (run *r = held; r < held + HELD; r++)
    if (r->slices)
      supply_give(r->page, r->start, r->slices);
  return NULL;
}

static void *purge_all_the_time(void *unused) {
  (void)unused;
  for (unsigned i = 0; !load_relaxed(&stop); i++) {
    supply_purge_aged(os_now_ms(), 4 * SLICE_SIZE);
    if (i % 8 == 0)
      supply_purge_all(0);
    if (i % 16 == 0)
      supply_settle();
    REQUIRE(supply_check() == 0); /* whatever the others have in transit */
  }
  return NULL;
}

static void many_threads_and_a_purger(void **state) {
  pthread_t takers[TAKERS], purger;
  (void)state;
  supply_set_helped(false);
  option_set(OPTION_purge_delay, 0);
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&purger, NULL, purge_all_the_time, NULL), 0);
  for (uintptr_t i = 0; i < TAKERS; i++)
    assert_int_equal(
        pthread_create(&takers[i], NULL, take_and_give_at_random, (void *)(i + 1)), 0);
  for (int i = 0; i < TAKERS; i++)
    pthread_join(takers[i], NULL);
  store_relaxed(&stop, 1);
  pthread_join(purger, NULL);
}

/* ---- Fork ---- */

static void *purge_again_and_again(void *unused) {
  while (!load_relaxed(&stop)) {
    run r;
    REQUIRE(supply_take(32, 32, &r));
    memset(r.start, 1, HUGE_SIZE);
    supply_give(r.page, r.start, 32);
    supply_purge_all(1);
  }
  return unused;
}

static void *lock_again_and_again(void *unused) {
  while (!load_relaxed(&stop))
    supply_lock(false);
  return unused;
}

/* Starts the thread; then a system call of its is pending, and the caller has the lock. */
static pthread_t start_in_transit(void *(*body)(void *)) {
  pthread_t thread;
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&thread, NULL, body, NULL), 0);
  for (lock_take(LOCK_SUPPLY); !supply_in_transit(); lock_take(LOCK_SUPPLY)) {
    lock_drop(LOCK_SUPPLY);
    sched_yield();
  }
  return thread;
}

static void end_in_transit(pthread_t thread) {
  lock_drop(LOCK_SUPPLY);
  store_relaxed(&stop, 1);
  pthread_join(thread, NULL);
}

/* With the lock, as fork does. */
static pid_t fork_in_transit(void *(*other)(void *)) {
  pthread_t thread = start_in_transit(other);
  pid_t child = _Fork();
  if (child != 0)
    end_in_transit(thread);
  return child;
}

static void child_ends_with_0(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void a_child_waits_for_nobody_who_is_gone(void **state) {
  (void)state;
  for (int interrupted = 0; interrupted < 2; interrupted++) {
    pid_t child = fork_in_transit(purge_again_and_again);
    if (child == 0) {
      supply_fork_child(interrupted);
      _exit(supply_in_transit());
    }
    child_ends_with_0(child);
  }
}

static void a_child_keeps_no_region_for_who_is_gone(void **state) {
  (void)state;
  run r = take(1, 1);
  give(r);
  pid_t child = fork_in_transit(lock_again_and_again);
  if (child == 0) {
    alarm(300);
    supply_fork_child(false);
    lock_drop(LOCK_SUPPLY);
    supply_purge_all(0);
    _exit(supply_check() != 0 || supply_figures_now().reserved != 0);
  }
  child_ends_with_0(child);
}

/* A signal handler forks in the middle of a system call: that ends in the child as well. */
static void a_call_that_was_forgotten_ends(void **state) {
  (void)state;
  pthread_t thread = start_in_transit(purge_again_and_again);
  supply_fork_child(true);
  end_in_transit(thread);
  assert_false(supply_in_transit());
}

/* ---- Short of memory ---- */

static size_t take_until_refused(run *r, size_t most, unsigned slices) {
  size_t n = 0;
  while (n < most && supply_take(slices, 1, &r[n]))
    n++;
  REQUIRE(n < most);
  REQUIRE(supply_check() == 0);
  return n;
}

static void give_all(run *r, size_t n) {
  while (n-- > 0)
    supply_give(r[n].page, r[n].start, r[n].slices);
  REQUIRE(supply_check() == 0);
}

static void survive(void) {
  static run r[2000];
  size_t n = take_until_refused(r, 2000, 8);
  REQUIRE(n >= 64); /* 32 of 64 MiB at least */
  give_all(r, n);
  n = take_until_refused(r, 2000, 32);
  REQUIRE(n >= 16);
  give_all(r, n);
  supply_purge_all(0);
  REQUIRE(supply_check() == 0 && supply_figures_now().reserved == 0);
  n = take_until_refused(r, 2000, 1);
  REQUIRE(n >= 512);
  unlimit_address_space();
  struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_DATA, &none) == 0);
  /* Memory came back, and no page that was refused is forgotten. */
  supply_figures f = supply_figures_now();
  for (size_t left = f.reserved - f.committed; left; left -= HUGE_SIZE)
    REQUIRE(supply_take(32, 32, &r[n++]));
  REQUIRE(supply_figures_now().reserved == f.reserved);
  REQUIRE(supply_take(32, 32, &r[n++]));
  memset(r[n - 1].start, 1, HUGE_SIZE);
  give_all(r, n);
  supply_purge_all(0);
  REQUIRE(supply_check() == 0 && supply_figures_now().reserved == 0);
}

static void survive_address_limit(void) {
  limit_address_space(64 * MIB);
  survive();
}

/* Reserved address space is no data, committed memory is. */
static void survive_data_limit(void) {
  FILE *f = fopen("/proc/self/status", "r");
  char line[256];
  unsigned long data = 0;
  REQUIRE(f != NULL);
  while (fgets(line, sizeof line, f))
    sscanf(line, "VmData: %lu kB", &data);
  fclose(f);
  REQUIRE(data > 0);
  struct rlimit limit = {data * KIB + 64 * MIB, RLIM_INFINITY};
  REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
  survive();
}

static void under_a_limit_of_address_space(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(survive_address_limit);
}

static void under_a_limit_of_data(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(survive_data_limit);
}

/* ---- Huge pages ---- */

static run take_dense(unsigned slices) {
  run r;
  assert_true(supply_take_dense(slices, &r));
  return r;
}

static void dense_runs_of_a_large_program_get_huge_pages(void **state) {
  (void)state;
  run r[12];
  if (!os_gives_huge_pages())
    skip();
  supply_purge_all(0); /* none is left from before */
  assert_true(option_set(OPTION_huge_pages, 16));
  r[0] = take_dense(32);
  for (int i = 1; i < 10; i++)
    r[i] = take(32, 32);
  r[10] = take_dense(32);
  r[11] = take_dense(32);
  assert_false(r[0].page->huge); /* it was small */
  assert_false(r[9].page->huge);
  assert_true(r[10].page->huge && r[11].page->huge);
  memset(r[10].start, 1, HUGE_SIZE);
  supply_give(r[10].page, r[10].start, 16);
  supply_purge_all(1);
  assert_false(r[10].page->huge); /* else the system might fill it up again */
  assert_int_equal(r[10].start[HUGE_SIZE - 1], 1);
  size_t committed = supply_figures_now().committed;
  supply_give(r[11].page, r[11].start, 32);
  supply_purge_all(1);
  assert_int_equal(supply_figures_now().committed, committed - HUGE_SIZE); /* put away */
  run again = take_dense(32);
  assert_ptr_equal(again.page, r[11].page);
  assert_true(again.page->huge);
  supply_give(r[10].page, r[10].start + 16 * SLICE_SIZE, 16);
  supply_give(again.page, again.start, 32);
  for (int i = 0; i < 10; i++)
    supply_give(r[i].page, r[i].start, 32);
  assert_true(option_set(OPTION_huge_pages, 0));
}

/* Else a byte would make all of it resident. */
static void an_ordinary_page_is_none_to_the_system(void **state) {
  (void)state;
  run dense, ballast[9], ordinary;
  if (!os_gives_huge_pages())
    skip();
  supply_purge_all(0);
  assert_true(option_set(OPTION_huge_pages, 16));
  for (int i = 0; i < 9; i++)
    ballast[i] = take(32, 32);
  dense = take_dense(32);
  assert_true(dense.page->huge);
  supply_give(dense.page, dense.start, 32);
  supply_purge_all(1); /* put away */
  ordinary = take(1, 1);
  assert_ptr_equal(ordinary.page, dense.page);
  assert_false(ordinary.page->huge);
  *ordinary.start = 1;
  assert_true(os_resident_in(ordinary.page->base, HUGE_SIZE) <= SLICE_SIZE);
  supply_give(ordinary.page, ordinary.start, 1);
  for (int i = 0; i < 9; i++)
    supply_give(ballast[i].page, ballast[i].start, 32);
  assert_true(option_set(OPTION_huge_pages, 0));
}

/* What is left of a huge page is resident: others may have it before more is made accessible. */
static void other_runs_fill_huge_pages_up(void **state) {
  (void)state;
  run ballast[8], dense, other, next;
  if (!os_gives_huge_pages())
    skip();
  assert_true(option_set(OPTION_huge_pages, 16));
  for (int i = 0; i < 8; i++)
    ballast[i] = take(32, 32);
  dense = take_dense(20);
  assert_true(dense.page->huge);
  other = take(8, 1);
  assert_ptr_equal(other.page, dense.page);
  next = take_dense(8); /* but not the other way round */
  assert_ptr_not_equal(next.page, ballast[0].page);
  assert_true(next.page->huge);
  supply_give(dense.page, dense.start, 20);
  supply_give(other.page, other.start, 8);
  supply_give(next.page, next.start, 8);
  for (int i = 0; i < 8; i++)
    supply_give(ballast[i].page, ballast[i].start, 32);
  assert_true(option_set(OPTION_huge_pages, 0));
}

/* ---- The check itself ---- */

static void the_check_sees_what_is_wrong(void **state) {
  (void)state;
  run a = take(4, 1);
  memset(a.start, 1, 4 * SLICE_SIZE);
  supply_give(a.page, a.start + 2 * SLICE_SIZE, 2);
  int saved = stderr_silence();
  map_set(a.start + 3 * SLICE_SIZE, 1, map_entry_of(descriptor, TAG_SHARED));
  unsigned in_map = supply_check();
  map_set(a.start + 3 * SLICE_SIZE, 1, MAP_NONE);
  a.page->longest--;
  unsigned longest = supply_check();
  a.page->longest++;
  a.page->dirty ^= 4;
  a.page->idle &= ~(uint32_t)4;
  unsigned idle_bytes = supply_check();
  a.page->dirty ^= 4;
  stderr_restore(saved);
  assert_int_equal(in_map, 1);
  assert_int_equal(longest, 1);
  assert_int_equal(idle_bytes, 1);
  assert_int_equal(supply_check(), 0);
  supply_give(a.page, a.start, 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      /* First, while nothing is regretted yet. */
      TEST(what_is_needed_again_is_kept),
      TEST(kept_mappings_are_bounded),
      TEST(mappings_needed_again_are_kept),
      /* First, while nothing is regretted yet. */
      TEST(idle_memory_is_bounded),
      TEST(while_much_is_used_more_is_kept),
      TEST(small_blocks_take_the_place_of_mappings),
      TEST(mappings_age_too),
      TEST(room_is_made_for_what_idle_memory_cannot_serve),
      TEST(a_run_lies_in_one_huge_page),
      TEST(fresh_memory_is_known_to_be_zero),
      TEST(runs_do_not_overlap),
      TEST(alignment),
      TEST(alignment_in_a_full_page),
      TEST(aligned_runs_share_a_page),
      TEST(the_fullest_page_that_fits),
      TEST(what_was_given_in_parts_is_whole_again),
      TEST(extending),
      TEST(not_beyond_the_huge_page),
      TEST(the_figures),
      TEST(mappings_count_for_the_peak),
      TEST(mappings_are_resized),
      TEST(regretted_memory_stays),
      TEST(nothing_goes_before_the_delay),
      TEST(the_delay_is_an_option),
      TEST(each_slice_gets_its_time),
      TEST(what_is_used_between_visits_stays),
      TEST(what_is_in_use_is_not_touched),
      TEST(the_oldest_first_within_a_budget),
      TEST(locked_memory_does_not_stop_the_others),
      TEST(purging_all_but_some),
      TEST(empty_regions_are_unmapped),
      TEST(coming_and_going_costs_no_memory),
      TEST(random_operations),
      TEST(many_threads_and_a_purger),
      TEST(a_child_waits_for_nobody_who_is_gone),
      TEST(a_child_keeps_no_region_for_who_is_gone),
      TEST(a_call_that_was_forgotten_ends),
      TEST(under_a_limit_of_address_space),
      TEST(under_a_limit_of_data),
      TEST(dense_runs_of_a_large_program_get_huge_pages),
      TEST(an_ordinary_page_is_none_to_the_system),
      TEST(other_runs_fill_huge_pages_up),
      TEST(the_check_sees_what_is_wrong),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
