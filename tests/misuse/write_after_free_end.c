/* The last byte of a freed block is written to. */
#include "misuse.h"

int main(void) {
  char *p = announce(malloc(1024));
  free(p);
  ((char *)hide(p))[1023] = 1;
  for (int i = 0; i < 100000; i++)
    hide(malloc(1024));
}
