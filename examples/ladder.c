/* A game's malloc: growing pools of a few sizes behind malloc, realloc and free. */
#include <masu/fixed.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  static const size_t steps[] = {16, 64, 256, 1024, 4096, 16384, 65536, 262144};
  masu_ladder *ladder = masu_ladder_create(steps, sizeof steps / sizeof *steps);
  if (!ladder)
    return 1;
  char *text = NULL;
  size_t length = 0, moved = 0;
  for (int i = 0; i < 100000; i++) { /* grows character by character */
    char *longer = masu_ladder_realloc(ladder, text, length + 1);
    if (!longer)
      return 1;
    moved += longer != text;
    text = longer;
    text[length++] = (char)('a' + i % 26);
  }
  printf("%zu characters, moved %zu times\n", length, moved);
  masu_ladder_free(ladder, text);
  printf("%zu KiB given back\n", masu_ladder_trim(ladder) / 1024);
  masu_ladder_destroy(ladder);
  return 0;
}
