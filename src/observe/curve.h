/* curve: memory over time, in a bounded number of points however long it goes on. Each stands for a step of time; when
 * there is no room for the next, two become one, and the step twice as long.
 *
 *     points[i] has the highest values of [i * step, (i + 1) * step), what was there when it began among them
 *
 * Threads: whoever has its lock.
 */
#ifndef MASU_OBSERVE_CURVE_H
#define MASU_OBSERVE_CURVE_H

#include "base/attr.h"

enum { CURVE_POINTS = 256, CURVE_STEP_LEAST = 1000000 /* ns */ };

typedef struct curve_point {
  double in_use;
  double held;
} curve_point;

/* Empty: all zero. */
typedef struct curve {
  uint64_t step; /* ns */
  size_t count;  /* of points */
  curve_point now, points[CURVE_POINTS];
} curve;

/* From now on it is so much. at: ns since the start; what is earlier than the last point counts there. */
internal void curve_add(curve *c, uint64_t at, curve_point now);

#endif
