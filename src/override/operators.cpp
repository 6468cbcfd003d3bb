// operators: C++ operator new and delete for libmasu.a, with the standard's
// new-handler loop. (libmasu.so has operators.c, which needs no C++ runtime.)
//
// A program may have definitions of its own, of the basic forms only as well: ours are weak, and
// those that the standard has call a basic one do so.
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

template <class Allocate> void *null_instead(Allocate allocate) noexcept {
  try {
    return allocate();
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

#define WEAK __attribute__((weak))

WEAK void *operator new(size_t n) { return allocate_or_throw(plain(n)); }
WEAK void *operator new(size_t n, align_val_t a) { return allocate_or_throw(aligned(n, a)); }
WEAK void operator delete(void *p) noexcept { masu_free(p); }
WEAK void operator delete(void *p, align_val_t) noexcept { masu_free(p); }

WEAK void *operator new[](size_t n) { return operator new(n); }
WEAK void *operator new[](size_t n, align_val_t a) { return operator new(n, a); }
WEAK void operator delete[](void *p) noexcept { operator delete(p); }
WEAK void operator delete[](void *p, align_val_t a) noexcept { operator delete(p, a); }

#define OPERATORS(NEW, DELETE)                                                 \
  WEAK void *NEW(size_t n, const nothrow_t &) noexcept {                       \
    return null_instead([=] { return NEW(n); });                               \
  }                                                                            \
  WEAK void *NEW(size_t n, align_val_t a, const nothrow_t &) noexcept {        \
    return null_instead([=] { return NEW(n, a); });                            \
  }                                                                            \
  WEAK void DELETE(void *p, const nothrow_t &) noexcept { DELETE(p); }         \
  WEAK void DELETE(void *p, align_val_t a, const nothrow_t &) noexcept { DELETE(p, a); } \
  WEAK void DELETE(void *p, size_t) noexcept { DELETE(p); }                    \
  WEAK void DELETE(void *p, size_t, align_val_t a) noexcept { DELETE(p, a); }

OPERATORS(operator new, operator delete)
OPERATORS(operator new[], operator delete[])
