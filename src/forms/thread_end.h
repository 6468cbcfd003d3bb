/* thread_end: what the forms keep for a thread, and its end. */
#ifndef MASU_FORMS_THREAD_END_H
#define MASU_FORMS_THREAD_END_H

#include "base/attr.h"

/* From now on the end of the calling thread closes its scopes and empties its lists of
 * sized blocks and its hands of shared pools. False: it is past its last destructor. */
internal bool forms_watch_thread(void);

internal void scope_thread_ends(void);

#endif
