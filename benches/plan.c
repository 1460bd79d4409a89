/* SPDX-License-Identifier: Apache-2.0 */
/* How many rounds two builds are measured for. */
#include "benches/plan.h"

const struct compare_limit plan_limits[6] = {
	{.percentile = 50},
	{.percentile = 90},
	{.percentile = 99},
	{.percentile = 99.9},
	{.percentile = COMPARE_MEAN},
	{.percentile = COMPARE_FAILURES},
};

bool plan_enough(const struct compare_samples *old, const struct compare_samples *new,
	size_t n_series, double detect)
{
	double alpha[PLAN_LIMITS];
	struct compare_result res;

	if (old->n_runs < PLAN_ROUNDS_LEAST || new->n_runs < PLAN_ROUNDS_LEAST)
		return false;
	/* a build that makes nothing is not waited for */
	if (!old->n || !new->n)
		return true;
	compare_share_alpha(plan_limits, PLAN_LIMITS, n_series, alpha);
	compare_quantity(old, new, &plan_limits[0], alpha[0], detect, &res);
	return res.could_see <= detect;
}

bool plan_new_first(size_t round)
{
	return round % 2 == 1;
}
