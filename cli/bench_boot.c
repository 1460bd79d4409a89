/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench boot: the cold boot that a restore is compared with, many times (benches/boot.c).
 */
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

int bench_boot_main(int argc, char **argv)
{
	static const struct option options[] = {BENCH_OUTPUT_OPTIONS, {NULL, 0, NULL, 0}};
	struct bench_output out = {0};
	cleanup_series struct bench_series series = {0};
	cleanup_manifest struct store_manifest m = {0};
	cleanup_template struct template *t = NULL;
	cleanup_store struct store *s = NULL;
	struct progress *progress;
	struct err err = {0};
	uint64_t n = 10;
	int opt, r = 0;

	while ((opt = getopt_long(argc, argv, "n:", options, NULL)) != -1) {
		if (opt == 'n')
			r = cli_number("-n", optarg, 1, 10000, &n, &err);
		else if (!bench_take_output(opt, &out, &r, &err))
			return cli_usage("bench", "see above");
		if (r < 0)
			return cli_usage("bench", "%s", err.text);
	}
	if (argc - optind != 1)
		return cli_usage("bench", "write `bench boot TEMPLATE`");
	progress = progress_new(PROGRESS_AUTO);
	bench_series_init(&series, "boot", false, false);
	r = cli_resolve(out.store_dir, argv[optind], &s, &m, &err);
	if (r == 0)
		r = template_open(
			s, &m, &(struct template_options){.progress = progress}, &t, &err);
	if (r == 0) {
		run_boots(s, &m, t, n, progress, &series);
		r = finish(&out, &m, t, &series, &err);
	}
	progress_free(progress);
	return r < 0 ? cli_fail(&err) : CLI_OK;
}
