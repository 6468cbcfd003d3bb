/* index: words and where they occur. A hash table of entries that own their word
 * and a posting list; a partial index covers some documents, the final one is
 * sorted. No index is ever used by two threads at a time. */
#ifndef INDEXER_INDEX_H
#define INDEXER_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "text.h"

typedef struct posting {
  uint32_t document;
  uint32_t occurrences;
} posting;

typedef struct entry {
  struct entry *next; /* in its bucket */
  char *word;
  posting *postings;
  uint32_t hash;
  uint32_t count, capacity; /* of postings */
} entry;

typedef struct partial {
  entry **buckets;
  size_t bucket_count; /* a power of two */
  size_t entry_count;
} partial;

typedef struct sorted {
  entry **entries; /* by word; postings by document */
  size_t count;
} sorted;

/* The words of one chunk, in their order, each a string of its own. */
typedef struct words {
  uint32_t document;
  size_t count, capacity;
  char **word;
} words;

/* Frees the chunk. Words are in lower case (ASCII), and at most 63 bytes long: longer runs are
 * encoded data, and skipped. */
words *words_extract(chunk *c);

/* Frees the words, or keeps their strings. */
partial *partial_from(words *w);

/* Adds `from` to `into` and frees it. */
void partial_merge(partial *into, partial *from);

/* Turns the table into the final index and frees it. */
sorted partial_sort(partial *p);

/* Over every word, document and number of occurrences, in order. */
uint64_t sorted_checksum(const sorted *s);
size_t sorted_postings(const sorted *s);
void sorted_free(sorted *s);

#endif
