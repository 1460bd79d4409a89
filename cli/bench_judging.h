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
};

/* Their options, for a verb's table: a struct bench_judging. */
extern const struct option_entry bench_judging_options[];
#define BENCH_JUDGING(type, field)                                                                 \
	{                                                                                          \
		.kind = OPTION_TABLE, .table = bench_judging_options,                              \
		.offset = offsetof(type, field)                                                    \
	}
/* Print @result, as JSON if @json; the exit status it means (enum compare_outcome). */
int bench_say_verdict(const json_t *result, const struct bench_judging *j, bool json);
/* Print an error that keeps two builds from being compared; the exit status for it. */
int bench_fail_incomparable(const struct err *err);

#endif
