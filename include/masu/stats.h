/* Statistics: what the program's memory is used for, and how exact each figure is.
 *
 *     masu_stats s;
 *     if (!masu_stats_read(&s, sizeof s))
 *       printf("%zu bytes in blocks\n", (size_t)s.live);
 *     masu_stats_print(stdout, MASU_STATS_JSON);
 *
 * Reading walks the table of slabs and stops nobody: while other threads allocate, its
 * figures are of slightly different moments, and a block that moves meanwhile may be counted
 * either way. While they rest, every sum is exact but for what threads hold ready: a thread
 * takes a slab's free blocks several at a time, and those it has not given out yet count as
 * live. `ready_most` bounds them; what the calling thread holds ready is not among them.
 *
 * All functions return 0 or an errno value: EINVAL (a size that does not fit, see below), ENOMEM, or
 * EAGAIN from a signal handler that interrupted the allocator. Any thread. Named heaps, pools, fixed
 * pools, arenas, ladders and scopes have a line each in masu_stats_print; masu_heap_read (heap.h) reads one
 * named heap. docs/statistics.md explains the figures.
 *
 * Who asks gives the size of the struct that it was compiled with. Fields are only ever added at the end: an older program
 * gets those that it knows, a newer one 0 in those that this library doesn't. EINVAL: less than the first version had, or no
 * multiple of 8.
 */
#ifndef MASU_STATS_H
#define MASU_STATS_H

#include "../masu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the whole process. Bytes, where nothing else is said. */
typedef struct masu_stats {
  uint64_t resident;     /* of the whole process, as the kernel counts */
  uint64_t live;         /* in blocks in use, and in blocks that threads hold ready */
  uint64_t ready_most;   /* of `live`: at most so much is only held ready */
  uint64_t peak_live;    /* the most that `live` was when it was read */
  uint64_t peak;         /* the most that slabs and large blocks ever were: `live` never was more */
  uint64_t blocks;       /* number of blocks in `live` */
  uint64_t large_blocks; /* of them above the size classes: number */
  uint64_t large;        /* their bytes, in whole slices of 64 KiB */
  uint64_t slabs;        /* number */
  uint64_t slab_bytes;   /* in slabs: blocks in use, free blocks and what was never used */
  uint64_t slab_free;    /* free blocks in slabs that have some in use too: external fragmentation */
  uint64_t slab_spare;   /* free blocks in slabs that are empty, kept for reuse */
  uint64_t slab_unused;  /* in slabs, never used yet or given back page by page */
  uint64_t front;        /* large blocks that were freed and are kept for reuse */
  uint64_t idle;         /* free memory outside of slabs that may be resident */
  uint64_t kept;         /* the same of mappings of their own */
  uint64_t prepared;     /* what masu_prewarm asked for: so much stays resident when it is free */
  uint64_t dirty;        /* what was handed out and is kept but for slab_unused: resident, about */
  uint64_t returned;     /* given back to the system so far, summed up */
  uint64_t reserved;     /* address space */
  uint64_t committed;    /* of it accessible */
  uint64_t own;          /* the library's descriptors and tables */
  uint64_t heaps;        /* number of heaps: one for each thread, and for each named heap it uses */
  uint64_t named_heaps;  /* number */
} masu_stats;

MASU_API int masu_stats_read(masu_stats *stats, size_t size);

/* One size class. */
typedef struct masu_stats_class {
  uint64_t size;   /* of a block */
  uint64_t slabs;  /* number */
  uint64_t room;   /* blocks that fit into them */
  uint64_t blocks; /* in use, or held ready by threads */
  uint64_t live;   /* bytes of these */
  uint64_t free;   /* bytes of free blocks that were in use before */
} masu_stats_class;

/* What one thread allocates from, or one thread of a named heap. */
typedef struct masu_stats_heap {
  uint64_t heap;   /* number; that of the last row is 0 if it sums up all for which there was no room */
  uint64_t thread; /* which uses it: its system number; 0: none, 4294967295: unknown (option live) */
  uint64_t limb;   /* 1: part of a named heap */
  uint64_t slabs;  /* number */
  uint64_t blocks; /* in use, or held ready */
  uint64_t live;   /* bytes of these; large blocks only of named heaps */
  uint64_t free;   /* bytes of free blocks in its slabs */
  uint64_t front;  /* bytes of freed large blocks that it keeps */
} masu_stats_heap;

/* *count rows are there; it becomes the number of rows that there are to fill, of which the
 * first are filled. row_size: sizeof *rows. Only classes and heaps that have something. */
MASU_API int masu_stats_classes(masu_stats_class *rows, size_t *count, size_t row_size);
MASU_API int masu_stats_heaps(masu_stats_heap *rows, size_t *count, size_t row_size);

/* Where the resident memory is, in bytes. Asks the system about every page, so it takes the
 * longer the more memory there is. */
typedef struct masu_resident {
  uint64_t total;      /* the whole process */
  uint64_t live;       /* in blocks in use or held ready: in each slab as many bytes as they have */
  uint64_t slab_free;  /* the rest of slabs with blocks in use */
  uint64_t slab_spare; /* slabs that are empty */
  uint64_t idle;       /* other free memory, kept for reuse */
  uint64_t own;        /* the library's descriptors and tables */
  uint64_t other;      /* not malloc's: code, stacks, mappings of the program's own */
} masu_resident;
MASU_API int masu_stats_measure(masu_resident *resident, size_t size);

typedef enum masu_stats_format { MASU_STATS_TEXT, MASU_STATS_JSON, MASU_STATS_XML } masu_stats_format;

/* Writes everything there is, from one walk: the process, size classes, heaps, named heaps,
 * pools, fixed pools, arenas, ladders, scopes and sized blocks. malloc_stats writes the text, malloc_info the XML.
 * EINVAL as well for an unknown format. */
MASU_API int masu_stats_print(FILE *stream, masu_stats_format format);

#ifdef __cplusplus
}
#endif
#endif
