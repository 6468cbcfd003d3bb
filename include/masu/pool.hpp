/* Pools in C++ (pool.h): an owner that makes objects, a memory resource, and an allocator
 * for containers of nodes (std::list, std::map, std::unordered_map).
 *
 *     masu::pool<star> stars;
 *     star *s = stars.make(x, y);
 *     stars.drop(s);
 *
 *     masu::raw_pool nodes(64, alignof(std::max_align_t));
 *     std::map<int, int, std::less<>, masu::pool_allocator<std::pair<const int, int>>> m{nodes.get()};
 *
 * Needs C++17 with exceptions and RTTI. Thread rules are those of pool.h; where it says NULL,
 * these throw std::bad_alloc. */
#ifndef MASU_POOL_HPP
#define MASU_POOL_HPP

#include <utility>

#include "heap.hpp"
#include "pool.h"

namespace masu {

/* Creates a pool and destroys it; no destructor of what lies in it is called. */
class raw_pool {
public:
  explicit raw_pool(std::size_t size, std::size_t alignment = 0, unsigned flags = 0,
                    masu_heap *heap = nullptr, const char *name = nullptr)
      : pool_(masu_pool_create_in(heap, name, size, alignment, flags)) {
    if (!pool_)
      throw std::bad_alloc();
  }
  ~raw_pool() { masu_pool_destroy(pool_); }
  raw_pool(const raw_pool &) = delete;
  raw_pool &operator=(const raw_pool &) = delete;
  masu_pool *get() const noexcept { return pool_; }

private:
  masu_pool *pool_;
};

/* Objects of one type. */
template <class T> class pool : public raw_pool {
public:
  explicit pool(unsigned flags = 0, masu_heap *heap = nullptr, const char *name = nullptr)
      : raw_pool(sizeof(T), alignof(T), flags, heap, name) {}

  template <class... Arguments> T *make(Arguments &&...arguments) {
    void *p = masu_pool_alloc(get());
    if (!p)
      throw std::bad_alloc();
    try {
      return ::new (p) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
      masu_pool_free(get(), p);
      throw;
    }
  }
  /* Destroys *p; nullptr: nothing happens. */
  void drop(T *p) noexcept {
    if (!p)
      return;
    p->~T();
    masu_pool_free(get(), p);
  }
};

/* What doesn't fit in a block of the pool comes from the general memory. block, alignment:
 * what the pool was created with. */
class pool_resource : public std::pmr::memory_resource {
public:
  pool_resource(masu_pool *pool, std::size_t block, std::size_t alignment) noexcept
      : pool_(pool), block_(block), alignment_(alignment) {}

protected:
  bool fits(std::size_t size, std::size_t alignment) const noexcept {
    return size <= block_ && alignment <= alignment_;
  }
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    void *p = fits(size, alignment) ? masu_pool_alloc(pool_) : masu_aligned_alloc(alignment, size);
    if (!p)
      throw std::bad_alloc();
    return p;
  }
  void do_deallocate(void *p, std::size_t size, std::size_t alignment) override {
    if (fits(size, alignment))
      masu_pool_free(pool_, p);
    else
      masu_free(p);
  }
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    auto same = dynamic_cast<const pool_resource *>(&other);
    return same && same->pool_ == pool_;
  }

private:
  masu_pool *pool_;
  std::size_t block_, alignment_;
};

/* Single objects that fit in a block of the pool come from there, all else from the general
 * memory: containers allocate nodes one by one, and tables as arrays. */
template <class T> class pool_allocator {
public:
  using value_type = T;
  pool_allocator(masu_pool *pool) noexcept : pool_(pool) {
    masu_pool_figures figures;
    masu_pool_read(pool, &figures, sizeof figures);
    block_ = figures.block;
  }
  template <class U> pool_allocator(const pool_allocator<U> &other) noexcept
      : pool_(other.pool()), block_(other.block()) {}
  masu_pool *pool() const noexcept { return pool_; }
  std::size_t block() const noexcept { return block_; }

  T *allocate(std::size_t n) {
    void *p = fits(n) ? masu_pool_alloc(pool_)
                      : masu_aligned_alloc(alignof(T), detail::array_bytes(n, sizeof(T)));
    if (!p)
      throw std::bad_alloc();
    return static_cast<T *>(p);
  }
  void deallocate(T *p, std::size_t n) noexcept {
    if (fits(n))
      masu_pool_free(pool_, p);
    else
      masu_free(p);
  }
  template <class U> bool operator==(const pool_allocator<U> &other) const noexcept {
    return pool_ == other.pool();
  }
  template <class U> bool operator!=(const pool_allocator<U> &other) const noexcept {
    return !(*this == other);
  }

private:
  /* A block's address is a multiple of what divides its size, up to 16. */
  bool fits(std::size_t n) const noexcept {
    return n == 1 && sizeof(T) <= block_ && alignof(T) <= 16 && block_ % alignof(T) == 0;
  }
  masu_pool *pool_;
  std::size_t block_;
};

} // namespace masu

#endif
