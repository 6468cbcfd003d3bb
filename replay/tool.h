/* tool: what the programs that read traces share. */
#ifndef REPLAY_TOOL_H
#define REPLAY_TOOL_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One line on stderr, exit status 1. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(1);
}

static inline void *must(void *p) {
  if (!p)
    fail("out of memory");
  return p;
}

/* The file, mapped for reading; an empty one is NULL. */
static inline const void *map_file(const char *path, uint64_t *size) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status))
    fail("%s: %s", path, strerror(errno));
  *size = (uint64_t)status.st_size;
  void *data = *size ? mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
  if (data == MAP_FAILED)
    fail("%s: %s", path, strerror(errno));
  close(file);
  return data;
}

#endif
