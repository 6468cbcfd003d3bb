#include "pages/regions.h"

#include "os/lock.h"
#include "os/os.h"
#include "pages/meta.h"
#include "pages/pagemap.h"

#define REGION_LEAST (32 * MIB)
#define REGION_MOST (1024 * MIB)
#define REGION_LIMITED (8 * MIB) /* where address space or data are limited */

static struct {
  region *first;
  region *unused;
} all_regions;

static list_node put_back = {&put_back, &put_back}; /* pages that were */

internal region *regions_first(void) { return all_regions.first; }

internal hpage *regions_next_page(void) {
  if (!list_empty(&put_back)) {
    hpage *page = CONTAINER_OF(put_back.next, hpage, bin);
    list_remove(&page->bin);
    return page;
  }
  for (region *r = all_regions.first; r; r = r->next)
    if (r->touched < r->count) {
      hpage *page = &r->pages[r->touched];
      *page = (hpage){.base = r->base + r->touched * HUGE_SIZE, .region = r};
      list_init(&page->bin);
      list_init(&page->aging);
      r->touched++;
      return page;
    }
  return NULL;
}

internal void regions_put_back(hpage *page, bool first) {
  if (first)
    list_push_front(&put_back, &page->bin);
  else
    list_push_back(&put_back, &page->bin);
}

/* ---- Adding ---- */

static size_t region_size_wanted(size_t reserved) {
  if (os_memory_limited())
    return REGION_LIMITED;
  return min_size(max_size(ROUND_UP(reserved / 4, HUGE_SIZE), REGION_LEAST), REGION_MOST);
}

/* A struct for a region of that many pages, from the unused ones or new. */
static region *region_struct(unsigned count) {
  for (region **r = &all_regions.unused; *r; r = &(*r)->next)
    if ((*r)->room >= count) {
      region *found = *r;
      *r = found->next;
      return found;
    }
  region *made = meta_alloc(sizeof *made + count * sizeof *made->pages);
  if (!made)
    return NULL;
  made->pages = (hpage *)(made + 1);
  made->room = count;
  return made;
}

/* Address space of *size bytes, or of less where that isn't to be had. */
static char *region_reserve(size_t *size) {
  for (; *size >= HUGE_SIZE; *size = *size / 2 / HUGE_SIZE * HUGE_SIZE) {
    char *base = os_reserve(*size, HUGE_SIZE);
    if (base && map_prepare(base, *size)) {
      os_avoid_huge_pages(base, *size);
      return base;
    }
    if (base)
      os_unmap(base, *size);
  }
  return NULL;
}

internal size_t regions_add(size_t reserved) {
  size_t size = region_size_wanted(reserved);
  lock_drop(LOCK_SUPPLY);
  char *base = region_reserve(&size);
  lock_take(LOCK_SUPPLY);
  region *r = base ? region_struct((unsigned)(size / HUGE_SIZE)) : NULL;
  if (!r) {
    if (base)
      os_unmap(base, size);
    return 0;
  }
  r->base = base;
  r->count = (unsigned)(size / HUGE_SIZE);
  r->touched = r->used = 0;
  r->next = all_regions.first;
  all_regions.first = r;
  return size;
}

/* ---- Removing ---- */

internal region *regions_take_empty(void) {
  for (region **link = &all_regions.first; *link; link = &(*link)->next)
    if (!(*link)->used) {
      region *r = *link;
      *link = r->next;
      return r;
    }
  return NULL;
}

internal void regions_forget(region *r) {
  r->next = all_regions.unused;
  all_regions.unused = r;
}
