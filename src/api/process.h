/* process: what happens once: start, fork, exit. */
#ifndef MASU_API_PROCESS_H
#define MASU_API_PROCESS_H

#include "base/attr.h"

/* Reads the settings, unless the first heap did, and registers for fork and exit. Called
 * by the constructor with what it was given (NULL: unknown); allocation works before. */
internal void process_start(char **arguments, char **environment);
/* The program ends, by exit or _exit: the summary, if it is wanted. A forked child is
 * not the program that was started, and writes none. */
internal void process_end(void);

#endif
