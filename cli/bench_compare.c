/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench compare OLD.json NEW.json: a gate over documents that are there already. benches/compare.h says how it
 * is decided, compare_documents.h what the exit statuses mean. What the other gates (ab, history) share with it.
 *
 * parbake bench report: one page, or one document, of several documents.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "benches/plan.h"
#include "benches/report.h"
#include "cli/bench_judging.h"

#define COST_REGRESS 0.05 /* accepted of documents of different times */

static const struct compare_limit *bench_default_limits(size_t *ret_n)
{
	static const struct compare_limit limits[] = {{50, 0.05}, {90, 0.10}, {99, 0.10},
		{99.9, 0.20}, {COMPARE_MEAN, 0.05}, {COMPARE_FAILURES, 0}};

	*ret_n = sizeof(limits) / sizeof(limits[0]);
	return limits;
}

static int take_limits(void *field, const char *option, const char *text, struct err *err)
{
	struct bench_judging *j = field;
	int r = compare_limits_parse(text, j->asked, &j->request.n_limits, err);

	if (r < 0) {
		err_prefix(err, "%s", option);
		return r;
	}
	/* failures are looked at whatever latencies are asked for */
	j->asked[j->request.n_limits++].percentile = COMPARE_FAILURES;
	j->request.limits = j->asked;
	return 0;
}

static int take_across(void *field, const char *option, const char *text, struct err *err)
{
	int r = compare_across_parse(text, field, err);

	if (r < 0)
		err_prefix(err, "%s", option);
	return r;
}

/* A percentage becomes a share. */
static int take_share(const char *option, const char *text, double least, double most, double *ret,
	struct err *err)
{
	int r = bench_percent(option, text, least, most, ret, err);

	*ret /= 100;
	return r;
}

static int take_cost(void *field, const char *option, const char *text, struct err *err)
{
	return take_share(option, text, 0, 10000, field, err);
}

static int take_detect(void *field, const char *option, const char *text, struct err *err)
{
	return take_share(option, text, 0.1, 100, field, err);
}

const struct option_entry bench_judging_options[] = {
	{"max-regress", .kind = OPTION_CALL, .take = take_limits, .value = "LIMITS",
		.section = "Verdict",
		.help = "what may be slower by how much: p50=5%,p90=10%,mean=5%"},
	{"judge", .kind = OPTION_CHOICE,
		.choices = (const char *const[]){"all", "time", "costs", NULL},
		.offset = offsetof(struct bench_judging, request.judge),
		.help = "what decides: times and costs (all), or one of them"},
	{"max-cost", .kind = OPTION_CALL, .take = take_cost, .value = "P%",
		.offset = offsetof(struct bench_judging, request.cost_regress),
		.help = "by how much a cost may rise"},
	{"detect", .kind = OPTION_CALL, .take = take_detect, .value = "P%",
		.offset = offsetof(struct bench_judging, request.detect),
		.help = "the change of p50 that must not go unseen (5%)"},
	{"across", .kind = OPTION_CALL, .take = take_across, .value = "WHAT,…",
		.offset = offsetof(struct bench_judging, request.across),
		.help = "compare although these differ: host, accel, template, parbake, all"},
	{"only", .kind = OPTION_TEXT, .offset = offsetof(struct bench_judging, request.only),
		.value = "TEXT", .help = "series alone whose name contains it"},
	{"any-load", .offset = offsetof(struct bench_judging, request.any_load),
		.help = "judge as if the host had been idle"},
	{"strict", .offset = offsetof(struct bench_judging, strict),
		.help = "undecided is a failure"},
	{0},
};

int bench_say_verdict(const json_t *result, const struct bench_judging *j, bool json)
{
	enum compare_outcome outcome = compare_outcome_of(result);
	cleanup_text struct text out = {0};

	if (json) {
		json_print_line(result);
	} else {
		compare_print(&out, result);
		fputs(out.s, stdout);
	}
	return outcome == OUTCOME_UNDECIDED && j->strict ? OUTCOME_SLOWER : (int)outcome;
}

int bench_fail_incomparable(const struct err *err)
{
	cli_fail(err);
	return OUTCOME_INCOMPARABLE;
}

struct compare_args {
	struct bench_judging judging;
	const char *old, *new;
	bool json;
};

/*
 * A document of `bench ab` is judged by its own standards: no change is accepted, and all that was measured in turn
 * counts.
 */
static int run_compare(void *args)
{
	struct compare_args *a = args;
	struct compare_request *rq = &a->judging.request;
	cleanup_json json_t *old = NULL, *new = NULL, *result = NULL;
	struct err err = {0};
	int r = bench_document_read(a->old, &old, &err);

	if (r == 0 && a->new)
		r = bench_document_read(a->new, &new, &err);
	else if (r == 0 && !json_object_get(old, "ab"))
		r = err_set(&err, EINVAL, "%s is not of `bench ab`: name two documents", a->old);
	if (!rq->limits && new) {
		rq->limits = bench_default_limits(&rq->n_limits);
	} else if (!rq->limits) {
		rq->limits = plan_limits;
		rq->n_limits = PLAN_LIMITS;
	}
	if (rq->cost_regress < 0)
		rq->cost_regress = new ? COST_REGRESS : 0;
	if (r == 0)
		r = compare_documents(old, new ?: old, rq, &result, &err);
	if (r < 0)
		return bench_fail_incomparable(&err);
	return bench_say_verdict(result, &a->judging, a->json);
}

static const struct option_entry compare_options[] = {
	BENCH_JUDGING(struct compare_args, judging),
	OPTION_JSON(struct compare_args, json),
	{0},
};

static const struct operand_entry compare_operands[] = {
	{"OLD", .names = NAMES_FILE, .offset = offsetof(struct compare_args, old)},
	{"NEW", .optional = true, .names = NAMES_FILE,
		.offset = offsetof(struct compare_args, new)},
	{0},
};

const struct command command_bench_compare = {
	.name = "bench compare",
	.summary = "has a latency, or a cost, become worse? Two documents, or one of `bench ab`",
	.notes = "Exit status: 0 the same or faster, 1 slower, 2 they cannot be compared, 3 "
		 "undecided.",
	.options = compare_options,
	.operands = compare_operands,
	.args_bytes = sizeof(struct compare_args),
	.defaults = &(const struct compare_args){.judging.request = {.detect = PLAN_DETECT,
							 .cost_regress = -1}},
	.run = run_compare,
};

/* ---- report -------------------------------------------------------------------------------- */

struct report_args {
	struct bench_output out;
	struct words documents;
};

static void free_documents(json_t **docs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		json_decref(docs[i]);
}

static int run_report(void *args)
{
	const struct report_args *a = args;
	const struct bench_output *out = &a->out;
	json_t *docs[LIMIT_BENCH_FILES] = {0};
	cleanup_json json_t *all = NULL;
	struct err err = {0};
	size_t n = 0;
	int r = 0;

	if (a->documents.n > LIMIT_BENCH_FILES)
		return command_usage(&command_bench_report,
			"%zu documents: at most %d at once; join some of them first with `bench "
			"report --save`",
			a->documents.n, LIMIT_BENCH_FILES);
	if (!out->save && !out->json && !out->report)
		return command_usage(&command_bench_report, "say --report, --save or --json");
	for (size_t i = 0; i < a->documents.n && r == 0; i++) {
		r = bench_document_read(a->documents.items[i], &docs[n], &err);
		n += r == 0;
	}
	if (r == 0)
		all = bench_documents_join(docs, n);
	free_documents(docs, n);
	if (r == 0 && out->save)
		r = bench_document_write(all, out->save, &err);
	if (r == 0 && out->report)
		r = report_write(out->report, all, out->against.items, out->against.n, &err);
	if (r == 0 && out->json)
		json_print_line(all);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry report_options[] = {
	BENCH_OUTPUT(struct report_args, out),
	{0},
};

static const struct operand_entry report_operands[] = {
	{"DOCUMENT", .many = true, .names = NAMES_FILE,
		.offset = offsetof(struct report_args, documents)},
	{0},
};

const struct command command_bench_report = {
	.name = "bench report",
	.summary = "several documents as one page, or as one document",
	.options = report_options,
	.operands = report_operands,
	.args_bytes = sizeof(struct report_args),
	.run = run_report,
};
