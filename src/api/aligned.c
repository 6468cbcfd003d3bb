/* aligned: the aligned allocation functions of masu.h. They differ in which
 * alignments they accept and in how they report failure. */
#include <errno.h>

#include "api/malloc.h"
#include "base/bits.h"
#include "os/os.h"

static void *invalid(void) {
  errno = EINVAL;
  return NULL;
}

PUBLIC void *masu_aligned_alloc(size_t alignment, size_t size) {
  return is_pow2(alignment) ? malloc_aligned(alignment, size) : invalid();
}

PUBLIC void *masu_memalign(size_t alignment, size_t size) {
  size_t power = pow2_ceil(alignment);
  return power ? malloc_aligned(power, size) : invalid();
}

PUBLIC int masu_posix_memalign(void **out, size_t alignment, size_t size) {
  if (!is_pow2(alignment) || alignment % sizeof(void *))
    return EINVAL;
  void *p = malloc_aligned(alignment, size);
  if (!p)
    return ENOMEM;
  *out = p;
  return 0;
}

PUBLIC void *masu_valloc(size_t size) { return malloc_aligned(os_page(), size); }

PUBLIC void *masu_pvalloc(size_t size) {
  size_t page = os_page();
  if (size > SIZE_MAX - page) {
    errno = ENOMEM;
    return NULL;
  }
  return malloc_aligned(page, max_size(ROUND_UP(size, page), page));
}
