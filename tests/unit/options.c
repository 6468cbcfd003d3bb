#include "unit.h"

#include "base/options.h"

/* ---- Complaints, written down ---- */

static struct {
  int count;
  option_fault fault[16];
  char text[16][128];
} said;

static void complain(option_fault fault, const char *text, size_t length) {
  assert_true(said.count < 16);
  said.fault[said.count] = fault;
  snprintf(said.text[said.count], sizeof said.text[0], "%.*s", (int)length, text);
  said.count++;
}

static void parse(const char *text) {
  said.count = 0;
  options_parse(text, complain);
}

static void assert_said(int i, option_fault fault, const char *text) {
  assert_true(i < said.count);
  assert_int_equal(said.fault[i], fault);
  assert_string_equal(said.text[i], text);
}

static const struct {
  const char *name;
  uint64_t initial, low, high;
} rows[OPTION_COUNT] = {
#define ROW(name, initial, low, high, meaning) {#name, initial, low, high},
    OPTIONS(ROW)
#undef ROW
};

static int restore_options(void **state) {
  (void)state;
  for (option i = 0; i < OPTION_COUNT; i++)
    assert_true(option_set(i, rows[i].initial));
  said.count = 0;
  return 0;
}

/* ---- The table ---- */

static void the_table(void **state) {
  (void)state;
  for (option i = 0; i < OPTION_COUNT; i++) {
    assert_string_equal(option_name(i), rows[i].name);
    assert_int_equal(option_find(rows[i].name, strlen(rows[i].name)), i);
    assert_true(rows[i].low <= rows[i].initial && rows[i].initial <= rows[i].high);
    for (option j = 0; j < i; j++)
      assert_string_not_equal(rows[i].name, rows[j].name);
  }
}

static void names_are_found_whole(void **state) {
  (void)state;
  assert_int_equal(option_find("verbose", 7), OPTION_verbose);
  assert_int_equal(option_find("verbose:1", 7), OPTION_verbose);
  assert_int_equal(option_find("verbos", 6), OPTION_COUNT);
  assert_int_equal(option_find("verbosee", 8), OPTION_COUNT);
  assert_int_equal(option_find("VERBOSE", 7), OPTION_COUNT);
  assert_int_equal(option_find("", 0), OPTION_COUNT);
}

static void bounds_are_kept(void **state) {
  (void)state;
  for (option i = 0; i < OPTION_COUNT; i++) {
    assert_true(option_set(i, rows[i].low));
    assert_int_equal(option_get(i), rows[i].low);
    assert_true(option_set(i, rows[i].high));
    assert_int_equal(option_get(i), rows[i].high);
    assert_false(option_set(i, rows[i].high + 1));
    assert_false(option_set(i, UINT64_MAX));
    if (rows[i].low)
      assert_false(option_set(i, rows[i].low - 1));
    assert_int_equal(option_get(i), rows[i].high);
  }
}

/* ---- Parsing ---- */

static void what_is_understood(void **state) {
  (void)state;
  parse("purge_delay:1250,verbose");
  assert_int_equal(said.count, 0);
  assert_int_equal(option_get(OPTION_purge_delay), 1250);
  assert_int_equal(option_get(OPTION_verbose), 1);
  assert_int_equal(option_get(OPTION_stats), 0);
  parse(", ,verbose:0  stats,,helper:0, ");
  assert_int_equal(said.count, 0);
  assert_int_equal(option_get(OPTION_verbose), 0);
  assert_int_equal(option_get(OPTION_stats), 1);
  assert_int_equal(option_get(OPTION_helper), 0);
  parse("purge_delay:7,purge_delay:00008"); /* the last one counts */
  assert_int_equal(said.count, 0);
  assert_int_equal(option_get(OPTION_purge_delay), 8);
}

static void nothing_at_all(void **state) {
  (void)state;
  parse("");
  parse(",");
  parse(" , ,,");
  assert_int_equal(said.count, 0);
  for (option i = 0; i < OPTION_COUNT; i++)
    assert_int_equal(option_get(i), rows[i].initial);
}

static void bad_values_change_nothing(void **state) {
  static const char *const bad[] = {
      "purge_delay:",
      "purge_delay:-1",
      "purge_delay:+1",
      "purge_delay:1s",
      "purge_delay:0x10",
      "purge_delay:1:2",
      "purge_delay:1.5",
      "verbose:2",
      "verbose:yes",
      "purge_delay:3600001", /* one too many */
      "purge_delay:18446744073709551615",
      "purge_delay:18446744073709551616", /* would be 0 in 64 bits */
      "purge_delay:18446744073709551621", /* would be 5 */
      "purge_delay:99999999999999999999999999999999999999",
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    parse(bad[i]);
    assert_int_equal(said.count, 1);
    assert_said(0, OPTION_BAD_VALUE, bad[i]);
    assert_int_equal(option_get(OPTION_purge_delay), 500);
    assert_int_equal(option_get(OPTION_verbose), 0);
  }
}

static void a_name_alone_means_one(void **state) {
  (void)state;
  assert_true(option_set(OPTION_purge_delay, 0));
  parse("purge_delay");
  assert_int_equal(said.count, 0);
  assert_int_equal(option_get(OPTION_purge_delay), 1);
}

static void unknown_names(void **state) {
  (void)state;
  parse("verbos:1,stats,:5,purge-delay:3,helper:1");
  assert_int_equal(said.count, 3);
  assert_said(0, OPTION_UNKNOWN, "verbos");
  assert_said(1, OPTION_UNKNOWN, "");
  assert_said(2, OPTION_UNKNOWN, "purge-delay");
  assert_int_equal(option_get(OPTION_stats), 1); /* the rest counts */
  assert_int_equal(option_get(OPTION_purge_delay), 500);
}

static void very_long_texts(void **state) {
  enum { LONG = 100000 };
  static char text[LONG + 64];
  (void)state;
  memset(text, 'v', LONG);
  strcpy(text + LONG, ",stats:1");
  parse(text);
  assert_int_equal(said.count, 1);
  assert_int_equal(said.fault[0], OPTION_UNKNOWN);
  assert_int_equal(option_get(OPTION_stats), 1);
  memset(text, '9', LONG);
  memcpy(text, "purge_delay:", 12);
  parse(text);
  assert_int_equal(said.count, 1);
  assert_int_equal(said.fault[0], OPTION_BAD_VALUE);
  memset(text, '0', LONG);
  memcpy(text, "purge_delay:", 12);
  strcpy(text + LONG, "42");
  parse(text);
  assert_int_equal(said.count, 0);
  assert_int_equal(option_get(OPTION_purge_delay), 42);
}

/* ---- The nearest name ---- */

static void nearest(const char *name, option expected) {
  assert_int_equal(option_nearest(name, strlen(name)), expected);
}

static void the_nearest_name(void **state) {
  (void)state;
  nearest("verbose", OPTION_verbose);
  nearest("verbos", OPTION_verbose);
  nearest("vrebose", OPTION_verbose);
  nearest("xverbosex", OPTION_verbose);
  nearest("stat", OPTION_stats);
  nearest("sttats", OPTION_stats);
  nearest("purge-delay", OPTION_purge_delay);
  nearest("purgedelay", OPTION_purge_delay);
  nearest("decay_purge_delay", OPTION_purge_delay);
  nearest("help", OPTION_helper);
  nearest("helpers", OPTION_helper);
  assert_int_equal(option_nearest("statistics", 4), OPTION_stats); /* not beyond */
}

static void some_name_is_always_nearest(void **state) {
  static char name[5000];
  (void)state;
  assert_true(option_nearest("", 0) < OPTION_COUNT);
  for (size_t length = 1; length < sizeof name; length += 7) {
    memset(name, 'p', length);
    assert_true(option_nearest(name, length) < OPTION_COUNT);
  }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, restore_options, restore_options)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_table),
      TEST(names_are_found_whole),
      TEST(bounds_are_kept),
      TEST(what_is_understood),
      TEST(nothing_at_all),
      TEST(bad_values_change_nothing),
      TEST(a_name_alone_means_one),
      TEST(unknown_names),
      TEST(very_long_texts),
      TEST(the_nearest_name),
      TEST(some_name_is_always_nearest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
