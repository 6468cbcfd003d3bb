/* pipeline: STEP 1, from documents to partial indexes, by any number of threads.
 *
 *   read -> chunks -> extract -> words -> index -> partial indexes -> merge
 *
 * Every thread does every kind of work. Between two stages waits one piece per
 * thread, and the oldest goes first, so most pieces are made by one thread and
 * freed by another. Eight partial indexes of one level become one of the next. */
#ifndef INDEXER_PIPELINE_H
#define INDEXER_PIPELINE_H

#include "index.h"
#include "text.h"

typedef struct partials {
  partial **items;
  size_t count;
} partials;

/* The partial indexes that are left when all text is read. The array is the caller's to free. */
partials pipeline_run(const corpus *c, size_t threads);

#endif
