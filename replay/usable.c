/* usable: reads sizes in bytes, one a line, and prints for each what malloc gives for it
 * (malloc_usable_size). Run with the allocator in question preloaded. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  unsigned long long size;
  while (scanf("%llu", &size) == 1) {
    void *p = malloc(size);
    if (!p) {
      fprintf(stderr, "out of memory: %llu bytes\n", size);
      return 1;
    }
    printf("%zu\n", malloc_usable_size(p));
    free(p);
  }
  return 0;
}
