// C++ containers over a pool, an arena, a heap.
#include <masu/arena.hpp>
#include <masu/pool.hpp>
#include <masu/scope.hpp>

#include <iostream>
#include <map>
#include <string>
#include <vector>

struct star {
  float x, y;
};

int main() {
  // Nodes of a map: equal blocks.
  masu::raw_pool nodes(64, 16);
  std::map<int, star, std::less<>, masu::pool_allocator<std::pair<const int, star>>> sky{nodes.get()};
  for (int i = 0; i < 1000; i++)
    sky[i] = {float(i), float(-i)};
  std::cout << masu_pool_live(nodes.get()) << " nodes\n";

  // A frame's temporary vectors: an arena that is reset.
  masu::arena frame(1 << 16);
  for (int i = 0; i < 60; i++) {
    std::vector<star, masu::arena_allocator<star>> visible(frame.get());
    for (const auto &[number, s] : sky)
      if (number % 2 == i % 2)
        visible.push_back(s);
    frame.reset();
  }

  // Polymorphic memory resources over a heap with a limit.
  masu::named_heap heap("strings");
  masu_heap_set_budget(heap.get(), 0, 1 << 20);
  masu::heap_resource resource(heap.get());
  std::pmr::vector<std::pmr::string> lines(&resource);
  try {
    for (;;)
      lines.emplace_back("a line that is too long for the string object itself");
  } catch (const std::bad_alloc &) {
    std::cout << lines.size() << " lines in 1 MiB\n";
  }

  // An object that dies with the scope.
  masu::scope scope;
  std::cout << scope.make<std::string>("gone at the end")->size() << " characters\n";
}
