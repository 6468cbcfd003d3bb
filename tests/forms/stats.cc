/* What masu_malloc_stats, and so `masu run --stats`, says about the forms. */
#include <masu/arena.h>
#include <masu/fixed.h>
#include <masu/sized.h>

#include <regex.h>

#include "forms.h"

class Stats : public FormTest {};

static std::string summary() {
  testing::internal::CaptureStderr();
  masu_malloc_stats();
  return testing::internal::GetCapturedStderr();
}
static size_t lines_with(const std::string &text, const std::string &word) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at++)
    n++;
  return n;
}

static bool matches(const std::string &text, const char *pattern) {
  regex_t compiled;
  EXPECT_EQ(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
  bool found = regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  return found;
}

TEST_F(Stats, EachFormHasALine) {
  std::string before = summary();
  EXPECT_EQ(lines_with(before, "named heap"), 0u);
  masu_heap *heap = masu_heap_create("the-heap");
  masu_heap_set_budget(heap, 0, 5 * MIB);
  masu_pool *pool = masu_pool_create_in(heap, "the-pool", 1024, 0, MASU_POOL_SHARED);
  for (int i = 0; i < 100; i++)
    masu_pool_alloc(pool);
  masu_arena_alloc(masu_arena_create_in(heap, "the-arena", MIB), 300 * KIB);
  masu_fixed *fixed = masu_fixed_create_in(nullptr, "the-fixed-pool", 1024, 10, 0);
  masu_ladder *ladder = masu_ladder_create_in(nullptr, "the-ladder", nullptr, 0);
  masu_ladder_alloc(ladder, 1000);
  void *sized = masu_sized_alloc(24);
  std::string text = summary();
  for (const char *name : {"the-heap ", "the-pool", "the-arena", "the-fixed-poo", "the-ladder"})
    EXPECT_GE(lines_with(text, name), 1u) << name << text;
  EXPECT_TRUE(matches(text, "pool +the-pool +100 +[0-9]+ +the-heap")) << text;
  EXPECT_TRUE(matches(text, "arena +the-arena +300 ")) << text;
  EXPECT_TRUE(matches(text, "the-heap .* 5120 +0\n")) << text;
  EXPECT_EQ(lines_with(text, "sized block"), 1u);
  masu_heap_destroy(heap);
  masu_fixed_destroy(fixed);
  masu_ladder_destroy(ladder);
  masu_sized_free(sized, 24);
  text = summary();
  for (const char *name : {"the-heap", "the-pool", "the-arena", "the-fixed-poo", "the-ladder"})
    EXPECT_EQ(lines_with(text, name), 0u) << name << text;
}
