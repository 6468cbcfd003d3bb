#include "api/settings.h"

#include <stdio.h>
#include <string.h>

#include "api/thread.h"
#include "base/options.h"
#include "heap/roster.h"
#include "os/lock.h"
#include "os/os.h"
#include "os/report.h"

#define FILE_MOST (64 * KIB)
#define BLANKS " \t\r"

/* Where the text comes from that is parsed just now; LOCK_SETTINGS is held. */
static char settings_from[300];

/* ---- Options ---- */

static void complain(option_fault fault, const char *text, size_t length) {
  int shown = (int)min_size(length, 64);
  if (fault == OPTION_UNKNOWN)
    report("%s: unknown option '%.*s'; the nearest is '%s'", settings_from, shown, text,
           option_name(option_nearest(text, length)));
  else
    report("%s: bad value in '%.*s'", settings_from, shown, text);
}

/* ---- Size classes ---- */

static void complain_of_classes(sizes_fault fault, uint32_t size) {
  switch (fault) {
  case SIZES_FIT:
    break;
  case SIZES_BAD:
    report("%s: classes: %u is neither 8 nor a multiple of 16 up to %u", settings_from, size, TABLE_MAX);
    break;
  case SIZES_ORDER:
    report("%s: classes: %u is not above the size before", settings_from, size);
    break;
  case SIZES_TOO_MANY:
    report("%s: classes: with 8 and the powers of two these are more than %u sizes", settings_from, TABLE_COUNT);
    break;
  case SIZES_READ_ONLY:
    report("%s: classes: the system keeps their tables read-only", settings_from);
    break;
  }
}

/* The next word as a size; false: it is none. */
static bool read_size(const char **text, uint32_t *size) {
  size_t length = strcspn(*text, BLANKS), digits = strspn(*text, "0123456789");
  if (length != digits || digits > 9)
    return false;
  *size = 0;
  for (; length; length--)
    *size = *size * 10 + (uint32_t)(*(*text)++ - '0');
  *text += strspn(*text, BLANKS);
  return true;
}

static void read_classes(const char *text) {
  uint32_t sizes[TABLE_COUNT + 1] = {0};
  size_t count = 0, at;
  for (; *text && count <= TABLE_COUNT; count++)
    if (!read_size(&text, &sizes[count])) {
      report("%s: classes: '%.*s' is no size", settings_from, (int)min_size(strcspn(text, BLANKS), 64), text);
      return;
    }
  if (!count) {
    report("%s: classes: no size is named", settings_from);
    return;
  }
  if (roster_count()) {
    report("%s: classes: memory was allocated before they could be read; the default ones stay", settings_from);
    return;
  }
  sizes_fault fault = sizes_set(sizes, count, &at);
  complain_of_classes(fault, sizes[at]);
}

/* ---- The file ---- */

static void read_line(char *line) {
  static const char word[] = "classes";
  line[strcspn(line, "#")] = 0;
  line += strspn(line, BLANKS);
  size_t length = strlen(line);
  while (length && strchr(BLANKS, line[length - 1]))
    line[--length] = 0;
  if (strcspn(line, BLANKS ":") != sizeof word - 1 || strncmp(line, word, sizeof word - 1) != 0) {
    options_parse(line, complain);
    return;
  }
  line += sizeof word - 1;
  line += strspn(line, BLANKS);
  if (*line == ':')
    read_classes(line + 1 + strspn(line + 1, BLANKS));
  else
    report("%s: not 'classes: SIZE SIZE ...'", settings_from);
}

static void read_lines(const char *path, char *text) {
  for (unsigned number = 1; *text; number++) {
    size_t length = strcspn(text, "\n");
    bool more = text[length] != 0;
    text[length] = 0;
    snprintf(settings_from, sizeof settings_from, "%.256s:%u", path, number);
    read_line(text);
    text += length + more;
  }
}

/* text has room for a 0 after FILE_MOST bytes. */
static void read_file(const char *path, char *text) {
  int why;
  size_t length = os_file_read(path, text, FILE_MOST, &why);
  if (why)
    report("MASU_OPTIONS_FILE: %.256s: %s", path, strerrordesc_np(why));
  else if (length == FILE_MOST)
    report("MASU_OPTIONS_FILE: %.256s: larger than an options file can be, %zu KiB", path, FILE_MOST / KIB);
  else if (memchr(text, 0, length))
    report("MASU_OPTIONS_FILE: %.256s: not a text", path);
  else
    read_lines(path, text);
}

static void take_settings(void) {
  const char *path = os_environment("MASU_OPTIONS_FILE"), *options = os_environment("MASU_OPTIONS");
  if (path && *path) {
    char *text = os_map(FILE_MOST + os_page(), os_page());
    if (text) {
      read_file(path, text);
      os_unmap(text, FILE_MOST + os_page());
    }
  }
  if (options) {
    snprintf(settings_from, sizeof settings_from, "MASU_OPTIONS");
    options_parse(options, complain);
  }
}

internal bool settings_read(void) {
  static atomic_u32 known;
  if (LIKELY(load_acquire(&known)))
    return true;
  if (thread_busy)
    return false;
  thread_busy = true;
  compiler_fence();
  lock_take(LOCK_SETTINGS);
  if (!load_relaxed(&known) && os_environment_is_known()) {
    take_settings();
    store_release(&known, 1);
  }
  lock_drop(LOCK_SETTINGS);
  compiler_fence();
  thread_busy = false;
  return true;
}
