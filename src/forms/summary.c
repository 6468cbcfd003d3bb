#include "forms/summary.h"

#include "forms/named.h"
#include "forms/sized.h"
#include "os/report.h"

static const char *shown(const char *name) { return *name ? name : "-"; }

static void report_heap(masu_heap *named, void *first) {
  masu_heap_figures f;
  if (masu_heap_read(named, &f, sizeof f))
    return;
  if (*(bool *)first)
    report("  %-20s %12s %12s %12s %12s %8s", "named heap", "KiB touched", "most", "KiB live",
           "KiB allowed", "refused");
  *(bool *)first = false;
  report("  %-20s %12zu %12zu %12zu %12zu %8zu", shown(masu_heap_name(named)), f.used / KIB,
         f.peak / KIB, f.live / KIB, f.hard / KIB, (size_t)f.refused);
}

static void report_tenant(const tenant *t, void *first) {
  size_t used, held;
  if (*(bool *)first)
    report("  %-20s %12s %12s %12s  %s", "form", "KiB used", "KiB held", "", "heap");
  *(bool *)first = false;
  t->figures(t, &used, &held);
  report("  %-6s %-13.13s %12zu %12zu %12s  %s", t->form, shown(t->name), used / KIB, held / KIB,
         "", t->heap ? shown(masu_heap_name(t->heap)) : "-");
}

static void report_sized(void) {
  bool first = true;
  for (unsigned i = 0; i < MASU_SIZE_INDEXES; i++) {
    masu_sized_figures f;
    masu_sized_read(i, &f, sizeof f);
    if (!f.made)
      continue;
    if (first)
      report("  %-20s %12s %12s %12s", "sized block", "blocks used", "made", "KiB reserved");
    first = false;
    report("  %-20zu %12zu %12zu %12zu", masu_size_of_index(i), f.live, f.made, f.held / KIB);
  }
}

internal void forms_report(void) {
  bool heaps = true, tenants = true;
  masu_heap_for_each(report_heap, &heaps);
  tenant_for_each(report_tenant, &tenants);
  report_sized();
}
