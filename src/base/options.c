#include "base/options.h"

#include <string.h>

static const struct {
  const char *name;
  uint64_t low, high;
} option_table[OPTION_COUNT] = {
#define OPTION_ROW(name, initial, low, high, meaning) {#name, low, high},
    OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

static atomic_u64 values[OPTION_COUNT] = {
#define OPTION_INITIAL(name, initial, low, high, meaning) initial,
    OPTIONS(OPTION_INITIAL)
#undef OPTION_INITIAL
};

internal uint64_t option_get(option which) { return load_relaxed(&values[which]); }
internal const char *option_name(option which) { return option_table[which].name; }

internal bool option_set(option which, uint64_t value) {
  if (value < option_table[which].low || value > option_table[which].high)
    return false;
  store_relaxed(&values[which], value);
  return true;
}

internal option option_find(const char *name, size_t length) {
  option i = 0;
  while (i < OPTION_COUNT && (strlen(option_table[i].name) != length ||
                              memcmp(option_table[i].name, name, length) != 0))
    i++;
  return i;
}

/* Levenshtein distance; names are short, longer ones are cut. */
static unsigned edit_distance(const char *a, size_t a_length, const char *b,
                              size_t b_length) {
  enum { LONGEST = 32 };
  unsigned row[LONGEST + 1];
  a_length = min_size(a_length, LONGEST);
  b_length = min_size(b_length, LONGEST);
  for (unsigned j = 0; j <= b_length; j++)
    row[j] = j;
  for (unsigned i = 1; i <= a_length; i++) {
    unsigned diagonal = row[0];
    row[0] = i;
    for (unsigned j = 1; j <= b_length; j++) {
      unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
      unsigned shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      diagonal = row[j];
      row[j] = replaced < shorter ? replaced : shorter;
    }
  }
  return row[b_length];
}

internal option option_nearest(const char *name, size_t length) {
  option best = 0;
  unsigned best_distance = ~0u;
  for (option i = 0; i < OPTION_COUNT; i++) {
    unsigned d = edit_distance(name, length, option_table[i].name, strlen(option_table[i].name));
    if (d < best_distance) {
      best = i;
      best_distance = d;
    }
  }
  return best;
}

/* Decimal digits only, at least one, no overflow. */
static bool parse_number(const char *text, size_t length, uint64_t *value) {
  *value = 0;
  for (size_t i = 0; i < length; i++) {
    unsigned digit = (unsigned)text[i] - '0';
    if (digit > 9 || *value > (UINT64_MAX - digit) / 10)
      return false;
    *value = *value * 10 + digit;
  }
  return length > 0;
}

static void parse_one(const char *text, size_t length, option_complaint *complain) {
  const char *colon = memchr(text, ':', length);
  size_t name_length = colon ? (size_t)(colon - text) : length;
  option which = option_find(text, name_length);
  uint64_t value = 1;
  if (which == OPTION_COUNT)
    complain(OPTION_UNKNOWN, text, name_length);
  else if ((colon && !parse_number(colon + 1, length - name_length - 1, &value)) ||
           !option_set(which, value))
    complain(OPTION_BAD_VALUE, text, length);
}

internal void options_parse(const char *text, option_complaint *complain) {
  while (*text) {
    size_t length = strcspn(text, ", ");
    if (length)
      parse_one(text, length, complain);
    text += length + (text[length] != 0);
  }
}
