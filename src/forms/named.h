/* named: named heaps, as masu/heap.h shows them, and what lives in them.
 *
 * A named heap is an account (heap/account.h), on which each thread that uses it has a
 * limb (api/limb.h). Pools, arenas and ladders take their memory as blocks of it, so
 * that one account counts everything; what they are is on the heap's list of tenants,
 * for the figures and for destroy.
 *
 * Threads: any. The lists are guarded by LOCK_FORMS.
 */
#ifndef MASU_FORMS_NAMED_H
#define MASU_FORMS_NAMED_H

#include "base/list.h"
#include "heap/account.h"
#include "masu/heap.h"
#include "os/report.h"

/* Something that lives in a heap, or in the general memory. */
typedef struct tenant {
  list_node all;
  masu_heap *heap;
  const char *form; /* "pool", "arena", "ladder", "fixed", "scope" */
  bool ended;
  char name[32];
  /* Bytes in use and bytes held, called by any thread while the form's own changes them: by
   * tenant_peek. */
  void (*figures)(const struct tenant *t, size_t *used, size_t *held);
  /* Checked builds, when it or its heap was destroyed: leaves the inline functions nothing, so that
   * they come to the library, which reports it. NULL: it has none. */
  void (*shut)(struct tenant *t);
  /* The thread of that number, which may have used it, ends. NULL: it keeps nothing for threads. */
  void (*thread_ends)(struct tenant *t, uint64_t thread);
} tenant;

/* Memory for the descriptor of a form that lives in the heap: a block of it, which goes with it.
 * Checked builds keep descriptors, outside of every heap. NULL with ENOMEM. */
internal void *tenant_make(masu_heap *heap, size_t size, size_t align);
/* Its functions are set. */
internal void tenant_join(tenant *t, masu_heap *heap, const char *form, const char *name);
internal void tenant_leave(tenant *t);
/* The form is destroyed. Checked builds keep its descriptor and report whoever uses it again. */
internal void tenant_drop(void *descriptor);
internal void tenant_end(tenant *t, void *descriptor); /* leave and drop */
static inline void tenant_used(const tenant *t, const void *descriptor) {
  if (CHECKED && t->ended)
    report_misuse("use after destroy", descriptor);
}
/* A count or an address of a form as it happens to be. Those that belong together may be of
 * different moments. */
typedef uintptr_t __attribute__((may_alias)) tenant_word;
__attribute__((no_sanitize("thread"))) static inline uintptr_t tenant_peek(const void *word) {
  return *(const volatile tenant_word *)word;
}
internal const account *named_account(const masu_heap *named);
/* What the program gave with its callback. */
internal const void *named_context(const masu_heap *named);
internal size_t tenants_now(void);
internal void tenants_thread_ends(uint64_t thread);
/* What the statistics say of the n-th; false: there are fewer. */
typedef struct tenant_line {
  const char *form;
  char name[32], heap[32];
  size_t used, held; /* bytes; used is never more */
} tenant_line;
internal bool tenant_read(size_t n, tenant_line *line);

/* Memory of `heap` (NULL: the general memory) for a form, at least `size` bytes, aligned
 * to `align`, at least 16; freed by masu_free. *dirty: so many bytes at the start may
 * not be zero. NULL with ENOMEM. */
internal void *form_take(masu_heap *heap, size_t size, size_t align, size_t *dirty);
/* When a call that took some is over, with no lock held: may call the heap's callback,
 * which may use the form. */
internal void form_taken(masu_heap *heap);

#endif
