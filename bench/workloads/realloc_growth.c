/* realloc_growth [MIB] [STRINGS] [LENGTH]
 *
 * What programs grow by realloc, all in turns: 4 vectors, by half of what they have,
 * from 1 KiB to MIB (64) MiB each, and STRINGS (64) strings, each by 1 to 40 characters
 * until it has LENGTH (100,000). A vector's new elements are written, one in every 512
 * bytes, and all are checked when it is full; a string is checked as a whole. */
#include "workload.h"

enum { VECTORS = 4, STEP = 64, SMALLEST = 128, STRING_STEP = 40 };

static struct vector {
  size_t *element;
  size_t count;
} vector[VECTORS];

static struct string {
  char *text;
  size_t length;
} *string;

static void vector_write(struct vector *v, size_t from) {
  for (size_t i = from; i < v->count; i += STEP)
    v->element[i] = i + (size_t)(v - vector);
}

static void vector_check(const struct vector *v) {
  for (size_t i = 0; i < v->count; i += STEP)
    if (v->element[i] != i + (size_t)(v - vector))
      fail("element %zu of a vector of %zu was lost", i, v->count);
}

/* Steps of whole STEPs, so that a later part continues the same pattern. */
static void vector_grow(struct vector *v, size_t most) {
  size_t before = v->count;
  v->count = before ? (before + before / 2) / STEP * STEP : SMALLEST;
  if (v->count > most)
    v->count = most;
  v->element = got(realloc(v->element, v->count * sizeof *v->element));
  vector_write(v, before);
}

static void string_append(struct string *s, uint32_t *random) {
  size_t more = random_between(random, 1, STRING_STEP);
  s->text = got(realloc(s->text, s->length + more + 1));
  memset(s->text + s->length, 'a' + (int)((s - string) % 26), more);
  s->length += more;
  s->text[s->length] = 0;
}

static void string_check(const struct string *s) {
  char letter[2] = {(char)('a' + (s - string) % 26), 0};
  if (strspn(s->text, letter) != s->length || s->text[s->length])
    fail("a string of %zu characters was overwritten", s->length);
}

static size_t strings_grow(size_t strings, size_t length, uint32_t *random) {
  size_t calls = 0;
  for (size_t i = 0; i < strings; i++)
    if (string[i].length < length) {
      string_append(&string[i], random);
      calls++;
    }
  return calls;
}

int main(int argc, char **argv) {
  huge_pages_as_asked(argv);
  size_t most = (argument(argc, argv, 1, 64, "MIB") << 20) / sizeof(size_t);
  size_t strings = argument(argc, argv, 2, 64, "STRINGS");
  size_t length = argument(argc, argv, 3, 100000, "LENGTH");
  uint32_t random = random_seed(0);
  string = got(calloc(strings, sizeof *string));

  uint64_t start = now_ns();
  size_t calls = 0, grown = 1;
  for (size_t round = 0; grown; round++) {
    calls += grown = strings_grow(strings, length, &random);
    struct vector *v = &vector[round / 32 % VECTORS]; /* vectors grow more seldom */
    if (round % 32 == 0 && v->count < most) {
      vector_grow(v, most);
      calls++;
    }
  }
  for (size_t i = 0; i < VECTORS; i++)
    for (; vector[i].count < most; calls++)
      vector_grow(&vector[i], most);
  double time = seconds_since(start);

  for (size_t i = 0; i < VECTORS; i++) {
    vector_check(&vector[i]);
    free(vector[i].element);
  }
  for (size_t i = 0; i < strings; i++) {
    string_check(&string[i]);
    free(string[i].text);
  }
  free(string);
  long peak = status_kib("VmHWM");
  printf("realloc_growth: %d vectors to %zu MiB, %zu strings to %zu characters: %.3f s, %.1f ns per call, "
         "peak %ld KiB\n",
         VECTORS, most * sizeof(size_t) >> 20, strings, length, time, time * 1e9 / (double)calls, peak);
  figure("wall_s", time);
  figure("call_ns", time * 1e9 / (double)calls);
  figure("peak_rss_kib", (double)peak);
  figures_end();
  return 0;
}
