/* A small block is freed twice. */
#include "misuse.h"

int main(void) {
  void *p = announce(malloc(100));
  free(p);
  free(hide(p));
}
