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

/* Opens a scope of the calling thread and closes it, also when an exception passes. */
class scope {
public:
  explicit scope(masu_heap *heap = nullptr) {
    if (masu_scope_open(&scope_, heap))
      throw std::bad_alloc();
  }
  ~scope() { masu_scope_close(&scope_); }
  scope(const scope &) = delete;
  scope &operator=(const scope &) = delete;

  /* An object that lives until the innermost scope closes. */
  template <class T, class... Arguments> T *make(Arguments &&...arguments) {
    T *object = new T(std::forward<Arguments>(arguments)...);
    if (!masu_scope_add(object, [](void *p) { delete static_cast<T *>(p); })) {
      delete object;
      throw std::bad_alloc();
    }
    return object;
  }

private:
  masu_scope scope_;
};

} // namespace masu

#endif
