#include "observe/ticks.h"

#include <string.h>

internal_def tick_scale ticks_scale;

#ifdef __x86_64__

enum { TRIES = 5, MEASURED_NS = 200000, TICKS_MOST = 1 << 24 };

static bool counter_is_the_clock(void) {
  static const char file[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
  char name[8];
  int why;
  return os_file_read(file, name, sizeof name, &why) == 4 && memcmp(name, "tsc\n", 4) == 0;
}

static uint64_t counter(void) {
  __builtin_ia32_lfence();
  return __builtin_ia32_rdtsc();
}

/* Both clocks at one moment: of some tries the one that took least. */
static tick_scale read_both(void) {
  tick_scale both = {0};
  for (uint64_t tries = 0, least = UINT64_MAX; tries < TRIES; tries++) {
    uint64_t before = counter(), ns = os_now_ns(), took = counter() - before;
    if (took < least) {
      least = took;
      both = (tick_scale){.ticks = before + took / 2, .ns = ns};
    }
  }
  return both;
}

internal void ticks_start(void) {
  __extension__ typedef unsigned __int128 wide;
  if (!counter_is_the_clock())
    return;
  tick_scale first = read_both(), last;
  do
    last = read_both();
  while (last.ns - first.ns < MEASURED_NS && last.ticks - first.ticks < TICKS_MOST);
  if (last.ns - first.ns < MEASURED_NS || last.ticks <= first.ticks) /* one of them stands */
    return;
  last.ns_per_tick = (uint64_t)(((wide)(last.ns - first.ns) << 32) / (last.ticks - first.ticks));
  ticks_scale = last;
}

#else
internal void ticks_start(void) {}
#endif
