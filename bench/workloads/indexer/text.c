#include "text.h"

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include "../workload.h"

enum { LARGEST_FILE = 1 << 20, LOOK_BYTES = 4096, OPEN_FOLDERS = 32 };

bool is_word_byte(unsigned char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
         byte == '_' || byte >= 0x80;
}

/* ---- Gathering ---- */

/* nftw has no argument for the caller: the files of the root being walked. */
static struct {
  text_file *files;
  size_t count, capacity;
} found;

static int found_add(const char *path, const struct stat *s, int type, struct FTW *walk) {
  (void)walk;
  if (type != FTW_F || !S_ISREG(s->st_mode) || s->st_size < 1 || s->st_size > LARGEST_FILE)
    return 0;
  if (found.count == found.capacity) {
    found.capacity = found.capacity ? 2 * found.capacity : 256;
    found.files = got(realloc(found.files, found.capacity * sizeof *found.files));
  }
  found.files[found.count++] = (text_file){got(strdup(path)), (size_t)s->st_size};
  return 0;
}

static int by_path(const void *a, const void *b) {
  return strcmp(((const text_file *)a)->path, ((const text_file *)b)->path);
}

/* Text has no zero bytes; compressed files that have none say so at their start. */
static bool is_text(const char *path) {
  unsigned char head[LOOK_BYTES];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  ssize_t length = read(file, head, sizeof head);
  close(file);
  if (length < 1 || (length >= 2 && head[0] == 0x1f && head[1] == 0x8b))
    return false;
  return !memchr(head, 0, (size_t)length);
}

corpus corpus_gather(char *const *roots, size_t volume) {
  corpus c = {.volume = volume};
  for (; *roots && c.bytes < volume; roots++) {
    found.files = NULL;
    found.count = found.capacity = 0;
    nftw(*roots, found_add, OPEN_FOLDERS, FTW_PHYS);
    if (!found.count)
      continue;
    qsort(found.files, found.count, sizeof *found.files, by_path);
    c.files = got(realloc(c.files, (c.count + found.count) * sizeof *c.files));
    for (size_t i = 0; i < found.count; i++)
      if (c.bytes < volume && is_text(found.files[i].path)) {
        c.bytes += found.files[i].size;
        c.files[c.count++] = found.files[i];
      } else {
        free(found.files[i].path);
      }
    free(found.files);
  }
  return c;
}

void corpus_free(corpus *c) {
  for (size_t i = 0; i < c->count; i++)
    free(c->files[i].path);
  free(c->files);
  *c = (corpus){0};
}

/* ---- Reading ---- */

bool corpus_next(const corpus *c, cursor *at, document *next) {
  if (at->read >= c->volume)
    return false;
  const text_file *file = &c->files[at->file];
  size_t left = c->volume - at->read;
  *next = (document){file->path, file->size < left ? file->size : left, at->document++};
  at->read += next->size;
  at->file = at->file + 1 < c->count ? at->file + 1 : 0;
  return true;
}

static chunk *chunk_new(uint32_t number, size_t capacity) {
  chunk *c = got(malloc(sizeof *c + capacity));
  c->document = number;
  c->length = 0;
  return c;
}

static void chunk_fill(chunk *c, int file, size_t bytes, const char *path) {
  while (bytes) {
    ssize_t length = read(file, c->text + c->length, bytes);
    if (length < 0 && errno == EINTR)
      continue;
    if (length <= 0)
      fail("%s: %s", path, length ? strerror(errno) : "shorter than it was");
    c->length += (size_t)length;
    bytes -= (size_t)length;
  }
}

/* How much of a full chunk to keep so that no word is cut; a chunk without any gap is kept whole. */
static size_t last_gap(const chunk *c) {
  for (size_t end = c->length; end; end--)
    if (!is_word_byte((unsigned char)c->text[end - 1]))
      return end;
  return c->length;
}

void document_read(const document *d, void (*take)(chunk *, void *), void *context) {
  int file = open(d->path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    fail("%s: %s", d->path, strerror(errno));
  size_t left = d->size;
  chunk *c = chunk_new(d->number, left < CHUNK_BYTES ? left : CHUNK_BYTES);
  for (;;) {
    size_t room = CHUNK_BYTES - c->length;
    size_t part = left < room ? left : room;
    chunk_fill(c, file, part, d->path);
    left -= part;
    if (!left)
      break;
    size_t keep = last_gap(c);
    size_t rest = c->length - keep;
    chunk *next = chunk_new(d->number, rest + left < CHUNK_BYTES ? rest + left : CHUNK_BYTES);
    memcpy(next->text, c->text + keep, rest);
    next->length = rest;
    c->length = keep;
    take(c, context);
    c = next;
  }
  close(file);
  take(c, context);
}
