/* figures: structs of 64-bit fields that programs read, whichever version of the header they were compiled with. Fields
 * are only ever added at the end. */
#ifndef MASU_BASE_FIGURES_H
#define MASU_BASE_FIGURES_H

#include "base/attr.h"

#include <string.h>

/* Is it a size from the first version on, of which this is the last field? */
#define FIGURES_FIT(size, type, last) ((size) >= offsetof(type, last) + sizeof(uint64_t) && (size) % sizeof(uint64_t) == 0)

/* What the program doesn't know is left out, and what this library doesn't know is 0. */
static inline void figures_give(void *to, size_t size, const void *figures, size_t known) {
  memcpy(to, figures, size < known ? size : known);
  if (size > known)
    memset((char *)to + known, 0, size - known);
}

#endif
