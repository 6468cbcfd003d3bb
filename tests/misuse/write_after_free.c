/* A freed block is written to; the next use of it tells. */
#include "misuse.h"

int main(void) {
  char *p = announce(malloc(200));
  free(p);
  ((char *)hide(p))[100] = 1;
  for (int i = 0; i < 100000; i++)
    hide(malloc(200));
}
