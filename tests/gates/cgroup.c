/* Gate: a container's memory limit (cgroup v1 or v2, where this test may make a
 * group). 150 MiB live at most, limit 256 MiB: what is freed at one size has to
 * be there for the next at once, or the kernel kills the program. */
#include <sys/stat.h>

#include "gate.h"

enum { LIMIT_MIB = 256, LIVE_MIB = 150 };

static char group[200];

static bool set(const char *file, const char *text) {
  char path[300];
  snprintf(path, sizeof path, "%s/%s", group, file);
  return write_file(path, text);
}
static void make_group(void) {
  const char *limit = "268435456";
  snprintf(group, sizeof group, "/sys/fs/cgroup/memory/masu-test-%d", getpid());
  if (mkdir(group, 0755) == 0 && set("memory.limit_in_bytes", limit))
    return;
  rmdir(group);
  snprintf(group, sizeof group, "/sys/fs/cgroup/masu-test-%d", getpid());
  if (mkdir(group, 0755) == 0 && set("memory.max", limit)) {
    set("memory.swap.max", "0");
    return;
  }
  rmdir(group);
  skip("no memory group can be made here");
}

static void *blocks[LIVE_MIB * MIB / 64];

static void phase(size_t n) {
  size_t count = LIVE_MIB * MIB / n;
  for (size_t i = 0; i < count; i++) {
    CHECK((blocks[i] = malloc(n)), "malloc(%zu)", n);
    touch(blocks[i], n);
  }
  for (size_t i = 0; i < count; i++)
    free(blocks[i]);
}
static void *phases(void *unused) {
  static const size_t sizes[] = {64,     4096,     1 * MIB, 1000,     30000,
                                 200000, 10 * MIB, 300,     150 * MIB};
  for (int round = 0; round < 2; round++)
    for (size_t i = 0; i < COUNT(sizes); i++)
      phase(sizes[i]);
  return unused;
}

int main(int argc, char **argv) {
  gate_begin(300);
  if (argc > 1) { /* in the group, from the very start */
    touch(blocks, sizeof blocks);
    phases(NULL);
    finish(start(phases, NULL)); /* and in a thread, after the main thread's use */
    return 0;
  }
  make_group();
  pid_t pid = fork();
  if (pid == 0) {
    char text[32];
    snprintf(text, sizeof text, "%d", getpid());
    CHECK(set("cgroup.procs", text), "cannot enter the group: %s", strerror(errno));
    execl("/proc/self/exe", argv[0], "inside", (char *)NULL);
    _exit(127);
  }
  int status;
  waitpid(pid, &status, 0);
  for (int i = 0; rmdir(group) != 0 && i < 1000; i++)
    sleep_ms(1);
  CHECK(!WIFSIGNALED(status), "killed by signal %d (9: out of memory in the group)",
        WTERMSIG(status));
  return WEXITSTATUS(status);
}
