/* free_sized with a smaller size than was asked for. */
#include "misuse.h"

int main(void) { masu_free_sized(announce(malloc(1000)), 100); }
