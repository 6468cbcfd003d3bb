/* Gate: a program that runs with more rights than its user (AT_SECURE) ignores
 * MASU_OPTIONS and MASU_OPTIONS_FILE, and shows its figures to nobody, even if it asks for that
 * itself. This program is linked with libmasu.so by an absolute path and
 * copies itself, set-user-id to another user. Needs root and a directory whose
 * file system honours the bit. */
#include <masu.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "gate.h"

static char output[4096];
static int run(const char *path, uid_t user) {
  int ends[2], status;
  CHECK(pipe(ends) == 0, "pipe");
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 2);
    if (setgid(user) != 0 || setuid(user) != 0)
      _exit(126);
    char *const arguments[] = {"secure", "child", NULL};
    char *const environment[] = {"MASU_OPTIONS=verbose,nonsense:1,live",
                                 "MASU_OPTIONS_FILE=/nonexistent/options", NULL};
    execve(path, arguments, environment);
    _exit(127);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(ends[0], output + length, sizeof output - 1 - length)) > 0;)
    length += (size_t)n;
  output[length] = 0;
  close(ends[0]);
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int has_live_page(void) {
  char line[512];
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    found |= strstr(line, "/dev/shm/masu-") != NULL;
  return found;
}

int main(int argc, char **argv) {
  (void)argv;
  CHECK(dlsym(RTLD_DEFAULT, "masu_malloc"), "not linked with masu");
  free(malloc(100));
  if (argc > 1) {
    int secure = getauxval(AT_SECURE) != 0;
    const uint64_t on = 1;
    if (has_live_page() != !secure || masu_ctl("live", NULL, &on) != 0 || has_live_page() != !secure)
      return 43;
    return secure ? 42 : 0;
  }
  watchdog(60);
  if (geteuid() != 0)
    skip("only root can make a set-user-id program");
  /* In a fresh directory that the other user can reach. */
  char directory[] = "/tmp/masu-secure-XXXXXX", path[64], command[600];
  CHECK(mkdtemp(directory) && chmod(directory, 0755) == 0, "mkdtemp");
  snprintf(path, sizeof path, "%s/secure", directory);
  snprintf(command, sizeof command, "cp /proc/%d/exe %s", getpid(), path);
  bool copied = system(command) == 0 && chmod(path, 0755) == 0;
  int plain = copied ? run(path, 65534) : -1;
  bool shouted = strstr(output, "masu: ") != NULL;
  copied = copied && chmod(path, 04755) == 0;
  int secure = copied ? run(path, 65534) : -1;
  unlink(path);
  rmdir(directory);
  CHECK(copied, "cannot copy myself");
  if (plain == 127 || secure == 127)
    skip("user 65534 cannot reach libmasu.so or /tmp");
  if (secure == 0)
    skip("set-user-id has no effect here");
  CHECK(plain == 0 && shouted, "without the bit: code %d, '%s'", plain, output);
  CHECK(secure == 42, "with the bit: code %d, %s", secure, output);
  CHECK(!output[0], "the options are not ignored: %s", output);
  return 0;
}
