/* list: intrusive doubly linked lists. The head is a node of its own, so neither
 * insertion nor removal has a special case. A node that is on no list points at
 * itself. Guarded by whoever owns the list. */
#ifndef MASU_BASE_LIST_H
#define MASU_BASE_LIST_H

#include "base/attr.h"

typedef struct list_node {
  struct list_node *next, *prev;
} list_node;

static inline void list_init(list_node *n) { n->next = n->prev = n; }
static inline bool list_empty(const list_node *head) { return head->next == head; }

static inline void list_insert_after(list_node *where, list_node *n) {
  n->next = where->next;
  n->prev = where;
  where->next->prev = n;
  where->next = n;
}
static inline void list_push_front(list_node *head, list_node *n) {
  list_insert_after(head, n);
}
static inline void list_push_back(list_node *head, list_node *n) {
  list_insert_after(head->prev, n);
}
static inline void list_remove(list_node *n) {
  n->prev->next = n->next;
  n->next->prev = n->prev;
  list_init(n);
}
/* All nodes of `from` to the back of `to`. */
static inline void list_move_all(list_node *from, list_node *to) {
  if (list_empty(from))
    return;
  from->next->prev = to->prev;
  to->prev->next = from->next;
  from->prev->next = to;
  to->prev = from->prev;
  list_init(from);
}

#endif
