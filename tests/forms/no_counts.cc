/* Pools of code that leaves the counting out. */
#define MASU_NO_COUNTS 1
#include <masu/pool.h>

#include "forms.h"

class Uncounted : public FormTest {};

TEST_F(Uncounted, NoneIsLiveWhereverThePoolWasMade) {
  for (masu_pool *pool :
       {masu_pool_create(24, 0, 0), masu_pool_create_in(nullptr, "uncounted", 24, 0, 0)}) {
    for (int i = 0; i < 3; i++)
      EXPECT_NE(masu_pool_alloc(pool), nullptr);
    masu_pool_figures f;
    EXPECT_EQ(masu_pool_read(pool, &f, sizeof f), 0);
    EXPECT_EQ(f.live, 0u);
    masu_pool_destroy(pool);
  }
}
