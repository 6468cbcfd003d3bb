/* Equal blocks: the nodes of a tree. */
#include <masu/pool.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct node {
  struct node *left, *right;
  int key;
} node;

static node *insert(masu_pool *nodes, node *tree, int key) {
  if (!tree) {
    tree = masu_pool_alloc(nodes);
    if (!tree)
      exit(1);
    *tree = (node){.key = key};
  } else if (key < tree->key) {
    tree->left = insert(nodes, tree->left, key);
  } else {
    tree->right = insert(nodes, tree->right, key);
  }
  return tree;
}

static void add_key(void *p, void *sum) { *(long *)sum += ((node *)p)->key; }

int main(void) {
  masu_pool *nodes = masu_pool_create(sizeof(node), _Alignof(node), 0);
  if (!nodes || masu_pool_reserve(nodes, 10000)) /* from here on the kernel isn't asked */
    return 1;

  node *tree = NULL;
  unsigned random = 1;
  for (int i = 0; i < 10000; i++) {
    random = random * 1664525 + 1013904223;
    tree = insert(nodes, tree, (int)(random >> 8));
  }

  long sum = 0;
  masu_pool_for_each(nodes, add_key, &sum);
  printf("%zu nodes, sum of keys %ld\n", masu_pool_live(nodes), sum);

  masu_pool_reset(nodes); /* the whole tree, without walking it */
  printf("%zu nodes\n", masu_pool_live(nodes));
  masu_pool_destroy(nodes);
  return 0;
}
