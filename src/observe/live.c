#include "observe/live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/inspect.h"
#include "api/thread.h"
#include "base/options.h"
#include "heap/helper.h"
#include "masu.h"
#include "observe/ledger.h"
#include "observe/profile.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"
#include "pages/supply.h"

enum { LIVE_PAUSE_MS = 10 }; /* between two walks, however often readers ring */

/* Guarded by LOCK_FORMS, but for `running` and what masu-live itself reads. */
static struct {
  _Atomic(live_page *) page;
  int process; /* whose page it is: a child of vfork has the same memory */
  char path[64];
  masu_resident measured; /* last; masu-live */
} live;
static atomic_u32 live_running;
static bool live_by_signals;

/* ---- The page ---- */

/* Rows stand on the page as in a ledger, behind the head. */
static size_t live_head(void) { return ROUND_UP(sizeof(live_page), 4 * KIB); }
static size_t live_size(void) { return ROUND_UP(live_head() + sizeof(ledger), os_page()); }

static void describe_table(live_page *page, const ledger_table *t) {
  live_table *entry = &page->table[page->tables++];
  *entry = (live_table){.first_column = page->columns, .columns = t->column_count,
                        .offset = (uint32_t)live_head() + t->offset, .row_size = t->row_size,
                        .most = t->most};
  strncpy(entry->name, t->name, sizeof entry->name - 1);
  for (uint32_t i = 0; i < t->column_count; i++) {
    live_column *c = &page->column[page->columns++];
    c->unit = t->columns[i].unit;
    c->offset = t->columns[i].offset;
    strncpy(c->name, t->columns[i].name, sizeof c->name - 1);
    strncpy(c->meaning, t->columns[i].meaning, sizeof c->meaning - 1);
  }
}

static void page_fill(live_page *page, uint64_t started) {
  page->version = LIVE_VERSION;
  page->size = (uint32_t)live_size();
  page->process = (uint64_t)os_process_id();
  page->started = started;
  strncpy(page->masu, masu_version(), sizeof page->masu - 1);
  strncpy(page->program, os_program_name(), sizeof page->program - 1);
  for (unsigned id = 0; id < LEDGER_TABLES; id++)
    describe_table(page, &ledger_tables[id]);
  memcpy(page->magic, "masulive", sizeof page->magic);
}

/* A file of that name is this process's own, from before it executed this program. */
static live_page *page_make(int *why) {
  uint64_t started = os_process_started();
  snprintf(live.path, sizeof live.path, "/dev/shm/masu-%u-%d-%llu", os_user_id(), os_process_id(),
           (unsigned long long)started);
  os_file_remove(live.path);
  *why = os_file_make(live.path);
  live_page *page = *why ? NULL : os_file_map(live.path, 0, live_size(), why);
  if (page) {
    os_keep_from_fork(page, live_size());
    page_fill(page, started);
  } else if (*why != EEXIST) {
    os_file_remove(live.path);
  }
  return page;
}

/* ---- masu-live ---- */

/* Each word after the sequence became odd. */
static void copy_words(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size / 8; i++)
    store_release((atomic_u64 *)to + i, ((const uint64_t *)from)[i]);
}

static void live_publish(live_page *page, const ledger *l) {
  add_relaxed(&page->sequence, 1);
  for (unsigned id = 0; id < LEDGER_TABLES; id++) {
    const ledger_table *t = &ledger_tables[id];
    ledger_count n = l->counts[id];
    store_release(&page->table[id].rows, n.rows);
    store_release(&page->table[id].more, n.more);
    copy_words((char *)page + live_head() + t->offset, (const char *)l + t->offset,
               (size_t)n.rows * t->row_size);
  }
  store_release(&page->read_ns, os_now_ns());
  store_release(&page->sequence, load_relaxed(&page->sequence) + 1);
}

/* What was measured stays until it is measured again: other readers may ring before who asked has read it. */
static void live_refresh(live_page *page, bool measure) {
  ledger *l = ledger_make();
  if (!l || ledger_read(l) || (measure && ledger_measure(l))) {
    if (l)
      ledger_end(l);
    return;
  }
  if (measure)
    live.measured = l->resident;
  l->resident = live.measured;
  l->counts[LEDGER_RESIDENT].rows = live.measured.total != 0;
  live_publish(page, l);
  ledger_end(l);
}

static uint64_t live_purge(void) {
  uint64_t before = supply_figures_now().returned;
  masu_malloc_trim(0);
  return supply_figures_now().returned - before;
}

static int live_sample(const char *interval) {
  if (*interval < '0' || *interval > '9')
    return EINVAL;
  if (profile_is_whole())
    return EBUSY;
  uint64_t bytes = strtoull(interval, NULL, 10);
  if (bytes)
    return masu_profile_start(bytes > 1 ? bytes : 0);
  masu_profile_stop();
  return 0;
}

/* 0 or an errno value. */
static int live_fulfil(const live_page *page, uint32_t request, uint64_t *answer) {
  char argument[sizeof page->argument + 1] = "";
  memcpy(argument, page->argument, sizeof page->argument);
  switch (request) {
  case LIVE_PURGE:
    *answer = live_purge();
    return 0;
  case LIVE_MEASURE:
    return 0; /* when the figures are read */
  case LIVE_PROFILE:
    return profile_write_new(argument, answer);
  case LIVE_SAMPLE:
    return live_sample(argument);
  default:
    return ENOSYS;
  }
}

static void live_serve(live_page *page) {
  uint32_t number = load_acquire(&page->number);
  uint32_t request = load_relaxed(&page->request);
  bool is_new = number != load_relaxed(&page->done);
  if (is_new) {
    uint64_t answer = 0;
    store_relaxed(&page->why, (uint32_t)live_fulfil(page, request, &answer));
    store_relaxed(&page->answer, answer);
  }
  live_refresh(page, is_new && request == LIVE_MEASURE);
  store_release(&page->done, number);
}

static void ring(live_page *page) {
  add_relaxed(&page->asked, 1);
  os_wake_shared(&page->asked);
}

static void live_ring(void) {
  bool busy = thread_lock(LOCK_FORMS);
  live_page *page = load_relaxed(&live.page);
  if (page)
    ring(page);
  thread_unlock(LOCK_FORMS, busy);
}

internal void live_wakes_by_signals(void) {
  live_by_signals = true;
  option_set(OPTION_live, 1);
}

/* Without the lock, which the thread may hold. A child of fork has the parent's page not mapped
 * until it has its own. */
internal void live_wake(void) {
  live_page *page = load_acquire(&live.page);
  if (page && live.process == os_process_id())
    ring(page);
}

/* Where a signal handler may be about to ring, the page stays mapped. */
static void live_leave(void) {
  bool busy = thread_lock(LOCK_FORMS);
  live_page *page = exchange_acq_rel(&live.page, NULL);
  thread_unlock(LOCK_FORMS, busy);
  os_file_remove(live.path);
  if (!live_by_signals)
    os_unmap(page, live_size());
  store_release(&live_running, 0);
}

static void live_ensure(void);

static void *live_main(void *unused) {
  live_page *page = load_relaxed(&live.page);
  uint32_t seen = 0;
  bool last;
  (void)unused;
  os_thread_name("masu-live");
  while (!(last = helper_is_last_thread()) && option_get(OPTION_live)) {
    uint32_t asked = load_acquire(&page->asked);
    profile_write_if_signalled();
    if (asked == seen) {
      os_wait_shared(&page->asked, seen, helper_step_ms());
      continue;
    }
    seen = asked;
    live_serve(page);
    os_sleep_ms(LIVE_PAUSE_MS);
  }
  live_leave();
  os_thread_ends();
  if (!last)
    live_ensure(); /* the option may have been set again meanwhile */
  return NULL;
}

/* ---- Starting and ending ---- */

static void live_ensure(void) {
  int why = 0;
  if (!option_get(OPTION_live) || os_is_secure() || exchange_acq_rel(&live_running, 1))
    return;
  live_page *page = page_make(&why);
  bool busy = thread_lock(LOCK_FORMS);
  live.process = os_process_id();
  store_release(&live.page, page);
  thread_unlock(LOCK_FORMS, busy);
  if (page && os_thread_start(live_main))
    return;
  report("live: %s: %s", live.path, page ? "no thread" : strerrordesc_np(why));
  if (page)
    live_leave();
  else
    store_release(&live_running, 0);
}

static void live_changed(void) {
  live_ensure();
  live_ring();
}

/* A signal handler that interrupted masu may fork, and the thread may have any lock: then there is no
 * page until the option is set again. */
static void live_fork_child(void) {
  store_relaxed(&live.page, NULL); /* the parent's, and so is what was measured */
  live.measured = (masu_resident){0};
  store_relaxed(&live_running, 0);
  if (!thread_busy)
    live_ensure();
}

internal void live_start(void) {
  store_relaxed(&live_hook, live_changed);
  store_relaxed(&helper_lonely_hook, live_ring);
  os_at_fork(NULL, NULL, live_fork_child);
  live_ensure();
}

internal void live_end(void) {
  if (load_relaxed(&live.page) && live.process == os_process_id())
    os_file_remove(live.path);
}

__attribute__((destructor)) static void live_program_exits(void) { live_end(); }
