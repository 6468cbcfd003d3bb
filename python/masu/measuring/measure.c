/* measure RESULT [NAME=VALUE]... -- COMMAND...
 *
 * Runs COMMAND with these settings in its environment and writes two lines to the
 * file RESULT: its process id when it starts, and what it used, as JSON, when it has
 * ended. A small C program, because the peak memory that the kernel reports for a
 * process begins with that of the process it was forked from.
 *
 * What COMMAND started and left does not outlive it: this process is the parent of what has
 * lost its own, also of daemons. It kills them all, its process group and so itself, once
 * RESULT is written, at SIGTERM, and when the thread that started it ends. */
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

/* The first child; 0: there is none, or the kernel doesn't list them. */
static pid_t first_child(void) {
  char text[32] = "";
  int list = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (list < 0 || read(list, text, sizeof text - 1) < 0)
    text[0] = 0;
  close(list);
  return atoi(text);
}

/* As one ends, those that it leaves become children. Also a signal handler. */
static void end_all(int number) {
  (void)number;
  for (pid_t child; (child = first_child()) && !kill(child, SIGKILL);)
    waitpid(child, NULL, 0);
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
  signal(SIGTERM, end_all);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
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
  dprintf(result, "%d\n", (int)pid);
  int status;
  struct rusage r;
  for (pid_t ended; (ended = wait4(-1, &status, 0, &r)) != pid;) /* orphans: it may look for them */
    if (ended < 0 && errno != EINTR)
      return 2;
  double wall = now() - start;
  dprintf(result,
          "{\"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"peak_rss_kib\": %ld, "
          "\"page_faults\": %ld, \"voluntary_switches\": %ld, \"involuntary_switches\": %ld, \"status\": %d}\n",
          wall, seconds(r.ru_utime), seconds(r.ru_stime), r.ru_maxrss, r.ru_minflt + r.ru_majflt, r.ru_nvcsw,
          r.ru_nivcsw, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  end_all(0);
}
