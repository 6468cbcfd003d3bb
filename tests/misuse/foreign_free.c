/* A release build, linked statically: there is no next allocator to hand a foreign
 * pointer to. It is named in one line and left alone; the program goes on. */
#include "misuse.h"

int main(int argc, char **argv) {
  static char global[256];
  char local[256];
  memset(global, 7, sizeof global);
  memset(local, 7, sizeof local);
  char *mapped =
      mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(mapped, 7, 65536);
  char *p = argc < 2            ? mapped
            : argv[1][0] == 'g' ? global
            : argv[1][0] == 's' ? local
                                : mapped;
  p += 16;
  free(announce(p));
  for (int i = 0; i < 64; i++)
    if (p[i] != 7)
      return 1;
  for (int i = 0; i < 1000; i++) { /* it did not become ours */
    char *q = malloc(i * 10 + 1);
    if (!q || hide(q) == p)
      return 2;
    memset(q, 1, i * 10 + 1);
    free(q);
  }
  return masu_check();
}
