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

#define SERIES_MAX 8 /* of a run: modes, and what they are measured by */
#define CREATE_WORDS 24
#define RUN_MS 300000 /* a run that takes longer has failed */
#define RUNS_FAILED_MAX 6

struct ab {
	struct bench_output out;
	struct bench_judging judging;
	struct bench_side old, new;
	const char *template;
	uint64_t creates, rounds, time_ms;
	const char *modes[3], *result;
	size_t n_modes;
	/* the words for `bench create` */
	char number[24];
	const char *create[CREATE_WORDS];
	/* what came of it */
	json_t *doc;
	struct host_load load;
	size_t done, failed_runs;
	const char *ended;
	bool broken_apart; /* a new build that makes nothing is not called slower */
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
		.store_dir = ab->out.store_dir, .create = ab->create, .deadline = deadline};
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
	if (ab->rounds)
		return ab->done >= ab->rounds;
	if (ab->done < PLAN_ROUNDS_LEAST)
		return false;
	for (size_t i = 0; i < ab->n_modes; i++) {
		cleanup_samples struct compare_samples old = {0}, new = {0};

		gather(ab, ab->modes[i], false, &old);
		gather(ab, ab->modes[i], true, &new);
		if (!plan_enough(&old, &new, ab->n_modes, ab->judging.request.detect))
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
	deadline = clock_deadline((int64_t)ab->time_ms);
	begun = clock_now_ns();
	progress_stage(progress, "rounds", "rounds", ab->rounds ?: PLAN_ROUNDS_MOST);
	ab->ended = "rounds";
	while (ab->done < (ab->rounds ?: PLAN_ROUNDS_MOST)) {
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

static void describe(struct ab *ab, const char *old_word, const char *new_word, int64_t took_ns)
{
	struct host_load_result host;
	cleanup_free char *text = NULL;

	host_load_end(&ab->load, &host);
	text = host_load_text(&host);
	json_object_set_new(ab->doc, "ab",
		json_pack("{s:s, s:s, s:f, s:I, s:f, s:s, s:s, s:s, s:{s:f, s:f, s:f, s:f, s:f}}",
			"old", old_word, "new", new_word, "detect", ab->judging.request.detect,
			"rounds", (json_int_t)ab->done, "took_s", (double)took_ns / 1e9, "ended",
			ab->ended, "busy", host_busy_name(host.busy), "host", text, "load",
			"others", host.others, "steal", host.steal, "pressure", host.pressure,
			"loop_usual", host.loop_usual, "loop_worst", host.loop_worst));
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
	int r = compare_documents(ab->doc, ab->doc, &ab->judging.request, &result, err), status;

	if (r < 0)
		return bench_fail_incomparable(err);
	if (ab->failed_runs && json_array_size(json_object_get(result, "notes")) < 1)
		json_array_append_new(json_object_get(result, "notes"),
			json_string("rounds that failed as a whole are not counted"));
	json_object_set(
		json_object_get(ab->doc, "ab"), "verdict", json_object_get(result, "verdict"));
	json_object_set(result, "ab", json_object_get(ab->doc, "ab"));
	if (ab->out.save)
		r = bench_document_write(ab->doc, ab->out.save, err);
	if (r == 0 && ab->out.report)
		r = report_write(ab->out.report, ab->doc, ab->out.against, ab->out.n_against, err);
	if (!ab->judging.json)
		print_head(ab);
	status = bench_say_verdict(result, &ab->judging);
	return r < 0 ? bench_fail_incomparable(err) : status;
}

/* ---- the command line ---------------------------------------------------------------------- */

static int take_option(int opt, struct ab *ab, struct err *err)
{
	int r = 0;

	switch (opt) {
	case 'n':
		return cli_number("-n", optarg, 2, 10000, &ab->creates, err);
	case 'T':
		ab->template = optarg;
		return 0;
	case 'r':
		return cli_number("--rounds", optarg, 1, 100000, &ab->rounds, err);
	case 'l':
		return cli_duration("--time-limit", optarg, &ab->time_ms, err);
	case 'M':
		if (ab->n_modes == 3)
			return err_set(err, E2BIG, "--mode: at most three");
		ab->modes[ab->n_modes++] = optarg;
		return 0;
	case 'u':
		ab->result = optarg;
		return 0;
	case 'j':
		ab->judging.json = true;
		return 0;
	case 'K':
		ab->broken_apart = true;
		return 0;
	default:
		if (bench_take_judging(opt, &ab->judging, &r, err) ||
			bench_take_output(opt, &ab->out, &r, err))
			return r;
		return err_set(err, EINVAL, "see above");
	}
}

static void make_words(struct ab *ab)
{
	size_t n = 0;

	if (!ab->n_modes)
		ab->modes[ab->n_modes++] = "cold";
	snprintf(ab->number, sizeof(ab->number), "%llu", (unsigned long long)ab->creates);
	ab->create[n++] = "-n";
	ab->create[n++] = ab->number;
	ab->create[n++] = "--boots";
	ab->create[n++] = "0";
	for (size_t i = 0; i < ab->n_modes; i++) {
		ab->create[n++] = "--mode";
		ab->create[n++] = ab->modes[i];
	}
	if (ab->result) {
		ab->create[n++] = "--result";
		ab->create[n++] = ab->result;
	}
	ab->create[n] = NULL;
}

static int parse(int argc, char **argv, struct ab *ab)
{
	static const struct option options[] = {
		BENCH_JUDGING_OPTIONS,
		{"template", required_argument, NULL, 'T'},
		{"rounds", required_argument, NULL, 'r'},
		{"time-limit", required_argument, NULL, 'l'},
		{"mode", required_argument, NULL, 'M'},
		{"result", required_argument, NULL, 'u'},
		{"broken-apart", no_argument, NULL, 'K'},
		BENCH_OUTPUT_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	struct err err = {0};
	int opt;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (take_option(opt, ab, &err) < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (argc - optind != 2)
		return cli_usage("bench",
			"write `bench ab [--template TEMPLATE] OLD NEW`, each a program (with a "
			"slash), a "
			"template, variables and options, as \"./old/parbake base --no-premap\"");
	if (bench_side_parse(argv[optind], ab->template, &ab->old, &err) < 0 ||
		bench_side_parse(argv[optind + 1], ab->template, &ab->new, &err) < 0)
		return cli_usage("bench", "%s", err.text);
	make_words(ab);
	return 0;
}

static void ab_clear(struct ab *ab)
{
	bench_side_clear(&ab->old);
	bench_side_clear(&ab->new);
	json_decref(ab->doc);
	free(ab->last_failure);
	free(ab);
}

int bench_ab_main(int argc, char **argv)
{
	struct ab *ab = calloc(1, sizeof(*ab));
	struct progress *progress;
	struct err err = {0};
	int64_t begin = clock_now_ns();
	int r;

	if (!ab)
		abort();
	ab->creates = PLAN_CREATES;
	ab->time_ms = PLAN_TIME_MS;
	ab->judging.request = (struct compare_request){
		.limits = plan_limits, .n_limits = PLAN_LIMITS, .detect = PLAN_DETECT};
	r = parse(argc, argv, ab);
	if (r != 0) {
		ab_clear(ab);
		return r;
	}
	ab->doc = bench_document_new();
	bench_stop_on_signals();
	progress = progress_new(PROGRESS_AUTO);
	r = measure_rounds(ab, progress, &err);
	progress_free(progress);
	if (r == -ENOEXEC && ab->broken_apart) {
		r = bench_fail_incomparable(&err);
	} else if (r == -ENOEXEC) {
		/* the new one does not do what the old one did */
		cli_fail(&err);
		printf("verdict: slower\n");
		r = OUTCOME_SLOWER;
	} else if (r < 0) {
		r = bench_fail_incomparable(&err);
	} else {
		describe(ab, argv[argc - 2], argv[argc - 1], clock_now_ns() - begin);
		r = finish(ab, &err);
	}
	ab_clear(ab);
	return r;
}
