/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_CHART_H
#define PARBAKE_BENCHES_CHART_H

#include "benches/series.h"
#include "benches/text.h"
#include "benches/trace.h"

/*
 * The pictures of a report, each a <figure> with its legend. Series without samples are left out.
 */

#define CHART_SERIES_MAX 8

/*
 * How many of all samples are at or below a time (ECDF), time on a logarithmic scale, each curve
 * with its p50 and p99 marked. At most CHART_SERIES_MAX of them.
 */
void chart_ecdf(
	struct text *out, const char *title, const struct bench_series *const *series, size_t n);
/* The parts of one create, one below the other. */
void chart_waterfall(struct text *out, const struct bench_trace *t);
/* Faults of one create: when, and at which guest address. */
void chart_faults(struct text *out, const struct bench_trace *t);

struct chart_line {
	char name[48];
	double (*points)[2];
	size_t n;
};

/* Lines through points. @log_x: a logarithmic x axis; y begins at 0. */
void chart_lines(struct text *out, const char *title, const char *x_name, const char *y_name,
	bool log_x, const struct chart_line *lines, size_t n);

struct chart_bar {
	char name[64];
	double value;
	char text[48]; /* behind the bar */
};

/* Horizontal bars from 0. */
void chart_bars(struct text *out, const char *title, const char *x_name,
	const struct chart_bar *bars, size_t n);

struct chart_interval {
	char group[96], name[48]; /* rows of one group stand together under its name */
	double estimate, low, high, limit;
	bool bad, open; /* beyond the limit; not decided */
};

/* Changes with their intervals around 0, in percent. */
void chart_intervals(
	struct text *out, const char *title, const struct chart_interval *list, size_t n);

#endif
