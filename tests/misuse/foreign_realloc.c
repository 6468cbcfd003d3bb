/* As foreign_free.c: realloc of a foreign pointer fails and changes nothing. */
#include "misuse.h"

#include <errno.h>

int main(void) {
  char *mapped =
      mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(mapped, 7, 65536);
  errno = 0;
  if (hide(realloc(announce(mapped), 100)) || errno != ENOMEM)
    return 1;
  return mapped[0] == 7 && mapped[99] == 7 ? masu_check() : 2;
}
