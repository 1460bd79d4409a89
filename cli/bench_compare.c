/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake bench compare OLD.json NEW.json: a gate for CI. Exit status 0 where nothing has become
 * worse beyond the limits, 1 where something has. benches/compare.h says how that is decided.
 *
 * parbake bench report: one page, or one document, of several documents.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "benches/compare.h"
#include "benches/report.h"
#include "cli/bench.h"

#define DEFAULT_LIMITS "p50=5%,p99=10%"

int bench_compare_main(int argc, char **argv)
{
	static const struct option options[] = {
		{"max-regress", required_argument, NULL, 'm'},
		{"only", required_argument, NULL, 'o'},
		{"json", no_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	struct compare_limit limits[COMPARE_LIMITS_MAX];
	cleanup_json json_t *old = NULL, *new = NULL, *result = NULL;
	cleanup_text struct text out = {0};
	const char *asked = DEFAULT_LIMITS, *only = NULL;
	struct err err = {0};
	bool json = false;
	size_t n;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'm')
			asked = optarg;
		else if (opt == 'o')
			only = optarg;
		else if (opt == 'j')
			json = true;
		else
			return cli_usage("bench", "see above");
	}
	if (argc - optind != 2)
		return cli_usage("bench", "write `bench compare OLD.json NEW.json`");
	if (compare_limits_parse(asked, limits, &n, &err) < 0)
		return cli_usage("bench", "--max-regress: %s", err.text);
	if ((r = bench_document_read(argv[optind], &old, &err)) < 0 ||
		(r = bench_document_read(argv[optind + 1], &new, &err)) < 0 ||
		(r = compare_documents(old, new, only, limits, n, &result, &err)) < 0)
		return cli_fail(&err);
	if (json) {
		json_print_line(result);
	} else {
		compare_print(&out, result);
		fputs(out.s, stdout);
	}
	return compare_regressed(result) ? CLI_FAILED : CLI_OK;
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
	if (optind == argc || argc - optind > LIMIT_BENCH_FILES ||
		!(out.save || out.json || out.report))
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
