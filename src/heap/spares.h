/* spares: the empty slabs that a heap keeps.
 *
 * One of each class, and more where slabs that were let go are wanted again soon: what was
 * let go and made again within a purge delay is regretted, and so many slices more are
 * spared from then on. That halves with every upkeep, and spares of classes that don't
 * come any more make room for those that do.
 *
 *     every block of a spare is on its local list; it is OPEN and on no other list
 *     spared == slices of all of them, but for what another thread is just taking
 *
 * Those that go are taken off and put on a list of all heaps in one step that fork does not
 * divide, and from there given back one at a time, by any thread. Those of a limb are not: its
 * named heap may be destroyed at any time, and that finds what fork cut off.
 *
 * Threads: the heap's, but for spares_give_back, unless of a limb: any. Only the owner puts slabs in, so
 * whoever exchanges a stack for NULL has all that were there.
 */
#ifndef MASU_HEAP_SPARES_H
#define MASU_HEAP_SPARES_H

#include "heap/heap.h"

/* Keeps s, which is on no list. If that is too much, one that was kept before goes. */
internal void spare_keep(heap *h, slab *s);
/* The same for a slab whose memory another class is about to need: kept only as far as such slabs
 * were regretted. */
internal void spare_keep_wanted(heap *h, slab *s);
/* NULL: there is none; then the caller makes one, for which there is room by now. */
internal slab *spare_take(heap *h, unsigned size_class);
/* So many slices are about to be taken from the supply: as much goes back, if the heap
 * spares it for classes that come and go; more and more, if those don't come any more. */
internal void spares_make_room(heap *h, size_t slices);
/* Once in a purge delay: lets go of what was not wanted of late. */
internal void spares_upkeep(heap *h);
/* All of them go. Returns the bytes. */
internal size_t spares_give_back(heap *h);

#endif
