/* pprof: what is mapped where, and buffers. The file as a whole is read by the tests of profiles. */
#include "unit.h"

#include <gnu/libc-version.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "observe/pprof.h"
#include "os/os.h"

enum { FRAMES = 8, WITH_CODE = 5, NOWHERE = 64 };
static const char thread_name[PPROF_THREAD] = "pprof", heap_name[PPROF_HEAP];
static char data;

/* Executable, of no file and of one that is gone. */
static uintptr_t made_code(const char *name) {
  int file = name ? memfd_create(name, 0) : -1;
  REQUIRE(!name || ftruncate(file, os_page()) == 0);
  char *p = mmap(NULL, os_page(), PROT_READ | PROT_EXEC, MAP_PRIVATE | (name ? 0 : MAP_ANONYMOUS), file, 0);
  REQUIRE(p != MAP_FAILED);
  if (name)
    close(file);
  return (uintptr_t)p + 16;
}

/* In mappings of each kind, in one that is not executable, and in none. */
static void find_frames(uintptr_t *frame) {
  const uintptr_t found[FRAMES] = {
      (uintptr_t)find_frames, (uintptr_t)gnu_get_libc_version, getauxval(AT_SYSINFO_EHDR) + 16, made_code(NULL), made_code("gone"),
      (uintptr_t)&data,       NOWHERE,          UINTPTR_MAX - NOWHERE,
  };
  memcpy(frame, found, sizeof found);
}

static buffer encoded(const uintptr_t *frame, size_t count) {
  static const pprof_type types[] = {{"space", "bytes"}};
  buffer stacks = {0}, out = {0};
  const pprof_stack stack = {.frame = frame, .frame_count = count, .thread = thread_name, .heap = heap_name, .value = {1}};
  const pprof_source source = {.types = types, .type_count = 1, .shown = "space", .stacks = &stacks};
  buffer_put(&stacks, &stack, sizeof stack);
  REQUIRE(pprof_encode(&source, &out));
  buffer_drop(&stacks);
  return out;
}

static bool can_be_asked(void) {
  static os_mapping found;
  int maps = os_mappings_open();
  int why = os_mappings_ask(maps, (uintptr_t)can_be_asked, &found);
  os_mappings_close(maps);
  return why == 0;
}

static void the_mapping_of_an_address_or_the_next(void **state) {
  static os_mapping found;
  char self[OS_PATH_MOST] = "";
  uintptr_t here = (uintptr_t)the_mapping_of_an_address_or_the_next;
  (void)state;
  if (!can_be_asked())
    skip();
  int maps = os_mappings_open();
  errno = 77;
  assert_int_equal(os_mappings_ask(maps, here, &found), 0);
  assert_true(found.start <= here && here < found.end);
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  assert_string_equal(found.path, self);
  assert_true(found.offset > 0); /* the program's headers come first */
  uintptr_t start = found.start, made = made_code(NULL);
  assert_int_equal(os_mappings_ask(maps, start - 1, &found), 0);
  assert_int_equal(found.start, start);
  assert_int_equal(os_mappings_ask(maps, made, &found), 0);
  assert_string_equal(found.path, "");
  assert_int_equal(found.build_id_size, 0);
  assert_int_equal(os_mappings_ask(maps, UINTPTR_MAX - NOWHERE, &found), ENOENT);
  os_mappings_close(maps);
  assert_true(os_mappings_ask(maps, here, &found) != 0);
  assert_int_equal(errno, 77);
}

/* The system says no path of more than 4095 characters. */
static uintptr_t made_deep(void) {
  enum { FOLDERS = 20 };
  static char top[] = "/tmp/masu-pprof-XXXXXX", folder[251];
  memset(folder, 'd', sizeof folder - 1);
  REQUIRE(mkdtemp(top) && chdir(top) == 0);
  for (int i = 0; i < FOLDERS; i++)
    REQUIRE(mkdir(folder, 0700) == 0 && chdir(folder) == 0);
  int file = open("f", O_RDWR | O_CREAT, 0700);
  REQUIRE(file >= 0 && ftruncate(file, os_page()) == 0);
  char *p = mmap(NULL, os_page(), PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  REQUIRE(p != MAP_FAILED && close(file) == 0 && unlink("f") == 0);
  for (int i = 0; i < FOLDERS; i++)
    REQUIRE(chdir("..") == 0 && rmdir(folder) == 0);
  REQUIRE(rmdir(top) == 0);
  return (uintptr_t)p;
}

static pthread_t initial;
static uintptr_t frame[FRAMES + 1];
static size_t frames = FRAMES;
static buffer when_asked;

/* Of a process whose initial thread has ended only the list is left. */
static void *encodes_by_the_list(void *unused) {
  char c;
  int why;
  pthread_join(initial, NULL);
  while (os_file_read("/proc/self/maps", &c, 1, &why)) /* it has its memory a moment longer */
    sched_yield();
  REQUIRE(!can_be_asked());
  buffer by_list = encoded(frame, frames);
  REQUIRE(by_list.size == when_asked.size && memcmp(by_list.at, when_asked.at, by_list.size) == 0);
  _exit(0);
  return unused;
}

static int by_address(const void *a, const void *b) {
  uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
  return (one > other) - (one < other);
}

/* In the order of the list, in which the files' names are written. */
static void encode_in_both_ways(void) {
  pthread_t other;
  find_frames(frame);
  qsort(frame, FRAMES, sizeof *frame, by_address);
  when_asked = encoded(frame, frames);
  initial = pthread_self();
  REQUIRE(pthread_create(&other, NULL, encodes_by_the_list, NULL) == 0);
  pthread_exit(NULL);
}

static void encode_what_fails_in_the_middle(void) {
  static os_mapping found;
  frame[frames++] = made_deep();
  int maps = os_mappings_open();
  REQUIRE(!can_be_asked() || os_mappings_ask(maps, frame[FRAMES], &found) == ENAMETOOLONG);
  REQUIRE((uintptr_t)made_deep < frame[FRAMES]); /* it comes later */
  os_mappings_close(maps);
  encode_in_both_ways();
}

static void the_list_says_the_same(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__ /* which forbids threads in the child */
  skip();
#endif
  in_child(encode_in_both_ways);
}

static void where_the_system_fails_it_is_all_by_the_list(void **state) {
  (void)state;
#ifdef __SANITIZE_THREAD__
  skip();
#endif
  in_child(encode_what_fails_in_the_middle);
}

static bool says(const buffer *b, const char *text) { return memmem(b->at, b->size, text, strlen(text)) != NULL; }

static void mappings_of_each_kind_are_named(void **state) {
  (void)state;
  find_frames(frame);
  buffer all = encoded(frame, FRAMES), none = encoded(frame + WITH_CODE, FRAMES - WITH_CODE);
  assert_true(says(&all, program_invocation_short_name));
  assert_true(says(&all, "libc"));
  assert_true(says(&all, "[vdso]"));
  assert_true(says(&all, "/memfd:gone (deleted)"));
  assert_false(says(&none, program_invocation_short_name));
  buffer_drop(&all);
  buffer_drop(&none);
}

/* ---- Buffers ---- */

static bool is_scratch(const uint8_t *at) {
  size_t size;
  const uint8_t *scratch = buffer_scratch(&size);
  return at >= scratch && at < scratch + size;
}

static void what_is_small_needs_no_mapping_and_stays_nowhere(void **state) {
  (void)state;
  find_frames(frame);
  buffer a = encoded(frame, FRAMES), b = encoded(frame, FRAMES);
  uint8_t *at = a.at;
  assert_true(is_scratch(a.at) && is_scratch(b.at) && a.at != b.at);
  assert_int_equal(os_resident_in(at, os_page()), os_page());
  buffer_drop(&a);
  assert_int_equal(os_resident_in(at, os_page()), os_page()); /* b is in use */
  buffer_drop(&b);
  assert_int_equal(os_resident_in(at, os_page()), 0);
}

static void what_grows_moves(void **state) {
  enum { BYTES = 100000 };
  buffer b = {0};
  (void)state;
  for (unsigned i = 0; i < BYTES; i++)
    buffer_put(&b, &(uint8_t){(uint8_t)(i * 7)}, 1);
  assert_int_equal(b.size, BYTES);
  assert_false(is_scratch(b.at));
  for (unsigned i = 0; i < BYTES; i++)
    assert_int_equal(b.at[i], (uint8_t)(i * 7));
  buffer_drop(&b);
}

enum { WRITERS = 4, WRITTEN = 300000 };

static void *writes(void *unused) {
  for (uintptr_t i = 0; i < WRITTEN; i++) {
    uintptr_t word = (uintptr_t)&i + i;
    buffer b = {0};
    buffer_put(&b, &word, sizeof word);
    REQUIRE(b.at && !memcmp(b.at, &word, sizeof word));
    buffer_drop(&b);
  }
  return unused;
}

static void writers_at_once_do_not_meet(void **state) {
  pthread_t thread[WRITERS];
  (void)state;
  for (int i = 0; i < WRITERS; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, writes, NULL), 0);
  for (int i = 0; i < WRITERS; i++)
    pthread_join(thread[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_mapping_of_an_address_or_the_next),
      cmocka_unit_test(the_list_says_the_same),
      cmocka_unit_test(mappings_of_each_kind_are_named),
      cmocka_unit_test(where_the_system_fails_it_is_all_by_the_list),
      cmocka_unit_test(what_is_small_needs_no_mapping_and_stays_nowhere),
      cmocka_unit_test(what_grows_moves),
      cmocka_unit_test(writers_at_once_do_not_meet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
