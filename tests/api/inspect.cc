/* What a program may ask about its memory, and malloc_trim and mallopt. */
#include "api.h"

#include <masu/stats.h>

#include <unistd.h>

class Inspect : public ApiTest {};
FOR_BOTH_NAMES(Inspect);

TEST_P(Inspect, GoodSizeIsWhatMallocGives) {
  size_t last = 0;
  for (size_t n = 0; n < 5 * MIB; n += 1 + n / 200) {
    size_t good = KEEPS_ERRNO(a.good_size(n));
    ASSERT_GE(good, n);
    ASSERT_GE(good, last) << "not monotonic at " << n;
    ASSERT_EQ(a.good_size(good), good) << n;
    void *p = a.malloc(n);
    ASSERT_EQ(a.usable_size(p), good) << n;
    a.free(p);
    last = good;
  }
}

/* At most 15 bytes lost up to 64, a fifth of the block above. (Beyond the small
 * sizes whole slices are set aside, of which only what is touched is resident.) */
#ifndef MASU_TEST_SYSTEM
TEST_P(Inspect, LossPerBlock) {
  for (size_t n = 1; n <= 32 * KIB; n++) {
    size_t good = a.good_size(n);
    ASSERT_LE(good - n, n <= 64 ? 15 : std::max<size_t>(15, good / 5)) << n;
  }
}
#endif

static size_t live(const struct mallinfo2 &info) { return info.uordblks + info.hblkhd; }

TEST_P(Inspect, MallinfoMovesWithLiveBytes) {
  const struct {
    size_t n, count;
  } cases[] = {
      {100, 100000}, {3000, 5000}, {100 * KIB, 100}, {3 * MIB, 5}, {70 * MIB, 1}};
  for (auto [n, count] : cases) {
    std::vector<void *> blocks(count);
    size_t before = live(a.mallinfo2());
    for (void *&p : blocks)
      p = a.malloc(n);
    size_t asked = n * count, grown = live(KEEPS_ERRNO(a.mallinfo2())) - before;
    EXPECT_GE(grown, asked - asked / 50) << n;
    EXPECT_LE(grown, asked + asked / 3 + 128 * KIB) << n;
    for (void *p : blocks)
      a.free(p);
    size_t left = live(a.mallinfo2());
    EXPECT_LE(left, before + asked / 20 + 128 * KIB) << n;
  }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_P(Inspect, OldMallinfoAgrees) {
  void *p = a.malloc(10 * MIB);
  struct mallinfo old = KEEPS_ERRNO(a.mallinfo());
  struct mallinfo2 now = a.mallinfo2();
  EXPECT_NEAR((double)old.uordblks + old.hblkhd, (double)live(now), (double)MIB);
  EXPECT_GE((size_t)old.uordblks + (size_t)old.hblkhd, 10 * MIB);
  a.free(p);
}
#pragma GCC diagnostic pop

/* Every tag is closed in order, every attribute quoted, one root. */
static std::string xml_fault(const std::string &text) {
  std::vector<std::string> open;
  int roots = 0;
  size_t at = 0;
  while ((at = text.find('<', at)) != std::string::npos) {
    size_t end = text.find('>', at);
    if (end == std::string::npos)
      return "unclosed tag at " + text.substr(at, 40);
    std::string tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag[0] == '?' || tag[0] == '!')
      continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2)
      return "open quote in <" + tag + ">";
    std::string name =
        tag.substr(tag[0] == '/', tag.find_first_of(" \t\n/", 1) - (tag[0] == '/'));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
      continue;
    }
    if (open.empty())
      roots++;
    if (tag.back() != '/')
      open.push_back(name);
  }
  if (!open.empty())
    return "<" + open.back() + "> stays open";
  return roots == 1 ? "" : std::to_string(roots) + " roots";
}

TEST(XmlFault, SeesFaults) {
  EXPECT_EQ(xml_fault("<?xml?><a b=\"1\"><c/><d e='x'></d></a>\n"), "");
  EXPECT_NE(xml_fault("<a><b></a></b>"), "");
  EXPECT_NE(xml_fault("<a>"), "");
  EXPECT_NE(xml_fault("<a b=\"></a>"), "");
  EXPECT_NE(xml_fault("<a/><b/>"), "");
  EXPECT_NE(xml_fault(""), "");
}

TEST_P(Inspect, MallocInfoIsXml) {
  std::vector<void *> blocks;
  for (size_t n = 1; n < 200 * KIB; n += 1 + n / 5)
    blocks.push_back(a.malloc(n));
  char *text = nullptr;
  size_t length = 0;
  FILE *f = open_memstream(&text, &length); /* writing allocates as well */
  EXPECT_EQ(a.malloc_info(0, f), 0);
  fclose(f);
  EXPECT_EQ(xml_fault(text), "") << text;
  EXPECT_EQ(std::string(text).compare(0, 8, "<malloc "), 0) << text;
  free(text);
  for (void *p : blocks)
    a.free(p);
  EXPECT_EQ(a.malloc_info(1, stdout), EINVAL);
  EXPECT_EQ(a.malloc_info(-1, stdout), EINVAL);
}

TEST_P(Inspect, MallocStatsWritesToStderr) {
  testing::internal::CaptureStderr();
  a.malloc_stats();
  EXPECT_GT(testing::internal::GetCapturedStderr().size(), 20u);
}

/* Small blocks, medium ones and large ones. (Checked builds keep bitmaps of every
 * slab that was; sanitizers keep memory of their own for what was ours.) */
TEST_P(Inspect, TrimLowersResidentMemory) {
#ifdef MASU_NO_OVERRIDE
  GTEST_SKIP() << "resident memory is the sanitizer's";
#endif
  for (size_t n : {64ul, 1000ul, 30000ul, 200 * KIB, 5 * MIB, 200 * MIB}) {
    a.malloc_trim(0);
    size_t before = resident_kib();
    std::vector<void *> blocks(200 * MIB / n);
    for (void *&p : blocks) {
      p = a.malloc(n);
      ASSERT_NE(p, nullptr);
      memset(p, 1, n);
    }
    EXPECT_GE(resident_kib(), before + 199 * KIB);
    for (void *p : blocks)
      a.free(p);
    std::vector<void *>().swap(blocks);
    int returned = KEEPS_ERRNO(a.malloc_trim(0));
    EXPECT_TRUE(returned == 0 || returned == 1);
    EXPECT_LE(resident_kib(), before + 16 * KIB) << n << "-byte blocks";
  }
}

#ifndef MASU_TEST_SYSTEM
TEST_P(Inspect, TrimSaysWhetherAnythingWasGivenBack) {
  void *p = a.malloc(8 * MIB);
  memset(p, 1, 8 * MIB);
  a.malloc_trim(0);
  a.free(p);
  EXPECT_EQ(a.malloc_trim(0), 1);
  EXPECT_EQ(a.malloc_trim(0), 0);
}

/* One block in 64 stays, so that no slab is empty, and no slice idle. */
TEST_P(Inspect, TrimSaysSoOfPagesInsideSlabs) {
  const uint64_t delay = 3600000;
  uint64_t usual;
  masu_ctl("purge_delay", &usual, &delay);
  std::vector<void *> blocks(24 * KIB);
  a.malloc_trim(0);
  for (void *&p : blocks)
    memset(p = a.malloc(1000), 1, 1000);
  for (size_t i = 0; i < blocks.size(); i++)
    if (i % 64)
      a.free(blocks[i]);
  masu_stats before = {}, after = {};
  masu_stats_read(&before, sizeof before);
  EXPECT_EQ(before.idle + before.slab_spare + before.front + before.kept, 0u);
  EXPECT_EQ(a.malloc_trim(0), 1);
  masu_stats_read(&after, sizeof after);
  EXPECT_EQ(after.slabs, before.slabs);
  EXPECT_GE(after.returned, before.returned + 16 * MIB);
  EXPECT_EQ(a.malloc_trim(0), 0);
  for (size_t i = 0; i < blocks.size(); i += 64)
    a.free(blocks[i]);
  masu_ctl("purge_delay", nullptr, &usual);
}

TEST_P(Inspect, MalloptPurges) {
  size_t before = resident_kib();
  void *p = a.malloc(50 * MIB);
  memset(p, 1, 50 * MIB);
  a.free(p);
  EXPECT_EQ(KEEPS_ERRNO(a.mallopt(-101, 0)), 1);
  EXPECT_LE(resident_kib(), before + 4 * KIB);
}
#endif

TEST_P(Inspect, Mallopt) {
  for (int known : {M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX,
                    M_ARENA_MAX, M_ARENA_TEST, M_MXFAST, M_PERTURB, M_CHECK_ACTION})
    EXPECT_EQ(KEEPS_ERRNO(a.mallopt(known, known == M_MXFAST ? 64 : 0)), 1) << known;
#ifndef MASU_TEST_SYSTEM
  EXPECT_EQ(a.mallopt(12345, 1), 0);
#endif
  void *p = a.malloc(100);
  EXPECT_NE(p, nullptr);
  a.free(p);
}
