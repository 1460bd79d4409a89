/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_PERMUTE_H
#define PARBAKE_BENCHES_PERMUTE_H

#include <stddef.h>

/*
 * Exact tests over runs. A run is exchanged as a whole: what its samples have in common cannot pass for a
 * difference between builds. Nothing is assumed about the distribution of latencies; no random number is drawn, so
 * the same samples always give the same answer.
 */

/* P(the sum of the @weights whose fair coin shows heads ≥ @observed), exact. 1 where @n is 0. */
double permute_signs(const unsigned *weights, size_t n, unsigned long observed);
/* P(the sum of @k of the @n weights, drawn without replacement, ≥ @observed), exact. 1 where @k is 0. */
double permute_groups(const unsigned *weights, size_t n, size_t k, unsigned long observed);

/*
 * By how much the new values lie above the old ones. @low and @high bound it, each wrong with a probability of at most
 * 2.5 % (INFINITY and -INFINITY where there are too few values to say). @above is the probability of what was seen,
 * or more, were the new ones at most @margin above; @below likewise, were they at least as great as the old ones.
 */
struct permute_shift {
	double estimate, low, high;
	double above, below;
};

/*
 * From differences new − old of @n pairs: Wilcoxon's signed-rank test, the Hodges–Lehmann estimate and its bounds
 * (Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3.1 to 3.3).
 */
void permute_pairs(const double *differences, size_t n, double margin, struct permute_shift *ret);
/* From two groups that are not paired: the rank-sum test and the like (same book, 4.1 to 4.3). */
void permute_two(const double *old, size_t n_old, const double *new, size_t n_new, double margin,
	struct permute_shift *ret);

/*
 * The value z that a standard normal variable exceeds with the probability @tail (0 < @tail < 1): how many standard
 * errors a test with that tail asks for.
 */
double permute_normal_tail(double tail);

#endif
