/* Gate: vfork, posix_spawn, system and popen while threads allocate, free and
 * start programs themselves. Started programs run on masu too (LD_PRELOAD). */
#include <spawn.h>

#include "hammer.h"

extern char **environ;
enum { ROUNDS = 25 };

static void spawn_one(void) {
  char *const arguments[] = {"true", NULL};
  pid_t pid;
  int fault = posix_spawnp(&pid, "true", NULL, NULL, arguments, environ);
  CHECK(fault == 0, "posix_spawn: %s", strerror(fault));
  wait_for(pid, "posix_spawn");
}
static void vfork_one(void) {
  /* vfork's child shares our memory; malloc there is not allowed by POSIX, but
   * shells and language runtimes do it. */
  pid_t pid = vfork();
  if (pid == 0) {
    char *volatile p = malloc(100);
    free(p);
    execlp("true", "true", (char *)NULL);
    _exit(9);
  }
  wait_for(pid, "vfork");
}
static void popen_one(void) {
  char line[64] = "";
  FILE *f = popen("echo spoken", "r");
  CHECK(f && fgets(line, sizeof line, f) && strcmp(line, "spoken\n") == 0,
        "popen gave '%s'", line);
  CHECK(pclose(f) == 0, "pclose");
}
static void *starter(void *unused) {
  for (int i = 0; i < ROUNDS; i++) {
    spawn_one();
    popen_one();
  }
  return unused;
}

int main(void) {
  gate_begin(300);
  hammer_start();
  pthread_t second = start(starter, NULL);
  for (int i = 0; i < ROUNDS; i++) {
    vfork_one();
    spawn_one();
    CHECK(system("exit 3") == 3 << 8, "system");
    popen_one();
  }
  finish(second);
  hammer_finish();
  return 0;
}
