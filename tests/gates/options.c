/* Gate: what MASU_OPTIONS and MASU_OPTIONS_FILE do at start, by the standard error of a child of this
 * program: nothing without it; `verbose` proves interception; a misspelt name is
 * reported once, with the nearest name; bad values are reported; the rest works.
 * No preload here: the children get it (MASU_LIBRARY: path). */
#include "gate.h"

static char output[16384];
static char file[] = "/tmp/masu-options-XXXXXX";
static const char *lines; /* of the options file; NULL: none */

/* Runs this program as a child with these options; its stderr goes to output. */
static size_t run(const char *options) {
  int ends[2], status;
  CHECK(pipe(ends) == 0, "pipe");
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 2);
    setenv("LD_PRELOAD", MASU_LIBRARY, 1);
    unsetenv("MASU_OPTIONS");
    if (options)
      setenv("MASU_OPTIONS", options, 1);
    unsetenv("MASU_OPTIONS_FILE");
    if (lines)
      setenv("MASU_OPTIONS_FILE", *lines == '/' ? lines : file, 1);
    execl("/proc/self/exe", "options", "child", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t n; (n = read(ends[0], output + length, sizeof output - 1 - length)) > 0;)
    length += (size_t)n;
  output[length] = 0;
  close(ends[0]);
  waitpid(pid, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "'%s' ends the program: %s",
        options, output);
  size_t lines = 0;
  for (char *line = output; *line; lines++) {
    CHECK(strncmp(line, "masu: ", 6) == 0, "a line that does not begin with 'masu: ': %s",
          output);
    CHECK((line = strchr(line, '\n')), "an unfinished line: %s", output);
    line++;
  }
  return lines;
}
#define EXPECT(lines, options, ...)                                                      \
  do {                                                                                   \
    const char *words[] = {__VA_ARGS__};                                                 \
    const char *given = options;                                                         \
    size_t seen = run(given);                                                            \
    CHECK(seen == (lines), "'%s' gives %zu lines: %s", given ? given : "", seen,         \
          output);                                                                       \
    for (size_t i = 0; i < COUNT(words); i++)                                            \
      CHECK(!*words[i] || strstr(output, words[i]), "no '%s' in: %s", words[i], output); \
  } while (0)

/* The same by an options file; a text that begins with / is its path. */
#define EXPECT_OF_FILE(count, text, options, ...)                           \
  do {                                                                      \
    lines = text;                                                           \
    CHECK(truncate(file, 0) == 0 && write_file(file, lines), "%s", file);   \
    EXPECT(count, options, __VA_ARGS__);                                    \
    lines = NULL;                                                           \
  } while (0)

static void options_files(void) {
  int made = mkstemp(file);
  CHECK(made >= 0, "mkstemp");
  EXPECT_OF_FILE(0, "", NULL, "");
  EXPECT_OF_FILE(0, "# nothing\n\n  \t# at all\r\n", NULL, "");
  EXPECT_OF_FILE(1, "verbose:1 # as in MASU_OPTIONS\n", NULL, "allocates from masu");
  EXPECT_OF_FILE(0, "verbose:1\n", "verbose:0", ""); /* which wins */
  EXPECT_OF_FILE(1, "verbose:0\nhelper:0", "verbose", "allocates from masu");
  EXPECT_OF_FILE(2, "\n#\nverbos\r\nverbose", NULL, file, ":3: ", "'verbos'", "allocates from masu");
  EXPECT_OF_FILE(2, "verbose:7,verbose\n", NULL, ":1: bad value", "allocates from masu");
  EXPECT_OF_FILE(0, "classes: 8 16 1040\nclasses:1056\t2000  \r\n", NULL, "");
  EXPECT_OF_FILE(2, "classes: 8 24\nverbose", NULL, ":1: classes: 24 is neither", "allocates from masu");
  EXPECT_OF_FILE(1, "classes: 8 32784", NULL, "32784 is neither");
  EXPECT_OF_FILE(1, "classes: 0 16", NULL, "0 is neither");
  EXPECT_OF_FILE(1, "classes: 8 1040 1040", NULL, "1040 is not above");
  EXPECT_OF_FILE(1, "classes: 4294967312", NULL, "'4294967312' is no size");
  EXPECT_OF_FILE(1, "classes: 16,32", NULL, "'16,32' is no size");
  EXPECT_OF_FILE(1, "classes :  ", NULL, "no size is named");
  EXPECT_OF_FILE(1, "classes 8 16", NULL, "not 'classes: SIZE SIZE ...'");
  EXPECT_OF_FILE(1, "classe:8", NULL, "unknown option 'classe'");
  EXPECT_OF_FILE(1, "/nonexistent/file", NULL, "/nonexistent/file: No such file");
  EXPECT_OF_FILE(1, "/", NULL, "/: Is a directory");
  EXPECT_OF_FILE(1, "/proc/self/exe", NULL, "/proc/self/exe: ");
  /* 41 sizes are too many where powers of two are not among them; far more as well. */
  static char many[100000];
  strcpy(many, "classes:");
  for (int size = 16; size <= 41 * 16; size += 16)
    sprintf(many + strlen(many), " %d", size);
  EXPECT_OF_FILE(1, many, NULL, "more than 41 sizes");
  for (int size = 42 * 16; size <= 32768; size += 16)
    sprintf(many + strlen(many), " %d", size);
  EXPECT_OF_FILE(1, many, NULL, "more than 41 sizes");
  memset(many, '#', sizeof many - 1);
  EXPECT_OF_FILE(1, many, NULL, "larger than an options file can be");
  close(made);
  unlink(file);
}

static void *body(void *p) {
  free(p);
  return malloc(10);
}

int main(int argc, char **argv) {
  watchdog(60);
  (void)argv;
  if (argc > 1) { /* the child: enough to come by every place that may warn */
    void *p;
    CHECK(dlsym(RTLD_DEFAULT, "masu_malloc"), "not preloaded");
    pthread_t thread = start(body, malloc(100));
    pthread_join(thread, &p);
    free(p);
    pid_t pid = fork();
    if (pid == 0)
      _exit((free(malloc(5)), 0));
    wait_for(pid, "fork");
    return 0;
  }
  EXPECT(0, NULL, "");
  EXPECT(0, "", "");
  EXPECT(0, "purge_delay:100,helper:0", "");
  EXPECT(0, "purge_delay:100,,helper:1,", "");
  EXPECT(1, "verbose", "masu");
  EXPECT(1, "verbose:1", "masu");
  EXPECT(0, "verbose:0", "");
  EXPECT(1, "purge_dealy:3", "purge_dealy", "purge_delay");
  EXPECT(1, "verbos", "verbos", "'verbose'");
  EXPECT(2, "helpr:1,verbose", "helpr", "'helper'");
  EXPECT(1, "purge_delay:many", "purge_delay:many");
  EXPECT(1, "purge_delay:-1", "purge_delay:-1");
  EXPECT(1, "purge_delay:99999999999999999999999", "purge_delay");
  EXPECT(1, "verbose:2", "verbose:2");
  EXPECT(1, ":", "");
  run("stats");
  CHECK(strstr(output, "live") && strstr(output, "peak") && strstr(output, "resident"),
        "no summary at exit: %s", output);
  /* A long value is cut, not a crash. */
  static char absurd[100000];
  memset(absurd, 'x', sizeof absurd - 1);
  EXPECT(1, absurd, "unknown option");
  options_files();
  return 0;
}
