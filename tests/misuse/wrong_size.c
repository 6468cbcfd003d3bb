/* free_sized with a size of another class. */
#include "misuse.h"

int main(void) { masu_free_sized(announce(malloc(100)), 200); }
