#include "api/process.h"

#include "api/thread.h"
#include "base/options.h"
#include "heap/helper.h"
#include "heap/roster.h"
#include "masu.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"

enum { TRANSIT_TRIES = 100 };

/* ---- Fork ---- */

/* A signal handler may fork while its thread is inside masu. */
static bool was_busy;

/* Takes every lock, at a moment when no run is in transit: what a system call is
 * pending on would be lost to the child. masu's is the first constructor to run, so
 * this is the last prepare handler: those of libraries, which may wait for threads
 * that allocate, are done. */
static void fork_prepare(void) {
  bool busy = thread_busy, inside = thread_is_inside();
  thread_busy = true;
  compiler_fence();
  os_fork_lock();
  locks_fork_prepare(inside);
  for (int i = 0; !busy && supply_in_transit() && i < TRANSIT_TRIES; i++) {
    locks_fork_release();
    os_sleep_ms(1);
    locks_fork_prepare(inside);
  }
  compiler_fence();
  was_busy = thread_busy = busy;
}

static void fork_end(void) {
  bool busy = was_busy; /* before a handler that forks as well overwrites it */
  compiler_fence();
  thread_busy = true; /* a handler that allocates now must not wait for these locks */
  compiler_fence();
  locks_fork_release();
  compiler_fence();
  thread_busy = busy;
  if (!busy)
    thread_free_deferred();
}

static void fork_parent(void) {
  os_fork_unlock();
  fork_end();
}

static void fork_child(void) {
  os_fork_reset();
  supply_fork_child(was_busy);
  roster_fork_child(thread_heap());
  helper_fork_child();
  fork_end();
}

/* ---- Start and exit ---- */

static int started_as; /* process id */

static bool stats_wanted(void) {
  uint64_t whose = option_get(OPTION_stats);
  return whose == 1 || whose == (uint64_t)os_process_id();
}

internal void process_start(char **arguments, char **environment) {
  static bool started;
  if (started)
    return;
  started = true;
  os_process_start(arguments, environment);
  started_as = os_process_id();
  settings_read();
  if (stats_wanted())
    os_keep_stderr();
  os_at_fork(fork_prepare, fork_parent, fork_child);
  if (option_get(OPTION_verbose))
    report("version %s, process %d (%s) allocates from masu", masu_version(),
           os_process_id(), os_program_name());
}

internal void process_end(void) {
  static atomic_u32 ended;
  if (stats_wanted() && os_process_id() == started_as && !thread_is_inside() &&
      !exchange_acq_rel(&ended, 1))
    masu_malloc_stats();
}

__attribute__((destructor)) static void program_exits(void) { process_end(); }
