#include "unit.h"

#include "base/list.h"

typedef struct item {
  int value;
  list_node node;
} item;

static item *item_of(list_node *n) { return CONTAINER_OF(n, item, node); }

/* Both directions, so that no half of a link is forgotten. */
static void assert_holds(list_node *head, int count, const int *values) {
  list_node *n = head;
  for (int i = 0; i < count; i++) {
    n = n->next;
    assert_ptr_not_equal(n, head);
    assert_int_equal(item_of(n)->value, values[i]);
    assert_ptr_equal(n->prev->next, n);
    assert_ptr_equal(n->next->prev, n);
  }
  assert_ptr_equal(n->next, head);
  assert_ptr_equal(head->prev, n);
  assert_int_equal(list_empty(head), count == 0);
}

static void pushing_and_inserting(void **state) {
  list_node head;
  item a = {1, {0}}, b = {2, {0}}, c = {3, {0}}, d = {4, {0}};
  (void)state;
  list_init(&head);
  assert_holds(&head, 0, NULL);
  list_push_back(&head, &b.node);
  list_push_front(&head, &a.node);
  list_push_back(&head, &d.node);
  list_insert_after(&b.node, &c.node);
  assert_holds(&head, 4, (int[]){1, 2, 3, 4});
}

static void a_removed_node_points_at_itself(void **state) {
  list_node head;
  item a = {1, {0}}, b = {2, {0}}, c = {3, {0}};
  (void)state;
  list_init(&head);
  list_push_back(&head, &a.node);
  list_push_back(&head, &b.node);
  list_push_back(&head, &c.node);
  list_remove(&b.node);
  assert_holds(&head, 2, (int[]){1, 3});
  assert_true(list_empty(&b.node));
  assert_ptr_equal(b.node.prev, &b.node);
  list_remove(&b.node); /* harmless */
  assert_holds(&head, 2, (int[]){1, 3});
  list_remove(&a.node);
  list_remove(&c.node);
  assert_holds(&head, 0, NULL);
}

static void array_insert(int *values, int *count, int at, int value) {
  memmove(values + at + 1, values + at, (size_t)(*count - at) * sizeof *values);
  values[at] = value;
  ++*count;
}

static void as_an_array_does(void **state) {
  enum { ITEMS = 12 };
  item items[ITEMS];
  int values[ITEMS], count = 0;
  uint64_t seed = 7;
  list_node head;
  (void)state;
  list_init(&head);
  for (int i = 0; i < ITEMS; i++) {
    items[i].value = i;
    list_init(&items[i].node);
  }
  for (int step = 0; step < 5000; step++) {
    int i = (int)(random_next(&seed) % ITEMS), at = 0;
    while (at < count && values[at] != i)
      at++;
    if (at < count) {
      list_remove(&items[i].node);
      memmove(values + at, values + at + 1, (size_t)(--count - at) * sizeof *values);
    } else if (random_next(&seed) % 3 == 0) {
      list_push_front(&head, &items[i].node);
      array_insert(values, &count, 0, i);
    } else if (count && random_next(&seed) % 2) {
      int after = (int)(random_next(&seed) % (unsigned)count);
      list_insert_after(&items[values[after]].node, &items[i].node);
      array_insert(values, &count, after + 1, i);
    } else {
      list_push_back(&head, &items[i].node);
      array_insert(values, &count, count, i);
    }
    assert_holds(&head, count, values);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pushing_and_inserting),
      cmocka_unit_test(a_removed_node_points_at_itself),
      cmocka_unit_test(as_an_array_does),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
