#include "pages/bins.h"

#include "base/bits.h"

static struct {
  list_node bin[2][HUGE_SLICES + 1]; /* of pages that are not dense, and that are */
  uint64_t filled[2];                /* bit i: bin[..][i] is not empty */
} bins;

internal void bins_prepare(void) {
  for (unsigned i = 0; i <= HUGE_SLICES; i++) {
    list_init(&bins.bin[false][i]);
    list_init(&bins.bin[true][i]);
  }
}

internal void bins_leave(hpage *page) {
  list_remove(&page->bin);
  if (list_empty(&bins.bin[page->dense][page->longest]))
    bins.filled[page->dense] &= ~((uint64_t)1 << page->longest);
}

internal void bins_enter(hpage *page) {
  page->longest = (uint8_t)bit_longest_run32(~page->used);
  list_push_front(&bins.bin[page->dense][page->longest], &page->bin);
  bins.filled[page->dense] |= (uint64_t)1 << page->longest;
}

/* Bits of a page at which a run may start: every align-th. */
static uint32_t aligned_starts(unsigned align) {
  uint32_t mask = 1;
  for (unsigned step = align; step < HUGE_SLICES; step *= 2)
    mask |= mask << step;
  return mask;
}

/* A page in the bin with an aligned run of that length, among its first `looks`. */
static hpage *look_in_bin(list_node *bin, unsigned slices, uint32_t wanted,
                          unsigned *looks, uint32_t *starts) {
  for (list_node *n = bin->next; n != bin && *looks; n = n->next, --*looks) {
    hpage *page = CONTAINER_OF(n, hpage, bin);
    *starts = bit_run_starts32(~page->used, slices) & wanted;
    if (*starts)
      return page;
  }
  return NULL;
}

/* From the bin of the shortest free runs that may do. A free run of slices + align - 1
 * holds an aligned one for certain; in shorter ones no more than `looks` are tried. */
static hpage *find_page(bool dense, unsigned slices, unsigned align, unsigned looks,
                        uint32_t *starts) {
  unsigned certain = (unsigned)min_size(slices + align - 1, HUGE_SLICES);
  uint32_t wanted = aligned_starts(align);
  uint64_t filled = bins.filled[dense] >> slices << slices;
  for (; filled; filled &= filled - 1) {
    unsigned longest = bit_low64(filled);
    if (longest >= certain)
      looks = BINS_ALL;
    hpage *page = look_in_bin(&bins.bin[dense][longest], slices, wanted, &looks, starts);
    if (page)
      return page;
  }
  return NULL;
}

internal hpage *bins_find(bool dense, unsigned slices, unsigned align, unsigned looks,
                          uint32_t *starts) {
  hpage *page = find_page(dense, slices, align, looks, starts);
  if (!page && (!dense || looks == BINS_ALL))
    page = find_page(!dense, slices, align, looks, starts);
  return page;
}
