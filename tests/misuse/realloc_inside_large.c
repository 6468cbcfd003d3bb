/* A pointer into a block of several slices is resized. */
#include "misuse.h"

int main(void) {
  char *p = malloc(300000);
  hide(realloc(hide(announce(p + 65536)), 310000));
}
