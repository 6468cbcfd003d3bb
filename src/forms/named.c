#include "forms/named.h"

#include <errno.h>
#include <string.h>

#include "api/fast.h"
#include "api/limb.h"
#include "api/sampled.h"
#include "base/figures.h"
#include "heap/mail.h"
#include "heap/roster.h"
#include "os/lock.h"
#include "os/report.h"
#include "pages/meta.h"

struct masu_heap {
  account account; /* first: the two convert */
  list_node all;
  char name[32];
  void (*on_soft)(masu_heap *named, size_t used, void *context);
  void *context;
  bool destroyed;
};

/* Guarded by LOCK_FORMS. */
static struct {
  list_node heaps, unused; /* descriptors keep their type */
  list_node tenants;
  size_t tenant_count;
  bool ready;
} forms;

static void prepare(void) {
  if (forms.ready)
    return;
  list_init(&forms.heaps);
  list_init(&forms.unused);
  list_init(&forms.tenants);
  forms.ready = true;
}

internal const account *named_account(const masu_heap *named) { return &named->account; }
internal const void *named_context(const masu_heap *named) { return named->context; }

static account *account_of(masu_heap *named) {
  if (CHECKED && named->destroyed)
    report_misuse("use after destroy", named);
  return &named->account;
}

static void copy_name(char *to, const char *name) {
  size_t length = name ? strnlen(name, 31) : 0;
  if (length)
    memcpy(to, name, length);
  to[length] = 0;
}

/* ---- Coming and going ---- */

static masu_heap *take_descriptor(void) {
  masu_heap *named = NULL;
  lock_take(LOCK_FORMS);
  prepare();
  if (!list_empty(&forms.unused)) {
    named = CONTAINER_OF(forms.unused.next, masu_heap, all);
    list_remove(&named->all);
  }
  lock_drop(LOCK_FORMS);
  return named ? named : meta_alloc(sizeof *named);
}

PUBLIC masu_heap *masu_heap_create(const char *name) {
  if (thread_busy) {
    errno = ENOMEM;
    return NULL;
  }
  heap *h = thread_enter();
  masu_heap *named = take_descriptor();
  if (named) {
    account_init(&named->account);
    copy_name(named->name, name);
    named->context = NULL;
    named->destroyed = false;
    lock_take(LOCK_FORMS);
    list_push_back(&forms.heaps, &named->all);
    lock_drop(LOCK_FORMS);
  }
  thread_leave(h);
  if (!named)
    errno = ENOMEM;
  return named;
}

/* Lock held. */
static void tenant_leaves(tenant *t) {
  list_remove(&t->all);
  forms.tenant_count--;
  t->ended = true;
  if (CHECKED && t->shut)
    t->shut(t);
}

static void evict(masu_heap *named) {
  for (list_node *n = forms.tenants.next, *next; n != &forms.tenants; n = next) {
    tenant *t = CONTAINER_OF(n, tenant, all);
    next = n->next;
    if (t->heap == named)
      tenant_leaves(t);
  }
}

PUBLIC void masu_heap_destroy(masu_heap *named) {
  if (!named)
    return;
  thread_free_deferred();
  heap *h = thread_enter();
  sampled_forget(account_of(named));
  lock_take(LOCK_FORMS);
  evict(named);
  roster_release_account(&named->account);
  list_remove(&named->all);
  named->destroyed = true;
  if (!CHECKED) /* there it stays what it was */
    list_push_front(&forms.unused, &named->all);
  lock_drop(LOCK_FORMS);
  thread_leave(h);
}

/* ---- The soft limit ---- */

static void tell(account *a) {
  masu_heap *named = (masu_heap *)a;
  named->on_soft(named, load_relaxed(&a->used), named->context);
}

/* ---- Allocating ---- */

PUBLIC void *masu_heap_malloc(masu_heap *named, size_t size) {
  if (UNLIKELY(!named))
    return malloc_fast(size);
  return limb_malloc(account_of(named), size);
}

PUBLIC void *masu_heap_calloc(masu_heap *named, size_t count, size_t size) {
  size_t total, dirty;
  if (!named)
    return masu_calloc(count, size);
  if (__builtin_mul_overflow(count, size, &total)) {
    errno = ENOMEM;
    return NULL;
  }
  void *p = limb_aligned(account_of(named), 1, total, &dirty);
  if (p)
    memset(p, 0, min_size(dirty, total));
  account_notice(account_of(named));
  return p;
}

PUBLIC void *masu_heap_realloc(masu_heap *named, void *p, size_t size) {
  if (!p)
    return masu_heap_malloc(named, size);
  return masu_realloc(p, size);
}

PUBLIC void *masu_heap_aligned_alloc(masu_heap *named, size_t alignment, size_t size) {
  size_t dirty;
  if (!named)
    return masu_aligned_alloc(alignment, size);
  if (!alignment || alignment & (alignment - 1)) {
    errno = EINVAL;
    return NULL;
  }
  void *p = limb_aligned(account_of(named), alignment, size, &dirty);
  account_notice(account_of(named));
  return p;
}

PUBLIC void masu_heap_free(masu_heap *named, void *p) {
  map_entry e = map_get(p);
  heap *l = thread_hot->limbs;
  (void)named;
  if (UNLIKELY(!l || map_entry_tag(e) != l->hot.tag)) {
    masu_free(p);
    return;
  }
  slab *s = map_entry_descriptor(e);
  if (CHECKED)
    checked_give(s, p);
  limb_free(l, s, p);
}

/* ---- Questions ---- */

PUBLIC masu_heap *masu_heap_of(const void *p) {
  map_entry e = map_get(p);
  return e == MAP_NONE ? NULL : (masu_heap *)heap_account_of(slab_of_entry(e));
}

PUBLIC const char *masu_heap_name(const masu_heap *named) { return named ? named->name : ""; }

PUBLIC void masu_heap_set_budget(masu_heap *named, size_t soft, size_t hard) {
  if (!named)
    return;
  store_relaxed(&named->account.soft, soft ? soft : SIZE_MAX);
  store_relaxed(&named->account.hard, hard ? hard : SIZE_MAX);
  account_discharge(account_of(named), 0); /* it may be below the soft limit now */
}

PUBLIC void masu_heap_on_soft(masu_heap *named,
                              void (*callback)(masu_heap *named, size_t used, void *context),
                              void *context) {
  if (!named)
    return;
  named->context = context;
  named->on_soft = callback;
  account_of(named)->exceeded = callback ? tell : NULL;
}

PUBLIC size_t masu_heap_trim(masu_heap *named) {
  if (!named) {
    masu_malloc_trim(0);
    return 0;
  }
  size_t before = load_relaxed(&named->account.used);
  if (!thread_busy)
    limb_trim(account_of(named));
  size_t after = load_relaxed(&named->account.used);
  return before > after ? before - after : 0;
}

typedef struct named_count {
  const account *whose;
  size_t live, blocks;
} named_count;

static void count_slab(slab *s, void *context) {
  named_count *c = context;
  if (heap_account_of(s) != c->whose)
    return;
  size_t out = load_acquire(&s->kind) == SLAB_SMALL ? mail_in_use(s) : 1;
  c->blocks += out;
  c->live += out * load_relaxed(&s->block_size);
}

static size_t limit_of(size_t limit) { return limit == SIZE_MAX ? 0 : limit; }

PUBLIC int masu_heap_read(const masu_heap *named, masu_heap_figures *out, size_t size) {
  if (!named || !FIGURES_FIT(size, masu_heap_figures, refused))
    return EINVAL;
  if (thread_busy)
    return EAGAIN;
  named_count c = {.whose = &named->account};
  heap *h = thread_enter_if_joined(); /* a signal handler must not wait for the lock */
  slab_for_each(count_slab, &c);
  thread_leave(h);
  const heap *own = thread_heap(), *l = own ? own->hot.limbs : NULL;
  while (l && load_relaxed(&l->account) != c.whose)
    l = l->sibling;
  if (l) /* what the calling thread holds ready it can see */
    for (unsigned k = 0; k < CLASS_COUNT; k++) {
      c.blocks -= heap_ready(l, k);
      c.live -= heap_ready(l, k) * class_size(k);
    }
  masu_heap_figures now = {
      .used = load_relaxed(&named->account.used),
      .peak = load_relaxed(&named->account.peak),
      .live = c.live,
      .blocks = c.blocks,
      .soft = limit_of(load_relaxed(&named->account.soft)),
      .hard = limit_of(load_relaxed(&named->account.hard)),
      .refused = load_relaxed(&named->account.refused),
  };
  figures_give(out, size, &now, sizeof now);
  return 0;
}

/* Lock held; NULL: the list has fewer. */
static list_node *nth_of(list_node *list, size_t n) {
  prepare();
  list_node *at = list->next;
  while (at != list && n--)
    at = at->next;
  return at == list ? NULL : at;
}

enum { HEAPS_AT_A_TIME = 64 };

/* From the n-th on; returns how many. */
static size_t some_heaps(size_t n, masu_heap **some) {
  size_t count = 0;
  bool busy = thread_lock(LOCK_FORMS);
  for (list_node *at = nth_of(&forms.heaps, n); at && at != &forms.heaps && count < HEAPS_AT_A_TIME; at = at->next)
    some[count++] = CONTAINER_OF(at, masu_heap, all);
  thread_unlock(LOCK_FORMS, busy);
  return count;
}

PUBLIC void masu_heap_for_each(void (*visit)(masu_heap *named, void *context), void *context) {
  masu_heap *some[HEAPS_AT_A_TIME];
  for (size_t n = 0, count; (count = some_heaps(n, some)); n += count)
    for (size_t i = 0; i < count; i++)
      visit(some[i], context);
}

/* ---- Tenants ---- */

internal void *tenant_make(masu_heap *named, size_t size, size_t align) {
  size_t dirty;
  return form_take(CHECKED ? NULL : named, size, align, &dirty);
}

internal void tenant_join(tenant *t, masu_heap *named, const char *form, const char *name) {
  t->heap = named;
  t->form = form;
  t->ended = false;
  copy_name(t->name, name);
  bool busy = thread_lock(LOCK_FORMS);
  prepare();
  list_push_back(&forms.tenants, &t->all);
  forms.tenant_count++;
  thread_unlock(LOCK_FORMS, busy);
}

internal void tenant_leave(tenant *t) {
  bool busy = thread_lock(LOCK_FORMS);
  tenant_leaves(t);
  thread_unlock(LOCK_FORMS, busy);
}

internal void tenant_drop(void *descriptor) {
  if (!CHECKED)
    masu_free(descriptor);
}

internal void tenant_end(tenant *t, void *descriptor) {
  tenant_leave(t);
  tenant_drop(descriptor);
}

internal void tenants_thread_ends(uint64_t thread) {
  bool busy = thread_lock(LOCK_FORMS);
  for (list_node *n = forms.tenants.next; n != &forms.tenants; n = n->next) {
    tenant *t = CONTAINER_OF(n, tenant, all);
    if (t->thread_ends)
      t->thread_ends(t, thread);
  }
  thread_unlock(LOCK_FORMS, busy);
}

internal size_t tenants_now(void) {
  bool busy = thread_lock(LOCK_FORMS);
  size_t count = forms.tenant_count;
  thread_unlock(LOCK_FORMS, busy);
  return count;
}

internal bool tenant_read(size_t n, tenant_line *line) {
  bool busy = thread_lock(LOCK_FORMS);
  list_node *at = nth_of(&forms.tenants, n);
  if (at) {
    const tenant *t = CONTAINER_OF(at, tenant, all);
    line->form = t->form;
    copy_name(line->name, t->name);
    copy_name(line->heap, masu_heap_name(t->heap));
    t->figures(t, &line->used, &line->held);
    line->used = min_size(line->used, line->held); /* they may be of different moments */
  }
  thread_unlock(LOCK_FORMS, busy);
  return at != NULL;
}

internal void form_taken(masu_heap *named) {
  if (named)
    account_notice(account_of(named));
}

internal void *form_take(masu_heap *named, size_t size, size_t align, size_t *dirty) {
  *dirty = size;
  if (named)
    return limb_aligned(account_of(named), max_size(align, 16), size, dirty);
  return malloc_aligned_dirty(max_size(align, 16), size, dirty);
}
