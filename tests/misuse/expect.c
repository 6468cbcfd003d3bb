/* Runs a misuse program and holds it to its report: the program ends as it should,
 * and its stderr is one line, "masu: WHAT: POINTER", with the pointer that the
 * program printed.
 *   expect abort|exit WHAT PROGRAM [ARGUMENT...] */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void read_all(int fd, char *text, size_t size) {
  size_t length = 0;
  for (ssize_t n; (n = read(fd, text + length, size - 1 - length)) > 0;)
    length += (size_t)n;
  text[length] = 0;
}

int main(int argc, char **argv) {
  char pointer[256], report[4096], expected[512];
  int out[2], err[2], status;
  if (argc < 4 || pipe(out) || pipe(err))
    return 2;
  pid_t pid = fork();
  if (pid == 0) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    dup2(out[1], 1);
    dup2(err[1], 2);
    alarm(20);
    execv(argv[3], argv + 3);
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  read_all(out[0], pointer, sizeof pointer); /* at most one line: no deadlock */
  read_all(err[0], report, sizeof report);
  waitpid(pid, &status, 0);
  pointer[strcspn(pointer, "\n")] = 0;
  snprintf(expected, sizeof expected, "masu: %s: %s\n", argv[2], pointer);
  int aborts = strcmp(argv[1], "abort") == 0;
  int ended = aborts ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT
                     : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!ended)
    printf("it ended with %s %d instead of %s\n", WIFSIGNALED(status) ? "signal" : "code",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
           aborts ? "abort" : "code 0");
  if (strcmp(report, expected) != 0)
    printf("it reported:\n%sexpected:\n%s", *report ? report : "nothing\n", expected);
  return ended && strcmp(report, expected) == 0 ? 0 : 1;
}
