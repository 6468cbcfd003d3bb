/* pprof: a profile in the format of pprof, profile.proto, which is described with
 * https://github.com/google/pprof. Not compressed; addresses, with the files that they are in
 * and their build ids; no names of functions: the reader looks them up.
 *
 * Threads: those of who calls. Nothing is allocated but mappings for the buffers.
 */
#ifndef MASU_OBSERVE_PPROF_H
#define MASU_OBSERVE_PPROF_H

#include "observe/profile.h"

/* Bytes that grow. `failed`: there was no memory, what is there is of no use. */
typedef struct buffer {
  uint8_t *at;
  size_t size, room;
  bool failed;
} buffer;

internal void buffer_put(buffer *b, const void *data, size_t size);
internal void buffer_drop(buffer *b);

/* What is mapped where, for pprof_encode: the text of /proc/self/maps. */
internal void pprof_read_maps(buffer *maps);
/* False: out of memory. */
internal bool pprof_encode(const profile *p, const buffer *maps, buffer *out);

#endif
