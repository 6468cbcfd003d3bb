/* free_aligned_sized with an alignment that the block does not have. */
#include "misuse.h"

int main(void) {
  char *p = aligned_alloc(64, 64);
  while (((uintptr_t)p & 4095) == 0)
    p = aligned_alloc(64, 64);
  masu_free_aligned_sized(announce(p), 4096, 64);
}
