/* The caller knows the size: nothing is stored with a block. */
#include <masu/sized.h>

#include <stdio.h>
#include <stdlib.h>

int main(void) {
  enum { COUNT = 1000000 };
  static int *numbers[COUNT];
  for (int i = 0; i < COUNT; i++) {
    numbers[i] = masu_sized_alloc(sizeof(int));
    if (!numbers[i])
      return 1;
    *numbers[i] = i;
  }
  unsigned index = masu_size_index(sizeof(int)); /* looked up once */
  masu_sized_figures figures;
  masu_sized_read(index, &figures, sizeof figures);
  printf("%zu blocks of %zu bytes in %zu KiB\n", figures.live, masu_size_of_index(index),
         figures.held / 1024);
  for (int i = 0; i < COUNT; i++)
    masu_sized_free_index(numbers[i], index);
  printf("%zu KiB given back\n", masu_sized_trim() / 1024);
  return 0;
}
