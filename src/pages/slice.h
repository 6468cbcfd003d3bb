/* slice: the unit of memory that masu deals in. A slice is 64 KiB, aligned; a run
 * is some consecutive slices; 32 slices make a huge page of 2 MiB. */
#ifndef MASU_PAGES_SLICE_H
#define MASU_PAGES_SLICE_H

#include "base/attr.h"

#define SLICE_SHIFT 16
#define SLICE_SIZE ((size_t)1 << SLICE_SHIFT)
#define HUGE_SLICES 32u
#define HUGE_SIZE (HUGE_SLICES * SLICE_SIZE)

#endif
