/* Is malloc masu's in a program that got masu the way CMakeLists.txt and script/examples do? */
#include <masu/stats.h>

#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 8 << 20 };

int main(void) {
  masu_stats before, after;
  int read = masu_stats_read(&before, sizeof before) == 0;
  char *volatile block = malloc(SIZE);
  read = read && masu_stats_read(&after, sizeof after) == 0;
  free(block);
  if (!block || !read || after.large < before.large + SIZE) {
    puts("malloc is not masu's");
    return 1;
  }
  return 0;
}
