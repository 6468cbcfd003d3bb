#include "observe/curve.h"

static curve_point highest(curve_point a, curve_point b) {
  return (curve_point){a.in_use > b.in_use ? a.in_use : b.in_use, a.held > b.held ? a.held : b.held};
}

/* A point that is the last and alone stands for what there is of its step. */
static void halve(curve *c) {
  for (size_t i = 0; i < c->count; i += 2)
    c->points[i / 2] = i + 1 < c->count ? highest(c->points[i], c->points[i + 1]) : c->points[i];
  c->count = (c->count + 1) / 2;
  c->step *= 2;
}

internal void curve_add(curve *c, uint64_t at, curve_point now) {
  if (!c->step)
    c->step = CURVE_STEP_LEAST;
  while (at / c->step >= CURVE_POINTS)
    halve(c);
  while (c->count <= at / c->step)
    c->points[c->count++] = c->now;
  c->points[c->count - 1] = highest(c->points[c->count - 1], now);
  c->now = now;
}
