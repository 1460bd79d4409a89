/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_COMPARE_PRIVATE_H
#define PARBAKE_BENCHES_COMPARE_PRIVATE_H

#include "benches/compare.h"

/* What compare*.c share. */

/* Does every run of both belong to a round? */
bool compare_are_paired(const struct compare_samples *old, const struct compare_samples *new);
/* @ret has change and high: p and the verdict are set. @above, @below as in struct permute_shift. */
void compare_decide(struct compare_result *ret, const struct compare_limit *limit, double above,
	double below, double alpha, double detect);
/* compare_quantity() of a percentile that most runs have no sample beyond; @ret has its ends open. */
void compare_tail(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, double alpha, double detect, struct compare_result *ret);
/* compare_quantity() of failures. */
void compare_failures(const struct compare_samples *old, const struct compare_samples *new,
	double alpha, struct compare_result *ret);

#endif
