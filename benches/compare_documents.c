/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two documents, series by series. What an earlier build failed to do is a regression where a
 * later one fails more often, whatever its latencies; what only one of the two measured is said
 * and not judged.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "benches/compare.h"
#include "benches/series.h"
#include "common/limits.h"
#include "common/str.h"

static const char *const verdict_names[] = {
	[COMPARE_OK] = "ok",
	[COMPARE_REGRESSED] = "regressed",
	[COMPARE_UNDECIDED] = "undecided",
};

static const char *const method_names[] = {
	[COMPARE_BOOTSTRAP] = "block bootstrap",
	[COMPARE_ORDER] = "order statistics",
};

struct pair {
	char *id, *name;
	struct compare_samples old, new;
};

struct pairs {
	struct pair list[LIMIT_BENCH_SERIES];
	size_t n;
};

static void pairs_free(struct pairs *p)
{
	for (size_t i = 0; p && i < p->n; i++) {
		free(p->list[i].id);
		free(p->list[i].name);
		compare_samples_clear(&p->list[i].old);
		compare_samples_clear(&p->list[i].new);
	}
	free(p);
}
DEFINE_CLEANUP(struct pairs *, pairs_free)

static struct pair *pair_get(struct pairs *p, const char *id, const char *name)
{
	for (size_t i = 0; i < p->n; i++) {
		if (!strcmp(p->list[i].id, id) && !strcmp(p->list[i].name, name))
			return &p->list[i];
	}
	if (p->n == LIMIT_BENCH_SERIES)
		return NULL;
	p->list[p->n].id = str_dup(id);
	p->list[p->n].name = str_dup(name);
	return &p->list[p->n++];
}

static int take_series(
	struct pairs *p, const char *id, const json_t *obj, bool is_new, struct err *err)
{
	cleanup_series struct bench_series s = {0};
	struct compare_samples *to;
	cleanup_free int64_t *values = NULL;
	struct pair *pair;
	int r = bench_series_from_json(obj, &s, err);

	if (r < 0) {
		err_prefix(err, "%s", id);
		return r;
	}
	/* the first create is one sample by its nature */
	if (!strcmp(s.name, "first"))
		return 0;
	pair = pair_get(p, id, s.name);
	if (!pair)
		return err_set(err, E2BIG, "more than %d series", LIMIT_BENCH_SERIES);
	values = calloc(s.n ?: 1, sizeof(*values));
	if (!values)
		abort();
	for (size_t i = 0; i < s.n; i++)
		values[i] = s.samples[i].total;
	to = is_new ? &pair->new : &pair->old;
	compare_samples_add(to, values, s.n, s.failed);
	return 0;
}

static int take_document(struct pairs *p, const json_t *doc, bool is_new, struct err *err)
{
	const json_t *run, *series;
	size_t i, j;

	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		const char *id;
		int r = json_get_string(run, "id", &id, err);

		json_array_foreach(json_object_get(run, "series"), j, series)
		{
			if (r == 0)
				r = take_series(p, id, series, is_new, err);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static void note(json_t *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(json_t *notes, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	json_array_append_new(notes, json_string(text));
}

/* What makes two documents hard to compare. */
static void note_hosts(json_t *notes, const json_t *old, const json_t *new)
{
	static const char *const facts[] = {
		"cores", "cpu", "kernel", "accel", "monitor", "monitor_version", "memory"};
	const json_t *a = json_object_get(old, "host"), *b = json_object_get(new, "host");

	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const json_t *x = json_object_get(a, facts[i]), *y = json_object_get(b, facts[i]);

		if (!json_equal(x, y)) {
			cleanup_free char *was = json_dumps(x ?: json_null(), JSON_ENCODE_ANY);
			cleanup_free char *is = json_dumps(y ?: json_null(), JSON_ENCODE_ANY);

			note(notes, "the hosts differ in %s: %s, now %s", facts[i], was ?: "?",
				is ?: "?");
		}
	}
}

static void add_row(
	json_t *rows, const struct pair *p, const struct compare_limit *limit, bool *regressed)
{
	struct compare_result res;
	json_t *row;

	compare_percentile(&p->old, &p->new, limit, &res);
	row = json_pack("{s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:s}", "id", p->id,
		"name", p->name, "percentile", limit->percentile, "n_old", (json_int_t)p->old.n,
		"n_new", (json_int_t)p->new.n, "old_ns", (json_int_t)res.old_ns, "new_ns",
		(json_int_t)res.new_ns, "change", res.change, "low", res.low, "limit",
		limit->max_regress, "verdict", verdict_names[res.verdict], "method",
		method_names[res.method]);
	if (!row)
		abort();
	/* JSON knows no infinity */
	json_object_set_new(row, "high", isfinite(res.high) ? json_real(res.high) : json_null());
	if (res.verdict == COMPARE_UNDECIDED)
		json_object_set_new(row, "needs", json_integer((json_int_t)res.needs));
	json_array_append_new(rows, row);
	*regressed |= res.verdict == COMPARE_REGRESSED;
}

static bool wanted(const struct pair *p, const char *only)
{
	cleanup_free char *text = str_printf("%s %s", p->id, p->name);

	return !only || strstr(text, only);
}

int compare_documents(const json_t *old, const json_t *new, const char *only,
	const struct compare_limit *limits, size_t n_limits, json_t **ret, struct err *err)
{
	cleanup_with(pairs_free_p_) struct pairs *pairs = calloc(1, sizeof(*pairs));
	cleanup_json json_t *rows = json_array(), *notes = json_array();
	bool regressed = false;
	int r;

	if (!pairs)
		return err_set(err, ENOMEM, "no memory to compare");
	if ((r = take_document(pairs, old, false, err)) < 0 ||
		(r = take_document(pairs, new, true, err)) < 0)
		return r;
	note_hosts(notes, old, new);
	for (size_t i = 0; i < pairs->n; i++) {
		const struct pair *p = &pairs->list[i];

		if (!wanted(p, only))
			continue;
		if (p->new.failed > p->old.failed) {
			note(notes, "%s, %s: %zu failed, %zu before: a regression", p->id, p->name,
				p->new.failed, p->old.failed);
			regressed = true;
		}
		if (!p->old.n || !p->new.n) {
			note(notes, "%s, %s: only the %s document has it", p->id, p->name,
				p->new.n ? "new" : "old");
			continue;
		}
		for (size_t j = 0; j < n_limits; j++)
			add_row(rows, p, &limits[j], &regressed);
	}
	if (!json_array_size(rows) && !regressed)
		return err_set(err, ENOENT, "the two documents have no series in common%s%s%s",
			only ? " that contains \"" : "", only ?: "", only ? "\"" : "");
	*ret = json_pack("{s:s, s:O, s:O}", "verdict", regressed ? "regressed" : "ok", "rows", rows,
		"notes", notes);
	return 0;
}

bool compare_regressed(const json_t *result)
{
	return strcmp(json_string_value(json_object_get(result, "verdict")) ?: "", "ok") != 0;
}

static double ms(const json_t *row, const char *key)
{
	return (double)json_integer_value(json_object_get(row, key)) / 1e6;
}

static double percent(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key)) * 100;
}

static const char *text_of(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key)) ?: "";
}

void compare_print(struct text *out, const json_t *result)
{
	const json_t *row, *one;
	const char *last = "";
	size_t i;

	text_add(out, "%-8s %5s %7s %7s %10s %10s %8s  %-20s %7s  %s\n", "series", "", "n old",
		"n new", "old ms", "new ms", "change", "95 % interval", "limit", "verdict");
	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		char high[16] = "open", low[16] = "open", interval[40];

		if (strcmp(last, text_of(row, "id")))
			text_add(out, "%s\n", last = text_of(row, "id"));
		if (!json_is_null(json_object_get(row, "high")))
			snprintf(high, sizeof(high), "%+.1f %%", percent(row, "high"));
		if (percent(row, "low") > -100)
			snprintf(low, sizeof(low), "%+.1f %%", percent(row, "low"));
		snprintf(interval, sizeof(interval), "%s to %s", low, high);
		text_add(out,
			"  %-6s p%-4g %7lld %7lld %10.2f %10.2f %+7.1f%%  %-20s %6.1f%%  %s (%s)",
			text_of(row, "name"), json_number_value(json_object_get(row, "percentile")),
			(long long)json_integer_value(json_object_get(row, "n_old")),
			(long long)json_integer_value(json_object_get(row, "n_new")),
			ms(row, "old_ns"), ms(row, "new_ns"), percent(row, "change"), interval,
			percent(row, "limit"), text_of(row, "verdict"), text_of(row, "method"));
		if (json_object_get(row, "needs"))
			text_add(out, ": needs %lld samples on each side",
				(long long)json_integer_value(json_object_get(row, "needs")));
		text_add(out, "\n");
	}
	json_array_foreach(json_object_get(result, "notes"), i, one)
		text_add(out, "note: %s\n", json_string_value(one) ?: "");
	text_add(out, "%s\n",
		compare_regressed(result) ? "REGRESSED" : "no regression beyond the limits");
}
