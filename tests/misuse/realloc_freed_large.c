/* A freed block of several slices is resized to a size that would do where it is. */
#include "misuse.h"

int main(void) {
  void *p = announce(malloc(300000));
  free(p);
  hide(realloc(hide(p), 310000));
}
