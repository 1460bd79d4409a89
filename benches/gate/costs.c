/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate on what creates cost. How runs and creates vary was measured on a host whose other work took five sixths of
 * two cores (38 rounds of `base`, cold): there the medians of times lay 27 % apart from run to run.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "benches/gate/gate.h"
#include "benches/gate/model.h"
#include "benches/plan.h"

enum { CPU, FAULTS, CALLS, N };

static const struct {
	double median, run_sd, sample_sd; /* of logarithms */
} costs[N] = {
	[CPU] = {18.5e6, 0.066, 0.13},
	[FAULTS] = {1591, 0.0055, 0.013},
	[CALLS] = {932, 0.0065, 0.019},
};

static void add_run(
	struct stats_random *r, int cost, double more, long round, struct compare_samples *to)
{
	double level = log(costs[cost].median * (1 + more)) + costs[cost].run_sd * model_normal(r);
	int64_t values[PLAN_CREATES];

	for (int i = 0; i < PLAN_CREATES; i++)
		values[i] = (int64_t)exp(level + costs[cost].sample_sd * model_normal(r));
	compare_samples_add(to, values, PLAN_CREATES, 0, round);
}

/* How many of gate_times comparisons of three costs, @which of them @more, call one of them slower. */
static unsigned called_slower(int which, double more, uint64_t seed)
{
	static const struct compare_limit limit = {.percentile = 50};
	unsigned hits = 0;

	for (unsigned i = 0; i < gate_times; i++) {
		struct stats_random r = {.state = seed * 100000 + i};
		bool slower = false;

		stats_random_next(&r);
		for (int cost = 0; cost < N; cost++) {
			cleanup_samples struct compare_samples old = {0}, new = {0};
			struct compare_result res;

			for (long round = 0; round < PLAN_ROUNDS_LEAST; round++) {
				add_run(&r, cost, 0, round, &old);
				add_run(&r, cost, cost == which ? more : 0, round, &new);
			}
			compare_quantity(
				&old, &new, &limit, COMPARE_ALPHA_COSTS / N, PLAN_DETECT, &res);
			slower |= res.verdict == COMPARE_SLOWER;
		}
		hits += slower;
	}
	return hits;
}

void gate_simulate_costs(void)
{
	printf("\ncosts in turn, %d rounds of %d, beside other work\n", PLAN_ROUNDS_LEAST,
		PLAN_CREATES);
	gate_say("one build with itself: any cost called slower", called_slower(CPU, 0, 90),
		gate_times, false, 1);
	gate_say("5 % more processor time: found", called_slower(CPU, 0.05, 91), gate_times, true,
		-1);
	gate_say("10 % more processor time: found", called_slower(CPU, 0.10, 92), gate_times, true,
		60);
	gate_say("2 % more page faults: found", called_slower(FAULTS, 0.02, 93), gate_times, true,
		99);
	gate_say("2 % more system calls: found", called_slower(CALLS, 0.02, 94), gate_times, true,
		99);
}
