/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench compare OLD.json NEW.json: a gate over documents that are there already. benches/compare.h says how it
 * is decided, compare_documents.h what the exit statuses mean. What the other gates (ab, history) share with it.
 *
 * parbake bench report: one page, or one document, of several documents.
 */
#include <fcntl.h>
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

static int take_judge(const char *word, enum compare_judge *ret, struct err *err)
{
	static const char *const words[] = {
		[JUDGE_ALL] = "all", [JUDGE_TIME] = "time", [JUDGE_COSTS] = "costs"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcmp(word, words[i])) {
			*ret = (enum compare_judge)i;
			return 0;
		}
	}
	return err_set(err, EINVAL, "--judge %s: all, time or costs", word);
}

bool bench_take_judging(int opt, struct bench_judging *j, int *ret, struct err *err)
{
	double percent;

	*ret = 0;
	switch (opt) {
	case 'm':
		*ret = compare_limits_parse(optarg, j->asked, &j->request.n_limits, err);
		if (*ret < 0)
			err_prefix(err, "--max-regress");
		/* failures are looked at whatever latencies are asked for */
		else
			j->asked[j->request.n_limits++].percentile = COMPARE_FAILURES;
		j->request.limits = j->asked;
		return true;
	case 'o':
		j->request.only = optarg;
		return true;
	case 's':
		j->strict = true;
		return true;
	case 'y':
		j->request.any_load = true;
		return true;
	case 'x':
		*ret = compare_across_parse(optarg, &j->request.across, err);
		if (*ret < 0)
			err_prefix(err, "--across");
		return true;
	case 'J':
		*ret = take_judge(optarg, &j->request.judge, err);
		return true;
	case 'X':
		*ret = bench_percent("--max-cost", optarg, 0, 10000, &percent, err);
		j->request.cost_regress = percent / 100;
		return true;
	case 'd':
		*ret = bench_percent("--detect", optarg, 0.1, 100, &percent, err);
		j->request.detect = percent / 100;
		return true;
	default:
		return false;
	}
}

int bench_say_verdict(const json_t *result, const struct bench_judging *j)
{
	enum compare_outcome outcome = compare_outcome_of(result);
	cleanup_text struct text out = {0};

	if (j->json) {
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

/*
 * A document of `bench ab` is judged by its own standards: no change is accepted, and all that was measured in turn
 * counts.
 */
int bench_compare_main(int argc, char **argv)
{
	static const struct option options[] = {
		BENCH_JUDGING_OPTIONS,
		{"json", no_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	struct bench_judging judging = {.request = {.detect = PLAN_DETECT, .cost_regress = -1}};
	cleanup_json json_t *old = NULL, *new = NULL, *result = NULL;
	struct err err = {0};
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'j')
			judging.json = true;
		else if (!bench_take_judging(opt, &judging, &r, &err))
			return cli_usage("bench", "see above");
		else if (r < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (argc - optind != 1 && argc - optind != 2)
		return cli_usage("bench",
			"write `bench compare OLD.json NEW.json`, or one document of `bench ab`");
	if ((r = bench_document_read(argv[optind], &old, &err)) < 0)
		return bench_fail_incomparable(&err);
	if (argc - optind == 2)
		r = bench_document_read(argv[optind + 1], &new, &err);
	else if (!json_object_get(old, "ab"))
		r = err_set(
			&err, EINVAL, "%s is not of `bench ab`: name two documents", argv[optind]);
	if (!judging.request.limits && new) {
		judging.request.limits = bench_default_limits(&judging.request.n_limits);
	} else if (!judging.request.limits) {
		judging.request.limits = plan_limits;
		judging.request.n_limits = PLAN_LIMITS;
	}
	if (judging.request.cost_regress < 0)
		judging.request.cost_regress = new ? COST_REGRESS : 0;
	if (r == 0)
		r = compare_documents(old, new ?: old, &judging.request, &result, &err);
	if (r < 0)
		return bench_fail_incomparable(&err);
	return bench_say_verdict(result, &judging);
}

static void free_documents(json_t **docs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		json_decref(docs[i]);
}

int bench_report_main(int argc, char **argv)
{
	static const struct option options[] = {
		BENCH_OUTPUT_OPTIONS,
		{NULL, 0, NULL, 0},
	};
	struct bench_output out = {0};
	json_t *docs[LIMIT_BENCH_FILES];
	cleanup_json json_t *all = NULL;
	struct err err = {0};
	size_t n = 0;
	int opt, r = 0;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (!bench_take_output(opt, &out, &r, &err))
			return cli_usage("bench", "see above");
		if (r < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (argc - optind > LIMIT_BENCH_FILES)
		return cli_usage("bench",
			"%d documents: at most %d at once; join some of them first with `bench "
			"report "
			"--save`",
			argc - optind, LIMIT_BENCH_FILES);
	if (optind == argc || !(out.save || out.json || out.report))
		return cli_usage("bench",
			"write `bench report [--report PAGE.html] [--save ALL.json] "
			"DOCUMENT.json…`");
	for (int i = optind; i < argc && r == 0; i++) {
		r = bench_document_read(argv[i], &docs[n], &err);
		n += r == 0;
	}
	if (r == 0)
		all = bench_documents_join(docs, n);
	free_documents(docs, n);
	if (r == 0 && out.save)
		r = bench_document_write(all, out.save, &err);
	if (r == 0 && out.report)
		r = report_write(out.report, all, out.against, out.n_against, &err);
	if (r == 0 && out.json)
		json_print_line(all);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
