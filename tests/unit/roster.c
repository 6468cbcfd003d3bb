#include "unit.h"

#include <signal.h>

#include "base/options.h"
#include "heap/budget.h"
#include "heap/outbox.h"
#include "heap/roster.h"
#include "os/lock.h"
#include "os/os.h"

/* ---- What a thread does with its heap ---- */

static slab *slab_of(const void *p) { return slab_of_entry(map_get(p)); }

/* Slow paths say so, for fork. */
static void enter(heap *h) {
  h->busy = true;
  compiler_fence();
}
static void leave(heap *h) {
  compiler_fence();
  h->busy = false;
}

static void *take(heap *h, unsigned size_class) {
  block *b = h->hot.hand[size_class];
  if (b) {
    h->hot.hand[size_class] = b->next;
    return b;
  }
  enter(h);
  b = heap_refill(h, size_class);
  leave(h);
  return b;
}

static void give(heap *h, void *p) {
  map_entry e = map_get(p);
  slab *s = map_entry_descriptor(e);
  block *b = p;
  if (map_entry_tag(e) != h->hot.tag) {
    enter(h);
    outbox_send(h, s, b);
    leave(h);
    return;
  }
  b->next = s->free;
  s->free = b;
  if (count_down_release(&s->need) && !heap_hand_back(h, s, b)) {
    enter(h);
    heap_slab_event(h, s);
    leave(h);
  }
}

static size_t bytes_used(void) { return supply_figures_now().used; }

static heap *join(void) {
  heap *h = roster_join(NULL);
  assert_non_null(h);
  return h;
}

static int begin(void **state) {
  (void)state;
  alarm(300);
  supply_set_helped(true);
  option_set(OPTION_purge_delay, 500);
  return 0;
}

static int end(void **state) {
  (void)state;
  assert_int_equal(roster_check(), 0);
  roster_tidy_parked();
  assert_int_equal(bytes_used(), 0);
  assert_int_equal(supply_check(), 0);
  return 0;
}

/* ---- Joining and leaving ---- */

static void every_heap_is_another(void **state) {
  enum { COUNT = 20 };
  heap *h[COUNT];
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    h[i] = join();
    assert_true(h[i]->hot.tag >= TAG_FIRST_HEAP);
    assert_false(h[i]->busy || h[i]->sealed || h[i]->needs_repair);
    for (int j = 0; j < i; j++) {
      assert_ptr_not_equal(h[i], h[j]);
      assert_int_not_equal(h[i]->hot.tag, h[j]->hot.tag);
    }
  }
  assert_true(roster_count() >= COUNT);
  for (int i = 0; i < COUNT; i++)
    roster_leave(h[i]);
}

static void the_next_one_inherits_everything(void **state) {
  (void)state;
  heap *h = join();
  map_tag tag = h->hot.tag;
  unsigned c = class_of(100), count = roster_count();
  void *p = take(h, c), *q = take(h, c);
  block *hand = h->hot.hand[c];
  give(h, p);
  roster_leave(h);
  heap *again = join();
  assert_ptr_equal(again, h);
  assert_int_equal(again->hot.tag, tag);
  assert_ptr_equal(again->hot.hand[c], hand);
  assert_ptr_equal(slab_of(q)->free, p);
  assert_int_equal(roster_count(), count);
  give(again, q);
  heap_flush(again);
  roster_leave(again);
}

/* One heap for each tag: nobody else may be in it. */
static atomic_u32 inside[TAG_LIMIT];
enum { THREADS = 4 };

static void *come_and_go(void *number) {
  run_on((unsigned)(uintptr_t)number);
  for (int i = 0; i < 5000; i++) {
    heap *h = roster_join(NULL);
    REQUIRE(h && h->hot.tag >= TAG_FIRST_HEAP);
    REQUIRE(exchange_acq_rel(&inside[h->hot.tag], 1) == 0);
    void *p = take(h, 5);
    REQUIRE(p != NULL);
    give(h, p);
    heap_flush(h);
    store_release(&inside[h->hot.tag], 0);
    roster_leave(h);
  }
  return NULL;
}

static atomic_u32 stop;

static void *tidy_all_the_time(void *unused) {
  (void)unused;
  while (!load_relaxed(&stop))
    roster_tidy_parked();
  return NULL;
}

static void threads_come_and_go(void **state) {
  pthread_t threads[THREADS], tidier;
  (void)state;
  unsigned before = roster_count();
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&tidier, NULL, tidy_all_the_time, NULL), 0);
  for (uintptr_t i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, (void *)i), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  store_relaxed(&stop, 1);
  pthread_join(tidier, NULL);
  /* Who finds none because some are being tidied makes another; but not time and
   * again. */
  assert_true(roster_count() <= before + 2 * THREADS);
  roster_tidy_parked();
  assert_int_equal(bytes_used(), 0);
}

/* What the helper does meanwhile is no violation, and a list that it takes apart is
 * not walked. */
static void *help_all_the_time(void *unused) {
  (void)unused;
  while (!load_relaxed(&stop)) {
    roster_tidy_parked();
    roster_give_back_spares();
  }
  return NULL;
}

static void a_check_beside_the_helper(void **state) {
  pthread_t helper;
  (void)state;
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&helper, NULL, help_all_the_time, NULL), 0);
  for (int round = 0; round < 2000; round++) {
    heap *a = roster_join(NULL), *b = roster_join(NULL);
    REQUIRE(a && b);
    for (unsigned c = 0; c < 5; c++) {
      void *p = take(a, c), *q = take(b, c);
      give(a, p);
      give(b, q);
    }
    heap_flush(b);
    roster_leave(b);
    REQUIRE(roster_check() == 0);
    heap_flush(a);
    roster_leave(a);
    REQUIRE(roster_check() == 0);
  }
  store_relaxed(&stop, 1);
  pthread_join(helper, NULL);
}

static void use_up_all_tags(void) {
  static unsigned char seen[TAG_LIMIT];
  heap *h;
  while ((h = roster_join(NULL))) {
    REQUIRE(h->hot.tag >= TAG_FIRST_HEAP && !seen[h->hot.tag]);
    seen[h->hot.tag] = 1;
  }
  unsigned left = 0;
  for (unsigned tag = TAG_FIRST_HEAP; tag < TAG_FIRST_LIMB; tag++)
    left += !seen[tag];
  REQUIRE(left == 2);
  const heap *orphan = roster_orphan(), *sampled = roster_sampled(NULL);
  REQUIRE(orphan && sampled && orphan != sampled);
  REQUIRE(!seen[orphan->hot.tag] && !seen[sampled->hot.tag]);
  REQUIRE(roster_join(NULL) == NULL);
}

static void tags_run_out_in_the_end(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(use_up_all_tags);
}

static void no_memory_for_a_heap(void) {
  limit_address_space(256 * KIB);
  unsigned n = 0;
  while (roster_join(NULL))
    REQUIRE(++n < 5000);
  unlimit_address_space();
  REQUIRE(roster_join(NULL) != NULL);
}

static void when_memory_runs_out(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(no_memory_for_a_heap);
}

/* ---- Tidying ---- */

static void parked_heaps_are_tidied(void **state) {
  enum { COUNT = 5, BLOCKS = 20 };
  heap *h[COUNT], *mine = join();
  void *p[COUNT][BLOCKS];
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    h[i] = join();
    for (int k = 0; k < BLOCKS; k++)
      assert_non_null(p[i][k] = take(h[i], class_of(8192)));
    give(h[i], take(h[i], class_of(100))); /* a spare slab, after the flush */
  }
  for (int i = 0; i < COUNT; i++) {
    heap_flush(h[i]);
    roster_leave(h[i]);
  }
  for (int i = 0; i < COUNT; i++)
    for (int k = 0; k < BLOCKS; k++)
      give(mine, p[i][k]); /* as mail */
  assert_true(bytes_used() >= COUNT * SLICE_SIZE);
  roster_tidy_parked();
  assert_int_equal(bytes_used(), 0);
  for (int i = 0; i < COUNT; i++)
    assert_int_equal(heap_check(h[i]), 0);
  /* All are there to be inherited, each once. */
  unsigned found = 0, count = roster_count();
  heap *joined[COUNT];
  for (int i = 0; i < COUNT; i++) {
    joined[i] = join();
    assert_false(joined[i]->busy);
    for (int k = 0; k < COUNT; k++)
      found += joined[i] == h[k];
  }
  assert_int_equal(roster_count(), count);
  assert_true(found >= 1);
  for (int i = 0; i < COUNT; i++)
    roster_leave(joined[i]);
  roster_leave(mine);
}

static void heaps_in_use_are_not_tidied(void **state) {
  void *p[9];
  (void)state;
  heap *h = join();
  unsigned c = class_of(8192); /* 8 in a slab */
  for (int i = 0; i < 9; i++)
    p[i] = take(h, c);
  for (int i = 0; i < 8; i++)
    give(h, p[i]);
  assert_non_null(load_relaxed(&h->spare[c]));
  roster_tidy_parked();
  assert_non_null(load_relaxed(&h->spare[c]));
  assert_int_equal(bytes_used(), 2 * SLICE_SIZE);
  assert_int_equal(roster_give_back_spares(), SLICE_SIZE); /* but this may be taken */
  assert_null(load_relaxed(&h->spare[c]));
  assert_int_equal(bytes_used(), SLICE_SIZE);
  assert_int_equal(roster_give_back_spares(), 0);
  give(h, p[8]);
  heap_flush(h);
  roster_leave(h);
}

static void count_tag(heap *h, void *counts) { ((unsigned *)counts)[h->hot.tag]++; }

static void each_heap_is_visited_once(void **state) {
  static unsigned counts[TAG_LIMIT];
  unsigned visited = 0;
  (void)state;
  heap *h = join();
  roster_for_each(count_tag, counts);
  for (unsigned tag = 0; tag < TAG_LIMIT; tag++) {
    assert_true(counts[tag] <= 1);
    visited += counts[tag];
  }
  assert_int_equal(counts[h->hot.tag], 1);
  assert_int_equal(visited, roster_count());
  roster_leave(h);
}

static void the_orphan_heap_is_nobodys(void **state) {
  (void)state;
  lock_take(LOCK_ORPHAN);
  heap *orphan = roster_orphan();
  assert_non_null(orphan);
  assert_ptr_equal(roster_orphan(), orphan);
  lock_drop(LOCK_ORPHAN);
  unsigned count = roster_count();
  heap *h[64];
  for (unsigned i = 0; i < 64; i++) {
    h[i] = join();
    assert_ptr_not_equal(h[i], orphan);
  }
  assert_true(roster_count() > count);
  for (unsigned i = 0; i < 64; i++)
    roster_leave(h[i]);
}

/* ---- Fork ---- */

static heap *mine, *busy, *halfway, *parked;
static void *busy_block, *halfway_block;

static void the_child_of_a_fork(void) {
  unsigned c = class_of(64);
  map_tag tag = halfway->hot.tag;
  roster_fork_child(mine);
  REQUIRE(!halfway->budget->quiet);
  locks_fork_release();
  static unsigned counts[TAG_LIMIT];
  roster_for_each(count_tag, counts);
  REQUIRE(busy->sealed && counts[busy->hot.tag] == 0);
  REQUIRE(!mine->sealed && counts[mine->hot.tag] == 1);
  REQUIRE(!halfway->sealed && !parked->sealed);
  /* Nobody gets ours, the sealed one, or the orphan; and the one whose thread was in
   * the middle of a free is whole again. */
  heap *orphan = roster_orphan(), *joined[4];
  for (int i = 0; i < 4; i++) {
    joined[i] = roster_join(NULL);
    REQUIRE(joined[i] && !joined[i]->needs_repair && !joined[i]->busy);
    REQUIRE(joined[i] != mine && joined[i] != busy && joined[i] != orphan);
    for (int k = 0; k < i; k++)
      REQUIRE(joined[k] != joined[i]);
  }
  REQUIRE(joined[0] == halfway || joined[1] == halfway);
  REQUIRE(joined[0] == parked || joined[1] == parked);
  REQUIRE(heap_check(halfway) == 0 && halfway->hot.tag == tag);
  slab *s = slab_of(halfway_block);
  REQUIRE(s->free == (block *)halfway_block && load_relaxed(&s->need) == s->threaded - 1);
  /* What the sealed heap gave out may be freed. */
  REQUIRE(*(int *)busy_block == 4711);
  give(mine, busy_block);
  heap_flush(mine);
  REQUIRE(take(mine, c) && take(halfway, c) && take(joined[3], c));
  REQUIRE(heap_check(mine) == 0 && heap_check(halfway) == 0);
  /* And so in the next generation. */
  locks_fork_prepare(false);
  roster_fork_child(mine);
  locks_fork_release();
  REQUIRE(busy->sealed && roster_join(NULL) != NULL);
}

static void a_childs_samples_come_from_a_sound_heap(void) {
  account a = {.hard = SIZE_MAX, .soft = SIZE_MAX}, b = a;
  heap *own = roster_join(NULL), *limb = roster_join(&a);
  REQUIRE(own && limb);
  roster_release_account(&a); /* while another thread has the limb */
  REQUIRE(limb->is_blank && !limb->is_parked);
  roster_fork_child(own);
  REQUIRE(roster_sampled(&b) == limb);
  REQUIRE(!limb->needs_repair);
}

static void blank_limbs_need_no_repair(void **state) {
  (void)state;
  in_child(a_childs_samples_come_from_a_sound_heap);
}

static void what_a_child_finds(void **state) {
  unsigned c = class_of(64);
  (void)state;
  parked = join();
  mine = join(), busy = join(), halfway = join();
  roster_leave(parked);
  busy_block = take(busy, c);
  *(int *)busy_block = 4711;
  halfway_block = take(halfway, c);
  void *own = take(mine, c);
  busy->busy = true;
  budget_start(BUDGET_INTERVAL);
  budget_due(halfway, c);
  budget_start(0);
  assert_non_null(halfway->budget);
  halfway->budget->quiet = true; /* inside an observer */
  slab *s = slab_of(halfway_block); /* linked, not counted */
  ((block *)halfway_block)->next = s->free;
  s->free = halfway_block;
  locks_fork_prepare(false);
  pid_t child = _Fork();
  if (child == 0) {
    alarm(300);
    the_child_of_a_fork();
    _exit(0);
  }
  locks_fork_release();
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  /* The parent goes on as if nothing had been. */
  busy->busy = false;
  halfway->budget->quiet = false;
  assert_false(busy->sealed || halfway->needs_repair);
  sub_relaxed(&s->need, 1);
  give(busy, busy_block);
  give(mine, own);
  heap *all[] = {mine, busy, halfway};
  for (int i = 0; i < 3; i++) {
    heap_flush(all[i]);
    roster_leave(all[i]);
  }
}

/* What is at hand must not be on a list too: it would be given out twice. */
static bool hand_is_its_own(const heap *h) {
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    for (block *b = h->hot.hand[c]; b; b = b->next)
      for (block *f = slab_of(b)->free; f; f = f->next)
        if (f == b)
          return false;
  return true;
}

#ifdef __x86_64__

/* A thread is stopped after every instruction of what it does outside of slow paths,
 * and each time a child is made, in which that thread is gone. */
enum { HELD = 12 };
static heap *stepped;
static unsigned stepped_class;
static void *held[HELD]; /* by the program; the one that is moving isn't in it */
static unsigned children, bad_children;

static void a_child_of_this_instruction(void) {
  void *p[3 * HELD];
  roster_fork_child(mine);
  REQUIRE(roster_join(NULL) == stepped);
  REQUIRE(heap_check(stepped) == 0);
  REQUIRE(hand_is_its_own(stepped));
  for (int i = 0; i < 3 * HELD; i++) {
    REQUIRE((p[i] = take(stepped, stepped_class)) != NULL);
    for (int k = 0; k < HELD; k++)
      REQUIRE(p[i] != held[k]);
    for (int k = 0; k < i; k++)
      REQUIRE(p[i] != p[k]);
  }
  REQUIRE(heap_check(stepped) == 0);
}

static void after_an_instruction(int signal) {
  (void)signal;
  if (stepped->busy)
    return; /* its heap would be sealed */
  pid_t child = _Fork();
  if (child == 0) {
    alarm(20);
    a_child_of_this_instruction();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  children++;
  bad_children += status != 0;
}

static void take_by_steps(int i) {
  STEP_BY_STEP;
  void *p = take(stepped, stepped_class);
  AT_FULL_SPEED;
  held[i] = p;
}

static void give_by_steps(int i) {
  void *p = held[i];
  held[i] = NULL;
  STEP_BY_STEP;
  give(stepped, p);
  AT_FULL_SPEED;
}

/* Refills, parking, opening again, emptying and the short cut to the hand all happen
 * on the way. */
static void step_through(size_t size) {
  stepped_class = class_of(size);
  for (int i = 0; i < HELD; i++)
    take_by_steps(i);
  for (int i = 0; i < 3; i++)
    give_by_steps(i);
  for (int i = 0; i < 3; i++)
    take_by_steps(i);
  for (int i = 0; i < HELD; i++)
    give_by_steps(i);
  for (int i = 0; i < 2; i++) {
    take_by_steps(0);
    give_by_steps(0);
  }
}

static void a_child_of_every_instruction(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  mine = join();
  stepped = join();
  children = bad_children = 0;
  signal(SIGTRAP, after_an_instruction);
  step_through(SMALL_MAX);
  step_through(8192);
  step_through(2048);
  signal(SIGTRAP, SIG_DFL);
  assert_true(children > 300);
  assert_int_equal(bad_children, 0);
  heap_flush(stepped);
  roster_leave(stepped);
  roster_leave(mine);
}

#endif

/* Threads allocate and free for themselves and for each other, while children come
 * from any moment of it. */
enum { PLACES = 64 };
static _Atomic(void *) places[PLACES];

static void *keep_busy(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  run_on((unsigned)seed);
  heap *h = roster_join(NULL);
  REQUIRE(h != NULL);
  while (!load_relaxed(&stop))
    for (int i = 0; i < 100; i++) {
      void *p =
          random_next(&seed) % 4 ? take(h, (unsigned)(random_next(&seed) % 33)) : NULL;
      p = exchange_acq_rel(&places[random_next(&seed) % PLACES], p);
      if (p)
        give(h, p);
    }
  enter(h);
  heap_flush(h);
  leave(h);
  roster_leave(h);
  return NULL;
}

/* A thread after the other, each leaving a heap with a spare slab; and the helper. */
static void *come_and_go_slowly(void *unused) {
  (void)unused;
  while (!load_relaxed(&stop)) {
    heap *h = roster_join(NULL);
    REQUIRE(h != NULL);
    for (unsigned c = 0; c < CLASS_COUNT; c += 5)
      give(h, take(h, c));
    enter(h);
    heap_flush(h);
    leave(h);
    roster_leave(h);
  }
  return NULL;
}

static void *tidy_now_and_then(void *unused) {
  (void)unused;
  while (!load_relaxed(&stop)) {
    roster_tidy_parked();
    sched_yield();
  }
  return NULL;
}

static void use(heap *h) {
  void *p[200];
  REQUIRE(h && !h->sealed);
  REQUIRE(heap_check(h) == 0);
  REQUIRE(hand_is_its_own(h));
  for (int i = 0; i < 200; i++)
    REQUIRE((p[i] = take(h, (unsigned)i % CLASS_COUNT)) != NULL);
  for (int i = 0; i < 200; i++)
    give(h, p[i]);
  heap_flush(h);
  heap_tidy(h);
  REQUIRE(heap_check(h) == 0);
}

static void a_child_in_the_middle(heap *own) {
  roster_fork_child(own);
  supply_fork_child(false);
  locks_fork_release();
  use(own);
  for (int i = 0; i < 8; i++)
    use(roster_join(NULL));
  roster_tidy_parked();
  REQUIRE(supply_check() == 0);
}

static void fork_in_the_middle(heap *own) {
  locks_fork_prepare(false);
  while (supply_in_transit()) {
    locks_fork_release();
    sched_yield();
    locks_fork_prepare(false);
  }
  pid_t child = _Fork();
  if (child == 0) {
    alarm(20);
    a_child_in_the_middle(own);
    _exit(0);
  }
  locks_fork_release();
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

static void children_from_any_moment(void **state) {
  pthread_t threads[4];
  (void)state;
  if (SANITIZED)
    skip();
  heap *own = join();
  void *kept = take(own, 3);
  store_relaxed(&stop, 0);
  for (uintptr_t i = 0; i < 2; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, (void *)(i + 1)), 0);
  assert_int_equal(pthread_create(&threads[2], NULL, come_and_go_slowly, NULL), 0);
  assert_int_equal(pthread_create(&threads[3], NULL, tidy_now_and_then, NULL), 0);
  for (int round = 0; round < 150; round++)
    fork_in_the_middle(own);
  store_relaxed(&stop, 1);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < PLACES; i++)
    if (load_relaxed(&places[i]))
      give(own, load_relaxed(&places[i]));
  give(own, kept);
  heap_flush(own);
  roster_leave(own);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_heap_is_another),        TEST(the_next_one_inherits_everything),
      TEST(threads_come_and_go),
      TEST(a_check_beside_the_helper),          TEST(tags_run_out_in_the_end),
      TEST(when_memory_runs_out),         TEST(parked_heaps_are_tidied),
      TEST(heaps_in_use_are_not_tidied),  TEST(each_heap_is_visited_once),
      TEST(the_orphan_heap_is_nobodys),   TEST(what_a_child_finds),
      TEST(blank_limbs_need_no_repair),
#ifdef __x86_64__
      TEST(a_child_of_every_instruction),
#endif
      TEST(children_from_any_moment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
