/* A pointer into a small block is freed. */
#include "misuse.h"

int main(void) {
  char *p = malloc(1000);
  free(announce(p + 16));
}
