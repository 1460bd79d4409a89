/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench: its verbs, and what they share. benches/METHOD.md says what each measures and
 * how.
 */
#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/report.h"
#include "benches/series.h"
#include "common/nearest.h"
#include "common/str.h"

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{"create", bench_create_main},
	{"boot", bench_boot_main},
	{"fault", bench_fault_main},
	{"density", bench_density_main},
	{"image", bench_image_main},
	{"exec", bench_exec_main},
	{"load", bench_pool_main},
	{"vm", bench_vm_main},
	{"ab", bench_ab_main},
	{"compare", bench_compare_main},
	{"history", bench_history_main},
	{"bisect", bench_bisect_main},
	{"bisect-step", bench_bisect_main}, /* what `git bisect run` runs */
	{"report", bench_report_main},
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

bool bench_take_output(int opt, struct bench_output *out, int *ret, struct err *err)
{
	*ret = 0;
	switch (opt) {
	case 'j':
		out->json = true;
		return true;
	case 'W':
		out->save = optarg;
		return true;
	case 'R':
		out->report = optarg;
		return true;
	case 'A':
		if (out->n_against == LIMIT_BENCH_FILES)
			*ret = err_set(
				err, E2BIG, "--against: at most %d documents", LIMIT_BENCH_FILES);
		else
			out->against[out->n_against++] = optarg;
		return true;
	case 'S':
		out->store_dir = optarg;
		return true;
	default:
		return false;
	}
}

int bench_finish(
	const struct bench_output *out, json_t *run, const struct text *text, struct err *err)
{
	cleanup_json json_t *doc = bench_document_new();
	int r = 0;

	bench_document_add(doc, run);
	if (out->save)
		r = bench_document_write(doc, out->save, err);
	if (r == 0 && out->report)
		r = report_write(out->report, doc, out->against, out->n_against, err);
	if (out->json)
		json_print_line(doc);
	else
		fputs(text->s ?: "", stdout);
	return r;
}

int bench_number(
	const char *option, const char *text, double min, double max, double *ret, struct err *err)
{
	char *end;
	double x;

	errno = 0;
	x = strtod(text, &end);
	if (errno || end == text || *end || !(x >= min && x <= max))
		return err_set(
			err, EINVAL, "%s %s: not a number within %g to %g", option, text, min, max);
	*ret = x;
	return 0;
}

int bench_percent(
	const char *option, const char *text, double min, double max, double *ret, struct err *err)
{
	cleanup_free char *number = str_dup(text);
	size_t len = strlen(number);

	if (len && number[len - 1] == '%')
		number[len - 1] = '\0';
	return bench_number(option, number, min, max, ret, err);
}

int bench_list(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret,
	size_t max, size_t *ret_n, struct err *err)
{
	size_t n = 0;

	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ",");
		char one[32];
		int r;

		if (n == max || len == 0 || len >= sizeof(one))
			return err_set(err, EINVAL,
				"%s %s: write at most %zu numbers, as in 1,10,50", option, text,
				max);
		memcpy(one, at, len);
		one[len] = '\0';
		r = cli_number(option, one, least, most, &ret[n++], err);
		if (r < 0)
			return r;
		at += len + (at[len] == ',');
	}
	if (n == 0)
		return err_set(err, EINVAL, "%s: no number", option);
	*ret_n = n;
	return 0;
}

void bench_print_head(struct text *out, const char *first, const char *unit)
{
	text_add(out, "%-24s %6s %6s %10s %10s %10s %10s  %s\n", first, "n", "failed", "p50", "p90",
		"p99", "max", unit);
}

void bench_print_series(struct text *out, const struct bench_series *s, double unit_ns)
{
	text_add(out, "%-24s %6zu %6zu", s->name, s->n, s->failed);
	for (int i = 0; i < 4; i++) {
		static const double percentiles[] = {50, 90, 99, 100};

		text_add(out, " %10.2f",
			(double)bench_series_percentile(s, percentiles[i]) / unit_ns);
	}
	text_add(out, "\n");
	if (s->failed)
		text_add(out, "  first failure: %s\n", s->first_error.text);
}

void bench_run_template(json_t *run, const struct store_manifest *m, struct template *t)
{
	const struct snapshot_config *c = template_config(t);

	bench_run_fact(run, "template", json_string(m->name));
	bench_run_fact(run, "tag", json_string(m->tag));
	bench_run_fact(run, "digest", json_string(m->digest));
	bench_run_fact(run, "accel", json_string(c->accel));
	bench_run_fact(run, "monitor", json_string(c->monitor));
	bench_run_fact(run, "monitor_version", json_string(c->monitor_version));
	bench_run_fact(run, "memory_bytes", json_integer((json_int_t)c->memory_bytes));
	bench_run_fact(run, "memory_data_bytes", json_integer((json_int_t)c->memory_data_bytes));
	bench_run_fact(run, "vcpus", json_integer((json_int_t)c->vcpus));
	bench_run_fact(run, "pager",
		json_string(pager_client_way(template_pager(t)) == PAGER_UFFD ? "userfaultfd"
									      : "private mapping"));
}

int cmd_bench(int argc, char **argv)
{
	const char *names[N_VERBS], *near;

	bench_file_mode = 0666 & ~cli_umask;
	for (size_t i = 0; i < N_VERBS; i++) {
		if (argc > 1 && !strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
		names[i] = verbs[i].name;
	}
	if (argc < 2)
		return cli_usage("bench",
			"which one? create, boot, fault, density, image, exec, load, vm, ab, "
			"compare, "
			"history, bisect, report");
	near = nearest_name(argv[1], names, N_VERBS);
	return cli_usage("bench", "there is no `bench %s`%s%s%s", argv[1],
		near ? ", do you mean `bench " : "", near ?: "", near ? "`?" : "");
}
