/* Autorelease scopes in C++ (scope.h): a guard.
 *
 *     masu::scope scope;
 *     auto *line = static_cast<char *>(masu_scope_alloc(n));
 *     auto *text = scope.make<std::string>("destroyed at the end of the block");
 */
#ifndef MASU_SCOPE_HPP
#define MASU_SCOPE_HPP

#include <new>
#include <utility>

#include "scope.h"

namespace masu {

/* Opens a scope of the calling thread and closes it, also when an exception passes. heap: see
 * masu_scope_open. */
class scope {
public:
  explicit scope(masu_heap *heap = nullptr) : heap_(heap) {
    if (masu_scope_open(&scope_, heap))
      throw std::bad_alloc();
  }
  ~scope() { masu_scope_close(&scope_); }
  scope(const scope &) = delete;
  scope &operator=(const scope &) = delete;

  /* An object in the scope's heap that lives until the innermost scope closes. */
  template <class T, class... Arguments> T *make(Arguments &&...arguments) {
    void *p = masu_heap_aligned_alloc(heap_, alignof(T), sizeof(T));
    if (!p)
      throw std::bad_alloc();
    T *object;
    try {
      object = ::new (p) T(std::forward<Arguments>(arguments)...);
    } catch (...) {
      masu_free(p);
      throw;
    }
    if (!masu_scope_add(object, end<T>)) {
      end<T>(object);
      throw std::bad_alloc();
    }
    return object;
  }

private:
  template <class T> static void end(void *p) {
    static_cast<T *>(p)->~T();
    masu_free(p);
  }

  masu_scope scope_;
  masu_heap *heap_;
};

} // namespace masu

#endif
