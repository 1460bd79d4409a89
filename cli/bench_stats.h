/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_STATS_H
#define PARBAKE_CLI_BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/json.h"

/*
 * One measured create. Times are in nanoseconds from the request; a part that a mode
 * does not have is 0. Parts follow each other, so they add up to `total`.
 */
enum bench_part { BENCH_MONITOR, BENCH_STATE, BENCH_ANSWER, BENCH_RESULT, BENCH_PARTS };

extern const char *const bench_part_names[BENCH_PARTS];

struct bench_sample {
	int64_t total;
	int64_t parts[BENCH_PARTS];
	uint64_t faults, premapped;
};

struct bench_series {
	char name[32];
	struct bench_sample *samples;
	size_t n, room;
	size_t failed;
	struct err first_error;
};

void bench_add(struct bench_series *s, const struct bench_sample *one);
void bench_clear(struct bench_series *s);

/*
 * The @p-th percentile (0 < p ≤ 100) of @n values by nearest rank: a value that was really measured; of
 * fewer than 100 values the 99th is the maximum. @values is sorted in place. 0 where @n is 0.
 */
int64_t bench_percentile(int64_t *values, size_t n, double p);
/* The same of a series: of the total, or of one part (@part ≥ 0). */
int64_t bench_series_percentile(const struct bench_series *s, int part, double p);
/* Median number of faults, of pages premapped. */
uint64_t bench_median_faults(const struct bench_series *s);
uint64_t bench_median_premapped(const struct bench_series *s);
/* {"mode", "n", "failed", "p50_ns", …, "parts": {…}, "samples": […]}; a new reference. */
json_t *bench_series_json(const struct bench_series *s);

#endif
