/* measure RESULT [NAME=VALUE]... -- COMMAND...
 *
 * Runs COMMAND with these settings in its environment and writes two lines to the
 * file RESULT: its process id when it starts, and what it used, as JSON, when it has
 * ended. A small C program, because the peak memory that the kernel reports for a
 * process begins with that of the process it was forked from.
 *
 * What COMMAND started and left does not outlive it: its process group, which is this
 * one's, is killed, this process with it, once RESULT is written, at SIGTERM, and when
 * the thread that started it ends. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double seconds(struct timeval t) {
  return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static void end_group(int number) {
  (void)number;
  kill(0, SIGKILL);
}

static void become(char **settings, char **command) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (; settings < command - 1; settings++)
    putenv(*settings);
  execvp(*command, command);
  fprintf(stderr, "%s: %s\n", *command, strerror(errno));
  _exit(127);
}

int main(int argc, char **argv) {
  int dashes = 2;
  while (dashes < argc && strcmp(argv[dashes], "--"))
    dashes++;
  if (dashes + 1 >= argc) {
    fputs("usage: measure RESULT [NAME=VALUE]... -- COMMAND...\n", stderr);
    return 2;
  }
  setpgid(0, 0); /* fails for the leader of a session, who leads a group already */
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  int result = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (result < 0) {
    perror(argv[1]);
    return 2;
  }
  double start = now();
  pid_t pid = fork();
  if (pid < 0) {
    perror("fork");
    return 2;
  }
  if (!pid)
    become(argv + 2, argv + dashes + 1);
  signal(SIGTERM, end_group);
  dprintf(result, "%d\n", (int)pid);
  int status;
  struct rusage r;
  while (wait4(pid, &status, 0, &r) < 0)
    if (errno != EINTR)
      return 2;
  double wall = now() - start;
  dprintf(result,
          "{\"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"peak_rss_kib\": %ld, "
          "\"page_faults\": %ld, \"voluntary_switches\": %ld, \"involuntary_switches\": %ld, \"status\": %d}\n",
          wall, seconds(r.ru_utime), seconds(r.ru_stime), r.ru_maxrss, r.ru_minflt + r.ru_majflt, r.ru_nvcsw,
          r.ru_nivcsw, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  end_group(0);
}
