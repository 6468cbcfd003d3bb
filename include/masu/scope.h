/* Autorelease scopes: values that die when the function, frame or request that made them
 * ends, without a free for each.
 *
 *     masu_scope scope;
 *     masu_scope_open(&scope, NULL);
 *     char *line = masu_scope_alloc(n);          freed at close
 *     FILE *file = fopen(...);
 *     masu_scope_add(file, close_file);          close_file(file) at close
 *     masu_scope_hand_out(line);                 now it dies with the outer scope
 *     masu_scope_close(&scope);
 *
 * Scopes nest and belong to the thread that opened them. At close the values go in the
 * reverse order of their coming. A scope that is closed while inner ones are open closes
 * those first; a thread that ends closes all. What is done outside of every scope belongs to an
 * outermost one that the thread's end closes. A process that ends, by exit or because main
 * returns, ends no thread: what is open in the initial thread then is not released.
 *
 * longjmp over scopes is harmless, at a price: what is in scopes that were left without
 * close, temporary memory too, lives until the scope around them closes; with none around,
 * until the thread ends. Till then the innermost of them is the innermost scope.
 *
 * Opening and closing an empty scope costs about as much as one or two pairs of malloc and
 * free, however many are open around it. Where one of those doesn't lie on the stack, or was left
 * without close, opening may look at all that came after it.
 *
 * Threads: everything here acts on the calling thread's scopes. Not for signal handlers.
 * Errors: NULL with ENOMEM, nothing changed.
 */
#ifndef MASU_SCOPE_H
#define MASU_SCOPE_H

#include "arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On the caller's stack, one for each scope: its address names it. */
typedef struct masu_scope {
  char unused;
} masu_scope;

/* heap: what masu_scope_alloc and masu_scope_temp take memory from while this is the innermost scope;
 * NULL: the general memory. It may be destroyed when what scopes took from it was released. Returns 0, or ENOMEM: then
 * the scope is not open, and closing it does nothing. What a scope that was left without close
 * had becomes that of the scope around it when another is opened at its address. */
MASU_API int masu_scope_open(masu_scope *scope, masu_heap *heap);
MASU_API void masu_scope_close(masu_scope *scope);

/* A block that the innermost scope frees. Like malloc's in all else: realloc through
 * masu_scope_realloc only, which keeps track of it. */
MASU_API void *masu_scope_alloc(size_t size);
MASU_API void *masu_scope_realloc(void *p, size_t size);
/* Memory that goes back at close at no cost of its own, after all values of the scope, and can't be
 * handed on or kept. Aligned to 16. In a scope that has a heap the first such call makes an arena in
 * that heap, of 4 KiB or as large as it has to be, which close destroys; else all come from one arena of the thread's. */
MASU_API void *masu_scope_temp(size_t size);
/* The innermost scope calls release(p) when it closes; release NULL: free(p). Returns p,
 * so of a p that is NULL can't be told whether it failed.
 * release may use scopes; what it adds, dies in the same close. */
MASU_API void *masu_scope_add(void *p, void (*release)(void *p));

/* Take a value out of the innermost scope that has it: hand_out gives it to the scope
 * around that one, keep to the caller, who frees it. Returns p; NULL: no scope has it.
 * Cost: grows with the number of values that came after it. */
MASU_API void *masu_scope_hand_out(void *p);
MASU_API void *masu_scope_keep(void *p);

/* Values in the calling thread's open scopes. Temporary memory in a heap is one of its scope. */
MASU_API size_t masu_scope_count(void);

#ifdef __cplusplus
}
#endif
#endif
