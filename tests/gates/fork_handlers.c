/* Gate: pthread_atfork handlers that allocate, registered before masu's own
 * (gate_early: they run while masu is prepared for the fork) and after
 * (gate_usual, and this program). */
#include "hammer.h"

static int forks = 80;

static int prepared, children;
static void *kept;

static void exercise(void) {
  uint64_t random = 3;
  free(kept);
  CHECK((kept = malloc(3000)), "no memory");
  for (int i = 0; i < 30; i++)
    parcel_free(parcel_make(&random));
  parcel_free(atomic_exchange(&parcels[0], NULL)); /* of another thread */
}
static void prepare(void) { prepared++, exercise(); }
static void parent(void) { exercise(); }
static void child(void) { children++, exercise(); }

int main(int argc, char **argv) {
  if (argc > 1)
    forks = atoi(argv[1]);
  gate_begin(300);
  CHECK(pthread_atfork(prepare, parent, child) == 0, "atfork");
  hammer_start();
  for (int i = 0; i < forks; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      watchdog(20);
      CHECK(children == 1 && EARLY(int, early_forks_children) == 1,
            "handlers did not run");
      hammer_free_all();
      pid_t grandchild = fork();
      if (grandchild == 0) {
        watchdog(20);
        exercise();
        _exit(0);
      }
      wait_for(grandchild, "grandchild");
      _exit(0);
    }
    wait_for(pid, "child");
  }
  CHECK(prepared == forks && EARLY(int, early_forks_prepared) == forks,
        "handlers did not run");
  hammer_finish();
  return 0;
}
