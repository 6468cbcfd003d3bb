/* report: lines on stderr, each "masu: ...", written with one system call and
 * without allocating. */
#ifndef MASU_OS_REPORT_H
#define MASU_OS_REPORT_H

#include "base/attr.h"

internal void report(const char *format, ...) PRINTF_LIKE(1, 2);
/* For the walks of masu_check: reports and returns 1 if `wrong`, else returns 0. */
internal unsigned report_violation(bool wrong, const char *what, const void *where);
/* A misuse of the library: one line that names it, then abort. */
_Noreturn internal void report_misuse(const char *what, const void *p);

#endif
