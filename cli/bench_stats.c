/* SPDX-License-Identifier: Apache-2.0 */
/* Samples and their percentiles: none is dropped, none is interpolated. */
#include "cli/bench_stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const bench_part_names[] = {
	[BENCH_MONITOR] = "monitor",
	[BENCH_STATE] = "state",
	[BENCH_ANSWER] = "answer",
	[BENCH_RESULT] = "result",
};
static_assert(sizeof(bench_part_names) / sizeof(bench_part_names[0]) == BENCH_PARTS,
	"every part has a name");

void bench_add(struct bench_series *s, const struct bench_sample *one)
{
	if (s->n == s->room) {
		s->room = s->room ? s->room * 2 : 128;
		s->samples = realloc(s->samples, s->room * sizeof(*s->samples));
		if (!s->samples)
			abort();
	}
	s->samples[s->n++] = *one;
}

void bench_clear(struct bench_series *s)
{
	free(s->samples);
	memset(s, 0, sizeof(*s));
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

int64_t bench_percentile(int64_t *values, size_t n, double p)
{
	size_t rank;

	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), by_value);
	rank = (size_t)ceil(p / 100.0 * (double)n);
	if (rank < 1)
		rank = 1;
	return values[rank > n ? n - 1 : rank - 1];
}

static int64_t percentile_of(const struct bench_series *s, int64_t (*get)(const struct bench_sample *, int),
	int arg, double p)
{
	int64_t *values = malloc((s->n ? s->n : 1) * sizeof(*values)), result;

	if (!values)
		abort();
	for (size_t i = 0; i < s->n; i++)
		values[i] = get(&s->samples[i], arg);
	result = bench_percentile(values, s->n, p);
	free(values);
	return result;
}

static int64_t get_time(const struct bench_sample *one, int part)
{
	return part < 0 ? one->total : one->parts[part];
}

static int64_t get_count(const struct bench_sample *one, int premapped)
{
	return (int64_t)(premapped ? one->premapped : one->faults);
}

int64_t bench_series_percentile(const struct bench_series *s, int part, double p)
{
	return percentile_of(s, get_time, part, p);
}

uint64_t bench_median_faults(const struct bench_series *s)
{
	return (uint64_t)percentile_of(s, get_count, 0, 50);
}

uint64_t bench_median_premapped(const struct bench_series *s)
{
	return (uint64_t)percentile_of(s, get_count, 1, 50);
}

json_t *bench_series_json(const struct bench_series *s)
{
	json_t *obj = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "mode", s->name, "n",
		(json_int_t)s->n, "failed", (json_int_t)s->failed, "p50_ns",
		(json_int_t)bench_series_percentile(s, -1, 50), "p90_ns",
		(json_int_t)bench_series_percentile(s, -1, 90), "p99_ns",
		(json_int_t)bench_series_percentile(s, -1, 99), "max_ns",
		(json_int_t)bench_series_percentile(s, -1, 100));
	json_t *parts = json_object(), *samples = json_array();

	for (int i = 0; i < BENCH_PARTS; i++)
		json_object_set_new(parts, bench_part_names[i],
			json_integer(bench_series_percentile(s, i, 50)));
	for (size_t i = 0; i < s->n; i++) {
		json_t *one = json_pack("{s:I, s:I, s:I}", "total_ns", (json_int_t)s->samples[i].total,
			"faults", (json_int_t)s->samples[i].faults, "premapped",
			(json_int_t)s->samples[i].premapped);

		for (int part = 0; part < BENCH_PARTS; part++)
			json_object_set_new(one, bench_part_names[part],
				json_integer(s->samples[i].parts[part]));
		json_array_append_new(samples, one);
	}
	if (s->failed)
		json_object_set_new(obj, "first_error", json_string(s->first_error.text));
	json_object_set_new(obj, "parts_p50_ns", parts);
	json_object_set_new(obj, "samples", samples);
	return obj;
}
