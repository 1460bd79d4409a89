/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_BENCH_H
#define PARBAKE_CLI_BENCH_H

#include <getopt.h>
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
	const char *against[LIMIT_BENCH_FILES]; /* earlier documents for the page */
	size_t n_against;
	const char *store_dir;
};

/*
 * Their long options, for a verb's table; their values are these letters, which no verb uses
 * otherwise.
 */
#define BENCH_OUTPUT_OPTIONS                                                                       \
	{"json", no_argument, NULL, 'j'}, {"save", required_argument, NULL, 'W'},                  \
		{"report", required_argument, NULL, 'R'},                                          \
		{"against", required_argument, NULL, 'A'},                                         \
	{                                                                                          \
		"store", required_argument, NULL, 'S'                                              \
	}

/* Take one of them. False: @opt is another. *@ret is 0 or -errno. */
bool bench_take_output(int opt, struct bench_output *out, int *ret, struct err *err);
/* Print @text, or with --json the document that holds @run (taken); write what is to be written. */
int bench_finish(
	const struct bench_output *out, json_t *run, const struct text *text, struct err *err);
/* A number with a fraction: within [@min, @max] or an error that names the option. */
int bench_number(
	const char *option, const char *text, double min, double max, double *ret, struct err *err);
/* "5%" or "5": a percentage within [@min, @max]. */
int bench_percent(
	const char *option, const char *text, double min, double max, double *ret, struct err *err);
/* "1,10,50": at most @max numbers within [@least, @most]. */
int bench_list(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret,
	size_t max, size_t *ret_n, struct err *err);

/* The head and one line of a table of series without parts: times in @unit_ns ("ms": 1e6). */
struct bench_series;
void bench_print_head(struct text *out, const char *first, const char *unit);
void bench_print_series(struct text *out, const struct bench_series *s, double unit_ns);
/* Facts of the template in a run. */
void bench_run_template(json_t *run, const struct store_manifest *m, struct template *t);

/* The verbs. argv[0] is the verb; the value is an exit status. */
int bench_create_main(int argc, char **argv);
int bench_boot_main(int argc, char **argv);
int bench_fault_main(int argc, char **argv);
int bench_density_main(int argc, char **argv);
int bench_image_main(int argc, char **argv);
int bench_pool_main(int argc, char **argv);
int bench_exec_main(int argc, char **argv);
int bench_vm_main(int argc, char **argv);
int bench_ab_main(int argc, char **argv);
int bench_compare_main(int argc, char **argv);
int bench_bisect_main(int argc, char **argv);
int bench_history_main(int argc, char **argv);
int bench_report_main(int argc, char **argv);

#endif
