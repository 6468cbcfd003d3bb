/* text: the corpus. Real text files of this machine, and their contents in chunks. */
#ifndef INDEXER_TEXT_H
#define INDEXER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHUNK_BYTES = 64 * 1024 };

typedef struct text_file {
  char *path;
  size_t size;
} text_file;

/* The files in a fixed order. They are read from first to last, again and again,
 * until `volume` bytes are read; every reading of a file is a document of its own. */
typedef struct corpus {
  text_file *files;
  size_t count;
  size_t bytes; /* of all files, read once */
  size_t volume;
} corpus;

/* What to read next. The sequence depends on the corpus only. */
typedef struct cursor {
  size_t file;
  size_t read;       /* bytes handed out so far */
  uint32_t document; /* number of the next document */
} cursor;

typedef struct document {
  const char *path;
  size_t size; /* bytes to read from its start */
  uint32_t number;
} document;

/* A piece of one document, cut between words. */
typedef struct chunk {
  uint32_t document;
  size_t length;
  char text[];
} chunk;

/* Collects text files of up to 1 MiB below the given files and folders, in the order given
 * and by path below that, until `volume` bytes are there. */
corpus corpus_gather(char *const *roots, size_t volume);
void corpus_free(corpus *c);

/* False at the end of the volume. */
bool corpus_next(const corpus *c, cursor *at, document *next);

/* Reads a document; each chunk is malloc'ed and belongs to `take`. */
void document_read(const document *d, void (*take)(chunk *, void *), void *context);

/* Letters, digits, '_', and all bytes of UTF-8 beyond ASCII. */
bool is_word_byte(unsigned char byte);

#endif
