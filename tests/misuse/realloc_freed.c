/* A freed block is resized. */
#include "misuse.h"

int main(void) {
  void *p = announce(malloc(100));
  free(p);
  hide(realloc(hide(p), 110));
}
