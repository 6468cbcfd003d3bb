/* Arenas in C++ (arena.h): an owner, a memory resource, an allocator for containers.
 *
 *     masu::arena frame(1 << 20);
 *     std::vector<star, masu::arena_allocator<star>> stars(frame.get());
 *
 * What containers give back is free again when the arena is reset, rewound or destroyed,
 * not before. Needs C++17 with exceptions and RTTI. Thread rules are those of arena.h; where
 * it says NULL, these throw std::bad_alloc. */
#ifndef MASU_ARENA_HPP
#define MASU_ARENA_HPP

#include "arena.h"
#include "heap.hpp"

namespace masu {

/* Creates an arena and destroys it. No destructor of what lies in it is called. */
class arena {
public:
  explicit arena(std::size_t size = 0, masu_heap *heap = nullptr, const char *name = nullptr)
      : arena_(masu_arena_create_in(heap, name, size)) {
    if (!arena_)
      throw std::bad_alloc();
  }
  ~arena() { masu_arena_destroy(arena_); }
  arena(const arena &) = delete;
  arena &operator=(const arena &) = delete;
  masu_arena *get() const noexcept { return arena_; }
  void reset() noexcept { masu_arena_reset(arena_); }

private:
  masu_arena *arena_;
};

class arena_resource : public std::pmr::memory_resource {
public:
  explicit arena_resource(masu_arena *arena) noexcept : arena_(arena) {}

protected:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    void *p = masu_arena_aligned_alloc(arena_, alignment, size);
    if (!p)
      throw std::bad_alloc();
    return p;
  }
  void do_deallocate(void *, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    auto same = dynamic_cast<const arena_resource *>(&other);
    return same && same->arena_ == arena_;
  }

private:
  masu_arena *arena_;
};

template <class T> class arena_allocator {
public:
  using value_type = T;
  arena_allocator(masu_arena *arena) noexcept : arena_(arena) {}
  template <class U> arena_allocator(const arena_allocator<U> &other) noexcept : arena_(other.arena()) {}
  masu_arena *arena() const noexcept { return arena_; }

  T *allocate(std::size_t n) {
    void *p = masu_arena_aligned_alloc(arena_, alignof(T), detail::array_bytes(n, sizeof(T)));
    if (!p)
      throw std::bad_alloc();
    return static_cast<T *>(p);
  }
  void deallocate(T *, std::size_t) noexcept {}
  template <class U> bool operator==(const arena_allocator<U> &other) const noexcept {
    return arena_ == other.arena();
  }
  template <class U> bool operator!=(const arena_allocator<U> &other) const noexcept {
    return !(*this == other);
  }

private:
  masu_arena *arena_;
};

} // namespace masu

#endif
