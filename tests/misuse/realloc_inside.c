/* A pointer into a block is resized. */
#include "misuse.h"

int main(void) {
  char *p = malloc(100);
  hide(realloc(hide(announce(p + 16)), 110));
}
