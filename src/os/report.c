#include "os/report.h"

#include <stdarg.h>
#include <stdio.h>

#include "os/os.h"

internal void report(const char *format, ...) {
  char line[512] = "masu: ";
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line + 6, sizeof line - 7, format, args);
  va_end(args);
  size_t length = 6 + min_size(n > 0 ? (size_t)n : 0, sizeof line - 8);
  line[length++] = '\n';
  os_write_stderr(line, length);
}

_Noreturn internal void report_misuse(const char *what, const void *p) {
  report("%s: %p", what, p);
  os_abort();
}

internal unsigned report_violation(bool wrong, const char *what, const void *where) {
  if (wrong)
    report("check: %s: %p", what, where);
  return wrong;
}
