/* no_huge COMMAND...
 *
 * Runs COMMAND without transparent huge pages, where MASU_BENCH_HUGE=0 asks for it as
 * every workload does. */
#include "workload.h"

#include <unistd.h>

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  if (argc < 2)
    fail("usage: no_huge COMMAND...");
  execvp(argv[1], argv + 1);
  fail("%s: %s", argv[1], strerror(errno));
}
