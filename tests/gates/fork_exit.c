/* Gate: a process that exits while its other threads fork. Exit takes a library's fork handlers off the C library's
 * list, so of a fork under way only the first half of them would run, and what that took nobody would release. */
#include "gate.h"

enum { RUNS = 300, FORKERS = 3 };

static _Atomic int forked;

static void *forks(void *unused) {
  for (;;) {
    pid_t pid = fork();
    if (pid == 0)
      _exit(0);
    CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork: %s", strerror(errno));
    forked++;
    free(malloc(100000));
  }
  return unused;
}

static void exits_meanwhile(int after) {
  watchdog(20);
  for (int i = 0; i < FORKERS; i++)
    start(forks, NULL);
  while (forked < after)
    free(malloc(1000));
  exit(0);
}

int main(void) {
  gate_begin(300);
  for (int i = 0; i < RUNS; i++) {
    pid_t pid = fork();
    if (pid == 0)
      exits_meanwhile(1 + i % 10);
    wait_for(pid, "a process that exits while it forks");
  }
  return 0;
}
