/* profile: the heap profiler of masu/profile.h: the records of sampled blocks, summed up by
 * call site.
 *
 * A site is a call stack with the names of a thread and of a named heap. Each sampled block has a
 * record until it is freed. Values are estimates: a block of n bytes that is sampled with probability p counts
 * for 1/p blocks. What was in use at the peak costs no copy: each site remembers its value of
 * the last peak when it first changes after it.
 *
 *     in use of a site == sum of its records
 *     in use == sum of all sites
 *     a site's value at the peak: peak_* if it changed since, else what is in use now
 *     born of a site == sum over its records of when they were taken
 *
 * Threads: any; LOCK_SAMPLES guards it; sites are never freed, but their number is limited, and only their values change. While a
 * stack is walked at most LOCK_POOLS or LOCK_SIZED is held, while a file is made and written none: sites are copied some at
 * a time, so those of a file are of moments that lie that copying apart, but of one peak. Files are
 * written by the thread that allocates when one is due, and has neither; what a signal or another process asks for is written
 * by masu-live, so also while the program sleeps.
 */
#ifndef MASU_OBSERVE_PROFILE_H
#define MASU_OBSERVE_PROFILE_H

#include "base/attr.h"
#include "masu/profile.h"

enum { PROFILE_PATH_MOST = 4096 + 300 };

typedef struct amount {
  double objects, bytes;
  double samples; /* from which these are estimated */
} amount;

typedef struct profile_labels {
  char thread[16], heap[32]; /* heap "": the general memory */
} profile_labels;

typedef struct profile_site {
  struct profile_site *next, *next_in_bin;
  uint64_t hash;
  profile_labels labels;
  amount in_use, allocated, freed, peak; /* freed: nanoseconds of life instead of bytes */
  double born; /* ns since the profiler started, summed up over what is in use */
  amount direct, indirect; /* leaks, when it was last looked for them */
  uint32_t peaks_seen;
  uint32_t frame_count;
  uintptr_t frame[];
} profile_site;

typedef struct profile {
  profile_site *sites;
  uint64_t started, started_wall; /* ns */
  uint64_t interval;
  uint32_t peaks; /* so often more was in use than ever before, by more than chance */
} profile;

/* The value of the site when most was in use. */
static inline amount profile_at_peak(const profile *p, const profile_site *s) {
  return s->peaks_seen == p->peaks ? s->peak : s->in_use;
}

/* The ages of the site's blocks that are in use, in ns, summed up over as many as a file says,
 * whose counts are whole. */
static inline double profile_age(const profile *p, const profile_site *s, uint64_t now) {
  double objects = s->in_use.objects, whole = (double)(uint64_t)(objects > 0 ? objects + 0.5 : 0);
  return whole > 0 ? whole * ((double)(now - p->started) - s->born / objects) : 0;
}

/* Every allocation is on record until as many have ended this as began it, whatever interval is asked for
 * meanwhile, which counts afterwards. LOCK_SAMPLES is held. 0 or ENOMEM. */
internal int profile_whole_begin(void);
internal void profile_whole_end(void);
/* Is it so? Any thread outside of masu. */
internal bool profile_is_whole(void);

/* Writes the profile to a file that must not be there; *size: bytes of it. 0 or an errno value:
 * ENODATA if the profiler was never started. Any thread outside of masu. */
internal int profile_write_new(const char *path, uint64_t *size);
/* Writes a numbered file if the process got the signal of the option profile_signal. */
internal void profile_write_if_signalled(void);

/* A sampled block that is not freed. */
typedef struct profile_record {
  void *block; /* NULL: the place is free */
  profile_site *site;
  double objects; /* that it stands for */
  size_t size, usable; /* what was asked for, and what there is */
  uint64_t since : 62; /* ns */
  uint64_t ignored : 1; /* is no leak */
  uint64_t used : 1;    /* all of it may be */
} profile_record;

/* The records, for whoever holds LOCK_SAMPLES: some of the `room` places. */
typedef struct profile_table {
  profile *all;
  profile_record *records;
  size_t room, live;
  size_t lost; /* blocks for which there was no memory */
} profile_table;
/* False: the profiler was never started. */
internal bool profile_records(profile_table *table);
/* NULL: it is on no record. LOCK_SAMPLES is held. */
internal profile_record *profile_record_of(const void *p);

/* Bytes of the tables in mappings of their own that are resident. Any thread that has no lock. */
internal size_t profile_resident(void);

/* LOCK_SAMPLES, for who is not inside masu: a signal handler that interrupts whoever has it
 * finds its thread busy, gets no sample, and what it frees waits. Returns what
 * profiler_unlock wants back. */
internal bool profiler_lock(void);
internal void profiler_unlock(bool busy);

/* What the options ask for, at start and when the process ends. */
internal void profile_begin(void);
internal void profile_end(void);
/* Where a file of that kind belongs, with the number if it isn't 0, as the options have it. */
internal void profile_path(char *path, size_t size, const char *kind, unsigned number);
/* Is it a folder that was asked for? */
internal bool profile_has_folder(void);

/* For both profilers. Where the files go that the options ask for; false: that is not to be had,
 * which was said. PROGRAM.PID.KIND.pb there; number 0: the last one. */
internal bool profile_find_folder(void);
internal void profile_write_file(const char *kind, unsigned number, int (*write_to)(const char *path));

#endif
