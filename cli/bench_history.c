/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench history add|show|trend|gate: create latency by commit (benches/history.h). The directory is the user's:
 * a folder of a repository, a branch's work tree, what a CI keeps.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/compare_documents.h"
#include "benches/history.h"
#include "cli/bench.h"
#include "common/proc.h"
#include "common/str.h"

#define GIT_MS 10000
#define GIT_BYTES 4096

struct request {
	struct history_label label;
	const char *report, *only;
	bool json, strict;
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

static int add(const char *dir, const char *path, struct request *rq, struct err *err)
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
	int r = bench_document_read(path, &doc, err);

	if (r < 0)
		return r;
	rq->label.commit = full ?: rq->label.commit;
	rq->label.branch = rq->label.branch ?: branch;
	rq->label.time = rq->label.time ?: time;
	if (!rq->label.commit || !rq->label.time)
		return err_set(err, EINVAL, "no git repository here: say --commit and --time");
	r = history_add(dir, doc, &rq->label, &file, err);
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

static int trend(const struct history *h, const struct request *rq, struct err *err)
{
	cleanup_text struct text out = {0};

	history_page(&out, h, rq->label.branch);
	return bench_publish(rq->report, out.s, out.len, err);
}

static int take(int opt, struct request *rq)
{
	switch (opt) {
	case 'c':
		rq->label.commit = optarg;
		return 0;
	case 'b':
		rq->label.branch = optarg;
		return 0;
	case 't':
		rq->label.time = optarg;
		return 0;
	case 'r':
		rq->label.release = optarg;
		return 0;
	case 'n':
		rq->label.note = optarg;
		return 0;
	case 'R':
		rq->report = optarg;
		return 0;
	case 'o':
		rq->only = optarg;
		return 0;
	case 's':
		rq->strict = true;
		return 0;
	default:
		return -EINVAL;
	}
}

int bench_history_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"commit", required_argument, NULL, 'c'},
		{"branch", required_argument, NULL, 'b'},
		{"time", required_argument, NULL, 't'},
		{"release", required_argument, NULL, 'r'},
		{"note", required_argument, NULL, 'n'},
		{"report", required_argument, NULL, 'R'},
		{"only", required_argument, NULL, 'o'},
		{"strict", no_argument, NULL, 's'},
		{NULL, 0, NULL, 0},
	};
	cleanup_history struct history h = {0};
	cleanup_text struct text out = {0};
	struct request rq = {0};
	struct err err = {0};
	const char *verb;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (take(opt, &rq) < 0)
			return cli_usage("bench", "see above");
	}
	verb = optind < argc ? argv[optind] : "";
	if (!strcmp(verb, "add") && argc - optind == 3) {
		r = add(argv[optind + 1], argv[optind + 2], &rq, &err);
		return r < 0 ? cli_fail(&err) : CLI_OK;
	}
	if (argc - optind != 2 ||
		(strcmp(verb, "show") && strcmp(verb, "trend") && strcmp(verb, "gate")) ||
		(!strcmp(verb, "trend") && !rq.report))
		return cli_usage("bench",
			"write `bench history add DIR DOCUMENT.json`, `show DIR`, `trend DIR "
			"--report "
			"PAGE.html` or `gate DIR`");
	r = history_read(argv[optind + 1], &h, &err);
	if (r == 0 && !strcmp(verb, "trend"))
		r = trend(&h, &rq, &err);
	if (r < 0) {
		cli_fail(&err);
		return strcmp(verb, "gate") ? CLI_FAILED : OUTCOME_INCOMPARABLE;
	}
	if (!strcmp(verb, "gate"))
		return gate(&h, &rq);
	if (!strcmp(verb, "show")) {
		history_print(&out, &h, rq.label.branch);
		fputs(out.s ?: "", stdout);
	}
	return CLI_OK;
}
