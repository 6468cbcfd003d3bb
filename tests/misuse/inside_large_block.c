/* A pointer into a large block is freed, in its first 64 KiB. */
#include "misuse.h"

int main(void) {
  char *p = malloc(300000);
  free(announce(p + 4096));
}
