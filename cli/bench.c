/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench: its verbs, and what they share. benches/METHOD.md says what each measures and
 * how.
 */
#include "cli/bench.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/report.h"
#include "benches/series.h"
#include "common/str.h"

const struct option_entry bench_output_options[] = {
	{"json", .offset = offsetof(struct bench_output, json),
		.help = "print the document, raw samples included", .section = "Results"},
	{"save", .kind = OPTION_TEXT, .names = NAMES_FILE,
		.offset = offsetof(struct bench_output, save), .value = "FILE",
		.help = "write the document there"},
	{"report", .kind = OPTION_TEXT, .names = NAMES_FILE,
		.offset = offsetof(struct bench_output, report), .value = "PAGE",
		.help = "write a page with pictures there"},
	{"against", .kind = OPTION_WORDS, .names = NAMES_FILE, .max = LIMIT_BENCH_FILES,
		.offset = offsetof(struct bench_output, against), .value = "OLD",
		.help = "compare with that document on the page"},
	OPTION_STORE(struct bench_output, store_dir),
	{0},
};

int bench_finish(
	const struct bench_output *out, json_t *run, const struct text *text, struct err *err)
{
	cleanup_json json_t *doc = bench_document_new();
	int r = 0;

	bench_document_add(doc, run);
	if (out->save)
		r = bench_document_write(doc, out->save, err);
	if (r == 0 && out->report)
		r = report_write(out->report, doc, out->against.items, out->against.n, err);
	if (out->json)
		json_print_line(doc);
	else
		fputs(text->s ?: "", stdout);
	return r;
}

int bench_percent(
	const char *option, const char *text, double min, double max, double *ret, struct err *err)
{
	cleanup_free char *number = str_dup(text);
	size_t len = strlen(number);
	char *end;
	double x;

	if (len && number[len - 1] == '%')
		number[len - 1] = '\0';
	errno = 0;
	x = strtod(number, &end);
	if (errno || end == number || *end || !(x >= min && x <= max))
		return err_set(err, EINVAL, "%s %s: not a percentage within %g to %g", option, text,
			min, max);
	*ret = x;
	return 0;
}

int bench_numbers(const char *option, const char *text, uint64_t least, uint64_t most,
	struct bench_numbers *ret, struct err *err)
{
	ret->n = 0;
	for (const char *at = text; *at;) {
		size_t len = strcspn(at, ",");
		char one[32];
		int r;

		if (ret->n == BENCH_NUMBERS_MAX || len == 0 || len >= sizeof(one))
			return err_set(err, EINVAL,
				"%s %s: write at most %d numbers, as in 1,10,50", option, text,
				BENCH_NUMBERS_MAX);
		memcpy(one, at, len);
		one[len] = '\0';
		r = cli_number(option, one, least, most, &ret->items[ret->n++], err);
		if (r < 0)
			return r;
		at += len + (at[len] == ',');
	}
	return ret->n ? 0 : err_set(err, EINVAL, "%s: no number", option);
}

int bench_take_kib(void *field, const char *option, const char *text, struct err *err)
{
	struct bench_numbers *list = field;
	int r = bench_numbers(option, text, 4, 4096, list, err);

	for (size_t i = 0; i < list->n && r == 0; i++) {
		if (list->items[i] & (list->items[i] - 1))
			r = err_set(err, EINVAL, "%s %s: KiB, powers of two", option, text);
	}
	return r;
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

const struct command command_bench = {
	.name = "bench",
	.summary = "measure creates and what they are made of; compare, report, gate",
	.notes = "benches/METHOD.md says what is measured and how.",
	.commands = (const struct command *const[]){&command_bench_create, &command_bench_boot,
		&command_bench_exec, &command_bench_load, &command_bench_density,
		&command_bench_fault, &command_bench_image, &command_bench_vm, &command_bench_ab,
		&command_bench_compare, &command_bench_history, &command_bench_bisect,
		&command_bench_bisect_step, &command_bench_report, NULL},
};
