/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_STATS_H
#define PARBAKE_BENCHES_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Numbers about latencies. All values are kept: none is dropped, averaged away or interpolated. */

/*
 * The @p-th percentile (0 < p ≤ 100) of @n values by nearest rank: a value that was really
 * measured; of fewer than 100 values the 99th is the maximum. @values is reordered. 0 where @n is
 * 0.
 */
int64_t stats_percentile(int64_t *values, size_t n, double p);
/* The same of values that are sorted already. */
int64_t stats_percentile_sorted(const int64_t *sorted, size_t n, double p);
void stats_sort(int64_t *values, size_t n);

/* A generator with a seed, for resampling that gives the same answer each time (splitmix64). */
struct stats_random {
	uint64_t state;
};
uint64_t stats_random_next(struct stats_random *r);
/* Within [0, n), n > 0. */
uint64_t stats_random_below(struct stats_random *r, uint64_t n);
/* Within (0, 1). */
double stats_random_unit(struct stats_random *r);

#endif
