#include "unit.h"

#include "heap/mail.h"
#include "heap/sizes.h"

static struct heap *const owner = (struct heap *)0x1000;
enum { TAG = TAG_FIRST_HEAP };

/* ---- The word, decoded as the header describes it ---- */

static uint32_t version_of(uint64_t word) { return (uint32_t)(word >> 33); }
static uint64_t word_of(slab *s) { return load_acquire(&s->mail); }
static mail_state state_of(slab *s) { return mail_state_of(word_of(s)); }

static block *head_of(slab *s) {
  uint64_t code = word_of(s) >> 2 & 0x1ffff;
  return code ? (block *)(s->start + (code - 1) * 8) : NULL;
}

/* State and chain; the chain is as long as the count says and ends with NULL. */
static void assert_mail(slab *s, mail_state expected, uint32_t count, block *head) {
  assert_int_equal(state_of(s), expected);
  assert_int_equal(mail_count_of(word_of(s)), count);
  assert_ptr_equal(head_of(s), head);
  uint32_t length = 0;
  for (block *b = head; b; b = b->next)
    length++;
  assert_int_equal(length, count);
}

/* ---- A slab of which every block is out ---- */

enum { CLASS = 32 }; /* 8 KiB, 8 blocks */
static slab *s;
static block *blocks[8192];

static int make(unsigned size_class) {
  alarm(300);
  s = slab_make(size_class, class_slices(size_class), owner, TAG, false);
  assert_non_null(s);
  for (uint32_t n = 0, step; (step = slab_unthreaded_step(s));)
    for (block *b = slab_thread(s, step); b; b = b->next)
      blocks[n++] = b;
  store_relaxed(&s->need, s->threaded);
  return 0;
}

static int make_small(void **state) {
  (void)state;
  supply_set_helped(true);
  return make(CLASS);
}

static int release(void **state) {
  (void)state;
  slab_release(s);
  assert_int_equal(supply_figures_now().used, 0);
  return 0;
}

/* blocks[first .. last], linked. */
static mail_sent publish(unsigned first, unsigned last) {
  for (unsigned i = first; i < last; i++)
    blocks[i]->next = blocks[i + 1];
  blocks[last]->next = (block *)1; /* nothing that may survive */
  return mail_publish(s, blocks[first], blocks[last], last - first + 1, NULL);
}

static void park(void) { assert_true(mail_park(s)); }

/* The mail, which must not be dead. */
static block *take(uint32_t *count) {
  block *chain = (block *)1;
  *count = 99;
  assert_true(mail_take(s, &chain, count));
  return chain;
}

static void queue(unsigned first) {
  park();
  assert_int_equal(publish(first, first), MAIL_SENT_QUEUE);
}

/* ---- Every move, and those that must fail ---- */

static void starts_open_and_empty(void **state) {
  (void)state;
  assert_mail(s, MAIL_OPEN, 0, NULL);
  assert_int_equal(version_of(word_of(s)), 0);
  uint32_t count;
  assert_null(take(&count));
  assert_int_equal(count, 0);
  assert_mail(s, MAIL_OPEN, 0, NULL);
}

static void chains_are_put_in_front(void **state) {
  (void)state;
  assert_int_equal(publish(0, 0), MAIL_SENT_NOTHING);
  assert_mail(s, MAIL_OPEN, 1, blocks[0]);
  assert_null(blocks[0]->next);
  assert_int_equal(publish(1, 3), MAIL_SENT_NOTHING);
  assert_mail(s, MAIL_OPEN, 4, blocks[1]);
  assert_ptr_equal(blocks[3]->next, blocks[0]);
}

static void taking_empties_it(void **state) {
  (void)state;
  uint32_t count;
  publish(2, 3);
  publish(5, 7);
  block *chain = take(&count);
  assert_ptr_equal(chain, blocks[5]);
  assert_int_equal(count, 5);
  assert_ptr_equal(blocks[7]->next, blocks[2]);
  assert_null(blocks[3]->next);
  assert_mail(s, MAIL_OPEN, 0, NULL);
}

/* need says how many blocks the owner doesn't have: when all these are in the mail
 * nobody can come any more, and the owner's list goes with the run. */
static void the_last_block_kills_an_open_slab(void **state) {
  (void)state;
  store_relaxed(&s->need, 5); /* three are on the owner's list */
  assert_int_equal(publish(0, 3), MAIL_SENT_NOTHING);
  assert_mail(s, MAIL_OPEN, 4, blocks[0]);
  assert_int_equal(publish(4, 4), MAIL_SENT_LAST);
  assert_mail(s, MAIL_DEAD, 5, blocks[4]);
}

/* What is held back is out like the rest. */
static void a_reserve_counts(void **state) {
  (void)state;
  for (int parked = 0; parked < 2; parked++) {
    mail_init(s);
    store_relaxed(&s->need, 2);
    store_relaxed(&s->reserve, 4); /* two are on the owner's list */
    if (parked)
      queue(0);
    else
      publish(0, 0);
    assert_int_equal(publish(1, 1), MAIL_SENT_NOTHING);
    assert_int_equal(publish(2, 4), MAIL_SENT_NOTHING);
    assert_mail(s, parked ? MAIL_QUEUED : MAIL_OPEN, 5, blocks[2]);
    assert_int_equal(publish(5, 5), MAIL_SENT_LAST);
    assert_mail(s, MAIL_DEAD, 6, blocks[5]);
  }
}

static void touching_changes_the_version_only(void **state) {
  (void)state;
  queue(3);
  uint64_t before = word_of(s);
  assert_true(mail_touch(s));
  assert_int_equal(version_of(word_of(s)), version_of(before) + 1);
  assert_mail(s, MAIL_QUEUED, 1, blocks[3]);
}

/* The owner raises need and only then takes: a sender who saw the old need fails on
 * the version that the taking makes. */
static void taking_from_an_empty_mail_changes_the_version(void **state) {
  (void)state;
  uint32_t count;
  uint64_t before = word_of(s);
  assert_null(take(&count));
  assert_int_equal(version_of(word_of(s)), version_of(before) + 1);
}

static void parking_needs_an_empty_mail(void **state) {
  (void)state;
  uint32_t count;
  publish(4, 4);
  uint64_t before = word_of(s);
  assert_false(mail_park(s));
  assert_int_equal(word_of(s), before);
  assert_non_null(take(&count));
  assert_true(mail_park(s));
  assert_mail(s, MAIL_PARKED, 0, NULL);
  before = word_of(s);
  assert_false(mail_park(s)); /* only from OPEN */
  assert_int_equal(word_of(s), before);
}

static void parked_and_open_again(void **state) {
  (void)state;
  uint64_t before = word_of(s);
  assert_false(mail_unpark(s)); /* only from PARKED */
  assert_int_equal(word_of(s), before);
  park();
  assert_true(mail_unpark(s));
  assert_mail(s, MAIL_OPEN, 0, NULL);
  assert_int_equal(publish(0, 0), MAIL_SENT_NOTHING);
}

static void the_first_block_queues_a_parked_slab(void **state) {
  (void)state;
  park();
  assert_int_equal(publish(0, 1), MAIL_SENT_QUEUE);
  assert_mail(s, MAIL_QUEUED, 2, blocks[0]);
  assert_int_equal(publish(2, 2), MAIL_SENT_NOTHING); /* only the first one */
  assert_mail(s, MAIL_QUEUED, 3, blocks[2]);
  uint64_t before = word_of(s);
  assert_false(mail_unpark(s)); /* blocks came meanwhile */
  assert_false(mail_park(s));
  assert_int_equal(word_of(s), before);
}

static void opening_takes_the_mail(void **state) {
  (void)state;
  uint32_t count;
  queue(3);
  publish(1, 2);
  assert_ptr_equal(take(&count), blocks[1]);
  assert_int_equal(count, 3);
  assert_mail(s, MAIL_OPEN, 0, NULL);
  assert_true(mail_park(s)); /* and round again */
}

/* Its owner may still be parking it. He finds it complete. */
static void all_blocks_at_once_queue_a_parked_slab(void **state) {
  (void)state;
  uint32_t count;
  park();
  assert_int_equal(publish(0, 7), MAIL_SENT_QUEUE);
  assert_mail(s, MAIL_QUEUED, 8, blocks[0]);
  take(&count);
  assert_int_equal(count, 8);
}

static void the_last_block_kills_a_queued_slab(void **state) {
  (void)state;
  queue(0);
  assert_int_equal(publish(1, 6), MAIL_SENT_NOTHING);
  assert_mail(s, MAIL_QUEUED, 7, blocks[1]);
  assert_int_equal(publish(7, 7), MAIL_SENT_LAST);
  assert_mail(s, MAIL_DEAD, 8, blocks[7]);
}

/* The owner sees that there is nothing to open, and leaves it dead. */
static void the_dead_stay_dead(void **state) {
  (void)state;
  for (int parked = 0; parked < 2; parked++) {
    block *chain;
    uint32_t count;
    mail_init(s);
    if (parked)
      queue(0);
    else
      publish(0, 0);
    publish(1, 7);
    uint64_t before = word_of(s);
    assert_int_equal(mail_state_of(before), MAIL_DEAD);
    assert_false(mail_take(s, &chain, &count));
    assert_false(mail_park(s));
    assert_false(mail_unpark(s));
    assert_false(mail_touch(s));
    assert_int_equal(word_of(s), before);
  }
}

static void the_version_changes_when_blocks_leave(void **state) {
  (void)state;
  uint32_t count, version = version_of(word_of(s));
  publish(0, 0);
  publish(1, 1);
  assert_int_equal(version_of(word_of(s)), version); /* nothing was taken */
  take(&count);
  assert_int_equal(version_of(word_of(s)), version + 1);
  park();
  assert_int_not_equal(version_of(word_of(s)), version + 1);
  version = version_of(word_of(s));
  assert_true(mail_unpark(s));
  assert_int_not_equal(version_of(word_of(s)), version);
  queue(0);
  version = version_of(word_of(s));
  publish(1, 1);
  assert_int_equal(version_of(word_of(s)), version);
  take(&count);
  assert_int_equal(version_of(word_of(s)), version + 1);
}

/* The same block heads the chain again, but the word isn't the same. */
static void the_same_chain_again_is_another_word(void **state) {
  (void)state;
  uint32_t count;
  publish(0, 0);
  uint64_t before = word_of(s);
  take(&count);
  publish(0, 0);
  assert_int_not_equal(word_of(s), before);
}

static void the_version_wraps(void **state) {
  (void)state;
  uint32_t count;
  store_relaxed(&s->mail, (uint64_t)0x7fffffff << 33); /* OPEN, empty */
  publish(0, 1);
  assert_ptr_equal(take(&count), blocks[0]);
  assert_int_equal(count, 2);
  assert_int_equal(word_of(s), 0);
}

/* ---- The fields are wide enough ---- */

static void every_class_fits(void **state) {
  (void)state;
  supply_set_helped(true);
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    uint32_t count;
    make(c);
    unsigned last = s->capacity - 1u;
    park();
    assert_int_equal(publish(last, last), MAIL_SENT_QUEUE);
    assert_mail(s, MAIL_QUEUED, 1, blocks[last]);
    if (last > 1)
      assert_int_equal(publish(0, last - 2), MAIL_SENT_NOTHING);
    assert_mail(s, MAIL_QUEUED, last, blocks[0]);
    assert_int_equal(version_of(word_of(s)), 1);
    assert_ptr_equal(take(&count), blocks[0]);
    assert_int_equal(count, last);
    publish(0, last - 1);
    assert_int_equal(publish(last, last), MAIL_SENT_LAST);
    assert_mail(s, MAIL_DEAD, s->capacity, blocks[last]);
    release(NULL);
  }
}

/* ---- Senders and the owner at once ---- */

enum { SENDERS = 3, HANDS = 16 };

/* How a block gets to a sender: the owner writes it into a place of his. */
static _Atomic(block *) hands[SENDERS][HANDS];
static atomic_u32 stop, queued, dead;

static void *send_what_comes(void *argument) {
  uintptr_t id = (uintptr_t)argument;
  uint64_t seed = id + 1;
  run_on((unsigned)id);
  while (!load_acquire(&stop)) {
    block *head = NULL, *tail = NULL;
    uint32_t count = 0, most = (uint32_t)(random_next(&seed) % 5) + 1;
    for (int i = 0; i < HANDS && count < most; i++) {
      block *b = exchange_acquire(&hands[id][i], NULL);
      if (!b)
        continue;
      b->next = head;
      head = b;
      tail = tail ? tail : b;
      count++;
    }
    if (!count) {
      sched_yield();
      continue;
    }
    switch (mail_publish(s, head, tail, count, NULL)) {
    case MAIL_SENT_NOTHING:
      break;
    case MAIL_SENT_QUEUE:
      REQUIRE(exchange_acq_rel(&queued, 1) == 0);
      break;
    case MAIL_SENT_LAST:
      REQUIRE(exchange_acq_rel(&dead, 1) == 0);
      break;
    }
  }
  return NULL;
}

/* The owner's blocks. need, as heap.c has it: raised before blocks leave the slab and
 * before the word changes, lowered after. Here all of them leave and come one by one. */
static block *mine;
static uint32_t mine_count;

static void set_need(uint32_t need) { store_release(&s->need, need); }

static void take_chain(block *chain, uint32_t count) {
  uint32_t length = 0;
  while (chain) {
    block *next = chain->next;
    REQUIRE((char *)chain >= s->start &&
            (size_t)((char *)chain - s->start) % s->block_size == 0);
    chain->next = mine;
    mine = chain;
    chain = next;
    length++;
  }
  REQUIRE(length == count);
  mine_count += count;
}

/* The sender who ended it says so; then a new life, in which all blocks are mine. */
static void be_born_again(void) {
  while (!load_acquire(&dead))
    sched_yield();
  REQUIRE(mail_count_of(word_of(s)) + mine_count == s->threaded);
  take_chain(head_of(s), mail_count_of(word_of(s)));
  set_need(s->threaded);
  mail_init(s);
  REQUIRE(exchange_acq_rel(&queued, 0) == 0);
  store_release(&dead, 0);
}

/* OPEN or queued: takes the mail in; false: it was dead. */
static bool collect(void) {
  block *chain;
  uint32_t count;
  set_need(s->threaded);
  if (!mail_take(s, &chain, &count))
    return false;
  take_chain(chain, count);
  set_need(s->threaded - mine_count);
  return true;
}

static void hand_out(uint64_t *seed) {
  _Atomic(block *) *place =
      &hands[random_next(seed) % SENDERS][random_next(seed) % HANDS];
  block *chain;
  uint32_t count;
  if (load_relaxed(place))
    return;
  set_need(s->threaded);
  if (!mail_take(s, &chain, &count)) {
    be_born_again();
    return;
  }
  take_chain(chain, count);
  block *b = mine;
  mine = b->next;
  mine_count--;
  set_need(s->threaded - mine_count);
  store_release(place, b);
}

/* Nothing at hand: parks, and waits until it is queued. */
static void park_and_wait(void) {
  set_need(s->threaded);
  if (!mail_park(s)) {
    if (!collect())
      be_born_again();
    return;
  }
  for (;;) {
    if (exchange_acquire(&queued, 0)) {
      if (!collect())
        be_born_again();
      return;
    }
    sched_yield();
  }
}

static void no_block_is_lost(void **state) {
  pthread_t senders[SENDERS];
  uint64_t seed = 5;
  (void)state;
  supply_set_helped(true);
  make(class_of(4096)); /* 16 blocks */
  mine = NULL;
  mine_count = 0;
  for (uint32_t i = s->threaded; i-- > 0;) {
    blocks[i]->next = mine;
    mine = blocks[i];
    mine_count++;
  }
  for (uintptr_t i = 0; i < SENDERS; i++)
    assert_int_equal(pthread_create(&senders[i], NULL, send_what_comes, (void *)i), 0);
  for (int i = 0; i < 100000; i++) {
    if (mine)
      hand_out(&seed);
    else
      park_and_wait();
    if (random_next(&seed) % 64 == 0 && !collect())
      be_born_again();
  }
  while (mine_count < s->threaded) /* the rest comes home */
    if (!collect())
      be_born_again();
    else
      sched_yield();
  store_release(&stop, 1);
  for (int i = 0; i < SENDERS; i++)
    pthread_join(senders[i], NULL);
  assert_mail(s, MAIL_OPEN, 0, NULL);
  release(NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_small, release)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(starts_open_and_empty),
      TEST(chains_are_put_in_front),
      TEST(taking_empties_it),
      TEST(the_last_block_kills_an_open_slab),
      TEST(a_reserve_counts),
      TEST(touching_changes_the_version_only),
      TEST(taking_from_an_empty_mail_changes_the_version),
      TEST(parking_needs_an_empty_mail),
      TEST(parked_and_open_again),
      TEST(the_first_block_queues_a_parked_slab),
      TEST(opening_takes_the_mail),
      TEST(all_blocks_at_once_queue_a_parked_slab),
      TEST(the_last_block_kills_a_queued_slab),
      TEST(the_dead_stay_dead),
      TEST(the_version_changes_when_blocks_leave),
      TEST(the_same_chain_again_is_another_word),
      TEST(the_version_wraps),
      cmocka_unit_test(every_class_fits),
      cmocka_unit_test(no_block_is_lost),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
