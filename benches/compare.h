/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_COMPARE_H
#define PARBAKE_BENCHES_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "benches/text.h"
#include "common/err.h"
#include "common/json.h"

/*
 * Has a latency become worse? Latencies are skewed, have several humps, and come in good and bad
 * minutes, so neither means nor standard deviations are looked at, and no distribution is
 * assumed; benches/METHOD.md has the reasons.
 *
 * A percentile is compared as the ratio new/old with a 95 % interval:
 *
 * - where at least COMPARE_TAIL samples lie on either side of it, by a circular block bootstrap
 *   (Politis and Romano, 1992) with percentile intervals: blocks keep what neighbours in time
 *   have in common, and where there are COMPARE_RUNS runs or more, whole runs are drawn first, so
 *   that the difference between runs counts as noise;
 * - further out, from order statistics: the old one's upper bound against the new one's lower,
 *   and the other way round, each wrong with a probability of at most 5 %. For p99 that takes 299
 *   samples on each side; with fewer it is not decided.
 *
 * It has regressed where the whole interval lies above the limit.
 */
#define COMPARE_TAIL 10
#define COMPARE_RUNS 4
#define COMPARE_LIMITS_MAX 8
#define COMPARE_RESAMPLES 2000

struct compare_limit {
	double percentile; /* 50: p50 */
	double max_regress; /* 0.05: 5 % */
};

/* "p50=5%,p99=10%". -EINVAL says what is wrong. */
int compare_limits_parse(const char *text, struct compare_limit ret[static COMPARE_LIMITS_MAX],
	size_t *ret_n, struct err *err);

/* Samples of one measurement, run after run, each in the order of time. */
struct compare_samples {
	int64_t *values;
	size_t n, room;
	size_t *runs; /* where each run begins in values */
	size_t n_runs;
	size_t failed;
};

void compare_samples_clear(struct compare_samples *s);
#define cleanup_samples __attribute__((__cleanup__(compare_samples_clear)))
void compare_samples_add(struct compare_samples *s, const int64_t *values, size_t n, size_t failed);

enum compare_verdict { COMPARE_OK, COMPARE_REGRESSED, COMPARE_UNDECIDED };
enum compare_method { COMPARE_BOOTSTRAP, COMPARE_ORDER };

struct compare_result {
	int64_t old_ns, new_ns;
	/* new/old - 1; of an undecided one low is -1 or high INFINITY where that side is open */
	double change, low, high;
	enum compare_verdict verdict;
	enum compare_method method;
	size_t needs; /* UNDECIDED: samples on each side that would decide */
};

/* Compare the percentile of @limit. Both have samples. The same input gives the same answer. */
void compare_percentile(const struct compare_samples *old, const struct compare_samples *new,
	const struct compare_limit *limit, struct compare_result *ret);

/*
 * All series that documents @old and @new have in common (by run id and series name; runs of the
 * same id are put together), against @limits. *@ret:
 * {"verdict":"ok"|"regressed","rows":[{"id","name","percentile","n_old","n_new",
 * "old_ns","new_ns","change","low","high","limit","verdict","method"}…],"notes":[…]}; new
 * failures are a regression too. @only (may be NULL): series whose "ID NAME" contains it. -ENOENT
 * where nothing is in common.
 */
int compare_documents(const json_t *old, const json_t *new, const char *only,
	const struct compare_limit *limits, size_t n_limits, json_t **ret, struct err *err);
bool compare_regressed(const json_t *result);
/* As a table for a terminal. */
void compare_print(struct text *out, const json_t *result);

#endif
