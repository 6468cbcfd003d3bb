#include "heaps.h"

#include "os/os.h"

/* ---- Refill ---- */

static void a_refill(void **state) {
  (void)state;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    block *b = heap_refill(owner, c);
    assert_non_null(b);
    slab *s = slab_of(b);
    assert_int_equal(map_entry_tag(map_get(b)), owner->hot.tag);
    assert_ptr_equal(load_relaxed(&s->owner), owner);
    assert_int_equal(s->block_size, class_size(c));
    assert_int_equal(out_of(s), s->threaded); /* all left the slab */
    assert_int_equal(length_of(owner->hot.hand[c]), s->threaded - 1);
    assert_sound();
    give(owner, b);
  }
}

static void no_block_is_given_twice(void **state) {
  enum { EACH = 300 };
  static uintptr_t *held[CLASS_COUNT][EACH];
  (void)state;
  for (unsigned c = 0; c < 20; c++)
    for (unsigned i = 0; i < EACH; i++) {
      held[c][i] = take(owner, c);
      memset(held[c][i], 0, class_size(c));
      *held[c][i] = c * EACH + i + 1;
    }
  assert_sound();
  for (unsigned c = 0; c < 20; c++)
    for (unsigned i = 0; i < EACH; i++) {
      assert_int_equal(*held[c][i], c * EACH + i + 1);
      assert_int_equal((uintptr_t)held[c][i] % (class_size(c) < 16 ? 8 : 16), 0);
      give(owner, held[c][i]);
    }
}

static void the_block_freed_last_comes_first(void **state) {
  (void)state;
  take_blocks(PER_SLAB);
  give_blocks(2, 1);
  give_blocks(5, 1);
  assert_ptr_equal(take(owner, CLASS), blocks[5]);
  assert_ptr_equal(take(owner, CLASS), blocks[2]);
  give_blocks(0, PER_SLAB);
}

/* ---- Parking ---- */

static void a_slab_without_free_blocks_is_parked(void **state) {
  (void)state;
  take_blocks(PER_SLAB - 1);
  slab *s = slab_of(blocks[0]);
  assert_int_equal(state_of(s), MAIL_OPEN);
  blocks[PER_SLAB - 1] = take(owner, CLASS);
  assert_ptr_equal(slab_of(blocks[PER_SLAB - 1]), s);
  give_blocks(0, 2);
  assert_int_equal(state_of(s), MAIL_OPEN);
  blocks[0] = take(owner, CLASS); /* the list goes to the hand at once */
  assert_int_equal(state_of(s), MAIL_PARKED);
  assert_true(list_empty(&s->avail));
  assert_null(s->free);
  assert_int_equal(need_of(s), slab_wake(s));
  assert_int_equal(out_of(s), s->threaded);
  assert_sound();
  blocks[1] = take(owner, CLASS);
  give_blocks(0, PER_SLAB);
}

static void the_owners_free_opens_it_again(void **state) {
  (void)state;
  take_blocks(PER_SLAB + 1);
  slab *s = slab_of(blocks[0]);
  assert_int_equal(slab_wake(s), 1);
  give_blocks(3, 1);
  assert_int_equal(state_of(s), MAIL_OPEN);
  assert_false(list_empty(&s->avail));
  assert_int_equal(need_of(s), PER_SLAB - 1);
  assert_sound();
  give_blocks(0, 3);
  assert_int_equal(need_of(s), PER_SLAB - 4);
  assert_sound();
  give_blocks(4, PER_SLAB - 3);
}

/* Of small blocks not the first one, but some. What is free so far counts as free:
 * others can end the slab as well. */
static void some_frees_open_it_again(void **state) {
  (void)state;
  unsigned c = class_of(512);
  for (int ends = 0; ends < 2; ends++) {
    for (unsigned i = 0; i < 129; i++)
      blocks[i] = take(owner, c);
    slab *s = slab_of(blocks[0]);
    unsigned wake = slab_wake(s);
    assert_int_equal(state_of(s), MAIL_PARKED);
    assert_true(wake > 4);
    give_blocks(0, wake - 1);
    assert_int_equal(state_of(s), MAIL_PARKED);
    assert_int_equal(out_of(s), 128 - (wake - 1));
    if (ends) {
      for (unsigned i = wake - 1; i < 128; i++) {
        assert_int_equal(slices_used(), 2);
        deliver(blocks[i]);
      }
      assert_int_equal(slices_used(), 1);
    } else {
      give_blocks(wake - 1, 1);
      assert_int_equal(state_of(s), MAIL_OPEN);
      assert_int_equal(length_of(s->free), wake);
      give_blocks(wake, 128 - wake);
    }
    assert_sound();
    give_blocks(128, 1);
    heap_flush(owner);
    heap_tidy(owner);
  }
}

/* A queued slab waits for its mail to be taken in; the owner's blocks stay with it. */
static void an_event_while_queued(void **state) {
  (void)state;
  unsigned c = class_of(512);
  for (unsigned i = 0; i < 129; i++)
    blocks[i] = take(owner, c);
  slab *s = slab_of(blocks[0]);
  unsigned wake = slab_wake(s);
  deliver(blocks[128 - 1]);
  give_blocks(0, wake + 2);
  assert_int_equal(state_of(s), MAIL_QUEUED);
  assert_int_equal(length_of(s->free), wake + 2);
  assert_int_equal(out_of(s), 128 - wake - 2);
  heap_tidy(owner);
  assert_int_equal(length_of(s->free), wake + 3);
  assert_sound();
  give_blocks(wake + 2, 128 - wake - 3);
  give_blocks(128, 1);
}

/* ---- Empty slabs ---- */

/* The only open slab of a class stays where it is, ready for the next refill. */
static void the_last_slab_stays_open(void **state) {
  (void)state;
  take_blocks(PER_SLAB);
  slab *s = slab_of(blocks[0]);
  give_blocks(0, PER_SLAB);
  assert_null(spare_of(owner, CLASS));
  assert_int_equal(need_of(s), 0);
  assert_true(heap_slab_is_alone(s));
  assert_int_equal(slices_used(), 1);
  assert_sound();
  take_blocks(PER_SLAB);
  for (unsigned i = 0; i < PER_SLAB; i++)
    assert_ptr_equal(slab_of(blocks[i]), s);
  assert_int_equal(slices_used(), 1);
  give_blocks(0, PER_SLAB);
}

/* The short cut that frees take when nothing else of the class is free. */
static void the_last_block_goes_back_to_the_hand(void **state) {
  (void)state;
  take_blocks(PER_SLAB);
  slab *s = slab_of(blocks[0]);
  for (unsigned i = 0; i < PER_SLAB - 1; i++)
    give(owner, blocks[i]);
  block *last = blocks[PER_SLAB - 1];
  last->next = s->free;
  s->free = last;
  assert_true(count_down_release(&s->need));
  assert_true(heap_hand_back(owner, s, last));
  assert_ptr_equal(owner->hot.hand[CLASS], last);
  assert_null(last->next);
  assert_int_equal(need_of(s), 1);
  assert_int_equal(length_of(s->free), PER_SLAB - 1);
  assert_sound();
  assert_ptr_equal(take(owner, CLASS), last);
  give(owner, last);
}

static void but_not_always(void **state) {
  (void)state;
  unsigned small = class_of(64);
  give(owner, take(owner, small)); /* the hand isn't empty, and it is small */
  block *ready = owner->hot.hand[small];
  assert_false(heap_hand_back(owner, slab_of(ready), ready));
  take_blocks(PER_SLAB + 1);
  slab *s = slab_of(blocks[0]);
  for (unsigned i = 0; i < PER_SLAB - 1; i++)
    give(owner, blocks[i]);
  assert_false(heap_hand_back(owner, s, s->free)); /* there is another one */
  give_blocks(PER_SLAB - 1, 2);
}

static void a_parked_slab_may_empty_at_once(void **state) {
  (void)state;
  unsigned c = CLASS_COUNT - 1; /* 4 blocks in a slab */
  void *p[5];
  for (int i = 0; i < 5; i++)
    p[i] = take(owner, c);
  slab *s = slab_of(p[0]);
  assert_int_equal(state_of(s), MAIL_PARKED);
  for (int i = 0; i < 4; i++)
    give(owner, p[i]);
  assert_ptr_equal(spare_of(owner, c), s);
  assert_int_equal(need_of(s), 0);
  give(owner, p[4]);
}

/* ---- Mail ---- */

static void mail_is_used_before_new_memory(void **state) {
  (void)state;
  take_blocks(4);
  assert_null(owner->hot.hand[CLASS]);
  slab *s = slab_of(blocks[0]);
  uint32_t threaded = s->threaded;
  deliver(blocks[2]);
  assert_int_equal(mail_of(s), 1);
  assert_sound();
  assert_ptr_equal(take(owner, CLASS), blocks[2]);
  assert_int_equal(mail_of(s), 0);
  assert_int_equal(s->threaded, threaded);
  assert_sound();
  give_blocks(0, 4);
}

/* A refill that takes the local list brings the mail home for the next time. */
static void mail_comes_along(void **state) {
  (void)state;
  take_blocks(4);
  slab *s = slab_of(blocks[0]);
  give_blocks(0, 1);
  deliver(blocks[1]);
  deliver(blocks[2]);
  assert_ptr_equal(take(owner, CLASS), blocks[0]);
  assert_int_equal(mail_of(s), 0);
  assert_int_equal(length_of(s->free), 2);
  assert_int_equal(need_of(s), s->threaded - 2);
  assert_sound();
  assert_ptr_equal(take(owner, CLASS), blocks[2]);
  assert_ptr_equal(take(owner, CLASS), blocks[1]);
  assert_sound();
  give_blocks(0, 4);
}

static void a_parked_slab_with_mail_is_queued(void **state) {
  (void)state;
  take_blocks(2 * PER_SLAB + 1); /* two full ones, parked */
  slab *s = slab_of(blocks[0]);
  deliver(blocks[1]);
  deliver(blocks[4]);
  assert_int_equal(state_of(s), MAIL_QUEUED);
  assert_ptr_equal(load_relaxed(&owner->queue), s);
  /* It is drained when the open slabs are used up. */
  for (unsigned i = 2 * PER_SLAB + 1; i < 3 * PER_SLAB; i++)
    blocks[i] = take(owner, CLASS);
  assert_int_equal(state_of(s), MAIL_QUEUED);
  void *p = take(owner, CLASS), *q = take(owner, CLASS);
  assert_ptr_equal(p, blocks[4]);
  assert_ptr_equal(q, blocks[1]);
  assert_null(load_relaxed(&owner->queue));
  assert_int_equal(slices_used(), 3);
  assert_sound();
  give_blocks(0, 3 * PER_SLAB);
}

static void mail_for_all_of_a_parked_slab_waits(void **state) {
  (void)state;
  take_blocks(PER_SLAB + 1);
  slab *s = slab_of(blocks[0]);
  for (unsigned i = 0; i < PER_SLAB - 1; i++)
    ((block *)blocks[i])->next = blocks[i + 1];
  outbox_deliver(s, blocks[0], blocks[PER_SLAB - 1], PER_SLAB);
  assert_int_equal(slices_used(), 2);
  assert_ptr_equal(load_relaxed(&owner->queue), s);
  heap_tidy(owner);
  assert_int_equal(slices_used(), 1);
  give_blocks(PER_SLAB, 1);
}

static void mail_for_all_of_a_queued_slab_ends_it(void **state) {
  (void)state;
  take_blocks(PER_SLAB + 1);
  slab *s = slab_of(blocks[0]);
  for (unsigned i = 0; i < PER_SLAB; i++)
    deliver(blocks[i]);
  assert_int_equal(slices_used(), 1);
  assert_int_equal(map_get(blocks[0]), MAP_NONE);
  /* The descriptor is on the queue still, so it is not free yet. */
  assert_int_equal(state_of(s), MAIL_DEAD);
  assert_int_equal(s->kind, SLAB_SMALL);
  assert_ptr_equal(load_relaxed(&owner->queue), s);
  assert_int_equal(descriptors_in_use(), 2);
  heap_tidy(owner);
  assert_int_equal(s->kind, SLAB_UNUSED);
  assert_int_equal(descriptors_in_use(), 1);
  give_blocks(PER_SLAB, 1);
}

static void mail_and_the_owners_frees_end_a_queued_slab(void **state) {
  (void)state;
  take_blocks(PER_SLAB + 1);
  slab *s = slab_of(blocks[0]);
  deliver(blocks[0]);
  give_blocks(1, 2);
  assert_int_equal(state_of(s), MAIL_QUEUED);
  assert_int_equal(mail_of(s), 1);
  assert_int_equal(length_of(s->free), 2);
  for (unsigned i = 3; i < PER_SLAB; i++) {
    assert_int_equal(slices_used(), 2);
    deliver(blocks[i]);
  }
  assert_int_equal(slices_used(), 1);
  assert_int_equal(state_of(s), MAIL_DEAD);
  give_blocks(PER_SLAB, 1);
}

/* All came while the owner had it open: what it has of it itself goes too, but the
 * descriptor stands on its list. */
static void mail_for_all_of_an_open_slab_ends_it(void **state) {
  (void)state;
  for (int tidy = 0; tidy < 2; tidy++) {
    take_blocks(PER_SLAB);
    slab *s = slab_of(blocks[0]);
    give_blocks(0, 3);
    for (unsigned i = 3; i < PER_SLAB; i++) {
      assert_int_equal(slices_used(), 1);
      assert_int_equal(state_of(s), MAIL_OPEN);
      assert_sound();
      deliver(blocks[i]);
    }
    assert_int_equal(slices_used(), 0);
    assert_int_equal(state_of(s), MAIL_DEAD);
    assert_int_equal(map_get(blocks[0]), MAP_NONE);
    assert_int_equal(descriptors_in_use(), 1);
    assert_sound();
    if (tidy)
      heap_tidy(owner);
    else /* or the owner wants a block, and finds out */
      give(owner, take(owner, CLASS));
    assert_int_equal(descriptors_in_use(), tidy ? 0 : 1);
    heap_flush(owner);
    heap_tidy(owner);
  }
}

/* What is in the hand, ready for the owner, is not the sender's to end. */
static void a_block_at_hand_keeps_the_slab(void **state) {
  (void)state;
  unsigned c = class_of(64);
  void *p = take(owner, c); /* the rest of the page is in the hand */
  slab *s = slab_of(p);
  deliver(p);
  assert_int_equal(state_of(s), MAIL_OPEN);
  assert_int_equal(slices_used(), 1);
  assert_sound();
  heap_flush(owner); /* all but the mail is on the list now, the mail is old */
  assert_int_equal(need_of(s), 1);
  assert_sound();
  heap_tidy(owner);
  assert_int_equal(slices_used(), 0);
}

/* ---- Which slab a refill takes ---- */

/* Two slabs of 1,024 blocks, first the one with `few` free blocks, then the one with
 * many; all others out. */
static slab *few_and_many(unsigned few, unsigned many) {
  unsigned c = class_of(64);
  for (unsigned i = 0; i < 2048; i++)
    blocks[i] = take(owner, c);
  assert_null(owner->hot.hand[c]);
  give_blocks(1024, few); /* the second slab is not parked yet: it stands in front */
  give_blocks(0, many);
  slab *second = slab_of(blocks[1024]);
  assert_ptr_equal(CONTAINER_OF(owner->avail[c].next, slab, avail), second);
  assert_ptr_not_equal(slab_of(blocks[0]), second);
  return second;
}

static void a_slab_with_few_free_blocks_is_passed_over(void **state) {
  (void)state;
  unsigned c = class_of(64);
  slab *few = few_and_many(3, 500);
  block *b = heap_refill(owner, c);
  assert_ptr_not_equal(slab_of(b), few);
  assert_int_equal(length_of(b), 500);
  assert_int_equal(need_of(few), 1021);
  assert_sound();
  owner->hot.hand[c] = b;
  heap_flush(owner);
  give_blocks(500, 524);
  give_blocks(1027, 1021);
}

static void a_slab_with_enough_is_not(void **state) {
  (void)state;
  unsigned c = class_of(64);
  slab *first = few_and_many(40, 500);
  block *b = heap_refill(owner, c);
  assert_ptr_equal(slab_of(b), first);
  owner->hot.hand[c] = b;
  heap_flush(owner);
  give_blocks(500, 524);
  give_blocks(1064, 984);
}

/* Of as many blocks as are enough, and never much beside what the class has filled. */
static void a_class_that_fills_many_slabs_gets_larger_ones(void **state) {
  enum { MANY = 64 * PER_SLAB };
  unsigned slices = 0, largest = 0;
  const slab *last = NULL;
  (void)state;
  take_blocks(MANY);
  for (unsigned i = 0; i < MANY; i++) {
    const slab *s = slab_of(blocks[i]);
    if (s == last)
      continue;
    assert_true(s->slices == 1 || s->slices <= slices / 4);
    slices += s->slices;
    largest = s->slices > largest ? s->slices : largest;
    last = s;
  }
  assert_int_equal(largest * SLICE_SIZE, 32 * SIZE);
  give_blocks(0, MANY);
}

/* Of blocks that are larger than a page the program may not touch all. */
static void a_class_that_fills_huge_pages_gets_them(void **state) {
  enum { SLABS = HUGE_SLICES + 8, WIDE = SLABS * PER_SLAB, SMALL = SLABS * 16 };
  run ballast[8];
  (void)state;
  if (!os_gives_huge_pages())
    skip();
  assert_true(option_set(OPTION_huge_pages, 16));
  for (int i = 0; i < 8; i++)
    assert_true(supply_take(HUGE_SLICES, 1, &ballast[i]));
  take_blocks(WIDE);
  assert_false(slab_of(blocks[WIDE - 1])->page->dense);
  for (unsigned i = WIDE; i < WIDE + SMALL; i++)
    assert_non_null(blocks[i] = take(owner, class_of(4096)));
  assert_false(slab_of(blocks[WIDE])->page->dense);
  assert_true(slab_of(blocks[WIDE + SMALL - 1])->page->dense);
  give_blocks(0, WIDE + SMALL);
  for (int i = 0; i < 8; i++)
    supply_give(ballast[i].page, ballast[i].start, HUGE_SLICES);
  assert_true(option_set(OPTION_huge_pages, 0));
}

/* ---- Upkeep ---- */

static void upkeep_minds_the_clock(void **state) {
  (void)state;
  take_blocks(PER_SLAB + 1);
  deliver(blocks[0]);
  run r;
  assert_true(supply_take(4, 1, &r));
  supply_give(r.page, r.start, 4);
  size_t idle = supply_figures_now().idle;
  owner->tidied = os_now_ms();
  for (int i = 0; i < 200; i++)
    heap_upkeep(owner);
  assert_int_equal(state_of(slab_of(blocks[0])), MAIL_QUEUED); /* an hour to go */
  assert_int_equal(supply_figures_now().idle, idle);
  option_set(OPTION_purge_delay, 0);
  for (int i = 0; i < 64; i++)
    heap_upkeep(owner);
  assert_int_equal(state_of(slab_of(blocks[0])), MAIL_OPEN);
  assert_true(supply_figures_now().idle < idle);
  assert_sound();
  give_blocks(1, PER_SLAB);
}

static void tidying_takes_in_everything(void **state) {
  (void)state;
  take_blocks(3 * PER_SLAB); /* two parked, one open */
  deliver(blocks[0]);
  for (unsigned i = PER_SLAB; i < 2 * PER_SLAB; i++)
    deliver(blocks[i]); /* dead on the queue */
  deliver(blocks[2 * PER_SLAB]);
  assert_int_equal(slices_used(), 2);
  heap_tidy(owner);
  assert_null(load_relaxed(&owner->queue));
  assert_int_equal(need_of(slab_of(blocks[0])), PER_SLAB - 1);
  assert_int_equal(need_of(slab_of(blocks[2 * PER_SLAB])), PER_SLAB - 1);
  assert_int_equal(mail_of(slab_of(blocks[2 * PER_SLAB])), 0);
  assert_int_equal(descriptors_in_use(), 2);
  assert_sound();
  give_blocks(1, PER_SLAB - 1);
  give_blocks(2 * PER_SLAB + 1, PER_SLAB - 1);
}

static void flushing_empties_the_hands(void **state) {
  (void)state;
  void *kept = take(owner, class_of(64));
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    give(owner, take(owner, c));
  heap_flush(owner);
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    assert_null(owner->hot.hand[c]);
  assert_sound();
  for (unsigned c = 0; c < first_wide(); c++) {
    slab *s = CONTAINER_OF(owner->avail[c].next, slab, avail);
    assert_true(heap_slab_is_alone(s));
    assert_int_equal(need_of(s), c == class_of(64)); /* nothing else was out */
  }
  heap_tidy(owner);
  assert_int_equal(slices_used(), 1);
  give(owner, kept);
}

/* ---- After fork ---- */

/* The owner's free was interrupted after so many of its steps. */
enum { LINKED = 1, COUNTED };

static void repair(heap *h) {
  h->needs_repair = true;
  heap_repair_all();
  h->needs_repair = false;
}

static void free_up_to(void *p, int step) {
  slab *s = slab_of(p);
  block *b = p;
  b->next = s->free;
  s->free = b;
  if (step == COUNTED)
    sub_relaxed(&s->need, 1);
}

static void repairing_an_open_slab(void **state) {
  (void)state;
  for (int step = LINKED; step <= COUNTED; step++) {
    take_blocks(PER_SLAB);
    slab *s = slab_of(blocks[0]);
    give_blocks(0, 2);
    free_up_to(blocks[2], step);
    repair(owner);
    assert_int_equal(need_of(s), PER_SLAB - 3);
    assert_sound();
    give_blocks(3, PER_SLAB - 3);
  }
}

static void repairing_an_emptied_slab(void **state) {
  (void)state;
  for (int step = LINKED; step <= COUNTED; step++) {
    take_blocks(PER_SLAB + 1);
    slab *s = slab_of(blocks[0]), *other_slab = slab_of(blocks[PER_SLAB]);
    give_blocks(0, PER_SLAB - 1);
    free_up_to(blocks[PER_SLAB - 1], step);
    repair(owner);
    assert_ptr_equal(spare_of(owner, CLASS), s);
    assert_int_equal(need_of(s), 0);
    assert_sound();
    free_up_to(blocks[PER_SLAB], step); /* the last one of the only slab left */
    repair(owner);
    assert_int_equal(need_of(other_slab), 0);
    assert_ptr_equal(spare_of(owner, CLASS), s); /* stays as it is */
    assert_sound();
    repair(owner);
    assert_int_equal(need_of(other_slab), 0);
    assert_sound();
    heap_tidy(owner);
  }
}

static void repairing_a_parked_slab(void **state) {
  (void)state;
  for (int step = LINKED; step <= COUNTED; step++) {
    take_blocks(PER_SLAB + 1);
    slab *s = slab_of(blocks[0]);
    assert_int_equal(state_of(s), MAIL_PARKED);
    free_up_to(blocks[0], step);
    repair(owner);
    assert_int_equal(state_of(s), MAIL_OPEN);
    assert_int_equal(need_of(s), PER_SLAB - 1);
    assert_sound();
    give_blocks(1, PER_SLAB);
    heap_tidy(owner);
  }
}

static void repairing_a_queued_slab(void **state) {
  (void)state;
  for (int step = LINKED; step <= COUNTED; step++) {
    take_blocks(PER_SLAB + 1);
    slab *s = slab_of(blocks[0]);
    deliver(blocks[0]);
    free_up_to(blocks[1], step);
    repair(owner);
    assert_int_equal(state_of(s), MAIL_QUEUED);
    assert_int_equal(mail_of(s), 1);
    assert_ptr_equal(s->free, blocks[1]);
    assert_int_equal(out_of(s), PER_SLAB - 1);
    assert_sound();
    give_blocks(2, PER_SLAB - 1);
    heap_tidy(owner);
  }
}

static void repair_leaves_other_heaps_alone(void **state) {
  (void)state;
  unsigned c = class_of(64);
  void *p = take(other, c), *q = take(other, c);
  give(other, p);
  slab *s = slab_of(p);
  uint32_t need = need_of(s);
  free_up_to(q, LINKED);
  repair(owner);
  assert_int_equal(need_of(s), need);
  sub_relaxed(&s->need, 1);
  assert_sound();
}

/* ---- The check itself ---- */

static unsigned check_quietly(void) {
  int saved = stderr_silence();
  unsigned wrong = heap_check(owner);
  stderr_restore(saved);
  return wrong;
}

static void the_check_sees_what_is_wrong(void **state) {
  (void)state;
  take_blocks(3);
  give_blocks(0, 1);
  give_blocks(1, 1);
  slab *s = slab_of(blocks[2]);
  add_relaxed(&s->need, 1);
  assert_int_equal(check_quietly(), 1);
  sub_relaxed(&s->need, 1);
  store_relaxed(&s->owner, other);
  assert_int_equal(check_quietly(), 1);
  store_relaxed(&s->owner, owner);
  map_set(s->start, 1, map_entry_of(s, other->hot.tag));
  assert_int_equal(check_quietly(), 1);
  map_set(s->start, 1, map_entry_of(s, owner->hot.tag));
  uint64_t mail = load_relaxed(&s->mail);
  store_relaxed(&s->mail, mail | MAIL_PARKED);
  assert_int_equal(check_quietly(), 1);
  store_relaxed(&s->mail, mail);
  block *inside = (block *)((char *)blocks[1] + 64), *next = s->free->next;
  s->free->next = inside;
  inside->next = NULL;
  assert_int_equal(check_quietly(), 1);
  s->free->next = next;
  give_blocks(2, 1);
}

/* ---- Short of memory ---- */

static void run_out(void) {
  enum { MOST = 20000 };
  static void *got[MOST];
  unsigned c = class_of(8192), n = 0;
  limit_address_space(48 * MIB);
  while (n < MOST && (got[n] = take(owner, c)))
    n++;
  REQUIRE(n > 1000 && n < MOST);
  REQUIRE(take(owner, c) == NULL);
  REQUIRE(heap_check(owner) == 0 && supply_check() == 0);
  give(owner, got[--n]);
  REQUIRE((got[n++] = take(owner, c)) != NULL); /* what is freed is to be had */
  unlimit_address_space();
  REQUIRE((got[n++] = take(owner, c)) != NULL);
  while (n-- > 0)
    give(owner, got[n]);
  heap_flush(owner);
  heap_tidy(owner);
  REQUIRE(heap_check(owner) == 0 && slices_used() == 0);
}

static void when_memory_runs_out(void **state) {
  (void)state;
  if (SANITIZED)
    skip();
  in_child(run_out);
}

/* ---- Parking while mail comes ---- */

/* The other thread sends every block home as soon as it gets it, so the owner parks
 * slabs, and finds them queued or gone, at any moment of a delivery. */
enum { BELT = 8, CARRIED = 100000 };
static _Atomic(block *) belt[BELT];

static void *send_home(void *unused) {
  (void)unused;
  run_on(1);
  for (unsigned i = 0; i < CARRIED; i++) {
    block *b;
    for (unsigned spins = 0; !(b = exchange_acquire(&belt[i % BELT], NULL)); spins++)
      if (spins > 500)
        sched_yield();
    deliver(b);
  }
  return NULL;
}

static void parking_while_mail_comes(void **state) {
  pthread_t sender;
  (void)state;
  run_on(0);
  assert_int_equal(pthread_create(&sender, NULL, send_home, NULL), 0);
  for (unsigned i = 0; i < CARRIED; i++) {
    block *b = take(owner, CLASS_COUNT - 1); /* 4 in a slab */
    slab *s = slab_of(b);
    REQUIRE(need_of(s) >= 1 && need_of(s) <= s->threaded);
    for (unsigned spins = 0; load_acquire(&belt[i % BELT]); spins++)
      if (spins > 500)
        sched_yield();
    store_release(&belt[i % BELT], b);
  }
  pthread_join(sender, NULL);
  run_anywhere();
}

/* ---- Everybody at once ---- */

static atomic_u32 stop; /* what other threads do */

/* Blocks go from thread to thread through the places. Each says in its first words
 * how large it is, and repeats it at its end. */
enum { PLACES = 256, ROUNDS = 60000 };
static _Atomic(uint64_t *) places[PLACES];

static uint64_t *stamped(heap *h, uint64_t *seed) {
  unsigned c = random_next(seed) % 16
                   ? 1 + (unsigned)(random_next(seed) % 24)
                   : 1 + (unsigned)(random_next(seed) % (CLASS_COUNT - 1));
  uint64_t *p = take(h, c);
  REQUIRE(p != NULL);
  p[0] = class_size(c);
  p[class_size(c) / 8 - 1] = class_size(c);
  return p;
}

static void free_stamped(heap *h, uint64_t *p) {
  if (!p)
    return;
  REQUIRE(p[0] == slab_of(p)->block_size);
  REQUIRE(p[p[0] / 8 - 1] == p[0]);
  if (h)
    give(h, p);
  else
    deliver(p); /* a thread without a heap */
}

static void *play(void *argument) {
  heap *h = argument;
  uint64_t seed = (uintptr_t)h;
  run_on((unsigned)(h - heaps));
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t *p = random_next(&seed) % 8 ? stamped(h, &seed) : NULL;
    free_stamped(h, exchange_acq_rel(&places[random_next(&seed) % PLACES], p));
    if (i % 64 == 0)
      heap_upkeep(h);
    if (i % 5000 == 0)
      heap_tidy(h);
  }
  heap_flush(h);
  return NULL;
}

static void *only_free(void *unused) {
  uint64_t seed = 99;
  (void)unused;
  while (!load_relaxed(&stop)) {
    free_stamped(NULL, exchange_acq_rel(&places[random_next(&seed) % PLACES], NULL));
    if (random_next(&seed) % 1024 == 0)
      for (int i = 0; i < HEAPS; i++)
        heap_give_back_spares(&heaps[i]); /* as the helper does */
  }
  return NULL;
}

static void blocks_go_from_heap_to_heap(void **state) {
  pthread_t players[HEAPS], freer;
  (void)state;
  option_set(OPTION_purge_delay, 0);
  store_relaxed(&stop, 0);
  assert_int_equal(pthread_create(&freer, NULL, only_free, NULL), 0);
  for (int i = 0; i < HEAPS; i++)
    assert_int_equal(pthread_create(&players[i], NULL, play, &heaps[i]), 0);
  for (int i = 0; i < HEAPS; i++)
    pthread_join(players[i], NULL);
  store_relaxed(&stop, 1);
  pthread_join(freer, NULL);
  assert_sound();
  for (int i = 0; i < PLACES; i++)
    free_stamped(owner, exchange_acq_rel(&places[i], NULL));
  heap_flush(owner);
}

/* In a large program slabs become sparse, are purged and threaded again besides. */
static void and_in_a_large_program(void **state) {
  run ballast[8];
  for (int i = 0; i < 8; i++)
    assert_true(supply_take(HUGE_SLICES, 1, &ballast[i]));
  size_t before = supply_figures_now().returned;
  blocks_go_from_heap_to_heap(state);
  assert_true(supply_figures_now().returned > before);
  for (int i = 0; i < 8; i++)
    supply_give(ballast[i].page, ballast[i].start, HUGE_SLICES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_refill),
      TEST(no_block_is_given_twice),
      TEST(the_block_freed_last_comes_first),
      TEST(a_slab_without_free_blocks_is_parked),
      TEST(the_owners_free_opens_it_again),
      TEST(some_frees_open_it_again),
      TEST(an_event_while_queued),
      TEST(the_last_slab_stays_open),
      TEST(the_last_block_goes_back_to_the_hand),
      TEST(but_not_always),
      TEST(a_parked_slab_may_empty_at_once),
      TEST(mail_is_used_before_new_memory),
      TEST(mail_comes_along),
      TEST(a_parked_slab_with_mail_is_queued),
      TEST(mail_for_all_of_a_parked_slab_waits),
      TEST(mail_for_all_of_a_queued_slab_ends_it),
      TEST(mail_and_the_owners_frees_end_a_queued_slab),
      TEST(mail_for_all_of_an_open_slab_ends_it),
      TEST(a_block_at_hand_keeps_the_slab),
      TEST(a_slab_with_few_free_blocks_is_passed_over),
      TEST(a_slab_with_enough_is_not),
      TEST(a_class_that_fills_many_slabs_gets_larger_ones),
      TEST(a_class_that_fills_huge_pages_gets_them),
      TEST(upkeep_minds_the_clock),
      TEST(tidying_takes_in_everything),
      TEST(flushing_empties_the_hands),
      TEST(repairing_an_open_slab),
      TEST(repairing_an_emptied_slab),
      TEST(repairing_a_parked_slab),
      TEST(repairing_a_queued_slab),
      TEST(repair_leaves_other_heaps_alone),
      TEST(the_check_sees_what_is_wrong),
      TEST(when_memory_runs_out),
      TEST(parking_while_mail_comes),
      TEST(blocks_go_from_heap_to_heap),
      TEST(and_in_a_large_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
