/* The C++ headers: containers and memory resources over heaps, pools and arenas; guards. */
#include <masu/arena.hpp>
#include <masu/pool.hpp>
#include <masu/scope.hpp>

#include <array>
#include <list>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "forms.h"

class Cpp : public FormTest {};

static const char *const long_text = "a text that doesn't fit inside the string object itself";

TEST_F(Cpp, ContainersOverAHeap) {
  masu::named_heap heap("containers");
  std::vector<int, masu::heap_allocator<int>> v(heap.get());
  for (int i = 0; i < 1000; i++)
    v.push_back(i);
  EXPECT_EQ(masu_heap_of(v.data()), heap.get());
  masu::heap_resource resource(heap.get()), same(heap.get()), general;
  std::pmr::string s(long_text, &resource), t(std::move(s), &general);
  EXPECT_EQ(t, long_text);
  EXPECT_EQ(masu_heap_of(t.data()), nullptr); /* it outlives the heap */
  EXPECT_TRUE(resource == same);
  EXPECT_FALSE(resource == general);
  masu_heap_set_budget(heap.get(), 0, MIB);
  EXPECT_THROW(v.reserve(MIB), std::bad_alloc);
  EXPECT_THROW(masu::heap_allocator<int>(heap.get()).allocate(SIZE_MAX / 2), std::bad_alloc);
  EXPECT_THROW((void)resource.allocate(2 * MIB, 16), std::bad_alloc);
}

TEST_F(Cpp, ContainersOverAnArena) {
  masu::arena arena(1000);
  {
    std::vector<int, masu::arena_allocator<int>> v(arena.get());
    for (int i = 0; i < 1000; i++)
      v.push_back(i);
    EXPECT_EQ(v[999], 999);
    masu::arena_resource resource(arena.get()), same(arena.get());
    std::pmr::map<int, std::pmr::string> m(&resource);
    for (int i = 0; i < 100; i++)
      m.emplace(i, long_text);
    EXPECT_EQ(m.at(99), long_text);
    EXPECT_TRUE(resource == same);
    EXPECT_TRUE(multiple_of(resource.allocate(1, 4096), 4096));
  }
  arena.reset();
}

struct picky {
  int x;
  explicit picky(int value) : x(value) {
    if (value < 0)
      throw std::invalid_argument("negative");
  }
};

TEST_F(Cpp, ObjectsOfAPool) {
  masu::pool<picky> pool;
  picky *p = pool.make(3);
  EXPECT_EQ(p->x, 3);
  EXPECT_EQ(masu_pool_live(pool.get()), 1u);
  EXPECT_THROW(pool.make(-1), std::invalid_argument);
  EXPECT_EQ(masu_pool_live(pool.get()), 1u);
  pool.drop(p);
  pool.drop(nullptr);
  EXPECT_EQ(masu_pool_live(pool.get()), 0u);
  EXPECT_THROW(masu::raw_pool(0), std::bad_alloc);
}

TEST_F(Cpp, NodesOfAPool) {
  masu::raw_pool nodes(64, 16);
  {
    using pair = std::pair<const int, int>;
    std::map<int, int, std::less<>, masu::pool_allocator<pair>> m{nodes.get()};
    std::unordered_map<int, int, std::hash<int>, std::equal_to<>, masu::pool_allocator<pair>> h{
        nodes.get()};
    for (int i = 0; i < 1000; i++)
      m[i] = h[i] = i;
    EXPECT_EQ(masu_pool_live(nodes.get()), 2000u); /* the table is an array: not of the pool */
    EXPECT_EQ(h.at(500), m.at(500));
    masu::pool_resource resource(nodes.get(), 64, 16);
    std::pmr::list<int> l({1, 2, 3}, &resource);
    EXPECT_EQ(masu_pool_live(nodes.get()), 2003u);
    std::pmr::vector<int> large(1000, &resource);
    EXPECT_EQ(masu_pool_live(nodes.get()), 2003u);
  }
  EXPECT_EQ(masu_pool_live(nodes.get()), 0u);
}

static int alive;
struct counted {
  std::string text = long_text;
  counted() { alive++; }
  ~counted() { alive--; }
};

struct alignas(256) wide {
  char bytes[256];
};
using large = std::array<char, 100000>;

TEST_F(Cpp, ObjectsOfAScopeAreInItsHeap) {
  masu::named_heap heap("objects");
  {
    masu::scope scope(heap.get());
    EXPECT_EQ(masu_heap_of(scope.make<counted>()), heap.get());
    EXPECT_TRUE(multiple_of(scope.make<wide>(), 256));
    EXPECT_THROW(scope.make<picky>(-1), std::invalid_argument);
    EXPECT_EQ(masu_scope_count(), 2u);
    masu_heap_set_budget(heap.get(), 0, 1);
    EXPECT_THROW(scope.make<large>(), std::bad_alloc);
  }
  EXPECT_EQ(alive, 0);
  masu_heap_figures f;
  masu_heap_read(heap.get(), &f, sizeof f);
  EXPECT_EQ(f.blocks, 0u);
}

TEST_F(Cpp, AScopeDestroysItsObjects) {
  try {
    masu::scope scope;
    EXPECT_EQ(scope.make<counted>()->text, long_text);
    scope.make<counted>();
    EXPECT_EQ(alive, 2);
    throw std::runtime_error("on the way out");
  } catch (const std::runtime_error &) {
    EXPECT_EQ(alive, 0);
  }
}
