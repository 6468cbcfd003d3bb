/* profile: the heap profiler of masu/profile.h: the records of sampled blocks, summed up by
 * call site.
 *
 * A site is a call stack with the name of a thread. Each sampled block has a record until it is
 * freed. Values are estimates: a block of n bytes that is sampled with probability p counts
 * for 1/p blocks. What was in use at the peak costs no copy: each site remembers its value of
 * the last peak when it first changes after it.
 *
 *     in use of a site == sum of its records
 *     in use == sum of all sites
 *     a site's value at the peak: peak_* if it changed since, else what is in use now
 *
 * Threads: any; LOCK_SAMPLES guards it. No lock is held while a stack is walked or a file is
 * written.
 */
#ifndef MASU_OBSERVE_PROFILE_H
#define MASU_OBSERVE_PROFILE_H

#include "base/attr.h"
#include "masu/profile.h"

typedef struct amount {
  double objects, bytes;
} amount;

typedef struct profile_site {
  struct profile_site *next, *next_in_bin;
  uint64_t hash;
  char thread[16];
  amount in_use, allocated, freed, peak; /* freed: nanoseconds of life instead of bytes */
  uint32_t peaks_seen;
  uint32_t frame_count;
  uintptr_t frame[];
} profile_site;

typedef struct profile {
  profile_site *sites;
  uint64_t started, started_wall; /* ns */
  uint64_t interval;
  uint32_t peaks; /* so often more was in use than ever before */
} profile;

/* The value of the site when most was in use. */
static inline amount profile_at_peak(const profile *p, const profile_site *s) {
  return s->peaks_seen == p->peaks ? s->peak : s->in_use;
}

/* What the options ask for, at start and when the process ends. */
internal void profile_begin(void);
internal void profile_end(void);

/* For both profilers. Where the files go that the options ask for; false: that is not to be had,
 * which was said. PROGRAM.PID.KIND.pb there; number 0: the last one. */
internal bool profile_find_folder(void);
internal void profile_write_file(const char *kind, unsigned number, int (*write_to)(const char *path));

#endif
