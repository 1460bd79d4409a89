/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_SHARE_H
#define PARBAKE_COMMON_SHARE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Shares of what there is a bounded number of (connections, look-ups, slots), among those who are not to
 * crowd each other out. Who has @own of the @all that are taken may take one more as long as it has fewer
 * than are free. So one alone gets half, n of them get 1/(n + 1) each, something is always left
 * for who comes next, and nobody has to say beforehand how many there will be. Up to @least each may have in any
 * case, while there is one.
 */
static inline bool share_may_take(size_t own, size_t all, size_t max, size_t least)
{
	return all < max && (own < least || own < max - all);
}

#endif
