/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two documents, series by series, and what that means for the whole. A series that is gone is a regression, since
 * whatever made it gone is one; what only the new document measures is said and not judged. Of rows that are not
 * decided only those of the median and of failures keep the whole from being decided: a tail is never known well, and
 * says by its interval how well.
 */
#include "benches/compare_documents.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/series.h"
#include "common/limits.h"
#include "common/str.h"

#define OF_TIME (-1)
/* Costs that are judged; page faults that wait for a read are shown alone, as most creates have none. */
static const enum cost judged_costs[] = {COST_CPU, COST_INSTRUCTIONS, COST_MINOR, COST_CALLS};
#define N_JUDGED (sizeof(judged_costs) / sizeof(judged_costs[0]))

struct pair {
	char *id, *name;
	int cost; /* enum cost, or OF_TIME */
	struct compare_samples old, new;
	bool in_new; /* the new document names it, with or without samples */
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

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

/* ---- gathering ----------------------------------------------------------------------------- */

static struct pair *pair_get(struct pairs *p, const char *id, const char *name, int cost)
{
	for (size_t i = 0; i < p->n; i++) {
		if (!strcmp(p->list[i].id, id) && !strcmp(p->list[i].name, name) &&
			p->list[i].cost == cost)
			return &p->list[i];
	}
	if (p->n == LIMIT_BENCH_SERIES)
		return NULL;
	p->list[p->n].id = str_dup(id);
	p->list[p->n].name = str_dup(name);
	p->list[p->n].cost = cost;
	return &p->list[p->n++];
}

/* One run's times, or what its creates cost. */
static int take_values(struct pairs *p, const char *id, const struct bench_series *s, int cost,
	bool is_new, long round, struct err *err)
{
	struct pair *pair = pair_get(p, id, s->name, cost);
	cleanup_free int64_t *values = calloc(s->n ?: 1, sizeof(*values));

	if (!values)
		abort();
	if (!pair)
		return err_set(err, E2BIG, "more than %d series", LIMIT_BENCH_SERIES);
	for (size_t i = 0; i < s->n; i++)
		values[i] = cost == OF_TIME ? s->samples[i].total : s->samples[i].cost.total[cost];
	pair->in_new |= is_new;
	compare_samples_add(is_new ? &pair->new : &pair->old, values, s->n,
		cost == OF_TIME ? s->failed : 0, round);
	return 0;
}

static int take_series(struct pairs *p, const char *id, const json_t *obj, bool is_new, long round,
	struct err *err)
{
	cleanup_series struct bench_series s = {0};
	int r = bench_series_from_json(obj, &s, err);

	if (r < 0) {
		err_prefix(err, "%s", id);
		return r;
	}
	/* the first create of a run is no sample of anything that has several */
	if (!strcmp(s.name, "first") && s.n <= 1)
		return 0;
	r = take_values(p, id, &s, OF_TIME, is_new, round, err);
	for (size_t i = 0; i < N_JUDGED && r == 0; i++) {
		if (s.costs & 1U << judged_costs[i])
			r = take_values(p, id, &s, (int)judged_costs[i], is_new, round, err);
	}
	return r;
}

/* Of a document of `bench ab` only the runs of one side. */
static bool of_side(const json_t *run, bool is_new)
{
	const char *side = json_string_value(json_object_get(run, "side"));

	return !side || !strcmp(side, is_new ? "new" : "old");
}

static int take_document(struct pairs *p, const json_t *doc, bool is_new, struct err *err)
{
	const json_t *run, *series, *round;
	size_t i, j;

	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		const char *id;
		int r = json_get_string(run, "id", &id, err);

		if (r == 0 && !of_side(run, is_new))
			continue;
		round = json_object_get(run, "round");
		json_array_foreach(json_object_get(run, "series"), j, series)
		{
			if (r == 0)
				r = take_series(p, id, series, is_new,
					json_is_integer(round) ? (long)json_integer_value(round)
							       : -1,
					err);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- may they be compared? ------------------------------------------------------------------ */

static void note(json_t *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(json_t *notes, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	json_array_append_new(notes, json_lossy(text, strlen(text)));
}

static const struct {
	const char *name;
	enum compare_across bit;
} across_names[] = {
	{"host", ACROSS_HOST},
	{"accel", ACROSS_ACCEL},
	{"template", ACROSS_TEMPLATE},
	{"parbake", ACROSS_PARBAKE},
	{"all", ACROSS_ALL},
};

int compare_across_parse(const char *text, unsigned *ret, struct err *err)
{
	unsigned bits = 0;

	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ","), i,
		       n = sizeof(across_names) / sizeof(across_names[0]);

		for (i = 0; i < n; i++) {
			if (strlen(across_names[i].name) == len &&
				!strncmp(across_names[i].name, at, len))
				break;
		}
		if (i == n)
			return err_set(err, EINVAL,
				"\"%.*s\": host, accel, template, parbake or all", (int)len, at);
		bits |= across_names[i].bit;
		at += len + (at[len] == ',');
	}
	*ret = bits;
	return 0;
}

/* One fact that differs: a note where that was asked for, else a reason not to compare. */
static void fact_differs(json_t *why, json_t *notes, unsigned across, enum compare_across bit,
	const char *name, const json_t *was, const json_t *is)
{
	cleanup_free char *a = json_dumps(was ?: json_null(), JSON_ENCODE_ANY);
	cleanup_free char *b = json_dumps(is ?: json_null(), JSON_ENCODE_ANY);
	const char *option = "host";

	for (size_t i = 0; i < sizeof(across_names) / sizeof(across_names[0]); i++) {
		if (across_names[i].bit == bit)
			option = across_names[i].name;
	}
	if (across & bit)
		note(notes, "they differ in %s: %s, now %s", name, a ?: "?", b ?: "?");
	else
		note(why, "they differ in %s: %s, now %s (--across %s compares them still)", name,
			a ?: "?", b ?: "?", option);
}

static const json_t *run_by_id(const json_t *doc, const char *id)
{
	const json_t *run;
	size_t i;

	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		if (!strcmp(text_of(run, "id"), id))
			return run;
	}
	return NULL;
}

/* Digests of the templates of runs that both have. */
static void check_templates(
	const json_t *old, const json_t *new, unsigned across, json_t *why, json_t *notes)
{
	const json_t *run;
	size_t i;

	json_array_foreach(json_object_get(old, "runs"), i, run)
	{
		const json_t *other = run_by_id(new, text_of(run, "id"));
		const json_t *was = json_object_get(json_object_get(run, "facts"), "digest");
		const json_t *is = json_object_get(json_object_get(other, "facts"), "digest");

		if (other && was && is && !json_equal(was, is)) {
			fact_differs(why, notes, across, ACROSS_TEMPLATE, "the template", was, is);
			return;
		}
	}
}

static void check_facts(
	const json_t *old, const json_t *new, unsigned across, json_t *why, json_t *notes)
{
	static const struct {
		const char *name;
		enum compare_across bit;
	} facts[] = {{"cores", ACROSS_HOST}, {"cpu", ACROSS_HOST}, {"memory", ACROSS_HOST},
		{"machine", ACROSS_HOST}, {"kernel", ACROSS_HOST}, {"accel", ACROSS_ACCEL},
		{"monitor", ACROSS_ACCEL}, {"monitor_version", ACROSS_ACCEL}};
	const json_t *a = json_object_get(old, "host"), *b = json_object_get(new, "host");

	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const json_t *x = json_object_get(a, facts[i].name);
		const json_t *y = json_object_get(b, facts[i].name);

		if ((x || y) && !(x && y && json_equal(x, y)))
			fact_differs(why, notes, across, facts[i].bit, facts[i].name, x, y);
	}
	if (!json_equal(json_object_get(old, "parbake"), json_object_get(new, "parbake")))
		fact_differs(why, notes, across, ACROSS_PARBAKE, "parbake's version",
			json_object_get(old, "parbake"), json_object_get(new, "parbake"));
	check_templates(old, new, across, why, notes);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static json_t *number_or_null(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

/* What the rows so far come to. */
struct sum {
	json_t *rows, *notes, *why;
	bool in_turn; /* old and new were measured in turn */
	bool slower, faster, undecided;
	bool more; /* a count is higher, which no load on the host explains */
};

static enum compare_verdict add_row(struct sum *sum, const struct pair *p,
	const struct compare_limit *limit, double alpha, double detect)
{
	struct compare_result res;
	char name[16];
	json_t *row;

	compare_quantity(&p->old, &p->new, limit, alpha, detect, &res);
	row = json_pack(
		"{s:s, s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:s}",
		"id", p->id, "name", p->name, "measure",
		p->cost == OF_TIME ? "time" : cost_names[p->cost], "quantity",
		p->cost == OF_TIME ? compare_quantity_name(limit->percentile, name)
				   : cost_titles[p->cost],
		"percentile", limit->percentile, "n_old", (json_int_t)p->old.n, "n_new",
		(json_int_t)p->new.n, "runs_old", (json_int_t)p->old.n_runs, "runs_new",
		(json_int_t)p->new.n_runs, "old_ns", (json_int_t)res.old_ns, "new_ns",
		(json_int_t)res.new_ns, "change", res.change, "limit", limit->max_regress, "p",
		res.p, "verdict", compare_verdict_names[res.verdict], "method",
		compare_method_names[res.method]);
	if (!row)
		abort();
	json_object_set_new(row, "low", res.low > -1 ? json_real(res.low) : json_null());
	json_object_set_new(row, "high", number_or_null(res.high));
	json_object_set_new(row, "could_see", number_or_null(res.could_see));
	if (res.needs)
		json_object_set_new(row, "needs", json_integer((json_int_t)res.needs));
	json_array_append_new(sum->rows, row);
	return res.verdict;
}

static void say_row(struct sum *sum, const struct pair *p, enum compare_verdict verdict)
{
	const json_t *row = json_array_get(sum->rows, json_array_size(sum->rows) - 1);
	double percentile = json_number_value(json_object_get(row, "percentile"));
	const json_t *see = json_object_get(row, "could_see");
	long long needs = json_integer_value(json_object_get(row, "needs"));
	double change = json_number_value(json_object_get(row, "change")) * 100;

	if (percentile == COMPARE_FAILURES) {
		if (verdict != COMPARE_SAME)
			note(sum->why, "%s %s: %zu of %zu failed, %zu of %zu before%s", p->id,
				p->name, p->new.failed, p->new.n + p->new.failed, p->old.failed,
				p->old.n + p->old.failed,
				verdict == COMPARE_SLOWER ? "" : ": too few to say");
	} else if (verdict == COMPARE_SLOWER || verdict == COMPARE_FASTER) {
		note(sum->why, "%s %s: %s is %+.1f %%", p->id, p->name, text_of(row, "quantity"),
			change);
	} else if (verdict == COMPARE_UNDECIDED &&
		(p->old.n_runs < COMPARE_RUNS || p->new.n_runs < COMPARE_RUNS)) {
		note(sum->why,
			"%s %s: %zu and %zu runs; nothing is known of how runs differ with fewer "
			"than %d",
			p->id, p->name, p->old.n_runs, p->new.n_runs, COMPARE_RUNS);
	} else if (verdict == COMPARE_UNDECIDED && json_is_number(see)) {
		note(sum->why,
			"%s %s: %s %+.1f %%, and only %+.1f %% or more could be seen (%lld runs "
			"each would do)",
			p->id, p->name, text_of(row, "quantity"), change,
			json_number_value(see) * 100, needs);
	} else if (verdict == COMPARE_UNDECIDED || verdict == COMPARE_UNTESTED) {
		note(sum->why, "%s %s: %s takes %lld %s each", p->id, p->name,
			text_of(row, "quantity"), needs,
			verdict == COMPARE_UNTESTED ? "samples" : "runs");
	}
}

/* What one cost comes to: too few or too different runs are no reason to hold up what the times say. */
static void judge_cost(
	struct sum *sum, const struct pair *p, const struct compare_request *rq, double alpha)
{
	const struct compare_limit limit = {.percentile = 50, .max_regress = rq->cost_regress};
	enum compare_verdict v;

	/* a document of an older build has none */
	if (!p->old.n || !p->new.n) {
		note(sum->notes, "%s %s: only one of them has its %s", p->id, p->name,
			cost_names[p->cost]);
		return;
	}
	v = add_row(sum, p, &limit, alpha, rq->detect);
	/* another hour's processor time is another's: caches and neighbours are part of it */
	if (p->cost == COST_CPU && !sum->in_turn)
		return;
	sum->slower |= v == COMPARE_SLOWER;
	sum->more |= v == COMPARE_SLOWER && p->cost != COST_CPU;
	/* beside other work processor time is often too noisy to tell, and counts are not */
	sum->undecided |= rq->judge == JUDGE_COSTS && v == COMPARE_UNDECIDED && p->cost != COST_CPU;
	if (v == COMPARE_SLOWER || (rq->judge == JUDGE_COSTS && v != COMPARE_SAME))
		say_row(sum, p, v);
}

static void judge_pair(struct sum *sum, const struct pair *p, const struct compare_request *rq,
	const double *alpha)
{
	if (p->old.n && !p->new.n) {
		note(sum->why, "%s %s: %s", p->id, p->name,
			p->in_new ? "no create of the new build succeeded"
				  : "the new document does not have it any more");
		sum->slower = true;
		return;
	}
	if (!p->old.n) {
		if (p->new.n)
			note(sum->notes, "%s %s: only the new document has it", p->id, p->name);
		return;
	}
	if (rq->judge == JUDGE_COSTS)
		return;
	for (size_t i = 0; i < rq->n_limits; i++) {
		double percentile = rq->limits[i].percentile;
		enum compare_verdict v = add_row(sum, p, &rq->limits[i], alpha[i], rq->detect);
		bool decides =
			percentile == COMPARE_FAILURES || percentile == 50 || rq->n_limits == 1;

		sum->slower |= v == COMPARE_SLOWER;
		sum->faster |= v == COMPARE_FASTER;
		sum->undecided |= decides && (v == COMPARE_UNDECIDED || v == COMPARE_UNTESTED);
		if (v == COMPARE_SLOWER || v == COMPARE_FASTER || (decides && v != COMPARE_SAME))
			say_row(sum, p, v);
	}
}

static bool wanted(const struct pair *p, const char *only)
{
	cleanup_free char *text = str_printf("%s %s", p->id, p->name);

	return !only || strstr(text, only);
}

/* A run that was stopped has less than was asked for: it counts, and that is said. */
static void heed_partial(struct sum *sum, const json_t *doc, const char *which)
{
	const json_t *run;
	size_t i;

	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		const char *why = text_of(json_object_get(run, "facts"), "partial");

		if (*why)
			note(sum->notes, "%s%s: stopped early (%s), a part of what was asked for",
				which, text_of(run, "id"), why);
	}
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Of a document of `bench ab`: was the host too busy to believe that nothing changed? */
static void heed_host(struct sum *sum, const json_t *doc, enum compare_judge judge)
{
	const json_t *ab = json_object_get(doc, "ab");
	const char *busy = json_string_value(json_object_get(ab, "busy"));

	/* counts do not care */
	if (!busy || (judge == JUDGE_COSTS && strcmp(busy, "too busy") != 0))
		return;
	if (!strcmp(busy, "too busy")) {
		note(sum->why, "the host was too busy: %s", text_of(ab, "host"));
		sum->undecided = true;
		sum->slower = sum->more;
	} else if (!strcmp(busy, "busy") && sum->slower) {
		note(sum->notes,
			"the host was busy (%s): the difference is real, its size is that of a "
			"busy host",
			text_of(ab, "host"));
	} else if (!strcmp(busy, "busy")) {
		note(sum->why, "the host was busy: %s", text_of(ab, "host"));
		sum->undecided = true;
	}
}

int compare_documents(const json_t *old, const json_t *new, const struct compare_request *rq,
	json_t **ret, struct err *err)
{
	cleanup_with(pairs_free_p_) struct pairs *pairs = calloc(1, sizeof(*pairs));
	cleanup_json json_t *rows = json_array(), *notes = json_array(), *why = json_array();
	struct sum sum = {.rows = rows, .notes = notes, .why = why, .in_turn = old == new};
	const char *verdict = "incomparable";
	double alpha[COMPARE_LIMITS_MAX + 1];
	size_t common = 0, costs = 0;
	int r;

	if (!pairs)
		return err_set(err, ENOMEM, "no memory to compare");
	if ((r = take_document(pairs, old, false, err)) < 0 ||
		(r = take_document(pairs, new, true, err)) < 0)
		return r;
	if (old != new)
		check_facts(old, new, rq->across, why, notes);
	for (size_t i = 0; i < pairs->n; i++) {
		const struct pair *p = &pairs->list[i];
		bool is_cost = p->cost != OF_TIME;

		common += wanted(p, rq->only) && p->old.n && !is_cost;
		costs += wanted(p, rq->only) && p->old.n && p->new.n &&is_cost;
	}
	if (common && !costs && rq->judge == JUDGE_COSTS)
		note(why, "they have no costs in common");
	if (!common)
		note(why, "the old document has no series%s%s%s to compare with",
			rq->only ? " that contains \"" : "", rq->only ?: "", rq->only ? "\"" : "");
	if (!json_array_size(why)) {
		compare_share_alpha(rq->limits, rq->n_limits, common, alpha);
		for (size_t i = 0; i < pairs->n; i++) {
			const struct pair *p = &pairs->list[i];

			if (wanted(p, rq->only) && p->cost == OF_TIME)
				judge_pair(&sum, p, rq, alpha);
			else if (wanted(p, rq->only) && rq->judge != JUDGE_TIME)
				judge_cost(&sum, p, rq, COMPARE_ALPHA_COSTS / (double)(costs ?: 1));
		}
		if (old != new)
			note(notes,
				"measured at different times: what the host did in between counts "
				"as a "
				"change (METHOD.md says how often); `parbake bench ab` measures in "
				"turn");
		heed_partial(&sum, new, old == new ? "" : "new: ");
		if (old != new)
			heed_partial(&sum, old, "old: ");
		if (!rq->any_load)
			heed_host(&sum, new, rq->judge);
		verdict = sum.slower    ? "slower"
			: sum.undecided ? "undecided"
			: sum.faster    ? "faster"
					: "same";
	}
	*ret = json_pack("{s:s, s:O, s:f, s:O, s:O}", "verdict", verdict, "why", why, "detect",
		rq->detect, "rows", rows, "notes", notes);
	return 0;
}

enum compare_outcome compare_outcome_of(const json_t *result)
{
	const char *verdict = text_of(result, "verdict");

	return !strcmp(verdict, "same") || !strcmp(verdict, "faster") ? OUTCOME_GOOD
		: !strcmp(verdict, "slower")                          ? OUTCOME_SLOWER
		: !strcmp(verdict, "undecided")                       ? OUTCOME_UNDECIDED
								      : OUTCOME_INCOMPARABLE;
}
