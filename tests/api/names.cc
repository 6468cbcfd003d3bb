/* The libc's names, the __libc_ ones and operator new lead into masu: as the
 * dynamic linker sees them, from any library. */
#include "api.h"

#include <dlfcn.h>

#include <string_view>

TEST(Names, BelongToMasu) {
  const char *names[] = {"malloc",
                         "calloc",
                         "realloc",
                         "free",
                         "free_sized",
                         "free_aligned_sized",
                         "reallocarray",
                         "reallocf",
                         "aligned_alloc",
                         "posix_memalign",
                         "memalign",
                         "valloc",
                         "pvalloc",
                         "malloc_usable_size",
                         "malloc_good_size",
                         "mallinfo",
                         "mallinfo2",
                         "malloc_info",
                         "malloc_stats",
                         "malloc_trim",
                         "mallopt",
                         "__libc_malloc",
                         "__libc_calloc",
                         "__libc_realloc",
                         "__libc_free",
                         "__libc_memalign",
                         "__libc_valloc",
                         "__libc_pvalloc",
                         "_Znwm",
                         "_Znam",
                         "_ZnwmRKSt9nothrow_t",
                         "_ZnamRKSt9nothrow_t",
                         "_ZnwmSt11align_val_t",
                         "_ZnamSt11align_val_t",
                         "_ZnwmSt11align_val_tRKSt9nothrow_t",
                         "_ZnamSt11align_val_tRKSt9nothrow_t",
                         "_ZdlPv",
                         "_ZdaPv",
                         "_ZdlPvm",
                         "_ZdaPvm",
                         "_ZdlPvRKSt9nothrow_t",
                         "_ZdaPvRKSt9nothrow_t",
                         "_ZdlPvSt11align_val_t",
                         "_ZdaPvSt11align_val_t",
                         "_ZdlPvmSt11align_val_t",
                         "_ZdaPvmSt11align_val_t",
                         "_ZdlPvSt11align_val_tRKSt9nothrow_t",
                         "_ZdaPvSt11align_val_tRKSt9nothrow_t"};
  Dl_info masu;
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "masu_malloc"), &masu), 0);
  for (const char *name : names) {
    Dl_info info = {};
    void *address = dlsym(RTLD_DEFAULT, name);
    ASSERT_NE(address, nullptr) << name;
    ASSERT_NE(dladdr(address, &info), 0) << name;
    EXPECT_STREQ(info.dli_fname, masu.dli_fname) << name;
  }
}

/* Memory that the C library allocates for us is masu's too. */
TEST(Names, LibraryCallsUseMasu) {
  uint64_t before, after;
  std::vector<char *> copies(1000);
  std::string text(9999, 'x');
  masu_ctl("stats.live", &before, nullptr);
  for (char *&copy : copies)
    copy = strdup(text.c_str());
  masu_ctl("stats.live", &after, nullptr);
  EXPECT_GE(after, before + 9 * MIB);
  for (char *copy : copies)
    free(copy);
}
