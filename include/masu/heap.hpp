/* Named heaps in C++ (heap.h): a memory resource and an allocator for containers.
 *
 *     masu::named_heap sounds("sounds");
 *     std::vector<float, masu::heap_allocator<float>> wave(sounds.get());
 *     masu::heap_resource resource(sounds.get());
 *     std::pmr::string title("...", &resource);
 *
 * Needs C++17 with exceptions and RTTI. Thread rules and errors are those of heap.h; where it
 * says NULL, these throw std::bad_alloc. */
#ifndef MASU_HEAP_HPP
#define MASU_HEAP_HPP

#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>

#include "heap.h"

namespace masu {

/* Creates a heap and destroys it, with all that is left in it. */
class named_heap {
public:
  explicit named_heap(const char *name) : heap_(masu_heap_create(name)) {
    if (!heap_)
      throw std::bad_alloc();
  }
  ~named_heap() { masu_heap_destroy(heap_); }
  named_heap(const named_heap &) = delete;
  named_heap &operator=(const named_heap &) = delete;
  masu_heap *get() const noexcept { return heap_; }

private:
  masu_heap *heap_;
};

/* heap nullptr: the general memory. */
class heap_resource : public std::pmr::memory_resource {
public:
  explicit heap_resource(masu_heap *heap = nullptr) noexcept : heap_(heap) {}
  masu_heap *heap() const noexcept { return heap_; }

protected:
  void *do_allocate(std::size_t size, std::size_t alignment) override {
    void *p = masu_heap_aligned_alloc(heap_, alignment, size);
    if (!p)
      throw std::bad_alloc();
    return p;
  }
  void do_deallocate(void *p, std::size_t, std::size_t) override { masu_heap_free(heap_, p); }
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    auto same = dynamic_cast<const heap_resource *>(&other); /* any frees any block, but heaps end */
    return same && same->heap_ == heap_;
  }

private:
  masu_heap *heap_;
};

namespace detail {
/* n * size, or std::bad_array_new_length. */
inline std::size_t array_bytes(std::size_t n, std::size_t size) {
  if (n > std::numeric_limits<std::size_t>::max() / 2 / size)
    throw std::bad_array_new_length();
  return n * size;
}
} // namespace detail

template <class T> class heap_allocator {
public:
  using value_type = T;
  heap_allocator(masu_heap *heap = nullptr) noexcept : heap_(heap) {}
  template <class U> heap_allocator(const heap_allocator<U> &other) noexcept : heap_(other.heap()) {}
  masu_heap *heap() const noexcept { return heap_; }

  T *allocate(std::size_t n) {
    void *p = masu_heap_aligned_alloc(heap_, alignof(T), detail::array_bytes(n, sizeof(T)));
    if (!p)
      throw std::bad_alloc();
    return static_cast<T *>(p);
  }
  void deallocate(T *p, std::size_t) noexcept { masu_heap_free(heap_, p); }
  template <class U> bool operator==(const heap_allocator<U> &other) const noexcept {
    return heap_ == other.heap();
  }
  template <class U> bool operator!=(const heap_allocator<U> &other) const noexcept {
    return !(*this == other);
  }

private:
  masu_heap *heap_;
};

} // namespace masu

#endif
