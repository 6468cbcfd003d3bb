#include "os/stop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "os/os.h"
#include "os/signals.h"

/* Milliseconds. A thread that has the signal blocked for BLOCKED_MS keeps it so. */
enum { POLL_MS = 5, TASK_LOOK_MS = 50, BLOCKED_MS = 300, ANSWER_MS = 3000, WHOLE_MS = 10000 };
enum { RED_ZONE = 128 }; /* bytes below the stack pointer that code may use (x86-64) */

typedef enum stop_state {
  STOP_NEW,  /* not sent a signal yet */
  STOP_SENT,
  STOP_HELD,
  STOP_NONE, /* it runs no more, or is masu's own */
  STOP_ENDED, /* the slot may be used again */
  STOP_MUTE, /* it runs on */
} stop_state;

typedef struct stop_slot {
  /* Round and thread. Who sets it to 0 has it: the thread that says where it is, or who
   * gives it up. */
  atomic_u64 claim;
  atomic_u32 said;
  stop_state state;
  uint64_t since; /* ms */
  stopped_thread where;
} stop_slot;

/* Tables of slots are never given back: a thread may come late to its handler. What it finds
 * there is of another round then. */
static struct {
  atomic_u32 round; /* odd: threads are held, until it changes */
  atomic_u32 answers;
  _Atomic(stop_slot *) slots;
  atomic_u32 count;
  size_t room, left_out;
  int found; /* in the last look */
  taken_signal signal; /* none is while nobody needed one */
} stops;

/* ---- In the threads that are held ---- */

static stop_slot *claim_slot(uint32_t round) {
  uint64_t mine = (uint64_t)round << 32 | os_thread_id();
  stop_slot *slots = load_relaxed(&stops.slots);
  uint32_t count = load_acquire(&stops.count);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t expected = mine;
    if (load_relaxed(&slots[i].claim) == mine && cas_acq_rel(&slots[i].claim, &expected, 0))
      return &slots[i];
  }
  return NULL;
}

/* What was interrupted may have been on the alternate stack as well. */
static void say_where(stopped_thread *t, const ucontext_t *context) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  uintptr_t other = (uintptr_t)context->uc_stack.ss_sp, end = other + context->uc_stack.ss_size;
  t->self = os_thread_self();
  if (here < other || here >= end) {
    t->stack = here;
    return;
  }
  t->stack = (uintptr_t)context->uc_mcontext.gregs[REG_RSP] - RED_ZONE;
  t->other = here;
  t->other_end = end;
}

static void stop_here(int number, siginfo_t *info, void *context) {
  int saved = errno;
  uint32_t round = load_acquire(&stops.round);
  stop_slot *slot = round & 1 ? claim_slot(round) : NULL;
  (void)number, (void)info;
  if (slot) {
    say_where(&slot->where, context);
    store_release(&slot->said, 1);
    add_relaxed(&stops.answers, 1);
    os_wake_one(&stops.answers);
    while (load_acquire(&stops.round) == round)
      os_wait(&stops.round, round, 0);
  }
  errno = saved;
}

/* ---- The signal ---- */

/* The highest real-time signal that nobody handles or ignores. One that the caller blocks the program may read
 * by signalfd or sigwait: giving it back would throw away those that are pending. */
static void catch_signal(void) {
  sigset_t blocked;
  int n = SIGRTMAX - 1;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  while (n >= SIGRTMIN && (sigismember(&blocked, n) || signal_take(&stops.signal, n, stop_here, false) != 0))
    n--;
}

/* ---- Finding threads ---- */

typedef enum thread_mood { THREAD_GONE, THREAD_DONE, THREAD_OWN, THREAD_DEAF, THREAD_OPEN } thread_mood;

static bool seems_open(unsigned id) {
  char blocked[OS_STATUS_MOST];
  return os_thread_status(id, "SigBlk", blocked) != 0 ||
         !(strtoull(blocked, NULL, 16) >> (stops.signal.number - 1) & 1);
}

static bool waits_for_signals(unsigned id) {
  char path[64], text[256];
  int why;
  snprintf(path, sizeof path, "/proc/self/task/%u/syscall", id);
  text[os_file_read(path, text, sizeof text - 1, &why)] = 0;
  return strtoul(text, NULL, 10) == SYS_rt_sigtimedwait;
}

/* One that waits for signals by sigwait must not get ours, which would be one of those. It has them
 * blocked, but seems open while it waits; it may begin or end that between two looks. */
static thread_mood look_at(unsigned id) {
  char value[OS_STATUS_MOST];
  int why = os_thread_status(id, "State", value);
  if (why == ENOENT || why == ESRCH)
    return THREAD_GONE;
  if (!why && (*value == 'Z' || *value == 'X')) /* stays, if it is the initial one */
    return THREAD_DONE;
  if (signal_is_ours(&stops.signal) && seems_open(id) && !waits_for_signals(id) && seems_open(id))
    return THREAD_OPEN;
  return os_thread_status(id, "Name", value) != 0 || strncmp(value, "masu-", 5) != 0 ? THREAD_DEAF : THREAD_OWN;
}

static bool is_known(unsigned id) {
  const stop_slot *slots = load_relaxed(&stops.slots);
  uint32_t i = 0, count = load_relaxed(&stops.count);
  while (i < count && (slots[i].where.id != id || slots[i].state == STOP_ENDED))
    i++;
  return i < count;
}

static void add_slot(unsigned id) {
  stop_slot *slots = load_relaxed(&stops.slots);
  uint32_t i = 0, count = load_relaxed(&stops.count);
  while (i < count && slots[i].state != STOP_ENDED)
    i++;
  if (i == stops.room) {
    stops.left_out++;
    return;
  }
  if (!stops.signal.number)
    catch_signal();
  stop_slot *slot = &slots[i];
  slot->state = STOP_NEW;
  slot->since = os_now_ms();
  slot->where = (stopped_thread){.id = id};
  store_relaxed(&slot->said, 0);
  store_relaxed(&slot->claim, (uint64_t)load_relaxed(&stops.round) << 32 | id);
  store_release(&stops.count, (uint32_t)max_size(count, i + 1));
}

static void consider_thread(unsigned id) {
  if (id == os_thread_id() || is_known(id))
    return;
  add_slot(id);
  stops.found++;
}

/* How many there are that were not known; -1: the system does not say. */
static int find_threads(void) {
  stops.left_out = 0;
  stops.found = 0;
  return os_threads_each(consider_thread) ? stops.found : -1;
}

/* ---- Holding them ---- */

/* It may be about to say where it is. */
static stop_state give_up(stop_slot *slot) {
  uint64_t expected = (uint64_t)load_relaxed(&stops.round) << 32 | slot->where.id;
  if (cas_acq_rel(&slot->claim, &expected, 0))
    return STOP_MUTE;
  while (!load_acquire(&slot->said))
    os_sleep_ms(1);
  return STOP_HELD;
}

static stop_state send_signal(const stop_slot *slot, uint64_t waited) {
  if (syscall(SYS_tgkill, os_process_id(), slot->where.id, stops.signal.number) == 0)
    return STOP_SENT;
  if (errno == ESRCH)
    return STOP_ENDED;
  return waited < ANSWER_MS ? STOP_NEW : STOP_MUTE;
}

static stop_state next_state(stop_slot *slot) {
  uint64_t waited = os_now_ms() - slot->since;
  if (load_acquire(&slot->said))
    return STOP_HELD;
  if (slot->state == STOP_SENT && waited < TASK_LOOK_MS)
    return STOP_SENT;
  thread_mood mood = look_at(slot->where.id);
  if (mood == THREAD_GONE || mood == THREAD_DONE)
    return mood == THREAD_GONE ? STOP_ENDED : STOP_NONE;
  if (slot->state == STOP_SENT)
    return waited < ANSWER_MS ? STOP_SENT : give_up(slot);
  switch (mood) {
  case THREAD_OWN:
    return STOP_NONE;
  case THREAD_DEAF:
    return waited < BLOCKED_MS ? STOP_NEW : STOP_MUTE;
  default:
    return send_signal(slot, waited);
  }
}

static bool is_settled(const stop_slot *slot) { return slot->state > STOP_SENT; }

/* True: every thread that is known is held, or will not be. */
static bool settle(void) {
  stop_slot *slots = load_relaxed(&stops.slots);
  bool all = true;
  for (uint32_t i = 0, count = load_relaxed(&stops.count); i < count; i++) {
    if (!is_settled(&slots[i]))
      slots[i].state = next_state(&slots[i]);
    all &= is_settled(&slots[i]);
  }
  return all;
}

/* Until two looks in a row find nobody new. */
static bool hold_all(void) {
  uint64_t start = os_now_ms();
  int found = find_threads();
  while (found >= 0 && os_now_ms() - start < WHOLE_MS) {
    uint32_t seen = load_acquire(&stops.answers);
    bool all = settle();
    if (!all)
      os_wait(&stops.answers, seen, POLL_MS);
    int before = found;
    found = find_threads();
    if (all && !found && !before)
      break;
  }
  return found >= 0;
}

static bool slots_make_room(void) {
  size_t room = 2 * (size_t)os_thread_count() + 64;
  if (room <= stops.room)
    return true;
  stop_slot *slots = os_map(ROUND_UP(room * sizeof *slots, os_page()), os_page());
  if (!slots)
    return false;
  stops.room = room;
  store_relaxed(&stops.slots, slots);
  return true;
}

static size_t count_mute(void) {
  stop_slot *slots = load_relaxed(&stops.slots);
  size_t mute = stops.left_out;
  for (uint32_t i = 0, count = load_relaxed(&stops.count); i < count; i++) {
    if (!is_settled(&slots[i]))
      slots[i].state = give_up(&slots[i]);
    mute += slots[i].state == STOP_MUTE;
  }
  return mute;
}

internal bool stop_threads(size_t *unanswered) {
  int saved = errno;
  store_relaxed(&stops.count, 0);
  bool held = slots_make_room();
  if (held) {
    store_release(&stops.round, load_relaxed(&stops.round) + 1);
    held = hold_all();
    *unanswered = count_mute();
    if (!held)
      stop_end();
  }
  errno = saved;
  return held;
}

internal void stop_for_each(void (*visit)(const stopped_thread *t, void *context), void *context) {
  const stop_slot *slots = load_relaxed(&stops.slots);
  for (uint32_t i = 0, count = load_relaxed(&stops.count); i < count; i++)
    if (slots[i].state == STOP_HELD)
      visit(&slots[i].where, context);
}

internal void stop_end(void) {
  int saved = errno;
  uint32_t round = load_relaxed(&stops.round);
  if (round & 1) {
    store_release(&stops.round, round + 1);
    os_wake_all(&stops.round);
    signal_give_back(&stops.signal);
  }
  errno = saved;
}
