/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench ab OLD NEW: two builds, templates or settings, measured in turn in one go, and the verdict.
 *
 * A round is one run of each, A B B A …, until the rounds show a change of the size that is asked for, or time is up
 * (benches/plan.h). All runs go into one document, each with its side and round; `bench compare` of it with itself
 * gives the verdict again. A run that fails keeps its round from counting; a build that makes nothing, time after
 * time, is found out before the first round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/host_load.h"
#include "benches/plan.h"
#include "benches/report.h"
#include "benches/series.h"
#include "cli/bench_judging.h"
#include "cli/bench_side.h"
#include "common/clock.h"
#include "common/progress.h"
#include "common/str.h"

#define MODES_MAX 3
#define SERIES_MAX 8 /* of a run: modes, and what they are measured by */
#define CREATE_WORDS 24
#define RUN_MS 300000 /* a run that takes longer has failed */
#define RUNS_FAILED_MAX 6

struct args {
	struct bench_output out;
	struct bench_judging judging;
	const char *old, *new, *template;
	uint64_t creates, rounds, time_ms;
	struct words modes;
	const char *result;
	bool broken_apart; /* a new build that makes nothing is not called slower */
};

struct ab {
	struct args *args;
	struct bench_side old, new;
	const char *modes[MODES_MAX];
	size_t n_modes;
	/* the words for `bench create` */
	char number[24];
	const char *create[CREATE_WORDS];
	/* what came of it */
	json_t *doc;
	struct host_load load;
	size_t done, failed_runs;
	const char *ended;
	char *last_failure;
};

/* ---- rounds -------------------------------------------------------------------------------- */

/* The runs of @doc into the document of all, as @round of one side; ids are those of the first. */
static void keep_runs(struct ab *ab, json_t *doc, bool is_new, size_t round)
{
	json_t *run, *all = json_object_get(ab->doc, "runs");
	size_t i;

	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		/* a setting may change what a run calls itself; here it is what is compared */
		json_t *first = json_array_get(all, i);

		if (first)
			json_object_set(run, "id", json_object_get(first, "id"));
		json_object_set_new(run, "side", json_string(is_new ? "new" : "old"));
		json_object_set_new(run, "round", json_integer((json_int_t)round));
		json_array_append(all, run);
	}
}

static int measure(struct ab *ab, bool is_new, int64_t deadline, json_t **ret, struct err *err)
{
	struct bench_side_run rq = {
		.store_dir = ab->args->out.store_dir, .create = ab->create, .deadline = deadline};
	int r;

	host_load_loop(&ab->load);
	r = bench_side_measure(is_new ? &ab->new : &ab->old, &rq, ret, err);
	if (r < 0)
		err_prefix(err, "the %s build", is_new ? "new" : "old");
	return r;
}

/* One round: both runs are kept, or neither. */
static int one_round(struct ab *ab, struct err *err)
{
	bool new_first = plan_new_first(ab->done);
	cleanup_json json_t *first = NULL, *second = NULL;
	int r = measure(ab, new_first, clock_deadline(RUN_MS), &first, err);

	if (r == 0)
		r = measure(ab, !new_first, clock_deadline(RUN_MS), &second, err);
	if (r < 0)
		return r;
	keep_runs(ab, new_first ? second : first, false, ab->done);
	keep_runs(ab, new_first ? first : second, true, ab->done);
	ab->done++;
	return 0;
}

/* Samples of the series @name of all runs of one side. */
static void gather(const struct ab *ab, const char *name, bool is_new, struct compare_samples *ret)
{
	const json_t *run, *obj;
	size_t i, j;

	json_array_foreach(json_object_get(ab->doc, "runs"), i, run)
	{
		const char *side = json_string_value(json_object_get(run, "side"));

		if (strcmp(side ?: "", is_new ? "new" : "old"))
			continue;
		json_array_foreach(json_object_get(run, "series"), j, obj)
		{
			cleanup_series struct bench_series s = {0};
			cleanup_free int64_t *values = NULL;
			struct err err;

			if (strcmp(name, json_string_value(json_object_get(obj, "name")) ?: "") ||
				bench_series_from_json(obj, &s, &err) < 0)
				continue;
			values = calloc(s.n ?: 1, sizeof(*values));
			if (!values)
				abort();
			for (size_t k = 0; k < s.n; k++)
				values[k] = s.samples[k].total;
			compare_samples_add(ret, values, s.n, s.failed,
				(long)json_integer_value(json_object_get(run, "round")));
		}
	}
}

static bool enough(const struct ab *ab)
{
	if (ab->args->rounds)
		return ab->done >= ab->args->rounds;
	if (ab->done < PLAN_ROUNDS_LEAST)
		return false;
	for (size_t i = 0; i < ab->n_modes; i++) {
		cleanup_samples struct compare_samples old = {0}, new = {0};

		gather(ab, ab->modes[i], false, &old);
		gather(ab, ab->modes[i], true, &new);
		if (!plan_enough(&old, &new, ab->n_modes, ab->args->judging.request.detect))
			return false;
	}
	return true;
}

/* Do both make anything at all? What is done for the first time is done here, and not measured. */
static int warm_up(struct ab *ab, struct err *err)
{
	for (int is_new = 0; is_new < 2; is_new++) {
		cleanup_json json_t *doc = NULL;
		int r = measure(ab, is_new, clock_deadline(RUN_MS), &doc, err);

		if (r < 0)
			return is_new && r != -EINTR ? -ENOEXEC : r;
	}
	return 0;
}

static int measure_rounds(struct ab *ab, struct progress *progress, struct err *err)
{
	int64_t deadline, begun;
	int r = warm_up(ab, err);

	if (r < 0)
		return r;
	host_load_begin(&ab->load);
	deadline = clock_deadline((int64_t)ab->args->time_ms);
	begun = clock_now_ns();
	progress_stage(progress, "rounds", "rounds", ab->args->rounds ?: PLAN_ROUNDS_MOST);
	ab->ended = "rounds";
	while (ab->done < (ab->args->rounds ?: PLAN_ROUNDS_MOST)) {
		int64_t each = ab->done ? (clock_now_ns() - begun) / (int64_t)ab->done : 0;

		if (enough(ab)) {
			ab->ended = "enough";
			break;
		}
		if (ab->done && clock_now_ns() + each > deadline) {
			ab->ended = "time";
			break;
		}
		r = one_round(ab, err);
		if (r == -EINTR) {
			ab->ended = "signal";
			break;
		}
		if (r < 0) {
			free(ab->last_failure);
			ab->last_failure = str_dup(err->text);
			if (++ab->failed_runs > RUNS_FAILED_MAX)
				return r;
		}
		progress_update(progress, ab->done);
	}
	progress_done(progress, "%zu, %zu failed", ab->done, ab->failed_runs);
	return 0;
}

/* ---- saying it ----------------------------------------------------------------------------- */

static void describe(struct ab *ab, int64_t took_ns)
{
	struct host_load_result host;
	cleanup_free char *text = NULL;

	host_load_end(&ab->load, &host);
	text = host_load_text(&host);
	json_object_set_new(ab->doc, "ab",
		json_pack("{s:s, s:s, s:f, s:I, s:f, s:s, s:s, s:s, s:{s:f, s:f, s:f, s:f, s:f}}",
			"old", ab->args->old, "new", ab->args->new, "detect",
			ab->args->judging.request.detect, "rounds", (json_int_t)ab->done, "took_s",
			(double)took_ns / 1e9, "ended", ab->ended, "busy",
			host_busy_name(host.busy), "host", text, "load", "others", host.others,
			"steal", host.steal, "pressure", host.pressure, "loop_usual",
			host.loop_usual, "loop_worst", host.loop_worst));
}

static void print_head(const struct ab *ab)
{
	const json_t *facts = json_object_get(ab->doc, "ab");
	const char *why = !strcmp(ab->ended, "time") ? ", until time was up"
		: !strcmp(ab->ended, "signal")       ? ", until it was stopped"
		: !strcmp(ab->ended, "enough")       ? ", which is enough"
						     : "";

	printf("old: %s\nnew: %s\n", json_string_value(json_object_get(facts, "old")),
		json_string_value(json_object_get(facts, "new")));
	printf("%zu rounds of %s creates in %.0f s%s; %s\n", ab->done, ab->number,
		json_number_value(json_object_get(facts, "took_s")), why,
		json_string_value(json_object_get(facts, "host")));
	if (ab->failed_runs)
		printf("%zu rounds failed, the last with: %s\n", ab->failed_runs, ab->last_failure);
}

/* The verdict into the document too, so that a page has it. */
static int finish(struct ab *ab, struct err *err)
{
	cleanup_json json_t *result = NULL;
	int r = compare_documents(ab->doc, ab->doc, &ab->args->judging.request, &result, err),
	    status;

	if (r < 0)
		return bench_fail_incomparable(err);
	if (ab->failed_runs && json_array_size(json_object_get(result, "notes")) < 1)
		json_array_append_new(json_object_get(result, "notes"),
			json_string("rounds that failed as a whole are not counted"));
	json_object_set(
		json_object_get(ab->doc, "ab"), "verdict", json_object_get(result, "verdict"));
	json_object_set(result, "ab", json_object_get(ab->doc, "ab"));
	if (ab->args->out.save)
		r = bench_document_write(ab->doc, ab->args->out.save, err);
	if (r == 0 && ab->args->out.report)
		r = report_write(ab->args->out.report, ab->doc, ab->args->out.against.items,
			ab->args->out.against.n, err);
	if (!ab->args->out.json)
		print_head(ab);
	status = bench_say_verdict(result, &ab->args->judging, ab->args->out.json);
	return r < 0 ? bench_fail_incomparable(err) : status;
}

/* ---- the command line ---------------------------------------------------------------------- */

static void make_words(struct ab *ab)
{
	size_t n = 0;

	for (size_t i = 0; i < ab->args->modes.n; i++)
		ab->modes[ab->n_modes++] = ab->args->modes.items[i];
	if (!ab->n_modes)
		ab->modes[ab->n_modes++] = "cold";
	snprintf(ab->number, sizeof(ab->number), "%llu", (unsigned long long)ab->args->creates);
	ab->create[n++] = "-n";
	ab->create[n++] = ab->number;
	ab->create[n++] = "--boots";
	ab->create[n++] = "0";
	for (size_t i = 0; i < ab->n_modes; i++) {
		ab->create[n++] = "--mode";
		ab->create[n++] = ab->modes[i];
	}
	if (ab->args->result) {
		ab->create[n++] = "--result";
		ab->create[n++] = ab->args->result;
	}
	ab->create[n] = NULL;
}

static void ab_clear(struct ab *ab)
{
	bench_side_clear(&ab->old);
	bench_side_clear(&ab->new);
	json_decref(ab->doc);
	free(ab->last_failure);
	free(ab);
}

static int run(void *args)
{
	struct args *a = args;
	struct ab *ab = calloc(1, sizeof(*ab));
	struct progress *progress;
	struct err err = {0};
	int64_t begin = clock_now_ns();
	int r;

	if (!ab)
		abort();
	ab->args = a;
	if (bench_side_parse(a->old, a->template, &ab->old, &err) < 0 ||
		bench_side_parse(a->new, a->template, &ab->new, &err) < 0) {
		ab_clear(ab);
		return command_usage(&command_bench_ab, "%s", err.text);
	}
	make_words(ab);
	ab->doc = bench_document_new();
	bench_stop_on_signals();
	progress = progress_new(PROGRESS_AUTO);
	r = measure_rounds(ab, progress, &err);
	progress_free(progress);
	if (r == -ENOEXEC && a->broken_apart) {
		r = bench_fail_incomparable(&err);
	} else if (r == -ENOEXEC) {
		/* the new one does not do what the old one did */
		cli_fail(&err);
		printf("verdict: slower\n");
		r = OUTCOME_SLOWER;
	} else if (r < 0) {
		r = bench_fail_incomparable(&err);
	} else {
		describe(ab, clock_now_ns() - begin);
		r = finish(ab, &err);
	}
	ab_clear(ab);
	return r;
}

static const struct option_entry options[] = {
	{"template", .kind = OPTION_TEXT, .names = NAMES_TEMPLATE,
		.offset = offsetof(struct args, template), .value = "TEMPLATE",
		.help = "the template where a side names none"},
	{"mode", .kind = OPTION_WORDS, .max = MODES_MAX, .offset = offsetof(struct args, modes),
		.value = "MODE", .help = "what is created: cold, standby, spare (cold)"},
	{"result", .kind = OPTION_TEXT, .offset = offsetof(struct args, result), .value = "RESULT",
		.help = "what is waited for: none, exec, python (none)"},
	{.letter = 'n',
		.kind = OPTION_NUMBER,
		.min = 2,
		.max = 10000,
		.offset = offsetof(struct args, creates),
		.value = "N",
		.help = "creates of a run (25)"},
	{"rounds", .kind = OPTION_NUMBER, .min = 1, .max = 100000,
		.offset = offsetof(struct args, rounds), .value = "N",
		.help = "so many rounds, not as many as it takes"},
	{"time-limit", .kind = OPTION_DURATION, .offset = offsetof(struct args, time_ms),
		.value = "T", .help = "measure for at most so long (170s)"},
	{"broken-apart", .offset = offsetof(struct args, broken_apart),
		.help = "a new build that makes nothing is not called slower (status 2)"},
	BENCH_JUDGING(struct args, judging),
	BENCH_OUTPUT(struct args, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"OLD", .offset = offsetof(struct args, old)},
	{"NEW", .offset = offsetof(struct args, new)},
	{0},
};

const struct command command_bench_ab = {
	.name = "bench ab",
	.summary = "measure two builds, templates or settings in turn, and the verdict",
	.notes =
		"OLD and NEW are words of one argument each: a program (with a slash), a template, "
		"VARIABLE=VALUE, options of `bench create`, as in './old/parbake base "
		"--no-premap'.\n"
		"Exit status: 0 the same or faster, 1 slower, 2 they cannot be compared, 3 "
		"undecided.",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct args),
	.defaults =
		&(const struct args){
			.creates = PLAN_CREATES,
			.time_ms = PLAN_TIME_MS,
			.judging.request = {.limits = plan_limits,
				.n_limits = PLAN_LIMITS,
				.detect = PLAN_DETECT},
		},
	.run = run,
};
