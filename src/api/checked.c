#include "api/checked.h"

#include <string.h>

#include "heap/heap.h"
#include "os/report.h"

enum { POISON = 0xdf };

static bool bit_set(atomic_u64 *bits, size_t i) {
  return atomic_fetch_or(&bits[i / 64], (uint64_t)1 << i % 64) >> i % 64 & 1;
}
static bool bit_clear(atomic_u64 *bits, size_t i) {
  return atomic_fetch_and(&bits[i / 64], ~((uint64_t)1 << i % 64)) >> i % 64 & 1;
}

static size_t index_of(const slab *s, const void *p, const char *if_inside) {
  size_t offset = (size_t)((const char *)p - s->start);
  if (offset % s->block_size || offset / s->block_size >= s->capacity)
    report_misuse(if_inside, p);
  return offset / s->block_size;
}

/* Each byte is as the one before it. */
static bool is_poisoned(const unsigned char *p, size_t n) {
  return n == 0 || (p[0] == POISON && memcmp(p, p + 1, n - 1) == 0);
}

internal void checked_take(void *p) {
  slab *s = slab_of_entry(map_get(p));
  if (s->kind != SLAB_SMALL) {
    store_relaxed(&s->need, 1); /* of a large block: it is live */
    return;
  }
  slab_bits *b = s->bits;
  size_t i = index_of(s, p, "block handed out inside another");
  if (bit_set(b->live, i))
    report_misuse("block handed out twice", p);
  if (bit_clear(b->poisoned, i) && !is_poisoned((unsigned char *)p + sizeof(block), s->block_size - sizeof(block)))
    report_misuse("write after free", p);
}

internal void checked_live(slab *s, void *p) {
  static const char inside[] = "realloc of a pointer inside a block";
  bool live;
  if (s->kind == SLAB_SMALL) {
    size_t i = index_of(s, p, inside);
    live = load_relaxed(&s->bits->live[i / 64]) >> i % 64 & 1;
  } else {
    if (p != s->start)
      report_misuse(inside, p);
    live = load_relaxed(&s->need);
  }
  if (!live)
    report_misuse("use of a freed block", p);
}

internal void checked_give(slab *s, void *p) {
  if (s->kind != SLAB_SMALL) {
    if (p != s->start)
      report_misuse("free of a pointer inside a block", p);
    if (!atomic_exchange(&s->need, 0))
      report_misuse("double free", p);
    return;
  }
  slab_bits *b = s->bits;
  size_t i = index_of(s, p, "free of a pointer inside a block");
  if (!bit_clear(b->live, i))
    report_misuse("double free", p);
  memset((char *)p + sizeof(block), POISON, s->block_size - sizeof(block));
  bit_set(b->poisoned, i);
}

/* Could malloc(size) have given a block of s? realloc may have left it too large; those that
 * are looked at have more room, and those of signal handlers all that is mapped. */
static bool is_natural_size(const slab *s, size_t size) {
  if (size >= least_kept(s->block_size) || s->kind == SLAB_NESTED)
    return true;
  if (s->kind == SLAB_SMALL && load_relaxed(&s->owner)->is_sampled)
    return true;
  return s->kind == SLAB_SMALL && class_size(class_of(size)) == s->block_size;
}

internal void checked_sized(void *p, size_t alignment, size_t size) {
  map_entry e = map_get(p);
  if (e == MAP_NONE)
    return;
  const slab *s = slab_of_entry(e);
  if ((uintptr_t)p & (alignment - 1))
    report_misuse("wrong alignment in sized free", p);
  if (size > s->block_size ||
      (alignment <= 16 && !is_natural_size(s, max_size(size, alignment))))
    report_misuse("wrong size in sized free", p);
}
