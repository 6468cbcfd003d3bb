/* summary: the forms' lines in masu_malloc_stats. */
#ifndef MASU_FORMS_SUMMARY_H
#define MASU_FORMS_SUMMARY_H

#include "base/attr.h"

internal void forms_report(void);

#endif
