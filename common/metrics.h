/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_COMMON_METRICS_H
#define PARBAKE_COMMON_METRICS_H

#include <stdint.h>

#include "common/err.h"

/*
 * Metrics: counters, gauges and histograms in Prometheus' text format (exposition format 0.0.4).
 * One thread. A family is registered once, by a constant name; series are found by their labels.
 */
struct metrics;
struct metrics_family;

struct metrics *metrics_new(void); /* aborts without memory */
void metrics_free(struct metrics *m);

enum metrics_kind { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM };
/* @labels: names, comma-separated ("template,mode"), "" for none. Histograms are of seconds, with
 * the buckets of metrics.c (0.5 ms … 30 s). Strings borrowed for ever. */
struct metrics_family *metrics_family(struct metrics *m, enum metrics_kind kind, const char *name,
	const char *help, const char *labels);
/* The values of the labels, in their order, NULL-terminated list of strings; at most
 * LIMIT_METRICS_SERIES series a family, the rest are added up under "other". */
void metrics_add(struct metrics_family *f, double by, ...) __attribute__((sentinel));
void metrics_set(struct metrics_family *f, double to, ...) __attribute__((sentinel));
void metrics_observe(struct metrics_family *f, double seconds, ...) __attribute__((sentinel));
/* Forget a gauge's series (before it is collected anew). */
void metrics_reset(struct metrics_family *f);
/* The whole page. Caller frees; aborts without memory. */
char *metrics_text(const struct metrics *m);

#endif
