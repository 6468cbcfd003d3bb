/* options: MASU_OPTIONS="name:value,name,name:value".
 *
 * Pure: the text comes in, the values go out, complaints go to a callback. The
 * table OPTIONS is the only list of options there is; docs/options.md is checked
 * against it by script/check-options. Values are set at start and by masu_ctl;
 * readers load them relaxed.
 */
#ifndef MASU_BASE_OPTIONS_H
#define MASU_BASE_OPTIONS_H

#include "base/atomic.h"

/* X(name, default, smallest, largest, meaning) */
#define OPTIONS(X)                                                             \
  X(verbose, 0, 0, 1, "say at start that this program runs on masu")           \
  X(stats, 0, 0, 4194304,                                                      \
    "write a summary to stderr at exit; above 1: only in the process of that id") \
  X(purge_delay, 500, 0, 3600000,                                              \
    "milliseconds that freed memory stays resident for reuse, at least")       \
  X(helper, 1, 0, 1,                                                           \
    "give memory back by a helper thread in programs that have threads")       \
  X(sleepers, 0, 0, 1,                                                         \
    "take back what sleeping threads hold ready")                           \
  X(huge_pages, 0, 0, 1048576,                                                 \
    "MiB in use from which on the program asks for huge pages; 0: never") \
  X(live, 0, 0, 1, "show its figures to masu top, stat, doctor, purge, export and profile --live")   \
  X(profile, 0, 0, 1099511627776,                                              \
    "bytes between two samples of the heap profiler, on average; 1: 512 KiB; 0: none") \
  X(cpu, 0, 0, 1000,                                                           \
    "samples of the CPU profiler in a second of each thread's CPU time; 1: 100; 0: none") \
  X(profile_every, 0, 0, 86400,                                                \
    "seconds between two files of a profiler; 0: one at the end")                \
  X(profile_growth, 0, 0, 1048576,                                             \
    "MiB by which what is in use grows until the heap profiler writes a file; 0: none") \
  X(profile_signal, 0, 0, 64,                                                  \
    "number of the signal on which the heap profiler writes a file; 0: none")  \
  X(leaks, 0, 0, 1, "write at the end which blocks no pointer leads to any more")

typedef enum option {
#define OPTION_ENUM(name, initial, low, high, meaning) OPTION_##name,
  OPTIONS(OPTION_ENUM)
#undef OPTION_ENUM
      OPTION_COUNT
} option;

internal uint64_t option_get(option which);
/* False: out of range, unchanged. */
internal bool option_set(option which, uint64_t value);
/* OPTION_COUNT when there is none of that name. */
internal option option_find(const char *name, size_t length);
internal const char *option_name(option which);
/* The option whose name is nearest to this one. */
internal option option_nearest(const char *name, size_t length);

typedef enum option_fault { OPTION_UNKNOWN, OPTION_BAD_VALUE } option_fault;
typedef void option_complaint(option_fault fault, const char *text, size_t length);
/* A name without value means 1. What is not understood is complained about and
 * skipped. */
internal void options_parse(const char *text, option_complaint *complain);

#endif
