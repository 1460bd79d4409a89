/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_H
#define PARBAKE_CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "benches/document.h"
#include "benches/text.h"
#include "cli/cli.h"
#include "common/limits.h"

/* What the verbs of `parbake bench` share: how results leave. */
struct bench_output {
	bool json;
	const char *save; /* the document is written there */
	const char *report; /* a page is */
	struct words against; /* earlier documents for the page */
	const char *store_dir;
};
/* Their options, for a verb's table: {.kind = OPTION_TABLE, .table = bench_output_options, .offset = …}. */
extern const struct option_entry bench_output_options[];
#define BENCH_OUTPUT(type, field)                                                                  \
	{                                                                                          \
		.kind = OPTION_TABLE, .table = bench_output_options,                               \
		.offset = offsetof(type, field)                                                    \
	}

/* "-n" for so many of @what, within 1 and @most, into the uint64_t @field. */
#define BENCH_COUNT(type, field, most, what)                                                       \
	{                                                                                          \
		.letter = 'n', .kind = OPTION_NUMBER, .min = 1, .max = (most), .value = "N",       \
		.offset = offsetof(type, field), .help = what                                      \
	}

/* Print @text, or with --json the document that holds @run (taken); write what is to be written. */
int bench_finish(
	const struct bench_output *out, json_t *run, const struct text *text, struct err *err);
/* "5%" or "5": a percentage within [@min, @max]. */
int bench_percent(
	const char *option, const char *text, double min, double max, double *ret, struct err *err);
/* "1,10,50": numbers of an option, in its order. */
#define BENCH_NUMBERS_MAX 16
struct bench_numbers {
	uint64_t items[BENCH_NUMBERS_MAX];
	size_t n;
};
/* Each within [@least, @most]. */
int bench_numbers(const char *option, const char *text, uint64_t least, uint64_t most,
	struct bench_numbers *ret, struct err *err);
/* For OPTION_CALL, into a struct bench_numbers: KiB of frames or windows, powers of two within 4 and 4096. */
int bench_take_kib(void *field, const char *option, const char *text, struct err *err);

/* The head and one line of a table of series without parts: times in @unit_ns ("ms": 1e6). */
struct bench_series;
void bench_print_head(struct text *out, const char *first, const char *unit);
void bench_print_series(struct text *out, const struct bench_series *s, double unit_ns);
/* Facts of the template in a run. */
void bench_run_template(json_t *run, const struct store_manifest *m, struct template *t);

/* The verbs, each in its own file. */
extern const struct command command_bench_create;
extern const struct command command_bench_boot;
extern const struct command command_bench_exec;
extern const struct command command_bench_load;
extern const struct command command_bench_density;
extern const struct command command_bench_fault;
extern const struct command command_bench_image;
extern const struct command command_bench_vm;
extern const struct command command_bench_ab;
extern const struct command command_bench_compare;
extern const struct command command_bench_history;
extern const struct command command_bench_bisect;
extern const struct command command_bench_bisect_step;
extern const struct command command_bench_report;

#endif
