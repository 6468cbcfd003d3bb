/* Heaps for the tests of src/heap, and what a thread does with its own. */
#ifndef MASU_UNIT_HEAPS_H
#define MASU_UNIT_HEAPS_H

#include "unit.h"

#include "base/options.h"
#include "heap/heap.h"
#include "heap/mail.h"
#include "heap/outbox.h"

enum { HEAPS = 3 };
static heap heaps[HEAPS];
static heap *const owner = &heaps[0], *const other = &heaps[1];

static inline slab *slab_of(const void *p) { return slab_of_entry(map_get(p)); }

/* malloc and free as the fast paths have them. */
static inline void *take(heap *h, unsigned size_class) { return heap_take_block(h, size_class); }

static inline void give(heap *h, void *p) {
  map_entry e = map_get(p);
  slab *s = map_entry_descriptor(e);
  block *b = p;
  if (map_entry_tag(e) != h->hot.tag) {
    if (!outbox_send_along(h, s, b))
      outbox_send(h, s, b);
    return;
  }
  heap_free_own(h, s, b);
}

static inline void deliver(void *p) { outbox_deliver(slab_of(p), p, p, 1); }

static inline mail_state state_of(const slab *s) {
  return mail_state_of(load_acquire(&((slab *)s)->mail));
}
static inline uint32_t mail_of(const slab *s) {
  return mail_count_of(load_acquire(&((slab *)s)->mail));
}
static inline uint32_t need_of(const slab *s) { return load_acquire(&((slab *)s)->need); }
static inline uint32_t out_of(const slab *s) {
  return need_of(s) + load_acquire(&((slab *)s)->reserve);
}
static inline slab *spare_of(heap *h, unsigned c) { return load_relaxed(&h->spare[c]); }

static inline uint32_t length_of(const block *b) {
  uint32_t n = 0;
  for (; b; b = b->next)
    n++;
  return n;
}

/* Beyond what a test that failed left behind. */
static size_t slices_before, descriptors_before;

static inline size_t slices_used(void) {
  return supply_figures_now().used / SLICE_SIZE - slices_before;
}

static inline void count_one(slab *s, void *count) {
  (void)s;
  ++*(size_t *)count;
}

static inline size_t descriptors_in_use(void) {
  size_t count = 0;
  slab_for_each(count_one, &count);
  return count - descriptors_before;
}

static inline void assert_sound(void) {
  for (int i = 0; i < HEAPS; i++)
    assert_int_equal(heap_check(&heaps[i]), 0);
  assert_int_equal(supply_check(), 0);
}

static inline int begin(void **state) {
  (void)state;
  alarm(300);
  memset(heaps, 0, sizeof heaps);
  for (int i = 0; i < HEAPS; i++)
    heap_init(&heaps[i], (map_tag)(TAG_FIRST_HEAP + i));
  supply_set_helped(true);
  option_set(OPTION_purge_delay, 3600000);
  slices_before = descriptors_before = 0;
  slices_before = slices_used();
  descriptors_before = descriptors_in_use();
  return 0;
}

/* All blocks were freed: tidying gives back the last slice and descriptor. */
static inline int end(void **state) {
  (void)state;
  assert_sound();
  for (int i = 0; i < HEAPS; i++)
    heap_flush(&heaps[i]);
  for (int i = 0; i < HEAPS; i++)
    heap_tidy(&heaps[i]);
  assert_sound();
  assert_int_equal(slices_used(), 0);
  assert_int_equal(descriptors_in_use(), 0);
  return 0;
}

/* Slabs of one slice with 8 blocks. The first 8 blocks that an empty heap gives are
 * those of one slab, the next 8 those of another. */
enum { SIZE = 8192, PER_SLAB = 8 };
static unsigned CLASS;
static void *blocks[4096];

static inline void take_blocks(unsigned count) {
  CLASS = class_of(SIZE);
  for (unsigned i = 0; i < count; i++)
    assert_non_null(blocks[i] = take(owner, CLASS));
}

static inline unsigned first_wide(void) { return class_of(WIDE_ABOVE) + 1; }

static inline void give_blocks(unsigned first, unsigned count) {
  for (unsigned i = first; i < first + count; i++)
    give(owner, blocks[i]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

#endif
