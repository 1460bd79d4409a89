/* SPDX-License-Identifier: Apache-2.0 */
/* Series of measured operations: every sample is kept, and every failure counted beside them. */
#include "benches/series.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "benches/stats.h"
#include "common/limits.h"

const char *const bench_part_names[] = {
	[PART_WAIT] = "wait",
	[PART_OPEN] = "open",
	[PART_OVERLAY] = "overlay",
	[PART_MEMORY] = "memory",
	[PART_SPAWN] = "spawn",
	[PART_MONITOR] = "monitor",
	[PART_STATE] = "state",
	[PART_ASK] = "ask",
	[PART_RESUME] = "resume",
	[PART_HELLO] = "hello",
	[PART_IDENTITY] = "identity",
	[PART_THAW] = "thaw",
	[PART_RESULT] = "result",
};
static_assert(sizeof(bench_part_names) / sizeof(bench_part_names[0]) == BENCH_PARTS,
	"every part has a name");

void bench_series_init(struct bench_series *s, const char *name, bool has_parts, bool has_faults)
{
	*s = (struct bench_series){.has_parts = has_parts, .has_faults = has_faults};
	snprintf(s->name, sizeof(s->name), "%s", name);
}

void bench_series_clear(struct bench_series *s)
{
	free(s->samples);
	memset(s, 0, sizeof(*s));
}

void bench_series_add(struct bench_series *s, const struct bench_sample *one)
{
	if (s->n == s->room) {
		s->room = s->room ? s->room * 2 : 128;
		s->samples = reallocarray(s->samples, s->room, sizeof(*s->samples));
		if (!s->samples)
			abort();
	}
	s->samples[s->n++] = *one;
}

void bench_series_add_time(struct bench_series *s, int64_t ns)
{
	bench_series_add(s, &(struct bench_sample){.total = ns});
}

void bench_series_fail(struct bench_series *s, const struct err *err)
{
	if (!s->failed++)
		memcpy(&s->first_error, err, sizeof(*err));
}

/* Each part lasts from the greatest end before it to its own, within @begin and @end. */
static void fill_parts(int64_t *ret, const int64_t *ends, int64_t begin, int64_t end)
{
	int64_t at = begin;

	for (int i = 0; i < BENCH_PARTS; i++) {
		int64_t to = ends[i] < end ? ends[i] : end;

		ret[i] = to > at ? to - at : 0;
		at = to > at ? to : at;
	}
}

void bench_sample_fill(
	struct bench_sample *ret, const struct bench_moments *m, const struct sandbox_trace *t)
{
	const int64_t ends[BENCH_PARTS] = {
		[PART_WAIT] = m->started,
		[PART_OPEN] = m->opened,
		[PART_OVERLAY] = t->overlay_made,
		[PART_MEMORY] = t->memory_got,
		[PART_SPAWN] = t->monitor_started,
		[PART_MONITOR] = t->monitor_ready,
		[PART_STATE] = t->state_loaded,
		[PART_ASK] = t->asked,
		[PART_RESUME] = t->resumed,
		[PART_HELLO] = t->hello,
		[PART_IDENTITY] = t->identity,
		/* what comes between the last answer and the caller belongs to it */
		[PART_THAW] = t->answered,
		[PART_RESULT] = m->end,
	};

	ret->total = m->end - m->begin;
	fill_parts(ret->parts, ends, m->begin, m->end);
}

void bench_sample_cost(
	struct bench_sample *ret, const struct bench_counted *c, const struct sandbox_trace *cpu)
{
	const int64_t ends[BENCH_PARTS] = {
		[PART_OPEN] = c->cpu_opened,
		[PART_OVERLAY] = cpu->overlay_made,
		[PART_MEMORY] = cpu->memory_got,
		[PART_SPAWN] = cpu->monitor_started,
		[PART_MONITOR] = cpu->monitor_ready,
		[PART_STATE] = cpu->state_loaded,
		[PART_ASK] = cpu->asked,
		[PART_RESUME] = cpu->resumed,
		[PART_THAW] = cpu->answered,
		[PART_RESULT] = cpu->first_result,
	};

	cost_between(&c->before, &c->after, &ret->cost);
	fill_parts(ret->cpu_parts, ends, c->cpu_begin, c->cpu_end);
}

unsigned bench_costs_here(void)
{
	unsigned bits = 0;

	for (int i = 0; i < COSTS; i++)
		bits |= *cost_absent((enum cost)i) ? 0 : 1U << i;
	return bits;
}

/* What percentile_of() looks at; @a and @b are its own. */
typedef int64_t getter(const struct bench_sample *one, int a, int b);

static int64_t get_total(const struct bench_sample *one, int a, int b)
{
	(void)a;
	(void)b;
	return one->total;
}

static int64_t get_parts(const struct bench_sample *one, int first, int last)
{
	int64_t sum = 0;

	for (int i = first; i <= last; i++)
		sum += one->parts[i];
	return sum;
}

static int64_t get_count(const struct bench_sample *one, int premapped, int b)
{
	(void)b;
	return (int64_t)(premapped ? one->premapped : one->faults);
}

static int64_t get_at(const struct bench_sample *one, int a, int b)
{
	(void)a;
	(void)b;
	return one->at;
}

static int64_t get_cost(const struct bench_sample *one, int cost, int b)
{
	(void)b;
	return one->cost.total[cost];
}

static int64_t get_cpu_of(const struct bench_sample *one, int whose, int b)
{
	(void)b;
	return one->cost.cpu_of[whose];
}

static int64_t get_cpu_part(const struct bench_sample *one, int part, int b)
{
	(void)b;
	return one->cpu_parts[part];
}

static int64_t percentile_of(const struct bench_series *s, getter *get, int a, int b, double p)
{
	int64_t *values = calloc(s->n ?: 1, sizeof(*values)), result;

	if (!values)
		abort();
	for (size_t i = 0; i < s->n; i++)
		values[i] = get(&s->samples[i], a, b);
	result = stats_percentile(values, s->n, p);
	free(values);
	return result;
}

int64_t bench_series_percentile(const struct bench_series *s, double p)
{
	return percentile_of(s, get_total, 0, 0, p);
}

int64_t bench_series_parts(
	const struct bench_series *s, enum bench_part first, enum bench_part last, double p)
{
	return percentile_of(s, get_parts, (int)first, (int)last, p);
}

uint64_t bench_median_faults(const struct bench_series *s)
{
	return (uint64_t)percentile_of(s, get_count, 0, 0, 50);
}

uint64_t bench_median_premapped(const struct bench_series *s)
{
	return (uint64_t)percentile_of(s, get_count, 1, 0, 50);
}

int64_t bench_median_cost(const struct bench_series *s, enum cost cost)
{
	return s->costs & 1U << cost ? percentile_of(s, get_cost, (int)cost, 0, 50) : -1;
}

long bench_series_median_sample(const struct bench_series *s)
{
	int64_t median = bench_series_percentile(s, 50);

	for (size_t i = 0; i < s->n; i++) {
		if (s->samples[i].total == median)
			return (long)i;
	}
	return -1;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *column(const struct bench_series *s, getter *get, int a, int b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(list, json_integer(get(&s->samples[i], a, b)));
	return list;
}

/* Has any sample this part? */
static bool any_cpu_part(const struct bench_series *s, int part)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->samples[i].cpu_parts[part])
			return true;
	}
	return false;
}

static json_t *costs_to_json(const struct bench_series *s)
{
	json_t *costs = json_object(), *of = json_object(), *parts = json_object();

	for (int i = 0; i < COSTS; i++) {
		if (s->costs & 1U << i)
			json_object_set_new(costs, cost_names[i], column(s, get_cost, i, 0));
	}
	for (int i = 0; i < COST_WHOSE; i++)
		json_object_set_new(of, cost_whose_names[i], column(s, get_cpu_of, i, 0));
	for (int i = 0; i < BENCH_PARTS; i++) {
		if (any_cpu_part(s, i))
			json_object_set_new(
				parts, bench_part_names[i], column(s, get_cpu_part, i, 0));
	}
	json_object_set_new(costs, "cpu_of_ns", of);
	json_object_set_new(costs, "cpu_parts_ns", parts);
	return costs;
}

json_t *bench_series_to_json(const struct bench_series *s)
{
	json_t *obj = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "name",
		s->name, "n", (json_int_t)s->n, "failed", (json_int_t)s->failed, "p50_ns",
		(json_int_t)bench_series_percentile(s, 50), "p90_ns",
		(json_int_t)bench_series_percentile(s, 90), "p99_ns",
		(json_int_t)bench_series_percentile(s, 99), "max_ns",
		(json_int_t)bench_series_percentile(s, 100), "span_ns", (json_int_t)s->span,
		"total_ns", column(s, get_total, 0, 0), "at_ns", column(s, get_at, 0, 0));

	if (!obj)
		abort();
	if (s->has_parts) {
		json_t *parts = json_object();

		for (int i = 0; i < BENCH_PARTS; i++)
			json_object_set_new(parts, bench_part_names[i], column(s, get_parts, i, i));
		json_object_set_new(obj, "parts_ns", parts);
	}
	if (s->has_faults) {
		json_object_set_new(obj, "faults", column(s, get_count, 0, 0));
		json_object_set_new(obj, "premapped", column(s, get_count, 1, 0));
	}
	if (s->costs)
		json_object_set_new(obj, "costs", costs_to_json(s));
	if (s->failed)
		json_object_set_new(obj, "first_error",
			json_lossy(s->first_error.text, strlen(s->first_error.text)));
	return obj;
}

/* Number @i of the column @list. -EINVAL where it is no list of @n numbers ≥ 0. */
static int take(
	const json_t *list, const char *name, size_t n, size_t i, int64_t *ret, struct err *err)
{
	const json_t *one = json_array_get(list, i);

	if (json_array_size(list) != n || !json_is_integer(one) || json_integer_value(one) < 0)
		return err_set(err, EINVAL, "\"%s\" is not a list of %zu whole numbers", name, n);
	*ret = json_integer_value(one);
	return 0;
}

/* A column that may be missing: 0 then. */
static int take_if_there(
	const json_t *obj, const char *name, size_t n, size_t i, int64_t *ret, struct err *err)
{
	const json_t *list = json_object_get(obj, name);

	return list ? take(list, name, n, i, ret, err) : 0;
}

static int take_costs(const json_t *costs, const struct bench_series *s, size_t n, size_t i,
	struct bench_sample *ret, struct err *err)
{
	const json_t *of = json_object_get(costs, "cpu_of_ns");
	const json_t *parts = json_object_get(costs, "cpu_parts_ns");
	int r = 0;

	for (int c = 0; r == 0 && c < COSTS; c++) {
		ret->cost.total[c] = -1;
		if (s->costs & 1U << c)
			r = take(json_object_get(costs, cost_names[c]), cost_names[c], n, i,
				&ret->cost.total[c], err);
	}
	for (int w = 0; r == 0 && w < COST_WHOSE; w++)
		r = take_if_there(of, cost_whose_names[w], n, i, &ret->cost.cpu_of[w], err);
	for (int part = 0; r == 0 && part < BENCH_PARTS; part++)
		r = take_if_there(parts, bench_part_names[part], n, i, &ret->cpu_parts[part], err);
	return r;
}

static int take_sample(const json_t *obj, const struct bench_series *s, size_t n, size_t i,
	struct bench_sample *ret, struct err *err)
{
	const json_t *parts = json_object_get(obj, "parts_ns");
	int64_t faults = 0, premapped = 0;
	int r = take(json_object_get(obj, "total_ns"), "total_ns", n, i, &ret->total, err);

	if (r == 0)
		r = take(json_object_get(obj, "at_ns"), "at_ns", n, i, &ret->at, err);
	for (int part = 0; r == 0 && s->has_parts && part < BENCH_PARTS; part++)
		r = take(json_object_get(parts, bench_part_names[part]), bench_part_names[part], n,
			i, &ret->parts[part], err);
	if (r == 0 && s->has_faults)
		r = take(json_object_get(obj, "faults"), "faults", n, i, &faults, err);
	if (r == 0 && s->has_faults)
		r = take(json_object_get(obj, "premapped"), "premapped", n, i, &premapped, err);
	if (r == 0 && s->costs)
		r = take_costs(json_object_get(obj, "costs"), s, n, i, ret, err);
	ret->faults = (uint64_t)faults;
	ret->premapped = (uint64_t)premapped;
	return r;
}

const char *bench_series_name(const char *name)
{
	static const struct {
		const char *before, *now;
	} names[] = {{"shell", "standby"}, {"create shell", "create standby"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i].before))
			return names[i].now;
	return name;
}

int bench_series_from_json(const json_t *obj, struct bench_series *ret, struct err *err)
{
	cleanup_series struct bench_series s = {0};
	const json_t *totals = json_object_get(obj, "total_ns");
	const char *name;
	uint64_t failed, span;
	size_t n = json_array_size(totals);
	int r = json_get_string(obj, "name", &name, err);

	if (r < 0 || (r = json_get_u64(obj, "failed", 0, LIMIT_SAMPLES, &failed, err)) < 0 ||
		(r = json_get_u64(obj, "span_ns", 0, INT64_MAX, &span, err)) < 0)
		return r;
	if (!json_is_array(totals) || n > LIMIT_SAMPLES)
		return err_set(
			err, EINVAL, "\"total_ns\" is not a list of at most %d", LIMIT_SAMPLES);
	bench_series_init(&s, bench_series_name(name), json_object_get(obj, "parts_ns") != NULL,
		json_object_get(obj, "faults") != NULL);
	for (int i = 0; i < COSTS; i++)
		s.costs |=
			json_object_get(json_object_get(obj, "costs"), cost_names[i]) ? 1U << i : 0;
	s.failed = failed;
	s.span = (int64_t)span;
	if (failed) {
		const char *text = json_string_value(json_object_get(obj, "first_error"));

		snprintf(s.first_error.text, sizeof(s.first_error.text), "%s", text ?: "");
	}
	for (size_t i = 0; i < n; i++) {
		struct bench_sample one = {0};

		r = take_sample(obj, &s, n, i, &one, err);
		if (r < 0)
			return r;
		bench_series_add(&s, &one);
	}
	*ret = s;
	s = (struct bench_series){0};
	return 0;
}
