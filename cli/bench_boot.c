/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench boot: the cold boot that a restore is compared with, many times (benches/boot.c).
 */
#include <stddef.h>

#include "benches/boot.h"
#include "benches/series.h"
#include "cli/bench.h"
#include "common/progress.h"
#include "common/str.h"

static void run_boots(struct store *s, const struct store_manifest *m, struct template *t,
	uint64_t n, struct progress *progress, struct bench_series *series)
{
	progress_stage(progress, "boot", "boots", n);
	for (uint64_t i = 0; i < n; i++) {
		struct err why = {0};
		int64_t took;

		if (bench_boot(s, m, t, &took, NULL, NULL, &why) == 0)
			bench_series_add_time(series, took);
		else
			bench_series_fail(series, &why);
		progress_update(progress, i + 1);
	}
	progress_done(progress, "%zu failed", series->failed);
}

static int finish(const struct bench_output *o, const struct store_manifest *m, struct template *t,
	const struct bench_series *series, struct err *err)
{
	cleanup_free char *id = str_printf("boot %s", m->name);
	cleanup_free char *title = str_printf("Cold boot of %s to the agent's answer", m->name);
	cleanup_text struct text out = {0};
	json_t *run = bench_run_new("boot", id, title);
	int r;

	bench_run_template(run, m, t);
	bench_run_append(run, "series", bench_series_to_json(series));
	text_add(&out, "%s; times in ms\n", title);
	bench_print_head(&out, "", "");
	bench_print_series(&out, series, 1e6);
	r = bench_finish(o, run, &out, err);
	if (r == 0 && series->failed)
		r = err_set(err, EIO, "%zu boots failed", series->failed);
	return r;
}

struct request {
	struct bench_output out;
	const char *template;
	uint64_t n;
};

static int run(void *args)
{
	const struct request *rq = args;
	cleanup_series struct bench_series series = {0};
	cleanup_manifest struct store_manifest m = {0};
	cleanup_template struct template *t = NULL;
	cleanup_store struct store *s = NULL;
	struct progress *progress = progress_new(PROGRESS_AUTO);
	struct err err = {0};
	int r;

	bench_series_init(&series, "boot", false, false);
	r = cli_resolve(rq->out.store_dir, rq->template, &s, &m, &err);
	if (r == 0)
		r = template_open(
			s, &m, &(struct template_options){.progress = progress}, &t, &err);
	if (r == 0) {
		run_boots(s, &m, t, rq->n, progress, &series);
		r = finish(&rq->out, &m, t, &series, &err);
	}
	progress_free(progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct option_entry options[] = {
	BENCH_COUNT(struct request, n, 10000, "boots (10)"),
	BENCH_OUTPUT(struct request, out),
	{0},
};

static const struct operand_entry operands[] = {
	{"TEMPLATE", .names = NAMES_TEMPLATE, .offset = offsetof(struct request, template)},
	{0},
};

const struct command command_bench_boot = {
	.name = "bench boot",
	.summary = "cold boots of a template's machine",
	.options = options,
	.operands = operands,
	.args_bytes = sizeof(struct request),
	.defaults = &(const struct request){.n = 10},
	.run = run,
};
