#include "api/inspect.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "api/thread.h"
#include "base/options.h"
#include "heap/helper.h"
#include "heap/mail.h"
#include "heap/roster.h"
#include "masu.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/meta.h"

#define STRING(x) #x
#define VERSION_TEXT(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

PUBLIC const char *masu_version(void) {
  return VERSION_TEXT(MASU_VERSION_MAJOR, MASU_VERSION_MINOR, MASU_VERSION_PATCH);
}

/* ---- Figures ---- */

static void add_slab(slab *s, void *context) {
  figures *f = context;
  if (load_acquire(&s->kind) == SLAB_SMALL) {
    class_figures *c = &f->classes[load_relaxed(&s->size_class)];
    uint64_t mail = load_relaxed(&s->mail);
    uint32_t out = load_relaxed(&s->need) + load_relaxed(&s->reserve);
    uint32_t in_mail = mail_count_of(mail);
    if (mail_state_of(mail) == MAIL_DEAD)
      return;
    c->slabs++;
    c->blocks += load_relaxed(&s->capacity);
    c->in_use += out > in_mail ? out - in_mail : 0;
  } else {
    f->large_blocks++;
    f->large_bytes += load_relaxed(&s->block_size);
  }
}

/* A run kept in front is nobody's block. */
static void subtract_front(heap *h, void *context) {
  figures *f = context;
  for (unsigned i = 0; i < FRONT_COUNT; i++) {
    size_t slices = load_relaxed(&h->hot.front[i]) & 0xffff;
    f->large_blocks -= slices != 0;
    f->large_bytes -= slices * SLICE_SIZE;
  }
}

static void subtract_own_hand(figures *f) {
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    for (block *b = thread_hot->hand[c]; b; b = b->next)
      f->classes[c].in_use--;
}

static void read_unbusy(figures *f) {
  f->supply = supply_figures_now();
  f->meta = meta_used();
  f->resident = os_resident();
  slab_for_each(add_slab, f);
  roster_for_each(subtract_front, f);
  subtract_own_hand(f);
  f->live = f->large_bytes;
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    f->live += f->classes[c].in_use * class_size(c);
}

internal void figures_read(figures *f) {
  memset(f, 0, sizeof *f);
  if (thread_busy)
    return; /* a signal handler inside masu: the locks may be this thread's own */
  heap *h = thread_enter_if_joined();
  read_unbusy(f);
  thread_leave(h);
}

internal_def _Atomic(void (*)(void)) stats_hook;

static size_t held(const figures *f) { return f->supply.used + f->supply.direct; }

PUBLIC void masu_malloc_stats(void) {
  static figures f; /* too large for a small stack; a torn read is only a figure */
  figures_read(&f);
  report("%s, process %d", os_program_name(), os_process_id());
  report("  %-10s %12zu KiB in blocks", "live", f.live / KIB);
  report("  %-10s %12zu KiB in slabs and large blocks (%zu now)", "peak",
         f.supply.peak / KIB, held(&f) / KIB);
  report("  %-10s %12zu KiB of the whole process", "resident", f.resident / KIB);
  report("  %-10s %12zu KiB freed and kept for reuse", "idle",
         (f.supply.idle + f.supply.kept) / KIB);
  report("  %-10s %12zu KiB given back to the system so far", "returned",
         f.supply.returned / KIB);
  report("  %-10s %12zu KiB of descriptors and tables, %u heaps", "own", f.meta / KIB,
         roster_count());
  report("  %10s %10s %12s %12s %8s", "block size", "slabs", "blocks used", "KiB used",
         "% used");
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    if (f.classes[c].slabs)
      report("  %10zu %10zu %12zu %12zu %8zu", class_size(c), f.classes[c].slabs,
             f.classes[c].in_use, f.classes[c].in_use * class_size(c) / KIB,
             f.classes[c].in_use * 100 / f.classes[c].blocks);
  if (f.large_blocks)
    report("  %10s %10s %12zu %12zu", "larger", "", f.large_blocks, f.large_bytes / KIB);
  void (*more)(void) = load_relaxed(&stats_hook);
  if (more && !thread_busy)
    more();
}

/* ---- The C library's questions ---- */

/* As glibc counts: mappings of their own stand in hblkhd and nowhere else. */
PUBLIC struct mallinfo2 masu_mallinfo2(void) {
  figures f;
  figures_read(&f);
  size_t arena = f.supply.used + f.supply.idle;
  size_t live = f.live - min_size(f.live, f.supply.direct);
  return (struct mallinfo2){
      .arena = arena,
      .ordblks = 1,
      .hblkhd = f.supply.direct,
      .usmblks = f.supply.peak,
      .uordblks = live,
      .fordblks = arena - min_size(live, arena),
      .keepcost = f.supply.idle + f.supply.kept,
  };
}

static int clamped(size_t x) { return x > INT32_MAX ? INT32_MAX : (int)x; }

PUBLIC struct mallinfo masu_mallinfo(void) {
  struct mallinfo2 m = masu_mallinfo2();
  return (struct mallinfo){
      .arena = clamped(m.arena),
      .ordblks = clamped(m.ordblks),
      .hblkhd = clamped(m.hblkhd),
      .usmblks = clamped(m.usmblks),
      .uordblks = clamped(m.uordblks),
      .fordblks = clamped(m.fordblks),
      .keepcost = clamped(m.keepcost),
  };
}

PUBLIC int masu_malloc_info(int options, FILE *stream) {
  figures f;
  if (options != 0)
    return EINVAL;
  figures_read(&f);
  fprintf(stream, "<malloc version=\"1\" allocator=\"masu %s\">\n", masu_version());
  fprintf(stream, "<sizes>\n");
  for (unsigned c = 0; c < CLASS_COUNT; c++)
    if (f.classes[c].slabs)
      fprintf(stream, "<size size=\"%zu\" slabs=\"%zu\" blocks=\"%zu\" used=\"%zu\"/>\n",
              class_size(c), f.classes[c].slabs, f.classes[c].blocks, f.classes[c].in_use);
  fprintf(stream, "</sizes>\n");
  fprintf(stream, "<total type=\"live\" size=\"%zu\"/>\n", f.live);
  fprintf(stream, "<total type=\"large\" count=\"%zu\" size=\"%zu\"/>\n", f.large_blocks,
          f.large_bytes);
  fprintf(stream, "<total type=\"idle\" size=\"%zu\"/>\n", f.supply.idle + f.supply.kept);
  fprintf(stream, "<total type=\"returned\" size=\"%zu\"/>\n", f.supply.returned);
  fprintf(stream, "<system type=\"current\" size=\"%zu\"/>\n", held(&f));
  fprintf(stream, "<system type=\"max\" size=\"%zu\"/>\n", f.supply.peak);
  fprintf(stream, "</malloc>\n");
  return 0;
}

internal bool give_back_idle(size_t pad) {
  if (thread_busy)
    return false;
  heap *h = thread_enter_if_joined();
  if (h)
    heap_tidy(h);
  bool any = helper_give_back_all(pad) > 0;
  thread_leave(h);
  return any;
}

PUBLIC int masu_malloc_trim(size_t pad) {
  if (supply_is_prewarmed())
    masu_prewarm(0, NULL, 0);
  return give_back_idle(pad);
}

PUBLIC int masu_mallopt(int parameter, int value) {
  (void)value;
  switch (parameter) {
  case -101: /* M_PURGE, as bionic has it */
    masu_malloc_trim(0);
    return 1;
  case M_MXFAST:
  case M_TRIM_THRESHOLD:
  case M_TOP_PAD:
  case M_MMAP_THRESHOLD:
  case M_MMAP_MAX:
  case M_CHECK_ACTION:
  case M_PERTURB:
  case M_ARENA_TEST:
  case M_ARENA_MAX:
    return 1;
  default:
    return 0;
  }
}

/* ---- Control ---- */

static bool read_figure(const char *name, uint64_t *value) {
  figures f;
  figures_read(&f);
  if (!strcmp(name, "stats.live"))
    *value = f.live;
  else if (!strcmp(name, "stats.peak"))
    *value = f.supply.peak;
  else if (!strcmp(name, "stats.resident"))
    *value = f.resident;
  else if (!strcmp(name, "stats.returned"))
    *value = f.supply.returned;
  else if (!strcmp(name, "stats.heaps"))
    *value = roster_count();
  else
    return false;
  return true;
}

PUBLIC int masu_ctl(const char *name, uint64_t *old_value, const uint64_t *new_value) {
  uint64_t value;
  option which = option_find(name, strlen(name));
  if (which == OPTION_COUNT) {
    if (!read_figure(name, &value))
      return ENOENT;
    if (new_value)
      return EPERM;
  } else {
    value = option_get(which);
    if (new_value && !option_set(which, *new_value))
      return EINVAL;
  }
  if (old_value)
    *old_value = value;
  return 0;
}

/* ---- Checking ---- */

PUBLIC int masu_check(void) { return supply_check() + roster_check() != 0; }
