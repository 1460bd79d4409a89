/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_COMPARE_H
#define PARBAKE_BENCHES_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/*
 * Has a latency become worse? benches/METHOD.md has the reasons for what is done here.
 *
 * A *sample* is one create. A *run* is the samples of one process: they share a pager, memory layout and minute, and
 * differ less among themselves than two runs of one build do. A *round* is one run of the old build and one of the
 * new, one after the other. What is exchanged in every test is a run, never a sample.
 *
 * - A percentile that each run has samples beyond (p50, p90), and the mean, is taken of each run; the logarithms of
 *   new and old are compared by the signed-rank test where runs are paired by rounds, else by the rank-sum test.
 * - Further out (p99, p99.9) it is counted how many samples of each run lie beyond the percentile of both builds
 *   together, and the counts are exchanged. In rounds, samples are taken relative to their round's median first, so
 *   that a slow minute is not a tail. Bounds come from the same test, with the new samples divided by a ratio.
 * - Failures are counted by run, and exchanged likewise.
 */
#define COMPARE_RUNS 4 /* runs of each build without which nothing is decided */
#define COMPARE_BEYOND                                                                             \
	2 /* samples beyond a percentile, in each run, for it to be taken of each run */
#define COMPARE_LIMITS_MAX 8
#define COMPARE_ALPHA 0.005 /* probability of one false alarm in a whole comparison */
#define COMPARE_ALPHA_COSTS 0.002 /* likewise of all costs together */
#define COMPARE_POWER_TAIL 0.1 /* a change of the size that "could be seen" is missed so often */

#define COMPARE_MEAN 0.0 /* as a percentile */
#define COMPARE_FAILURES (-1.0)

struct compare_limit {
	double percentile; /* 50: p50; or COMPARE_MEAN, COMPARE_FAILURES */
	double max_regress; /* 0.05: 5 % slower is accepted */
};

/* "p50=5%,p99=10%,mean=5%"; each only once. -EINVAL says what is wrong. */
int compare_limits_parse(const char *text, struct compare_limit ret[static COMPARE_LIMITS_MAX],
	size_t *ret_n, struct err *err);
/* "p50", "mean", "failures". */
const char *compare_quantity_name(double percentile, char ret[static 16]);

struct compare_run {
	size_t begin, n; /* in the values */
	size_t failed;
	long round; /* -1: belongs to none */
};

/* Samples of one measurement, run after run. */
struct compare_samples {
	int64_t *values;
	size_t n;
	struct compare_run *runs;
	size_t n_runs;
	size_t failed;
};

void compare_samples_clear(struct compare_samples *s);
#define cleanup_samples __attribute__((__cleanup__(compare_samples_clear)))
/* One more run, of @n (may be 0) values ≥ 0; @round ≥ 0, or -1. */
void compare_samples_add(
	struct compare_samples *s, const int64_t *values, size_t n, size_t failed, long round);

enum compare_verdict {
	COMPARE_SAME,
	COMPARE_FASTER,
	COMPARE_SLOWER,
	COMPARE_UNDECIDED, /* too few runs, or too much noise for the size that was asked for */
	COMPARE_UNTESTED, /* too few samples for so far a percentile */
	COMPARE_VERDICTS
};
extern const char *const compare_verdict_names[COMPARE_VERDICTS];

enum compare_method {
	COMPARE_PAIRED, /* of each run, by rounds */
	COMPARE_GROUPS, /* of each run */
	COMPARE_PAIRED_COUNTS, /* how many lie beyond, by rounds */
	COMPARE_GROUP_COUNTS,
	COMPARE_BY_SAMPLE, /* failures, of fewer runs than COMPARE_RUNS */
	COMPARE_METHODS
};
extern const char *const compare_method_names[COMPARE_METHODS];

struct compare_result {
	int64_t old_ns, new_ns; /* of all samples; failures: how many */
	/* new/old − 1, with a 95 % interval; low is -1, or high INFINITY, where that side is open */
	double change, low, high;
	double p; /* of what was seen, or more, were the new build not slower than the limit */
	double could_see; /* the least change that is found nine times in ten; INFINITY: none */
	enum compare_verdict verdict;
	enum compare_method method;
	size_t needs; /* UNTESTED: samples, UNDECIDED: runs, of each build that would decide; 0: not known */
};

/*
 * The part of COMPARE_ALPHA that belongs to each of @n quantities, the nearest to the middle having most, of one of
 * @n_series series.
 */
void compare_share_alpha(
	const struct compare_limit *limits, size_t n, size_t n_series, double *ret_alpha);

/*
 * Compare one quantity. @detect: the change of the median that has to be found, 0.05: 5 % (twice as much for p90, four
 * and eight times for p99 and p99.9). Both have samples, or (failures) runs. The same input gives the same answer.
 */
void compare_quantity(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, double alpha, double detect, struct compare_result *ret);

/* Two samples' rounds that have both runs: by number, at most @max; how many there are. */
struct compare_round {
	size_t old, new; /* their runs' numbers */
};
size_t compare_rounds(const struct compare_samples *old, const struct compare_samples *new,
	struct compare_round *ret, size_t max);

#endif
