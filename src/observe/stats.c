/* stats: the functions of masu/stats.h, and the summaries of the C library's names. All
 * formats are made of the same tables (observe/ledger.h). */
#include "masu/stats.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/figures.h"
#include "observe/ledger.h"
#include "os/os.h"

/* ---- Reading ---- */

static int read_ledger(ledger **out, int (*fill)(ledger *l)) {
  ledger *l = ledger_make();
  if (!l)
    return ENOMEM;
  int why = fill(l);
  if (why)
    ledger_end(l);
  else
    *out = l;
  return why;
}

PUBLIC int masu_stats_read(masu_stats *stats, size_t size) {
  ledger *l;
  int why = FIGURES_FIT(size, masu_stats, named_heaps) ? read_ledger(&l, ledger_read) : EINVAL;
  if (why)
    return why;
  figures_give(stats, size, &l->process, sizeof l->process);
  ledger_end(l);
  return 0;
}

PUBLIC int masu_stats_measure(masu_resident *resident, size_t size) {
  ledger *l;
  int why = FIGURES_FIT(size, masu_resident, other) ? read_ledger(&l, ledger_measure) : EINVAL;
  if (why)
    return why;
  figures_give(resident, size, &l->resident, sizeof l->resident);
  ledger_end(l);
  return 0;
}

static int read_rows(ledger_id id, bool fits, void *rows, size_t *count, size_t row_size) {
  const ledger_table *t = &ledger_tables[id];
  ledger *l;
  int why = fits ? read_ledger(&l, ledger_read) : EINVAL;
  if (why)
    return why;
  size_t there = l->counts[id].rows;
  for (size_t i = 0; i < min_size(there, *count); i++)
    figures_give((char *)rows + i * row_size, row_size, (const char *)l + t->offset + i * t->row_size, t->row_size);
  *count = there;
  ledger_end(l);
  return 0;
}

PUBLIC int masu_stats_classes(masu_stats_class *rows, size_t *count, size_t row_size) {
  return read_rows(LEDGER_CLASS, FIGURES_FIT(row_size, masu_stats_class, free), rows, count, row_size);
}

PUBLIC int masu_stats_heaps(masu_stats_heap *rows, size_t *count, size_t row_size) {
  return read_rows(LEDGER_HEAP, FIGURES_FIT(row_size, masu_stats_heap, front), rows, count, row_size);
}

/* ---- Writing ---- */

/* Where text goes. stream NULL: stderr, without the C library's streams, which may be
 * closed or locked. */
typedef struct sink {
  FILE *stream;
  size_t used;
  bool failed;
  char text[4096];
} sink;

static void sink_flush(sink *to) {
  if (!to->stream)
    os_write_stderr(to->text, to->used);
  else if (fwrite(to->text, 1, to->used, to->stream) != to->used)
    to->failed = true;
  to->used = 0;
}

static void PRINTF_LIKE(2, 3) put(sink *to, const char *format, ...) {
  enum { LONGEST = 256 };
  va_list args;
  if (sizeof to->text - to->used < LONGEST)
    sink_flush(to);
  va_start(args, format);
  int n = vsnprintf(to->text + to->used, LONGEST, format, args);
  va_end(args);
  to->used += min_size(n > 0 ? (size_t)n : 0, LONGEST - 1);
}

static bool is_bytes(const ledger_column *c) { return c->unit == LEDGER_BYTES || c->unit == LEDGER_BYTES_SUM; }
static bool is_single(const ledger_table *t) { return t->most == 1; }
static const char *row_at(const ledger *l, const ledger_table *t, uint32_t n) {
  return (const char *)l + t->offset + (size_t)n * t->row_size;
}
static uint64_t number_at(const char *row, const ledger_column *c) {
  return *(const uint64_t *)(const void *)(row + c->offset);
}

/* Bytes of the character in UTF-8 at c that takes more than one; 0: it is none. */
static size_t wide_character(const unsigned char *c) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t length = *c >= 0xf8 ? 0 : *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : *c >= 0xc0 ? 2 : 0;
  uint32_t code = length ? *c & (0x7fu >> length) : 0;
  for (size_t i = 1; i < length; i++) {
    if ((c[i] & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (c[i] & 0x3f);
  }
  bool is_half = code >= 0xd800 && code < 0xe000; /* of a pair in UTF-16 */
  return length && code >= least[length] && code < 0x110000 && !is_half ? length : 0;
}

/* Names are the program's: anything may stand in them. Both formats are in UTF-8. */
static void put_escaped(sink *to, const char *text, bool xml) {
  const unsigned char *c = (const unsigned char *)text;
  for (size_t wide; *c; c += wide ? wide : 1) {
    wide = wide_character(c);
    if (wide)
      put(to, "%.*s", (int)wide, (const char *)c);
    else if (*c >= 0x80)
      put(to, xml ? "&#xfffd;" : "\\ufffd");
    else if (xml && (*c < ' ' || *c == 0x7f))
      put(to, "?");
    else if (xml && strchr("<>&\"", *c))
      put(to, "&#%u;", *c);
    else if (!xml && (*c < ' ' || *c == 0x7f || strchr("\"\\", *c)))
      put(to, "\\u%04x", *c);
    else
      put(to, "%c", *c);
  }
}

static void put_value(sink *to, const char *row, const ledger_column *c, bool xml) {
  if (c->unit != LEDGER_TEXT) {
    put(to, xml ? "\"%llu\"" : "%llu", (unsigned long long)number_at(row, c));
    return;
  }
  put(to, "\"");
  put_escaped(to, row + c->offset, xml);
  put(to, "\"");
}

/* ---- Text ---- */

enum { NAME_WIDTH = 12, TEXT_WIDTH = 20 };

static void text_single(sink *to, const char *row, const ledger_table *t) {
  for (uint32_t i = 0; i < t->column_count; i++) {
    const ledger_column *c = &t->columns[i];
    uint64_t value = number_at(row, c);
    put(to, "masu:   %-*s %12llu %s  %s\n", NAME_WIDTH, c->name,
        (unsigned long long)(is_bytes(c) ? value / KIB : value), is_bytes(c) ? "KiB" : "   ", c->meaning);
  }
}

static void text_heading(sink *to, const ledger_table *t) {
  put(to, "masu:   %-*s", NAME_WIDTH, t->name);
  for (uint32_t i = 0; i < t->column_count; i++) {
    const ledger_column *c = &t->columns[i];
    char title[32];
    snprintf(title, sizeof title, "%s%s", c->name, is_bytes(c) ? " KiB" : "");
    put(to, c->unit == LEDGER_TEXT ? " %-*s" : " %*s", c->unit == LEDGER_TEXT ? TEXT_WIDTH : NAME_WIDTH, title);
  }
  put(to, "\n");
}

static void text_row(sink *to, const char *row, const ledger_table *t) {
  put(to, "masu:   %-*s", NAME_WIDTH, "");
  for (uint32_t i = 0; i < t->column_count; i++) {
    const ledger_column *c = &t->columns[i];
    if (c->unit == LEDGER_TEXT)
      put(to, " %-*s", TEXT_WIDTH, row[c->offset] ? row + c->offset : "-");
    else
      put(to, " %*llu", NAME_WIDTH, (unsigned long long)(is_bytes(c) ? number_at(row, c) / KIB : number_at(row, c)));
  }
  put(to, "\n");
}

static void put_text(sink *to, const ledger *l) {
  put(to, "masu: %s, process %d, masu %s\n", os_program_name(), os_process_id(), masu_version());
  for (unsigned id = 0; id < LEDGER_TABLES; id++) {
    const ledger_table *t = &ledger_tables[id];
    ledger_count n = l->counts[id];
    if (n.rows && !is_single(t))
      text_heading(to, t);
    for (uint32_t i = 0; i < n.rows; i++)
      (is_single(t) ? text_single : text_row)(to, row_at(l, t, i), t);
    if (n.more)
      put(to, "masu:   %-*s and %u more\n", NAME_WIDTH, "", n.more);
  }
}

/* ---- JSON ---- */

static void json_row(sink *to, const char *row, const ledger_table *t) {
  put(to, "{");
  for (uint32_t i = 0; i < t->column_count; i++) {
    put(to, "%s\"%s\": ", i ? ", " : "", t->columns[i].name);
    put_value(to, row, &t->columns[i], false);
  }
  put(to, "}");
}

static void put_json(sink *to, const ledger *l) {
  put(to, "{\n \"version\": \"%s\",\n \"pid\": %d,\n \"program\": \"", masu_version(), os_process_id());
  put_escaped(to, os_program_name(), false);
  put(to, "\"");
  for (unsigned id = 0; id < LEDGER_TABLES; id++) {
    const ledger_table *t = &ledger_tables[id];
    ledger_count n = l->counts[id];
    if (is_single(t) && !n.rows)
      continue;
    put(to, ",\n \"%s\": %s", t->name, is_single(t) ? "" : "[");
    for (uint32_t i = 0; i < n.rows; i++) {
      put(to, "%s%s", i ? "," : "", is_single(t) ? "" : "\n  ");
      json_row(to, row_at(l, t, i), t);
    }
    if (!is_single(t))
      put(to, "],\n \"%s_more\": %u", t->name, n.more);
  }
  put(to, "\n}\n");
}

/* ---- XML ---- */

static void put_xml(sink *to, const ledger *l) {
  put(to, "<malloc version=\"1\" allocator=\"masu %s\">\n", masu_version());
  for (unsigned id = 0; id < LEDGER_TABLES; id++) {
    const ledger_table *t = &ledger_tables[id];
    for (uint32_t n = 0; n < l->counts[id].rows; n++) {
      put(to, "<%s", t->name);
      for (uint32_t i = 0; i < t->column_count; i++) {
        put(to, " %s=", t->columns[i].name);
        put_value(to, row_at(l, t, n), &t->columns[i], true);
      }
      put(to, "/>\n");
    }
    if (l->counts[id].more)
      put(to, "<more table=\"%s\" rows=\"%u\"/>\n", t->name, l->counts[id].more);
  }
  put(to, "</malloc>\n");
}

/* ---- The summaries ---- */

static int print_to(FILE *stream, void (*format)(sink *to, const ledger *l)) {
  sink to = {.stream = stream};
  ledger *l;
  int why = read_ledger(&l, ledger_read);
  if (why)
    return why;
  format(&to, l);
  sink_flush(&to);
  ledger_end(l);
  return to.failed ? EIO : 0;
}

PUBLIC int masu_stats_print(FILE *stream, masu_stats_format format) {
  static void (*const formats[])(sink *, const ledger *) = {put_text, put_json, put_xml};
  return (unsigned)format < 3 ? print_to(stream, formats[format]) : EINVAL;
}

PUBLIC int masu_malloc_info(int options, FILE *stream) {
  return options == 0 ? masu_stats_print(stream, MASU_STATS_XML) : EINVAL;
}

PUBLIC void masu_malloc_stats(void) { print_to(NULL, put_text); }
