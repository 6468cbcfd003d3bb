// operators: C++ operator new and delete for libmasu.a, with the standard's
// new-handler loop. (libmasu.so has operators.c, which needs no C++ runtime.)
#include <cerrno>
#include <new>

#include "masu.h"

namespace {

// The standard's loop: try, run the handler, throw where there is none.
template <class Allocate> void *allocate_or_throw(Allocate allocate) {
  for (;;) {
    if (void *p = allocate())
      return p;
    std::new_handler handler = std::get_new_handler();
    if (!handler)
      throw std::bad_alloc();
    handler();
  }
}

template <class Allocate> void *allocate_or_null(Allocate allocate) noexcept {
  try {
    return allocate_or_throw(allocate);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

auto plain(std::size_t size) {
  return [=] { return masu_malloc(size); };
}
auto aligned(std::size_t size, std::align_val_t align) {
  return [=] { return masu_memalign(static_cast<std::size_t>(align), size); };
}

} // namespace

using std::align_val_t;
using std::nothrow_t;
using std::size_t;

#define OPERATORS(NEW, DELETE)                                                 \
  void *NEW(size_t n) { return allocate_or_throw(plain(n)); }                  \
  void *NEW(size_t n, const nothrow_t &) noexcept {                            \
    return allocate_or_null(plain(n));                                         \
  }                                                                            \
  void *NEW(size_t n, align_val_t a) { return allocate_or_throw(aligned(n, a)); } \
  void *NEW(size_t n, align_val_t a, const nothrow_t &) noexcept {             \
    return allocate_or_null(aligned(n, a));                                    \
  }                                                                            \
  void DELETE(void *p) noexcept { masu_free(p); }                              \
  void DELETE(void *p, const nothrow_t &) noexcept { masu_free(p); }           \
  void DELETE(void *p, align_val_t) noexcept { masu_free(p); }                 \
  void DELETE(void *p, align_val_t, const nothrow_t &) noexcept { masu_free(p); } \
  void DELETE(void *p, size_t n) noexcept { masu_free_sized(p, n); }           \
  void DELETE(void *p, size_t n, align_val_t a) noexcept {                     \
    masu_free_aligned_sized(p, static_cast<size_t>(a), n);                     \
  }

OPERATORS(operator new, operator delete)
OPERATORS(operator new[], operator delete[])
