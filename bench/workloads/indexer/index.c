#include "index.h"

#include "../workload.h"

enum { LONGEST_WORD = 63, FIRST_BUCKETS = 64, FIRST_WORDS = 64 };

static const uint64_t FNV_START = 0xcbf29ce484222325u;
static const uint64_t FNV_PRIME = 0x100000001b3u;

/* ---- Words ---- */

static char *copy_lower(const char *from, size_t length) {
  char *word = got(malloc(length + 1));
  for (size_t i = 0; i < length; i++)
    word[i] = from[i] >= 'A' && from[i] <= 'Z' ? (char)(from[i] + ('a' - 'A')) : from[i];
  word[length] = 0;
  return word;
}

static void words_add(words *w, char *word) {
  if (w->count == w->capacity) {
    w->capacity = w->capacity ? 2 * w->capacity : FIRST_WORDS;
    w->word = got(realloc(w->word, w->capacity * sizeof *w->word));
  }
  w->word[w->count++] = word;
}

words *words_extract(chunk *c) {
  words *w = got(malloc(sizeof *w));
  *w = (words){.document = c->document};
  const char *end = c->text + c->length;
  for (const char *at = c->text; at < end;) {
    const char *start = at;
    while (at < end && is_word_byte((unsigned char)*at))
      at++;
    if (at > start && at - start <= LONGEST_WORD)
      words_add(w, copy_lower(start, (size_t)(at - start)));
    at += at < end;
  }
  free(c);
  return w;
}

/* ---- Partial indexes ---- */

static uint32_t hash_word(const char *word) {
  uint64_t hash = FNV_START;
  for (; *word; word++)
    hash = (hash ^ (unsigned char)*word) * FNV_PRIME;
  return (uint32_t)(hash ^ (hash >> 32));
}

static partial *partial_new(void) {
  partial *p = got(malloc(sizeof *p));
  *p = (partial){.bucket_count = FIRST_BUCKETS};
  p->buckets = got(calloc(p->bucket_count, sizeof *p->buckets));
  return p;
}

static void partial_free(partial *p) {
  free(p->buckets);
  free(p);
}

static entry **bucket_of(const partial *p, uint32_t hash) {
  return &p->buckets[hash & (p->bucket_count - 1)];
}

static entry *partial_find(const partial *p, const char *word, uint32_t hash) {
  entry *e = *bucket_of(p, hash);
  while (e && (e->hash != hash || strcmp(e->word, word) != 0))
    e = e->next;
  return e;
}

static void partial_grow(partial *p) {
  partial old = *p;
  p->bucket_count *= 2;
  p->buckets = got(calloc(p->bucket_count, sizeof *p->buckets));
  for (size_t i = 0; i < old.bucket_count; i++)
    for (entry *e = old.buckets[i], *next; e; e = next) {
      entry **bucket = bucket_of(p, e->hash);
      next = e->next;
      e->next = *bucket;
      *bucket = e;
    }
  free(old.buckets);
}

static void partial_put(partial *p, entry *e) {
  if (p->entry_count == p->bucket_count)
    partial_grow(p);
  entry **bucket = bucket_of(p, e->hash);
  e->next = *bucket;
  *bucket = e;
  p->entry_count++;
}

static entry *entry_new(char *word, uint32_t hash) {
  entry *e = got(malloc(sizeof *e));
  *e = (entry){.word = word, .hash = hash};
  return e;
}

static void entry_free(entry *e) {
  free(e->word);
  free(e->postings);
  free(e);
}

static void entry_reserve(entry *e, uint32_t count) {
  if (count <= e->capacity)
    return;
  uint32_t grown = e->capacity + e->capacity / 2;
  e->capacity = grown > count ? grown : count;
  e->postings = got(realloc(e->postings, e->capacity * sizeof *e->postings));
}

static void entry_occurs(entry *e, uint32_t number) {
  if (e->count && e->postings[e->count - 1].document == number) {
    e->postings[e->count - 1].occurrences++;
    return;
  }
  entry_reserve(e, e->count + 1);
  e->postings[e->count++] = (posting){number, 1};
}

partial *partial_from(words *w) {
  partial *p = partial_new();
  for (size_t i = 0; i < w->count; i++) {
    char *word = w->word[i];
    uint32_t hash = hash_word(word);
    entry *e = partial_find(p, word, hash);
    if (e)
      free(word);
    else
      partial_put(p, e = entry_new(word, hash));
    entry_occurs(e, w->document);
  }
  free(w->word);
  free(w);
  return p;
}

void partial_merge(partial *into, partial *from) {
  for (size_t i = 0; i < from->bucket_count; i++)
    for (entry *e = from->buckets[i], *next; e; e = next) {
      next = e->next;
      entry *known = partial_find(into, e->word, e->hash);
      if (!known) {
        partial_put(into, e);
        continue;
      }
      entry_reserve(known, known->count + e->count);
      memcpy(known->postings + known->count, e->postings, e->count * sizeof *e->postings);
      known->count += e->count;
      entry_free(e);
    }
  partial_free(from);
}

/* ---- The final index ---- */

static int by_document(const void *a, const void *b) {
  uint32_t x = ((const posting *)a)->document, y = ((const posting *)b)->document;
  return (x > y) - (x < y);
}

static int by_word(const void *a, const void *b) {
  return strcmp((*(entry *const *)a)->word, (*(entry *const *)b)->word);
}

/* Sorts the postings, adds up those of one document (it may have come in several chunks), and
 * gives back what the list does not need any more. */
static void entry_finish(entry *e) {
  qsort(e->postings, e->count, sizeof *e->postings, by_document);
  uint32_t last = 0;
  for (uint32_t i = 1; i < e->count; i++)
    if (e->postings[i].document == e->postings[last].document)
      e->postings[last].occurrences += e->postings[i].occurrences;
    else
      e->postings[++last] = e->postings[i];
  e->count = last + 1;
  if (e->capacity > e->count) {
    e->capacity = e->count;
    e->postings = got(realloc(e->postings, e->count * sizeof *e->postings));
  }
}

sorted partial_sort(partial *p) {
  sorted s = {got(malloc((p->entry_count + 1) * sizeof *s.entries)), 0};
  for (size_t i = 0; i < p->bucket_count; i++)
    for (entry *e = p->buckets[i]; e; e = e->next) {
      entry_finish(e);
      s.entries[s.count++] = e;
    }
  partial_free(p);
  qsort(s.entries, s.count, sizeof *s.entries, by_word);
  return s;
}

static uint64_t checksum_add(uint64_t sum, const void *data, size_t length) {
  for (const unsigned char *byte = data; length; length--, byte++)
    sum = (sum ^ *byte) * FNV_PRIME;
  return sum;
}

uint64_t sorted_checksum(const sorted *s) {
  uint64_t sum = FNV_START;
  for (size_t i = 0; i < s->count; i++) {
    const entry *e = s->entries[i];
    sum = checksum_add(sum, e->word, strlen(e->word) + 1);
    sum = checksum_add(sum, e->postings, e->count * sizeof *e->postings);
  }
  return sum;
}

size_t sorted_postings(const sorted *s) {
  size_t count = 0;
  for (size_t i = 0; i < s->count; i++)
    count += s->entries[i]->count;
  return count;
}

void sorted_free(sorted *s) {
  for (size_t i = 0; i < s->count; i++)
    entry_free(s->entries[i]);
  free(s->entries);
  *s = (sorted){0};
}
