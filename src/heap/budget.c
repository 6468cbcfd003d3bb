#include "heap/budget.h"

#include <string.h>

#include "heap/front.h"
#include "os/os.h"
#include "pages/meta.h"

enum {
  JUDGED = 128000, /* ns: after looks that count with so much the pace is judged */
  START_NS = 1 << 25, /* since somebody looks: for so long each look is judged, */
  START_TIMES = 4,    /* and the process earns so many times as much, by the clock on the wall, */
  START_WORKS = 1 << 20, /* ns: of a longer time without a look, as much as the thread has worked of it, or so much */
  MATTERS = 8,     /* what may have been earned matters if it is such a part of what looks cost */
  RARE = 4,        /* looks are rare if so many times as many are earned */
  RARE_NS = JUDGED * RARE * BUDGET_SHARE,
  DOUBLINGS_MOST = 16,
  MANY = 5, /* classes in a row, whose looks were too many */
  LOOK_FIRST = 1000,   /* ns: what a look takes, before one is known */
  LOOK_UNSEEN = 1000,  /* and at least what no clock in it sees: the way there, the block, its free */
  LOOK_MOST = 1 << 16, /* what took longer was not the look, but waiting for a processor */
  LOOK_MEAN = 8,       /* looks, over which the mean is taken */
  SAVED_MOST = 1 << 23, /* ns, that a heap saves for more of them at once */
  OWED_MOST = JUDGED,   /* ns, that it owes at most, so that one bad time is not paid for long */
};

internal_def atomic_u64 budget_interval;
static atomic_u64 widest;
static atomic_u64 look_ns = LOOK_FIRST; /* the mean of all threads */
static atomic_i64 process_left; /* ns: what the process and its heaps earn, less what looks take */
static atomic_u64 start_ends, start_paid; /* ns, by the clock: up to when it was earned at the start */
static atomic_u8 latest[BUDGET_COUNT]; /* doublings, of the heap that was judged last */

/* What was seen, and what was not, at an interval that was asked for before is still there. */
internal void budget_start(uint64_t interval) {
  static uint64_t last;
  if (interval != load_relaxed(&budget_interval)) {
    uint64_t now = os_now_ns();
    store_relaxed(&process_left, 0);
    store_relaxed(&start_paid, now);
    store_relaxed(&start_ends, now + START_NS);
    for (unsigned c = 0; c < BUDGET_COUNT; c++)
      store_relaxed(&latest[c], 0);
  }
  if (interval > 1 && interval != last)
    store_relaxed(&widest, last = interval);
  store_release(&budget_interval, interval);
}

internal uint64_t budget_widest(void) { return load_relaxed(&widest); }

/* By several threads at once: one that is lost changes little. */
internal void budget_look_took(uint64_t ns) {
  uint64_t mean = load_relaxed(&look_ns);
  store_relaxed(&look_ns, (mean * (LOOK_MEAN - 1) + min_size(ns, LOOK_MOST) + LOOK_MEAN - 1) / LOOK_MEAN);
}

/* What a look counts with: what took it long will take the program as long again, to find its own data. */
static uint64_t look_costs(void) { return 2 * load_relaxed(&look_ns) + LOOK_UNSEEN; }

/* -ln(x), 0 < x <= 1, to eight digits: the mathematical library is not there. Of x = 2^e m, m from 0.7 to 1.4. */
static double minus_log(double x) {
  union {
    double number;
    uint64_t bits;
  } m = {x};
  const uint64_t half_root = 0x3fe6a09e667f3bcd; /* of 1/2, its bits */
  int64_t e = (int64_t)(m.bits - half_root) >> 52;
  m.bits -= (uint64_t)e << 52;
  double t = (1 - m.number) / (1 + m.number), square = t * t, sum = 0;
#pragma GCC unroll 5
  for (int n = 9; n > 0; n -= 2)
    sum = sum * square + 1.0 / n; /* no division, in a loop that is unrolled */
  return 2 * t * sum - (double)e * 0.69314718055994531;
}

internal double budget_probability(size_t size, uint64_t interval) {
  double x = (double)size / (double)interval;
  if (interval <= 1 || x > 40)
    return 1;
  int doublings = 0;
  for (; x > 0.125; x /= 2)
    doublings++;
  double term = x, sum = 0;
  for (int n = 2; n < 10; n++, term *= -x / (n - 1))
    sum += term;
  while (doublings--)
    sum *= 2 - sum;
  return sum;
}

static uint64_t drawn(heap_budget *b, uint64_t interval) {
  if (interval <= 1)
    return 0;
  b->random ^= b->random << 13;
  b->random ^= b->random >> 7;
  b->random ^= b->random << 17;
  double u = (double)((b->random >> 11) + 1) / 9007199254740992.0;
  return (uint64_t)(minus_log(u) * (double)interval);
}

static uint64_t *left_of(heap *h, unsigned class) {
  budget_class *c = h->budget ? &h->budget->of[class] : NULL;
  return c && c->held ? &c->left : &h->left[class];
}

internal void budget_unseen(heap *h, unsigned class) { *left_of(h, class) = BUDGET_UNSEEN / class_size(class); }

static void note_widest(uint64_t interval) {
  for (uint64_t most = budget_widest(); most < interval && !cas_acq_rel(&widest, &most, interval);)
    ;
}

/* Of equal blocks whole ones are counted. */
static void draw(heap *h, unsigned class) {
  heap_budget *b = h->budget;
  budget_class *c = &b->of[class];
  c->drawn_for = h->hot.asked << b->doublings[class];
  note_widest(c->drawn_for);
  uint64_t bytes = drawn(b, c->drawn_for);
  if (class == BUDGET_LARGE)
    h->hot.large_left = bytes;
  else
    *left_of(h, class) = bytes / class_size(class);
}

/* In a slow path: takes a lock. */
static COLD NOINLINE heap_budget *budget_make(heap *h) {
  heap_budget *b = meta_alloc(sizeof *b);
  if (b)
    b->random = ((uintptr_t)b ^ os_now_ns() << 20) * 0x9e3779b97f4a7c15 | 1;
  return h->budget = b;
}

/* Where a countdown stops has nothing to do with how far it has come, so it can begin anew; but not where it is
 * known already that the next block will be looked at. */
static void draw_anew(heap *h, unsigned class, unsigned doublings) {
  heap_budget *b = h->budget;
  if (b->doublings[class] == doublings)
    return;
  b->doublings[class] = (uint8_t)doublings;
  store_relaxed(&latest[class], b->doublings[class]);
  if (!b->of[class].held)
    draw(h, class);
}

static void pace_from(heap_budget *b, uint64_t now, uint64_t cpu) {
  b->paced = now;
  b->paced_cpu = cpu;
  b->looks = 0;
  memset(b->seen, 0, sizeof b->seen);
}

/* Another interval was asked for. What waits in front was not charged for it. Where nothing is left for looks it begins
 * where others are: the first of them would only say so. */
static COLD NOINLINE void budget_begin(heap *h, uint64_t asked) {
  heap_budget *b = h->budget;
  h->hot.asked = asked;
  front_give_back(h);
  b->saved = b->owed = 0;
  b->unearned = 0;
  b->begun = false;
  pace_from(b, os_now_ns(), 0); /* of a thread that worked before, what has passed is less */
  bool join = load_relaxed(&process_left) < 0;
  for (unsigned c = 0; c < BUDGET_COUNT; c++) {
    b->doublings[c] = join ? load_relaxed(&latest[c]) : 0;
    if (asked)
      draw(h, c);
    else if (c != BUDGET_LARGE)
      budget_unseen(h, c);
  }
}

/* NULL: nobody looks, or there is no memory. */
static heap_budget *budget_now(heap *h) {
  uint64_t asked = load_relaxed(&budget_interval);
  if (UNLIKELY(h->hot.asked != asked)) {
    if (!h->budget && !budget_make(h))
      return NULL;
    budget_begin(h, asked);
  }
  return asked ? h->budget : NULL;
}

internal void budget_ask(heap *h) { (void)budget_now(h); }

static uint64_t looks_up_to(const heap_budget *b, uint32_t most) {
  uint64_t sum = 0;
  for (unsigned c = 0; c < BUDGET_COUNT; c++)
    sum += min_size(b->seen[c] >> b->doublings[c], most);
  return sum;
}

/* Of the classes that were looked at most, until all looks are as many as were earned: so a place that allocates
 * much and keeps nothing doesn't hide those that keep what they take, unless they share a class. join: at least as
 * wide as where others are. */
static void widen(heap *h, uint64_t earned, bool join) {
  const heap_budget *b = h->budget;
  uint32_t most = b->looks;
  while (most && looks_up_to(b, most) > earned)
    most /= 2;
  for (unsigned c = 0; c < BUDGET_COUNT; c++) {
    unsigned doublings = b->doublings[c];
    for (uint32_t seen = b->seen[c] >> doublings; seen > most && doublings < DOUBLINGS_MOST; seen /= 2)
      doublings++;
    draw_anew(h, c, join ? (unsigned)max_size(doublings, load_relaxed(&latest[c])) : doublings);
  }
}

/* One look at a time tells only of its own class. Those of a program that allocates much of many sizes would come one after
 * the other, some for each; but those of one that does so of one or two, and is seldom looked at elsewhere, are no reason to
 * see less there. */
static void widen_many(heap *h, unsigned class) {
  heap_budget *b = h->budget;
  b->unearned |= (uint64_t)1 << class;
  unsigned many = 0;
  for (uint64_t left = b->unearned; left; left &= left - 1)
    many++;
  if (many < MANY)
    return;
  b->unearned = 0;
  for (unsigned c = 0; c < BUDGET_COUNT; c++)
    draw_anew(h, c, (unsigned)min_size(b->doublings[c] + 1, DOUBLINGS_MOST));
}

/* So many looks would not be rare. */
static void narrow(heap *h, uint64_t wanted) {
  const heap_budget *b = h->budget;
  unsigned halvings = 0;
  for (uint64_t looks = b->looks; looks < wanted && halvings < DOUBLINGS_MOST; looks *= 2)
    halvings++;
  for (unsigned c = 0; c < BUDGET_COUNT; c++)
    draw_anew(h, c, b->doublings[c] > halvings ? b->doublings[c] - halvings : 0);
}

/* CPU time of the heap's threads, about: another one may have it now, whose clock shows less or, at most by the time that
 * has passed, more. */
static uint64_t cpu_since(const heap_budget *b, uint64_t now, uint64_t cpu) {
  return min_size(now - b->paced, cpu < b->paced_cpu ? cpu : cpu - b->paced_cpu);
}

/* What is left. It saves and owes as much as a heap saves: by several threads at once, about. */
static int64_t process_pay(int64_t ns) {
  int64_t left = sub_relaxed(&process_left, ns) - ns;
  if (left > SAVED_MOST || left < -SAVED_MOST)
    store_relaxed(&process_left, left > 0 ? SAVED_MOST : -SAVED_MOST);
  return left;
}

/* What the start brings beside what heaps earn, since the last look of any: to whose look it is. Who waits for a processor has
 * no looks meanwhile, so only after a long time without any is the system asked. */
static uint64_t start_pays(const heap_budget *b, uint64_t now) {
  uint64_t from = load_relaxed(&start_paid), to = min_size(now, load_relaxed(&start_ends));
  if (from >= to || !cas_acq_rel(&start_paid, &from, to))
    return 0;
  uint64_t passed = to - from;
  if (passed > START_WORKS)
    passed = min_size(passed, max_size(START_WORKS, cpu_since(b, now, os_cpu_coarse_ns())));
  return (START_TIMES - 1) * passed / BUDGET_SHARE;
}

/* After each look. CPU time is not asked for before it can say that looks are rare, nor where a thread that has worked
 * all the time would not have earned them either. */
static void keep_pace(heap *h, unsigned class) {
  heap_budget *b = h->budget;
  if (h->hot.asked < BUDGET_INTERVAL)
    return;
  uint64_t now = os_now_ns(), each = look_costs(), passed = now - b->paced, earned = passed / BUDGET_SHARE;
  uint64_t given = start_pays(b, now), cpu = b->paced_cpu + passed; /* it worked all the time, if nobody asks */
  b->saved = (uint32_t)min_size(b->saved + given, SAVED_MOST);
  b->looks++;
  b->seen[class] += 1u << b->doublings[class];
  uint64_t costs = b->looks * each;
  bool at_start = now < load_relaxed(&start_ends), paid = b->begun;
  bool join = !paid && process_pay((int64_t)each - (int64_t)given) < 0, due = at_start || join || costs >= JUDGED;
  if (!due && passed < RARE_NS)
    return;
  if (b->saved + MATTERS * earned >= costs) {
    cpu = os_cpu_coarse_ns();
    uint64_t worked = cpu_since(b, now, cpu);
    if (!due && worked < RARE_NS)
      return;
    earned = worked / BUDGET_SHARE;
  }
  uint64_t may = b->saved + earned, owed = b->owed + costs;
  bool enough = may >= owed;
  b->saved = (uint32_t)min_size(may - min_size(may, owed), SAVED_MOST);
  b->owed = paid ? (uint32_t)min_size(owed - min_size(may, owed), OWED_MOST) : 0;
  if (enough) {
    b->unearned = 0;
    narrow(h, (earned + given) / (RARE * each));
  } else {
    widen(h, max_size(earned / 2, earned - min_size(earned, b->owed)) / each, join);
    if (!paid)
      widen_many(h, class);
  }
  b->begun = paid || (!at_start && (!join || enough));
  process_pay((int64_t)(paid ? costs : 0) - (int64_t)earned);
  pace_from(b, now, cpu);
}

static uint64_t budget_spent(heap *h, unsigned class) {
  uint64_t interval = h->budget->of[class].drawn_for;
  keep_pace(h, class);
  draw(h, class);
  return interval;
}

internal void budget_refund(heap *h, unsigned class) {
  ++*left_of(h, class);
}

internal NOINLINE uint64_t budget_due(heap *h, unsigned class) {
  const heap_budget *b = budget_now(h);
  uint64_t *left = left_of(h, class);
  if (*left)
    return 0;
  if (b && !b->quiet)
    return budget_spent(h, class);
  if (b)
    draw(h, class);
  else
    budget_unseen(h, class);
  budget_refund(h, class); /* what is given out unseen now is not charged */
  return 0;
}

internal NOINLINE uint64_t budget_due_later(heap *h, size_t bytes) {
  const heap_budget *b = budget_now(h);
  if (!b)
    h->hot.large_left = UINT64_MAX; /* nobody looks */
  if (budget_covers_large(h, bytes) || !b)
    return 0;
  uint64_t interval = b->of[BUDGET_LARGE].drawn_for;
  draw(h, BUDGET_LARGE);
  return b->quiet ? 0 : interval;
}

internal void budget_look_large(heap *h) { keep_pace(h, BUDGET_LARGE); }

internal uint64_t budget_due_large(heap *h, size_t bytes) {
  uint64_t interval = budget_due_later(h, bytes);
  if (interval)
    budget_look_large(h);
  return interval;
}

internal NOINLINE void budget_ration(heap *h, unsigned class, block *list, uint32_t count) {
  heap_budget *b = budget_now(h);
  if (!b)
    budget_unseen(h, class);
  uint32_t fit = (uint32_t)min_size(max_size(h->left[class], 1), count);
  block **end = &list->next;
  for (uint32_t i = 1; i < fit; i++)
    end = &(*end)->next;
  h->left[class] -= min_size(h->left[class], fit);
  if (fit < count) {
    budget_class *c = &b->of[class];
    c->held = *end;
    c->held_count = count - fit;
    c->left = 0;
    *end = NULL;
  }
  h->hot.hand[class] = list->next;
}

internal NOINLINE block *budget_release(heap *h, unsigned class, uint32_t *count) {
  budget_class *c = h->budget ? &h->budget->of[class] : NULL;
  block *list = c ? c->held : NULL;
  if (list) {
    *count = c->held_count;
    h->left[class] = c->left;
    c->held = NULL;
    c->held_count = 0;
  }
  return list;
}

internal void budget_fork_child(heap *h) {
  if (h->budget)
    h->budget->quiet = false;
}
