/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page: a head with the figures that people ask for first, the host, a section for each run,
 * and comparisons with earlier documents. HTML that is well-formed XML too, so that any parser
 * can judge it.
 */
#include "benches/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/document.h"
#include "benches/report_private.h"
#include "common/limits.h"

#define TILES_MAX 6

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

/* ---- the head ------------------------------------------------------------------------------ */

static void tile(struct text *out, const char *label, const char *fmt, double value)
{
	text_add(out, "<div class=\"tile\"><b>");
	text_add(out, fmt, value);
	text_add(out, "</b><span>");
	text_escape(out, label);
	text_add(out, "</span></div>\n");
}

/* The first run of creates: its medians, and how they stand to the boot. */
static void tiles(struct text *out, const json_t *doc)
{
	const json_t *run, *first = NULL, *one;
	double cold = 0, boot = 0;
	size_t i, j, n = 0;

	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		if (!first && !strcmp(text_of(run, "bench"), "create"))
			first = run;
	}
	if (!first)
		return;
	text_add(out, "<div class=\"tiles\">\n");
	json_array_foreach(json_object_get(first, "series"), j, one)
	{
		double p50 = (double)json_integer_value(json_object_get(one, "p50_ns")) / 1e6;
		const char *name = text_of(one, "name");
		char label[96];

		if (!json_integer_value(json_object_get(one, "n")) || !strcmp(name, "first") ||
			n++ == TILES_MAX)
			continue;
		cold = !strcmp(name, "cold") ? p50 : cold;
		boot = !strcmp(name, "boot") ? p50 : boot;
		snprintf(label, sizeof(label), "%s %s, p50",
			text_of(json_object_get(first, "facts"), "template"),
			!strcmp(name, "boot") ? "cold boot" : name);
		tile(out, label, p50 < 100 ? "%.1f ms" : "%.0f ms", p50);
	}
	if (cold > 0 && boot > 0)
		tile(out, "a cold create against the boot", "%.1f ×", boot / cold);
	text_add(out, "</div>\n");
}

static void navigation(struct text *out, const json_t *doc, size_t n_against)
{
	const json_t *run;
	size_t i;

	text_add(out, "<nav>\n");
	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		text_add(out, "<a href=\"#run%zu\">", i);
		text_escape(out, text_of(run, "title"));
		text_add(out, "</a>\n");
	}
	if (n_against)
		text_add(out, "<a href=\"#against\">Compared with %zu</a>\n", n_against);
	text_add(out, "<a href=\"#host\">Host</a></nav>\n");
}

/* ---- the page ------------------------------------------------------------------------------ */

void report_page(struct text *out, const json_t *doc, json_t *const *against,
	const char *const *names, size_t n)
{
	const json_t *host = json_object_get(doc, "host"), *run;
	cleanup_json json_t *joined = report_join(doc);
	size_t i;

	report_begin(out, "parbake bench");
	text_add(out, "<h1>parbake bench</h1>\n<p class=\"sub\">");
	text_escape(out, text_of(doc, "created"));
	text_add(out, ", parbake ");
	text_escape(out, text_of(doc, "parbake"));
	text_add(out, "; %lld cores, ",
		(long long)json_integer_value(json_object_get(host, "cores")));
	text_escape(out, text_of(host, "accel"));
	text_add(out, ", ");
	text_escape(out, text_of(host, "monitor"));
	text_add(out, " ");
	text_escape(out, text_of(host, "monitor_version"));
	text_add(out, ", Linux ");
	text_escape(out, text_of(host, "kernel"));
	text_add(out, "</p>\n");
	report_in_turn(out, doc);
	tiles(out, joined);
	navigation(out, joined, n);
	json_array_foreach(json_object_get(joined, "runs"), i, run) report_run(out, run, i);
	report_comparisons(out, doc, against, names, n);
	text_add(out, "<section id=\"host\"><h2>Host</h2>\n");
	report_facts(out, host);
	text_add(out, "</section>\n");
	report_end(out);
}

int report_write(
	const char *path, const json_t *doc, const char *const *against, size_t n, struct err *err)
{
	json_t *old[LIMIT_BENCH_FILES];
	cleanup_text struct text out = {0};
	size_t read = 0;
	int r = 0;

	if (n > LIMIT_BENCH_FILES)
		return err_set(
			err, E2BIG, "at most %d documents to compare with", LIMIT_BENCH_FILES);
	while (read < n && r == 0) {
		r = bench_document_read(against[read], &old[read], err);
		read += r == 0;
	}
	if (r == 0) {
		report_page(&out, doc, old, against, n);
		r = bench_publish(path, out.s, out.len, err);
	}
	for (size_t i = 0; i < read; i++)
		json_decref(old[i]);
	return r;
}
