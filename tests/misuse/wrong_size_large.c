/* free_sized of a large block with a small size. */
#include "misuse.h"

int main(void) { masu_free_sized(announce(malloc(300000)), 100); }
