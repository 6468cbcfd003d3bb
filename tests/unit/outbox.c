#include "heaps.h"

#include "os/os.h"

static unsigned waiting(const heap *h) {
  unsigned n = 0;
  for (int i = 0; i < SLOT_COUNT; i++)
    n += h->slots[i].count;
  return n;
}

static void blocks_travel_in_batches(void **state) {
  (void)state;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    size_t batch = min_size(max_size(SLOT_BYTES / class_size(c), 1), SLOT_BLOCKS);
    void *p[SLOT_BLOCKS];
    for (size_t i = 0; i < batch; i++)
      p[i] = take(owner, c);
    slab *s = slab_of(p[0]);
    for (size_t i = 0; i < batch; i++) {
      assert_ptr_equal(slab_of(p[i]), s);
      assert_int_equal(mail_of(s), 0);
      assert_int_equal(waiting(other), i);
      give(other, p[i]);
      assert_sound();
    }
    assert_int_equal(waiting(other), 0);
    assert_int_equal(mail_of(s), batch);
    heap_flush(owner);
    heap_tidy(owner);
  }
}

/* More slabs than slots: what stood in the slot goes out. */
static void slabs_share_slots(void **state) {
  enum { SLABS = 2 * SLOT_COUNT, EACH = 32 };
  unsigned c = class_of(2048);
  (void)state;
  for (unsigned i = 0; i < SLABS * EACH; i++)
    assert_non_null(blocks[i] = take(owner, c));
  for (unsigned round = 0; round < 2; round++)
    for (unsigned i = 0; i < SLABS; i++) {
      give(other, blocks[i * EACH + round]);
      for (int k = 0; k < SLOT_COUNT; k++)
        if (other->slots[k].count)
          assert_ptr_equal(slab_of(other->slots[k].head), other->slots[k].slab);
    }
  assert_true(waiting(other) <= 2 * SLOT_COUNT);
  assert_sound();
  heap_flush(other);
  assert_int_equal(waiting(other), 0);
  for (unsigned i = 0; i < SLABS; i++)
    assert_int_equal(mail_of(slab_of(blocks[i * EACH])), 2);
  for (unsigned i = 0; i < SLABS * EACH; i++)
    if (i % EACH > 1)
      give(owner, blocks[i]);
}

static void upkeep_sends_what_waits(void **state) {
  (void)state;
  unsigned c = class_of(64), calls = 0;
  void *p = take(owner, c);
  owner->tidied = other->tidied = os_now_ms();
  give(other, p);
  for (int i = 0; i < 200; i++)
    heap_upkeep(other);
  assert_int_equal(waiting(other), 1); /* an hour to go */
  option_set(OPTION_purge_delay, 0);
  while (waiting(other)) {
    heap_upkeep(other);
    assert_true(++calls <= 64);
  }
  assert_int_equal(mail_of(slab_of(p)), 1);
  assert_true(calls > 1); /* but not each time */
  heap_flush(owner);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(blocks_travel_in_batches),
      TEST(slabs_share_slots),
      TEST(upkeep_sends_what_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
