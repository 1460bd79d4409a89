/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: families in the order of their registration, each with its series in the order of their
 * first use, found by their labels' values. There are few series in a family (templates, keys,
 * states), so a list holds them. Values of labels come from clients and files: so their number is
 * bounded (further ones count under "other"), and they are escaped as the format wants it
 * (backslash, quote, line end).
 *
 * Text exposition format 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/.
 */
#include "common/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/cleanup.h"
#include "common/limits.h"
#include "common/str.h"

#define LABELS_MAX 4

/* Seconds; from what a spare takes to what a restore may. */
static const double buckets[] = {0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025,
	0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30};

#define N_BUCKETS (sizeof(buckets) / sizeof(*buckets))

struct series {
	char *labels[LABELS_MAX];
	double value; /* of a histogram: the sum */
	/* of a histogram: each bucket's own, the last beyond all; not cumulative */
	uint64_t *counts;
};

struct metrics_family {
	enum metrics_kind kind;
	const char *name, *help;
	char *names[LABELS_MAX]; /* of the labels */
	size_t n_labels;
	struct series *series;
	size_t n_series;
	STAILQ_ENTRY(metrics_family) link;
};

struct metrics {
	STAILQ_HEAD(, metrics_family) families;
};

static const char *const kind_names[] = {
	[METRICS_COUNTER] = "counter",
	[METRICS_GAUGE] = "gauge",
	[METRICS_HISTOGRAM] = "histogram",
};

static_assert(sizeof(kind_names) / sizeof(*kind_names) == METRICS_HISTOGRAM + 1, "all have a name");

static void *zeroed(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		abort();
	return p;
}

struct metrics *metrics_new(void)
{
	struct metrics *m = zeroed(1, sizeof(*m));

	STAILQ_INIT(&m->families);
	return m;
}

void metrics_reset(struct metrics_family *f)
{
	for (size_t i = 0; i < f->n_series; i++) {
		for (size_t k = 0; k < f->n_labels; k++)
			free(f->series[i].labels[k]);
		free(f->series[i].counts);
	}
	free(f->series);
	f->series = NULL;
	f->n_series = 0;
}

void metrics_free(struct metrics *m)
{
	struct metrics_family *f;

	if (!m)
		return;
	while ((f = STAILQ_FIRST(&m->families))) {
		STAILQ_REMOVE_HEAD(&m->families, link);
		metrics_reset(f);
		for (size_t k = 0; k < f->n_labels; k++)
			free(f->names[k]);
		free(f);
	}
	free(m);
}

struct metrics_family *metrics_family(struct metrics *m, enum metrics_kind kind, const char *name,
	const char *help, const char *labels)
{
	struct metrics_family *f = zeroed(1, sizeof(*f));
	cleanup_free char *copy = str_dup(labels);
	char *save = NULL;

	*f = (struct metrics_family){.kind = kind, .name = name, .help = help};
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		assert(f->n_labels < LABELS_MAX);
		f->names[f->n_labels++] = str_dup(p);
	}
	STAILQ_INSERT_TAIL(&m->families, f, link);
	return f;
}

/* ---- series --------------------------------------------------------------------------------- */

static struct series *find(struct metrics_family *f, const char *const *values)
{
	for (size_t i = 0; i < f->n_series; i++) {
		size_t k = 0;

		while (k < f->n_labels && !strcmp(f->series[i].labels[k], values[k]))
			k++;
		if (k == f->n_labels)
			return &f->series[i];
	}
	return NULL;
}

static struct series *get(struct metrics_family *f, va_list args)
{
	static const char *const others[LABELS_MAX] = {"other", "other", "other", "other"};
	const char *given[LABELS_MAX], *const *values = given;
	struct series *s;

	for (size_t k = 0; k < f->n_labels; k++) {
		given[k] = va_arg(args, const char *);
		assert(given[k]); /* fewer than the family has */
	}
	assert(!va_arg(args, const char *)); /* more */
	s = find(f, values);
	if (!s && f->n_series >= LIMIT_METRICS_SERIES) {
		values = others;
		s = find(f, values);
	}
	if (s)
		return s;
	f->series = reallocarray(f->series, f->n_series + 1, sizeof(*s));
	if (!f->series)
		abort();
	s = &f->series[f->n_series++];
	*s = (struct series){0};
	for (size_t k = 0; k < f->n_labels; k++)
		s->labels[k] = str_dup(values[k]);
	if (f->kind == METRICS_HISTOGRAM)
		s->counts = zeroed(N_BUCKETS + 1, sizeof(*s->counts));
	return s;
}

void metrics_add(struct metrics_family *f, double by, ...)
{
	va_list args;

	assert(f->kind == METRICS_COUNTER || f->kind == METRICS_GAUGE);
	va_start(args, by);
	get(f, args)->value += by;
	va_end(args);
}

void metrics_set(struct metrics_family *f, double to, ...)
{
	va_list args;

	/* a counter may be set from one that is kept elsewhere */
	assert(f->kind == METRICS_COUNTER || f->kind == METRICS_GAUGE);
	va_start(args, to);
	get(f, args)->value = to;
	va_end(args);
}

void metrics_observe(struct metrics_family *f, double seconds, ...)
{
	struct series *s;
	va_list args;
	size_t b = 0;

	assert(f->kind == METRICS_HISTOGRAM);
	va_start(args, seconds);
	s = get(f, args);
	va_end(args);
	while (b < N_BUCKETS && seconds > buckets[b])
		b++;
	assert(s->counts);
	s->counts[b]++;
	s->value += seconds;
}

/* ---- the page ------------------------------------------------------------------------------- */

static void put_escaped(FILE *to, const char *text, bool quote)
{
	for (const char *p = text; *p; p++) {
		if (*p == '\n')
			fputs("\\n", to);
		else if (*p == '\\' || (*p == '"' && quote))
			fprintf(to, "\\%c", *p);
		else
			fputc(*p, to);
	}
}

static void put_number(FILE *to, double v)
{
	if (isnan(v))
		fputs("NaN", to);
	else if (isinf(v))
		fputs(v > 0 ? "+Inf" : "-Inf", to);
	else if (v == trunc(v) && fabs(v) < 1e15)
		fprintf(to, "%.0f", v);
	else
		fprintf(to, "%.9g", v);
}

/* NAME[SUFFIX]{labels[,le="…"]} */
static void put_name(FILE *to, const struct metrics_family *f, const struct series *s,
	const char *suffix, const char *le)
{
	fprintf(to, "%s%s", f->name, suffix);
	for (size_t k = 0; k < f->n_labels; k++) {
		fprintf(to, "%s%s=\"", k ? "," : "{", f->names[k]);
		put_escaped(to, s->labels[k], true);
		fputc('"', to);
	}
	if (le)
		fprintf(to, "%sle=\"%s\"", f->n_labels ? "," : "{", le);
	if (f->n_labels || le)
		fputc('}', to);
	fputc(' ', to);
}

static void put_histogram(FILE *to, const struct metrics_family *f, const struct series *s)
{
	uint64_t total = 0;
	char le[32];

	for (size_t b = 0; b <= N_BUCKETS; b++) {
		total += s->counts[b];
		if (b < N_BUCKETS)
			snprintf(le, sizeof(le), "%g", buckets[b]);
		put_name(to, f, s, "_bucket", b < N_BUCKETS ? le : "+Inf");
		fprintf(to, "%llu\n", (unsigned long long)total);
	}
	put_name(to, f, s, "_sum", NULL);
	put_number(to, s->value);
	fputc('\n', to);
	put_name(to, f, s, "_count", NULL);
	fprintf(to, "%llu\n", (unsigned long long)total);
}

char *metrics_text(const struct metrics *m)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	const struct metrics_family *f;

	if (!to)
		abort();
	STAILQ_FOREACH(f, &m->families, link) {
		fprintf(to, "# HELP %s ", f->name);
		put_escaped(to, f->help, false);
		fprintf(to, "\n# TYPE %s %s\n", f->name, kind_names[f->kind]);
		for (size_t i = 0; i < f->n_series; i++) {
			if (f->kind == METRICS_HISTOGRAM) {
				put_histogram(to, f, &f->series[i]);
				continue;
			}
			put_name(to, f, &f->series[i], "", NULL);
			put_number(to, f->series[i].value);
			fputc('\n', to);
		}
	}
	if (fclose(to))
		abort();
	return text;
}
