/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_JUDGING_H
#define PARBAKE_CLI_BENCH_JUDGING_H

#include "benches/compare_documents.h"
#include "cli/bench.h"

/* What the gates (compare, ab, history gate) share: how they judge, and how they end. */
struct bench_judging {
	struct compare_request
		request; /* limits, n_limits, detect: the verb's own until options change them */
	struct compare_limit asked[COMPARE_LIMITS_MAX + 1];
	bool strict; /* undecided is a failure */
	bool json;
};

#define BENCH_JUDGING_OPTIONS                                                                      \
	{"max-regress", required_argument, NULL, 'm'}, {"only", required_argument, NULL, 'o'},     \
		{"strict", no_argument, NULL, 's'}, {"any-load", no_argument, NULL, 'y'},          \
		{"across", required_argument, NULL, 'x'}, {"judge", required_argument, NULL, 'J'}, \
		{"max-cost", required_argument, NULL, 'X'},                                        \
	{                                                                                          \
		"detect", required_argument, NULL, 'd'                                             \
	}

/* Take one of them. False: @opt is another. *@ret is 0 or -errno. */
bool bench_take_judging(int opt, struct bench_judging *j, int *ret, struct err *err);
/* Print @result; the exit status it means (enum compare_outcome). */
int bench_say_verdict(const json_t *result, const struct bench_judging *j);
/* Print an error that keeps two builds from being compared; the exit status for it. */
int bench_fail_incomparable(const struct err *err);

#endif
