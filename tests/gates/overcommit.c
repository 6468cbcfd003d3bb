/* Gate: vm.overcommit_memory=2, where address space that is writable counts as
 * memory. Changes the whole machine for a moment, so only with
 * MASU_TEST_OVERCOMMIT=1 and where it may. */
#include "gate.h"

static const char *path = "/proc/sys/vm/overcommit_memory";

static void *body(void *unused) {
  uint64_t random = 3;
  static __thread void *blocks[5000];
  for (int round = 0; round < 5; round++) {
    for (size_t i = 0; i < COUNT(blocks); i++) {
      CHECK((blocks[i] = malloc(random_size(&random))), "no memory");
      touch(blocks[i], 1);
    }
    for (size_t i = 0; i < COUNT(blocks); i++)
      free(blocks[i]);
  }
  return unused;
}

int main(int argc, char **argv) {
  gate_begin(300);
  if (argc > 1) {
    body(NULL);
    finish(start(body, NULL));
    /* what is charged is what was used, not what is reserved */
    size_t charged = status_kib("/proc/self/status", "\nVmData:") / KIB;
    CHECK(charged < 300, "%zu MiB are charged", charged);
    return 0;
  }
  char old[16];
  if (!getenv("MASU_TEST_OVERCOMMIT"))
    skip("MASU_TEST_OVERCOMMIT=1 lets this test change the machine's overcommit mode");
  if (!read_file(path, old, sizeof old) || !write_file(path, "2"))
    skip("vm.overcommit_memory cannot be set here");
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", argv[0], "strict", (char *)NULL);
    _exit(127);
  }
  int status;
  waitpid(pid, &status, 0);
  CHECK(write_file(path, old), "overcommit_memory stays at 2, was %s", old);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
