/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench history add|show|trend|gate: create latency by commit (benches/history.h). The directory is the user's:
 * a folder of a repository, a branch's work tree, what a CI keeps.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/history.h"
#include "cli/bench_judging.h"
#include "common/proc.h"
#include "common/str.h"

#define GIT_MS 10000
#define GIT_BYTES 4096

struct request {
	struct history_label label;
	const char *dir, *document, *report, *only;
	bool strict;
};

/* What git says, without its end of line; NULL: nothing. Caller frees. */
static char *git(const char *const *words)
{
	struct proc_spec spec = {.argv = words};
	struct err err;
	char *out = NULL;

	if (proc_output(&spec, GIT_MS, GIT_BYTES, &out, &err) < 0)
		return NULL;
	out[strcspn(out, "\n")] = '\0';
	if (!*out) {
		free(out);
		return NULL;
	}
	return out;
}

static int add(struct request *rq, struct err *err)
{
	const char *commit = rq->label.commit ?: "HEAD";
	cleanup_free char *full =
		git((const char *const[]){"git", "rev-parse", "--verify", "-q", commit, NULL});
	cleanup_free char *branch =
		git((const char *const[]){"git", "branch", "--show-current", NULL});
	cleanup_free char *time =
		git((const char *const[]){"git", "log", "-1", "--format=%cI", commit, "--", NULL});
	cleanup_free char *file = NULL;
	cleanup_json json_t *doc = NULL;
	int r = bench_document_read(rq->document, &doc, err);

	if (r < 0)
		return r;
	rq->label.commit = full ?: rq->label.commit;
	rq->label.branch = rq->label.branch ?: branch;
	rq->label.time = rq->label.time ?: time;
	if (!rq->label.commit || !rq->label.time)
		return err_set(err, EINVAL, "no git repository here: say --commit and --time");
	r = history_add(rq->dir, doc, &rq->label, &file, err);
	if (r == 0)
		printf("%s\n", file);
	return r;
}

/* The first entries from the last release on; without one, from the first: a level that stays where it is. */
static size_t baseline_begin(const struct history *h, const struct history_trend *t)
{
	size_t begin = 0;

	/* the newest entry is what is judged, whatever it is called */
	for (size_t i = 0; i + 1 < t->n; i++) {
		if (*h->entries[t->points[i].entry].release)
			begin = i;
	}
	return begin;
}

static int gate_trend(const struct history *h, const struct history_trend *t)
{
	size_t begin = baseline_begin(h, t), n = t->n - begin;
	size_t n_base = n * 2 / 3 < HISTORY_BASELINE ? n * 2 / 3 : HISTORY_BASELINE;
	cleanup_free double *values = calloc(n, sizeof(*values));
	double limit = 0, base = 0;
	int above;

	if (!values)
		abort();
	for (size_t i = 0; i < n; i++)
		values[i] = t->points[begin + i].p50_ms;
	for (size_t i = 0; i < n_base; i++)
		base += log(values[i]) / (double)n_base;
	above = history_above(values, n, n_base, &limit);
	if (above < 0)
		printf("  %s %s: %zu entries to compare with, %d are needed: undecided\n", t->id,
			t->name, n_base, HISTORY_BASELINE_LEAST);
	else
		printf("  %s %s: p50 %.2f ms, %.2f (%zu entries from %.12s on), up to %.2f is "
		       "noise: %s\n",
			t->id, t->name, values[n - 1], exp(base), n_base,
			h->entries[t->points[begin].entry].commit, limit,
			above ? "slower" : "no slower");
	return above;
}

static int gate(const struct history *h, const struct request *rq)
{
	struct history_trend *trends = calloc(HISTORY_SERIES_MAX, sizeof(*trends));
	const char *branch = rq->label.branch ?: "main";
	int outcome = OUTCOME_INCOMPARABLE;
	size_t n;

	if (!trends)
		abort();
	n = history_trends(h, branch, trends);
	for (size_t i = 0; i < n; i++) {
		cleanup_free char *name = str_printf("%s %s", trends[i].id, trends[i].name);
		bool newest = trends[i].n && trends[i].points[trends[i].n - 1].entry == h->n - 1;

		if (trends[i].n && newest && (!rq->only || strstr(name, rq->only))) {
			int above = gate_trend(h, &trends[i]);
			int one = above > 0 ? OUTCOME_SLOWER
				: above < 0 ? OUTCOME_UNDECIDED
					    : OUTCOME_GOOD;

			if (outcome == OUTCOME_INCOMPARABLE || one == OUTCOME_SLOWER ||
				(one == OUTCOME_UNDECIDED && outcome == OUTCOME_GOOD))
				outcome = one;
		}
		history_trend_clear(&trends[i]);
	}
	free(trends);
	if (outcome == OUTCOME_INCOMPARABLE)
		printf("the newest entry has no series that branch %s has\n", branch);
	printf("verdict: %s\n",
		outcome == OUTCOME_SLOWER              ? "slower"
			: outcome == OUTCOME_GOOD      ? "same"
			: outcome == OUTCOME_UNDECIDED ? "undecided"
						       : "incomparable");
	return outcome == OUTCOME_UNDECIDED && rq->strict ? OUTCOME_SLOWER : outcome;
}

static int run_add(void *args)
{
	struct err err = {0};

	return add(args, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static int run_show(void *args)
{
	const struct request *rq = args;
	cleanup_history struct history h = {0};
	cleanup_text struct text out = {0};
	struct err err = {0};

	if (history_read(rq->dir, &h, &err) < 0)
		return cli_fail(&err);
	history_print(&out, &h, rq->label.branch);
	fputs(out.s ?: "", stdout);
	return CLI_OK;
}

static int run_trend(void *args)
{
	const struct request *rq = args;
	cleanup_history struct history h = {0};
	cleanup_text struct text out = {0};
	struct err err = {0};
	int r = history_read(rq->dir, &h, &err);

	if (r == 0) {
		history_page(&out, &h, rq->label.branch);
		r = bench_publish(rq->report, out.s, out.len, &err);
	}
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static int run_gate(void *args)
{
	const struct request *rq = args;
	cleanup_history struct history h = {0};
	struct err err = {0};

	if (history_read(rq->dir, &h, &err) < 0)
		return bench_fail_incomparable(&err);
	return gate(&h, rq);
}

/* ---- the command line ---------------------------------------------------------------------- */

#define BRANCH(text)                                                                               \
	{                                                                                          \
		"branch", .kind = OPTION_TEXT, .offset = offsetof(struct request, label.branch),   \
			  .value = "BRANCH", .help = text                                          \
	}

static const struct option_entry add_options[] = {
	{"commit", .kind = OPTION_TEXT, .offset = offsetof(struct request, label.commit),
		.value = "COMMIT", .help = "what was measured (HEAD)"},
	BRANCH("whose commit that is (the one that is checked out)"),
	{"time", .kind = OPTION_TEXT, .offset = offsetof(struct request, label.time),
		.value = "TIME", .help = "of the commit (git's)"},
	{"release", .kind = OPTION_TEXT, .offset = offsetof(struct request, label.release),
		.value = "NAME",
		.help = "it is this release: what comes later is compared with it"},
	{"note", .kind = OPTION_TEXT, .offset = offsetof(struct request, label.note),
		.value = "TEXT", .help = "stands beside it in tables and charts"},
	{0},
};

static const struct option_entry show_options[] = {
	BRANCH("entries of that branch alone"),
	{0},
};

static const struct option_entry trend_options[] = {
	{"report", .kind = OPTION_TEXT, .required = true, .names = NAMES_FILE,
		.offset = offsetof(struct request, report), .value = "PAGE",
		.help = "the page that is written"},
	BRANCH("entries of that branch alone"),
	{0},
};

static const struct option_entry gate_options[] = {
	BRANCH("the branch that the newest entry is compared with (main)"),
	{"only", .kind = OPTION_TEXT, .offset = offsetof(struct request, only), .value = "TEXT",
		.help = "series alone whose name contains it"},
	{"strict", .offset = offsetof(struct request, strict), .help = "undecided is a failure"},
	{0},
};

static const struct operand_entry operands[] = {
	{"DIR", .names = NAMES_DIR, .offset = offsetof(struct request, dir)},
	{0},
};

static const struct operand_entry add_operands[] = {
	{"DIR", .names = NAMES_DIR, .offset = offsetof(struct request, dir)},
	{"DOCUMENT", .names = NAMES_FILE, .offset = offsetof(struct request, document)},
	{0},
};

static const struct command command_add = {
	.name = "bench history add",
	.summary = "keep a measurement by its commit",
	.options = add_options,
	.operands = add_operands,
	.args_bytes = sizeof(struct request),
	.run = run_add,
};

static const struct command command_show = {
	.name = "bench history show",
	.summary = "a table of all entries, steps marked",
	.options = show_options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.run = run_show,
};

static const struct command command_trend = {
	.name = "bench history trend",
	.summary = "a page of charts by commit, steps marked",
	.options = trend_options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.run = run_trend,
};

static const struct command command_gate = {
	.name = "bench history gate",
	.summary = "is the newest entry slower than the first since the last release?",
	.notes = "Exit status: 0 the same or faster, 1 slower, 2 they cannot be compared, 3 "
		 "undecided.",
	.options = gate_options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.run = run_gate,
};

const struct command command_bench_history = {
	.name = "bench history",
	.summary = "measurements by commit",
	.commands = (const struct command *const[]){&command_add, &command_show, &command_trend,
		&command_gate, NULL},
};
