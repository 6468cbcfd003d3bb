#include "heap/budget.h"

#include "os/os.h"
#include "pages/meta.h"

enum {
  PACED_LOOKS = 64, /* after which the pace is judged */
  RARE_LOOKS_A_MS = BUDGET_LOOKS_A_MS / 4,
  RARE_MS = PACED_LOOKS / RARE_LOOKS_A_MS, /* so long they take where they are rare */
  WIDER_MOST = 1 << 12,
  SAVED_MOST = 8192, /* looks that a heap may have at once: all of those of a short program */
};

internal_def atomic_u64 budget_interval;
static atomic_u64 widest;

/* What was seen, and what was not, at an interval that was asked for before is still there. */
internal void budget_start(uint64_t interval) {
  static uint64_t last;
  if (interval > 1 && interval != last)
    store_relaxed(&widest, last = interval);
  store_release(&budget_interval, interval);
}

internal uint64_t budget_widest(void) { return load_relaxed(&widest); }

/* -ln(x), 0 < x <= 1, to nine digits: the mathematical library is not there. */
static double minus_log(double x) {
  int halvings = 0;
  for (; x < 0.5; x *= 2)
    halvings++;
  double t = (1 - x) / (1 + x), square = t * t, term = t, sum = 0;
  for (int n = 1; n < 18; n += 2, term *= square)
    sum += term / n;
  return 2 * sum + halvings * 0.69314718055994531;
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

static uint64_t drawn(heap_budget *b) {
  if (b->interval <= 1)
    return 0;
  b->random ^= b->random << 13;
  b->random ^= b->random >> 7;
  b->random ^= b->random << 17;
  double u = (double)((b->random >> 11) + 1) / 9007199254740992.0;
  return (uint64_t)(minus_log(u) * (double)b->interval);
}

static void draw(heap_budget *b, unsigned class) {
  b->left[class] = drawn(b);
  b->drawn_for[class] = b->interval;
}

/* In a slow path: takes a lock. */
static heap_budget *budget_make(heap *h) {
  heap_budget *b = meta_alloc(sizeof *b);
  if (b)
    b->random = ((uintptr_t)b ^ os_now_ns() << 20) * 0x9e3779b97f4a7c15 | 1;
  return h->budget = b;
}

/* Where a countdown stops has nothing to do with how far it has come, so it can begin anew; but not where it is
 * known already that the next block will be looked at. */
static void draw_anew(heap_budget *b, uint64_t interval) {
  b->interval = interval;
  for (unsigned c = 0; c < BUDGET_COUNT; c++)
    if (c == BUDGET_LARGE || !b->held[c])
      draw(b, c);
}

/* Draws anew if the interval was changed. */
static bool budget_is_on(heap_budget *b) {
  uint64_t asked = load_relaxed(&budget_interval);
  if (b->asked != asked) {
    b->asked = asked;
    b->looks = 0;
    b->saved = SAVED_MOST;
    b->paced_ms = os_now_ms();
    b->interval = asked;
    for (unsigned c = 0; c < BUDGET_COUNT && asked; c++)
      draw(b, c);
  }
  return asked != 0;
}

/* After each look. */
static void keep_pace(heap_budget *b) {
  if (b->asked < BUDGET_INTERVAL)
    return;
  uint64_t now = os_now_ms(), passed = now - b->paced_ms, interval = b->interval;
  if (++b->looks < PACED_LOOKS && passed < RARE_MS)
    return;
  uint64_t earned = b->saved + BUDGET_LOOKS_A_MS * passed;
  b->saved = (uint32_t)min_size(earned - min_size(earned, b->looks), SAVED_MOST);
  if (!b->saved) {
    if (interval / WIDER_MOST < b->asked)
      interval *= 2;
  } else {
    for (uint64_t looks = b->looks; interval > b->asked && looks < RARE_LOOKS_A_MS * passed; looks *= 2)
      interval /= 2;
  }
  b->looks = 0;
  b->paced_ms = now;
  if (interval != b->interval)
    draw_anew(b, interval);
}

internal uint64_t budget_due(heap *h, unsigned class, size_t size) {
  heap_budget *b = h->budget ? h->budget : budget_make(h);
  if (!b || b->quiet || !budget_is_on(b))
    return 0;
  if (b->left[class] >= size) {
    b->left[class] -= size;
    return 0;
  }
  uint64_t interval = b->drawn_for[class];
  draw(b, class);
  keep_pace(b);
  for (uint64_t most = budget_widest(); most < b->interval && !cas_acq_rel(&widest, &most, b->interval);)
    ;
  return interval;
}

internal bool budget_covers(heap *h, unsigned class, size_t bytes) {
  heap_budget *b = h->budget;
  if (!b)
    return false;
  if (!budget_is_on(b))
    return true;
  if (b->left[class] < bytes)
    return false;
  b->left[class] -= bytes;
  return true;
}

internal block *budget_ration(heap *h, unsigned class, block *list, uint32_t count) {
  size_t size = class_size(class);
  if (budget_covers(h, class, count * size))
    return list;
  heap_budget *b = h->budget;
  uint32_t fit = (uint32_t)(b->left[class] / size);
  block **end = &list;
  for (uint32_t i = 0; i < fit; i++)
    end = &(*end)->next;
  b->held[class] = *end;
  b->held_count[class] = count - fit;
  b->left[class] -= fit * size;
  *end = NULL;
  return list;
}

internal block *budget_release(heap *h, unsigned class, uint32_t *count) {
  block *list = h->budget->held[class];
  *count = h->budget->held_count[class];
  h->budget->held[class] = NULL;
  h->budget->held_count[class] = 0;
  return list;
}

internal void budget_fork_child(heap *h) {
  if (h->budget)
    h->budget->quiet = false;
}
