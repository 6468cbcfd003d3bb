/* fixed: pools of a capacity that doesn't change (masu/fixed.h).
 *
 *     free: every block that isn't out, one run at first
 *
 * One that was created is a tenant: descriptor, then the blocks, each a block of the heap. The
 * functions don't know which kind they have: that one was destroyed is a flag of its head.
 */
#include "masu/fixed.h"

#include <errno.h>
#include <string.h>

#include "forms/named.h"
#include "forms/runs.h"
#include "os/os.h"
#include "os/report.h"
#include "base/bits.h"
#include "heap/large.h"

typedef struct fixed {
  masu_fixed head;
  tenant tenant;
} fixed;

#define FIXED_DESTROYED (1u << 31)
/* Checked builds begin further in, so that no block of the pool is where one of the heap is: free
 * would take it for that. */
#define FIXED_HEAD (CHECKED ? 16 : 0)

static void fixed_used(const masu_fixed *f) {
  if (CHECKED && f->flags & FIXED_DESTROYED)
    report_misuse("use after destroy", f);
}

/* Usable bytes of a block are all of it, so the stride is `block`. */
static size_t fixed_stride(size_t size) { return size <= 8 ? 8 : ROUND_UP(size, 16); }

static void fixed_fill(masu_fixed *f) {
  f->free = (masu_runs){.at = f->start, .end = f->start + f->span};
}

PUBLIC size_t masu_fixed_init(masu_fixed *f, void *memory, size_t bytes, size_t size,
                              unsigned flags) {
  size_t stride = size && size <= LARGE_MOST ? fixed_stride(size) : 0;
  if (!memory || !stride || (uintptr_t)memory % 16 || bytes < stride || flags & ~(unsigned)MASU_FIXED_FALLBACK) {
    errno = EINVAL;
    return 0;
  }
  size_t count = bytes / stride;
  *f = (masu_fixed){.start = memory, .span = count * stride, .block = stride, .flags = flags};
  fixed_fill(f);
  for (size_t at = 0; at < f->span; at += os_page())
    *(volatile char *)(f->start + at) = 0;
  *(volatile char *)(f->start + f->span - 1) = 0;
  return count;
}

static void fixed_figures(const tenant *t, size_t *used, size_t *held) {
  const fixed *f = CONTAINER_OF(t, fixed, tenant);
  *held = tenant_peek(&f->head.span);
  *used = *held - min_size(free_bytes(&f->head.free, tenant_peek(&f->head.block)), *held);
}

static void fixed_shut(tenant *t) {
  masu_fixed *head = &CONTAINER_OF(t, fixed, tenant)->head;
  head->free = (masu_runs){0};
  head->span = 0;
  head->flags = FIXED_DESTROYED;
}

PUBLIC masu_fixed *masu_fixed_create_in(masu_heap *in, const char *name, size_t size,
                                        size_t count, unsigned flags) {
  size_t dirty, bytes;
  if (!size || !count) {
    errno = EINVAL;
    return NULL;
  }
  if (size > LARGE_MOST || __builtin_mul_overflow(fixed_stride(size), count, &bytes) || bytes > LARGE_MOST) {
    errno = ENOMEM;
    return NULL;
  }
  fixed *f = tenant_make(in, sizeof *f, 16);
  char *memory = f ? form_take(in, FIXED_HEAD + bytes, 16, &dirty) : NULL;
  if (!memory || !masu_fixed_init(&f->head, memory + FIXED_HEAD, bytes, size, flags)) {
    int why = errno;
    masu_free(memory);
    masu_free(f);
    errno = why;
    return NULL;
  }
  f->head.heap = in;
  f->tenant = (tenant){.figures = fixed_figures, .shut = fixed_shut};
  tenant_join(&f->tenant, in, "fixed", name);
  form_taken(in);
  return &f->head;
}

PUBLIC void masu_fixed_destroy(masu_fixed *head) {
  fixed *f = (fixed *)head;
  if (!f)
    return;
  fixed_used(head);
  masu_free(head->start - FIXED_HEAD);
  tenant_end(&f->tenant, f);
}

PUBLIC void masu_fixed_reset(masu_fixed *f) {
  fixed_used(f);
  fixed_fill(f);
}

/* ---- What leaves the inline functions ---- */

PUBLIC void *masu_fixed_alloc_slow(masu_fixed *f, size_t size) {
  fixed_used(f);
  f->missed++;
  if (f->flags & MASU_FIXED_FALLBACK)
    return masu_heap_malloc(f->heap, size);
  errno = ENOMEM;
  return NULL;
}

/* p, which lies in the pool, must be a block in use: the others say what else it is. */
static void fixed_check(masu_fixed *f, const void *p, const char *if_inside, const char *if_free) {
  if ((size_t)((const char *)p - f->start) % f->block)
    report_misuse(if_inside, p);
  free_run r = first_free_run(&f->free, f->block);
  do
    if ((uintptr_t)p - (uintptr_t)r.start < (size_t)(r.end - r.start))
      report_misuse(if_free, p);
  while (next_free_run(&r, f->block));
}

/* Any block of the pool, when the caller checks; else one that fell back. */
PUBLIC void masu_fixed_free_slow(masu_fixed *f, void *p) {
  fixed_used(f);
  if (masu_fixed_owns(f, p)) {
    fixed_check(f, p, "free of a pointer inside a block of a fixed pool", "double free in a fixed pool");
    give_run(&f->free, p, f->block);
    return;
  }
  if (p && !(f->flags & MASU_FIXED_FALLBACK))
    report_misuse("free of a pointer that is no block of this fixed pool", p);
  masu_free(p);
}

/* p fell back, or is a block of the pool: one that is too small, unless the caller checks. */
PUBLIC void *masu_fixed_realloc_slow(masu_fixed *f, void *p, size_t size) {
  fixed_used(f);
  if (!masu_fixed_owns(f, p)) {
    if (!(f->flags & MASU_FIXED_FALLBACK))
      report_misuse("realloc of a pointer that is no block of this fixed pool", p);
    return masu_realloc(p, max_size(size, 1)); /* of size 0 it would be freed */
  }
  if (CHECKED || size <= f->block)
    fixed_check(f, p, "realloc of a pointer inside a block of a fixed pool", "use of a freed block");
  if (size <= f->block)
    return p;
  void *q = masu_fixed_alloc_slow(f, size);
  if (q) {
    memcpy(q, p, f->block);
    give_run(&f->free, p, f->block);
  }
  return q;
}
