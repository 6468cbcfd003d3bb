#include "api/inspect.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "api/thread.h"
#include "base/options.h"
#include "heap/helper.h"
#include "heap/roster.h"
#include "masu/stats.h"
#include "pages/supply.h"

#define STRING(x) #x
#define VERSION_TEXT(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

PUBLIC const char *masu_version(void) {
  return VERSION_TEXT(MASU_VERSION_MAJOR, MASU_VERSION_MINOR, MASU_VERSION_PATCH);
}

/* ---- The C library's questions ---- */

/* As glibc counts: mappings of their own stand in hblkhd and nowhere else. */
PUBLIC struct mallinfo2 masu_mallinfo2(void) {
  masu_stats s = {0};
  supply_figures f = {0};
  if (!masu_stats_read(&s, sizeof s)) {
    heap *h = thread_enter_if_joined(); /* a signal handler must not wait for the lock */
    f = supply_figures_now();
    thread_leave(h);
  }
  size_t arena = f.used + f.idle;
  size_t direct = min_size(f.direct, s.large); /* but those that wait in front */
  return (struct mallinfo2){
      .arena = arena,
      .ordblks = 1,
      .hblkhd = direct,
      .usmblks = s.peak,
      .uordblks = s.live - direct,
      .fordblks = arena - min_size(s.live - direct, arena),
      .keepcost = s.idle + s.kept,
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

internal bool give_back_idle(size_t pad) {
  if (thread_busy)
    return false;
  heap *h = thread_enter_if_joined();
  size_t before = supply_figures_now().returned;
  if (h)
    heap_tidy(h);
  bool any = helper_give_back_all(pad) > 0 || supply_figures_now().returned != before;
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

static int read_figure(const char *name, uint64_t *value) {
  masu_stats s = {0};
  int why = masu_stats_read(&s, sizeof s);
  if (!strcmp(name, "stats.live"))
    *value = s.live;
  else if (!strcmp(name, "stats.peak"))
    *value = s.peak;
  else if (!strcmp(name, "stats.resident"))
    *value = s.resident;
  else if (!strcmp(name, "stats.returned"))
    *value = s.returned;
  else if (!strcmp(name, "stats.heaps"))
    *value = s.heaps;
  else
    return ENOENT;
  return why;
}

internal_def _Atomic(void (*)(void)) live_hook;

/* What these ask for is begun when the process starts. masu/profile.h, cpu.h and leaks.h have functions for it. */
static bool is_for_the_start(option which) {
  return which == OPTION_verbose || which == OPTION_profile || which == OPTION_profile_signal || which == OPTION_cpu ||
         which == OPTION_leaks;
}

static int set_option(option which, uint64_t value) {
  if (is_for_the_start(which))
    return EPERM;
  if (!option_set(which, value))
    return EINVAL;
  void (*hook)(void) = load_relaxed(&live_hook);
  if (which == OPTION_live && hook)
    hook();
  return 0;
}

PUBLIC int masu_ctl(const char *name, uint64_t *old_value, const uint64_t *new_value) {
  uint64_t value;
  int why = 0;
  option which = option_find(name, strlen(name));
  if (which == OPTION_COUNT) {
    why = read_figure(name, &value);
    if (!why && new_value)
      return EPERM;
  } else {
    value = option_get(which);
    if (new_value)
      why = set_option(which, *new_value);
  }
  if (old_value && !why)
    *old_value = value;
  return why;
}

/* ---- Checking ---- */

PUBLIC int masu_check(void) { return supply_check() + roster_check() != 0; }
