/* A small block is freed twice, with others taken and freed in between. */
#include "misuse.h"

int main(void) {
  void *others[1000], *p = announce(malloc(3000));
  free(p);
  for (int i = 0; i < 1000; i++)
    others[i] = malloc(200);
  for (int i = 0; i < 1000; i++)
    free(others[i]);
  free(hide(p));
}
