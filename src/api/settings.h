/* settings: the options and size classes that the environment asks for.
 *
 * MASU_OPTIONS_FILE names a file of lines: options as in MASU_OPTIONS, and
 * `classes: 8 16 48 ...`; # begins a comment. MASU_OPTIONS is read after it and wins.
 * What is not understood is said in one line on stderr, the rest is used.
 *
 * They are read once, by whoever comes first: the library's constructor, or the first
 * thread that needs a heap, since an executable's own libraries allocate before its
 * constructors run. So size classes are settled before any block of a class exists. If
 * memory is needed before even the environment is there (of a library that the loader
 * initialises before all others), the default classes stay, and a line says so.
 *
 * Threads: any; the others wait for the one that reads. Reading allocates nothing.
 */
#ifndef MASU_API_SETTINGS_H
#define MASU_API_SETTINGS_H

#include "base/attr.h"

/* False in a signal handler that interrupts the reading: the size classes may be half
 * written. */
internal bool settings_read(void);

#endif
