/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_SHARE_H
#define PARBAKE_COMMON_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Shares of a bounded number of things (connections, look-ups, slots), among holders who are not to
 * crowd each other out. A holder that has @own of the @all that are taken may take one more as long
 * as it has fewer than are free. So a single holder gets half, n holders get 1/(n + 1) each,
 * something is always left for the next one, and nobody has to know beforehand how many holders
 * there will be. Each may have up to @least in any case, while there are any.
 */
static inline bool share_may_take(size_t own, size_t all, size_t max, size_t least)
{
	return all < max && (own < least || own < max - all);
}

#endif
