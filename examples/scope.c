/* Values that die at the end of the scope that made them. */
#include <masu/scope.h>

#include <stdio.h>
#include <stdlib.h>

static void close_file(void *file) {
  fclose(file);
  puts("file closed");
}

/* The caller gets the line without having to free it. */
static char *first_line(const char *path) {
  masu_scope scope;
  masu_scope_open(&scope, NULL);
  char *line = masu_scope_alloc(200), *result = NULL;
  FILE *file = fopen(path, "r");
  if (line && file && masu_scope_add(file, close_file) && fgets(line, 200, file))
    result = masu_scope_hand_out(line); /* to the scope around this one */
  masu_scope_close(&scope);
  return result;
}

int main(void) {
  masu_scope all;
  masu_scope_open(&all, NULL);
  const char *line = first_line("/proc/self/comm");
  printf("%s", line ? line : "no line\n");
  char *kept = masu_scope_keep(masu_scope_alloc(10)); /* ours again */
  masu_scope_close(&all);
  free(kept);
  return 0;
}
