#include "heap/budget.h"

#include "os/os.h"
#include "pages/meta.h"

internal_def atomic_u64 budget_interval;

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

static uint64_t draw(heap_budget *b) {
  if (b->interval <= 1)
    return 0;
  b->random ^= b->random << 13;
  b->random ^= b->random >> 7;
  b->random ^= b->random << 17;
  double u = (double)((b->random >> 11) + 1) / 9007199254740992.0;
  return (uint64_t)(minus_log(u) * (double)b->interval);
}

/* In a slow path: takes a lock. */
static heap_budget *budget_make(heap *h) {
  heap_budget *b = meta_alloc(sizeof *b);
  if (b)
    b->random = ((uintptr_t)b ^ os_now_ns() << 20) * 0x9e3779b97f4a7c15 | 1;
  return h->budget = b;
}

/* Draws anew if the interval was changed. */
static bool budget_is_on(heap_budget *b) {
  uint64_t interval = load_relaxed(&budget_interval);
  if (b->interval != interval) {
    b->interval = interval;
    for (unsigned c = 0; c < BUDGET_COUNT && interval; c++)
      b->left[c] = draw(b);
  }
  return interval != 0;
}

internal bool budget_due(heap *h, unsigned class, size_t size) {
  heap_budget *b = h->budget ? h->budget : budget_make(h);
  if (!b || b->quiet || !budget_is_on(b))
    return false;
  if (b->left[class] < size) {
    b->left[class] = draw(b);
    return true;
  }
  b->left[class] -= size;
  return false;
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
