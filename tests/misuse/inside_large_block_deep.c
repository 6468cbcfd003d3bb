/* A pointer into a large block is freed, beyond its first 64 KiB. */
#include "misuse.h"

int main(void) {
  char *p = malloc(300000);
  free(announce(p + 200000));
}
