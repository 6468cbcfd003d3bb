#include "observe/ledger.h"

#include <errno.h>
#include <string.h>

#include "api/thread.h"
#include "forms/named.h"
#include "heap/front.h"
#include "heap/mail.h"
#include "heap/outbox.h"
#include "heap/roster.h"
#include "heap/sparse.h"
#include "observe/cpu.h"
#include "observe/profile.h"
#include "os/os.h"
#include "pages/mappings.h"
#include "pages/meta.h"

/* ---- What there is ---- */

#define COLUMN(row, name, unit, meaning) {#name, LEDGER_##unit, offsetof(row, name), meaning}

#define OF(name, unit, meaning) COLUMN(masu_stats, name, unit, meaning)
static const ledger_column process_columns[] = {
    OF(resident, BYTES, "resident memory of the whole process"),
    OF(live, BYTES, "in blocks in use or held ready by threads"),
    OF(ready_most, BYTES, "of live: held ready, at most"),
    OF(peak_live, BYTES, "the most that live was when it was read"),
    OF(peak, BYTES, "the most that slabs and large blocks ever were"),
    OF(blocks, COUNT, "blocks in use or held ready"),
    OF(large_blocks, COUNT, "of them above the size classes"),
    OF(large, BYTES, "in blocks above the size classes"),
    OF(slabs, COUNT, "slabs"),
    OF(slab_bytes, BYTES, "in slabs"),
    OF(slab_free, BYTES, "free blocks in slabs that are in use"),
    OF(slab_spare, BYTES, "free blocks in empty slabs"),
    OF(slab_unused, BYTES, "in slabs, never used or given back"),
    OF(front, BYTES, "large blocks freed and kept for reuse"),
    OF(idle, BYTES, "free slices that may be resident"),
    OF(kept, BYTES, "free mappings kept for reuse"),
    OF(prepared, BYTES, "what masu_prewarm keeps resident"),
    OF(dirty, BYTES, "handed out or kept, that may be resident"),
    OF(returned, BYTES_SUM, "given back to the system so far"),
    OF(reserved, BYTES, "address space reserved"),
    OF(committed, BYTES, "of it accessible"),
    OF(own, BYTES, "descriptors and tables of masu"),
    OF(heaps, COUNT, "heaps of threads and limbs of named heaps"),
    OF(named_heaps, COUNT, "named heaps"),
};
_Static_assert(sizeof process_columns / sizeof *process_columns == sizeof(masu_stats) / 8,
               "each field is a column");
#undef OF

#define OF(name, unit, meaning) COLUMN(masu_stats_class, name, unit, meaning)
static const ledger_column class_columns[] = {
    OF(size, LABEL, "bytes of a block"),
    OF(slabs, COUNT, "slabs"),
    OF(room, COUNT, "blocks that fit into them"),
    OF(blocks, COUNT, "blocks in use or held ready"),
    OF(live, BYTES, "in these blocks"),
    OF(free, BYTES, "in free blocks that were in use before"),
};
#undef OF

#define OF(name, unit, meaning) COLUMN(masu_stats_heap, name, unit, meaning)
static const ledger_column heap_columns[] = {
    OF(heap, LABEL, "number of the heap"),
    OF(thread, LABEL, "the thread that uses it"),
    OF(limb, LABEL, "is it part of a named heap"),
    OF(slabs, COUNT, "slabs"),
    OF(blocks, COUNT, "blocks in use or held ready"),
    OF(live, BYTES, "in these blocks"),
    OF(free, BYTES, "free blocks in its slabs"),
    OF(front, BYTES, "large blocks freed and kept for reuse"),
};
#undef OF

#define OF(name, unit, meaning) COLUMN(ledger_named, name, unit, meaning)
static const ledger_column named_columns[] = {
    OF(name, TEXT, "name of the heap"),
    OF(used, BYTES, "touched: what the budget counts"),
    OF(peak, BYTES, "the most that used ever was"),
    OF(live, BYTES, "in blocks in use or held ready by threads"),
    OF(blocks, COUNT, "these blocks"),
    OF(soft, BYTES, "soft limit of the budget, 0: none"),
    OF(hard, BYTES, "hard limit of the budget, 0: none"),
    OF(refused, COUNT_SUM, "allocations that the hard limit turned away"),
};
#undef OF

#define OF(name, unit, meaning) COLUMN(ledger_form, name, unit, meaning)
static const ledger_column form_columns[] = {
    OF(form, TEXT, "pool, fixed, arena, ladder or scope"),
    OF(name, TEXT, "its name"),
    OF(used, BYTES, "in use"),
    OF(held, BYTES, "held, as blocks of its heap"),
    OF(heap, TEXT, "the named heap it lives in"),
};
#undef OF

#define OF(name, unit, meaning) COLUMN(ledger_sized, name, unit, meaning)
static const ledger_column sized_columns[] = {
    OF(size, LABEL, "bytes of a sized block"),
    OF(blocks, COUNT, "in use or held ready by threads"),
    OF(made, COUNT, "made ready so far, some at a time"),
    OF(held, BYTES, "address space held"),
};
#undef OF

#define OF(name, unit, meaning) COLUMN(ledger_sampled, name, unit, meaning)
static const ledger_column sampled_columns[] = {
    OF(in_use, BYTES, "of blocks made while it sampled; estimated"),
    OF(in_use_low, BYTES, "at least, in 39 cases of 40"),
    OF(in_use_high, BYTES, "at most, in 39 cases of 40"),
    OF(requested, BYTES, "of in_use: what was asked for"),
    OF(requested_low, BYTES, "at least, in 39 cases of 40"),
    OF(requested_high, BYTES, "at most, in 39 cases of 40"),
    OF(slack, BYTES, "of in_use: not asked for, lost to size classes"),
    OF(slack_low, BYTES, "at least, in 39 cases of 40"),
    OF(slack_high, BYTES, "at most, in 39 cases of 40"),
    OF(samples, COUNT_SUM, "blocks that were looked at"),
};
#undef OF

#define OF(name, unit, meaning) COLUMN(masu_resident, name, unit, meaning)
static const ledger_column resident_columns[] = {
    OF(total, BYTES, "resident memory of the whole process"),
    OF(live, BYTES, "in blocks in use or held ready by threads"),
    OF(slab_free, BYTES, "the rest of slabs that are in use"),
    OF(slab_spare, BYTES, "empty slabs kept for reuse"),
    OF(idle, BYTES, "other free memory kept for reuse"),
    OF(own, BYTES, "descriptors and tables of masu"),
    OF(other, BYTES, "not from malloc"),
};
#undef OF

#define TABLE(name, columns, rows, most)                                        \
  {name, columns, sizeof columns / sizeof *columns, offsetof(ledger, rows),      \
   sizeof(((ledger *)0)->rows) / (most), most}
internal_def const ledger_table ledger_tables[LEDGER_TABLES] = {
    [LEDGER_PROCESS] = TABLE("process", process_columns, process, 1),
    [LEDGER_CLASS] = TABLE("class", class_columns, classes, CLASS_COUNT),
    [LEDGER_HEAP] = TABLE("heap", heap_columns, heaps, LEDGER_HEAPS),
    [LEDGER_NAMED_HEAP] = TABLE("named_heap", named_columns, named, LEDGER_NAMED),
    [LEDGER_FORM] = TABLE("form", form_columns, forms, LEDGER_FORMS),
    [LEDGER_SIZED] = TABLE("sized", sized_columns, sized, MASU_SIZE_INDEXES),
    [LEDGER_SAMPLED] = TABLE("sampled", sampled_columns, sampled, 1),
    [LEDGER_RESIDENT] = TABLE("resident", resident_columns, resident, 1),
};

/* ---- The walk ---- */

enum { PLACES = 2 * LEDGER_NAMED };

/* A ledger while it is made; `out` is what is left of it. */
typedef struct walk {
  ledger out;
  /* Where a named heap's row stands, by its account. */
  struct {
    const account *whose;
    ledger_named *row;
  } places[PLACES];
  /* The most blocks in use in one slab, of a heap and a class: what is in a hand comes from one. In
   * the row that sums up others, all of theirs. */
  uint32_t fullest[LEDGER_HEAPS][CLASS_COUNT];
} walk;

internal ledger *ledger_make(void) {
  walk *w = os_map(ROUND_UP(sizeof *w, os_page()), os_page());
  return w ? &w->out : NULL;
}

internal void ledger_end(ledger *l) { os_unmap(l, ROUND_UP(sizeof(walk), os_page())); }

static size_t place_of(const walk *w, const account *a) {
  size_t i = (uintptr_t)a / 128 % PLACES;
  while (w->places[i].whose && w->places[i].whose != a)
    i = (i + 1) % PLACES;
  return i;
}

static void add_named(masu_heap *named, void *context) {
  walk *w = context;
  ledger_count *n = &w->out.counts[LEDGER_NAMED_HEAP];
  const account *a = named_account(named);
  w->out.process.named_heaps++;
  if (n->rows == LEDGER_NAMED) {
    n->more++;
    return;
  }
  ledger_named *row = &w->out.named[n->rows++];
  size_t soft = load_relaxed(&a->soft), hard = load_relaxed(&a->hard);
  strncpy(row->name, masu_heap_name(named), sizeof row->name - 1);
  row->used = load_relaxed(&a->used);
  row->peak = load_relaxed(&a->peak);
  row->soft = soft == SIZE_MAX ? 0 : soft;
  row->hard = hard == SIZE_MAX ? 0 : hard;
  row->refused = load_relaxed(&a->refused);
  size_t place = place_of(w, a);
  w->places[place].whose = a;
  w->places[place].row = row;
}

/* NULL: nobody's, or one for which there was no room. */
static ledger_named *named_row(const walk *w, const heap *h) {
  const account *a = h ? load_relaxed(&h->account) : NULL;
  return a ? w->places[place_of(w, a)].row : NULL;
}

/* Tags are given out from the first on and used again, so the rows fill from the front. */
static size_t tag_row(map_tag tag) {
  size_t limb = tag - (size_t)TAG_FIRST_LIMB, own = tag - (size_t)TAG_FIRST_HEAP;
  if (tag >= TAG_FIRST_LIMB)
    return limb < LEDGER_LIMBS ? LEDGER_OWN_HEAPS + limb : LEDGER_HEAPS - 1;
  return own < LEDGER_OWN_HEAPS ? own : LEDGER_HEAPS - 1;
}

static size_t heap_row(const heap *h) {
  return tag_row(h->hot.tag);
}

static void add_heap(heap *h, void *context) {
  walk *w = context;
  masu_stats_heap *row = &w->out.heaps[heap_row(h)];
  w->out.process.heaps++;
  if (row == &w->out.heaps[LEDGER_HEAPS - 1]) {
    w->out.counts[LEDGER_HEAP].more++;
  } else {
    row->heap = h->hot.tag;
    row->thread = load_relaxed(&h->user);
    row->limb = h->hot.tag >= TAG_FIRST_LIMB;
  }
}

/* `blocks` more, or with a negative number fewer, in use in a slab or large block of h. */
static void count_blocks(walk *w, const heap *h, int64_t blocks, size_t size) {
  ledger_named *named = named_row(w, h);
  uint64_t bytes = (uint64_t)blocks * size;
  if (h) {
    w->out.heaps[heap_row(h)].blocks += (uint64_t)blocks;
    w->out.heaps[heap_row(h)].live += bytes;
  }
  if (named) {
    named->blocks += (uint64_t)blocks;
    named->live += bytes;
  }
}

static void add_small(walk *w, const slab *s, const heap *h) {
  masu_stats *p = &w->out.process;
  unsigned class = load_relaxed(&s->size_class);
  masu_stats_class *row = &w->out.classes[class];
  uint64_t size = class_size(class), in_use = mail_in_use(s);
  uint64_t touched = sparse_charged(s), bytes = load_relaxed(&s->slices) * SLICE_SIZE;
  uint64_t unused = touched > in_use * size ? touched - in_use * size : 0;
  row->slabs++;
  row->room += load_relaxed(&s->capacity);
  row->blocks += in_use;
  row->free += unused;
  p->slabs++;
  p->slab_bytes += bytes;
  *(in_use ? &p->slab_free : &p->slab_spare) += unused;
  p->slab_unused += bytes - min_size(bytes, in_use * size + unused);
  count_blocks(w, h, (int64_t)in_use, size);
  if (h) {
    size_t n = heap_row(h);
    uint32_t *fullest = &w->fullest[n][class];
    bool summed_up = n == LEDGER_HEAPS - 1;
    w->out.heaps[n].slabs++;
    w->out.heaps[n].free += unused;
    *fullest = summed_up ? *fullest + (uint32_t)in_use : (uint32_t)max_size(*fullest, in_use);
  }
}

static void add_large(walk *w, const slab *s, const heap *h) {
  size_t size = load_relaxed(&s->block_size);
  const heap *keeper = front_keeper(s);
  if (keeper) { /* nobody's */
    w->out.process.front += size;
    w->out.heaps[tag_row(keeper->hot.tag)].front += size;
    return;
  }
  w->out.process.large_blocks++;
  w->out.process.large += size;
  count_blocks(w, h, 1, size);
}

static void ledger_slab(slab *s, void *context) {
  walk *w = context;
  const heap *h = load_relaxed(&s->owner);
  if (load_acquire(&s->kind) != SLAB_SMALL) {
    add_large(w, s, h);
  } else if (mail_state_of(load_relaxed(&s->mail)) != MAIL_DEAD) {
    add_small(w, s, h);
  }
}

/* What the calling thread holds ready it can see. */
static void subtract_hands(walk *w, const heap *h) {
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    int64_t count = (int64_t)heap_ready(h, c);
    w->out.classes[c].blocks -= (uint64_t)count;
    w->out.classes[c].free += (uint64_t)count * class_size(c);
    w->out.process.slab_free += (uint64_t)count * class_size(c);
    w->out.heaps[heap_row(h)].free += (uint64_t)count * class_size(c);
    count_blocks(w, h, -count, class_size(c));
    if (heap_row(h) != LEDGER_HEAPS - 1)
      w->fullest[heap_row(h)][c] = 0;
  }
}

/* ---- Sums ---- */

/* Of every heap in each class one slab's, and in each own heap what waits in slots. */
static uint64_t ready_most(const walk *w) {
  uint64_t bytes = 0, own = 0;
  for (size_t n = 0; n < LEDGER_HEAPS; n++) {
    for (unsigned c = 0; c < CLASS_COUNT; c++)
      bytes += (uint64_t)w->fullest[n][c] * class_size(c);
    own += w->out.heaps[n].heap && !w->out.heaps[n].limb;
  }
  own += w->out.counts[LEDGER_HEAP].more;
  return own > 1 ? bytes + own * SLOT_COUNT * SLOT_BYTES : bytes;
}

static uint64_t note_peak(uint64_t live) {
  static atomic_u64 most;
  uint64_t before = load_relaxed(&most);
  while (before < live && !cas_acq_rel(&most, &before, live))
    ;
  return max_size(before, live);
}

/* Of masu's tables those that lie in mappings of their own. */
static size_t tables_resident(void) { return map_resident() + profile_resident() + cpu_resident(); }

static void sum_up(walk *w) {
  masu_stats *p = &w->out.process;
  supply_figures f = supply_figures_now();
  p->live = p->large;
  p->blocks = p->large_blocks;
  for (unsigned c = 0; c < CLASS_COUNT; c++) {
    masu_stats_class *row = &w->out.classes[c];
    row->size = class_size(c);
    row->live = row->blocks * row->size;
    p->live += row->live;
    p->blocks += row->blocks;
  }
  p->ready_most = min_size(ready_most(w), p->live);
  p->peak_live = note_peak(p->live);
  p->peak = f.peak;
  p->idle = f.idle;
  p->kept = f.kept;
  p->prepared = f.prewarmed;
  p->returned = f.returned;
  p->reserved = f.reserved;
  p->committed = f.committed;
  p->dirty = f.used + f.direct + f.idle + f.kept;
  p->dirty -= min_size(p->dirty, p->slab_unused);
  p->own = meta_used() + tables_resident();
  p->resident = os_resident();
  w->out.counts[LEDGER_PROCESS].rows = 1;
}

/* Only rows that have something. */
static void compact(ledger *l) {
  uint32_t *classes = &l->counts[LEDGER_CLASS].rows, *heaps = &l->counts[LEDGER_HEAP].rows;
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    if (l->classes[c].slabs)
      l->classes[(*classes)++] = l->classes[c];
  for (size_t n = 0; n < LEDGER_HEAPS; n++)
    if (l->heaps[n].heap || l->heaps[n].slabs || l->heaps[n].front)
      l->heaps[(*heaps)++] = l->heaps[n];
}

static void add_forms(ledger *l) {
  tenant_line t;
  ledger_count *count = &l->counts[LEDGER_FORM];
  while (count->rows < LEDGER_FORMS && tenant_read(count->rows, &t)) {
    ledger_form *row = &l->forms[count->rows++];
    strncpy(row->form, t.form, sizeof row->form - 1);
    memcpy(row->name, t.name, sizeof t.name);
    memcpy(row->heap, t.heap, sizeof t.heap);
    row->used = t.used;
    row->held = t.held;
  }
  count->more = (uint32_t)(max_size(tenants_now(), count->rows) - count->rows);
  for (unsigned i = 0; i < MASU_SIZE_INDEXES; i++) {
    masu_sized_figures f;
    masu_sized_read(i, &f, sizeof f);
    if (f.made)
      l->sized[l->counts[LEDGER_SIZED].rows++] =
          (ledger_sized){masu_size_of_index(i), f.live, f.made, f.held};
  }
}

static uint64_t whole(double estimated) { return (uint64_t)(estimated > 0 ? estimated + 0.5 : 0); }

static void add_sampled(ledger *l) {
  masu_profile_figures f;
  if (masu_profile_read(&f, sizeof f))
    return;
  l->sampled = (ledger_sampled){
      .in_use = whole(f.in_use), .in_use_low = whole(f.in_use_low), .in_use_high = whole(f.in_use_high),
      .requested = whole(f.requested), .requested_low = whole(f.requested_low), .requested_high = whole(f.requested_high),
      .slack = whole(f.slack), .slack_low = whole(f.slack_low), .slack_high = whole(f.slack_high),
      .samples = f.samples};
  l->counts[LEDGER_SAMPLED].rows = 1;
}

static void read_all(walk *w) {
  masu_heap_for_each(add_named, w);
  slab_for_each(ledger_slab, w);
  roster_for_each(add_heap, w);
  const heap *own = thread_heap();
  if (own) {
    subtract_hands(w, own);
    for (const heap *limb = own->hot.limbs; limb; limb = limb->sibling)
      subtract_hands(w, limb);
  }
  sum_up(w);
  compact(&w->out);
}

internal int ledger_read(ledger *l) {
  if (thread_is_inside())
    return EAGAIN; /* the locks may be this thread's own */
  heap *h = thread_enter_if_joined();
  read_all((walk *)l);
  thread_leave(h);
  add_forms(l);
  add_sampled(l);
  return 0;
}

/* ---- What is resident ---- */

typedef struct measurement {
  masu_resident *out;
  size_t in_regions; /* resident bytes that are blocks' and slabs' */
} measurement;

static void measure_small(masu_resident *out, const slab *s, size_t resident) {
  size_t live = mail_in_use(s) * load_relaxed(&s->block_size);
  out->live += min_size(live, resident);
  *(live ? &out->slab_free : &out->slab_spare) += resident - min_size(live, resident);
}

static size_t measure_entry(char *start, map_entry e, void *context) {
  measurement *m = context;
  const slab *s = slab_of_entry(e);
  if ((const char *)s == start)
    return 1; /* a signal handler's, whose descriptor goes with it: counts as other */
  size_t slices = max_size(load_relaxed(&s->slices), 1);
  size_t resident = os_resident_in(start, slices * SLICE_SIZE);
  uint8_t kind = load_acquire(&s->kind);
  if (kind == SLAB_SMALL)
    measure_small(m->out, s, resident);
  else if (!front_keeper(s))
    m->out->live += resident;
  else
    m->out->idle += resident;
  if (kind != SLAB_DIRECT)
    m->in_regions += resident;
  return slices;
}

static void measure(masu_resident *out) {
  measurement m = {.out = out};
  map_for_each(measure_entry, &m);
  size_t regions = supply_resident();
  out->idle += regions - min_size(regions, m.in_regions) + mappings_resident();
  out->own = meta_resident() + tables_resident();
  out->total = os_resident();
  size_t ours = out->live + out->slab_free + out->slab_spare + out->idle + out->own;
  out->other = out->total - min_size(out->total, ours);
}

internal int ledger_measure(ledger *l) {
  if (thread_busy)
    return EAGAIN;
  heap *h = thread_enter_if_joined();
  measure(&l->resident);
  thread_leave(h);
  l->counts[LEDGER_RESIDENT].rows = 1;
  return 0;
}
