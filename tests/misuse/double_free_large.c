/* A large block is freed twice. */
#include "misuse.h"

int main(void) {
  void *p = announce(malloc(300000));
  free(p);
  free(hide(p));
}
