/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_PLAN_H
#define PARBAKE_BENCHES_PLAN_H

#include "benches/compare.h"

/*
 * How long two builds are measured in turn: as many rounds as it takes to see a change of the median of the size that
 * was asked for, and no longer than a time limit. What ends it is how much the rounds vary, never what they say about
 * the builds: a comparison that goes on until it likes what it sees raises false alarms (METHOD.md).
 */
#define PLAN_CREATES 25 /* of each mode, in a run */
#define PLAN_ROUNDS_LEAST 24 /* 600 creates a side: what p99 needs */
#define PLAN_ROUNDS_MOST 120
#define PLAN_TIME_MS 170000 /* of measuring, so that all of it takes three minutes */
#define PLAN_DETECT 0.05

/* What `bench ab` judges, unless asked otherwise. */
extern const struct compare_limit plan_limits[6];
#define PLAN_LIMITS 6

/* Do the rounds so far show a change of @detect of the median, of one of @n_series series? */
bool plan_enough(const struct compare_samples *old, const struct compare_samples *new,
	size_t n_series, double detect);
/*
 * Is round number @round (from 0) begun by the new build? A B B A: what favours the first or second of a round, and
 * what drifts, favours neither build.
 */
bool plan_new_first(size_t round);

#endif
