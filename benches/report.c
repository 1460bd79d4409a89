/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page: a head with the figures that people ask for first, the host, a section for each run,
 * and comparisons with earlier documents. HTML that is well-formed XML too, so that any parser
 * can judge it.
 */
#include "benches/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/chart.h"
#include "benches/compare_documents.h"
#include "benches/document.h"
#include "benches/report_private.h"
#include "common/limits.h"

#define TILES_MAX 6
#define INTERVALS_MAX 64

static const char style[] =
	":root{--bg:#ffffff;--fg:#1b1f24;--soft:#5b6570;--line:#d5dae0;--card:#f5f7f9;--bad:#"
	"c62828;\n"
	"--s0:#2563eb;--s1:#d97706;--s2:#0f8a5f;--s3:#d02f4b;--s4:#7c3aed;--s5:#0e7f9b;--s6:#"
	"b83280;--s7:#6b7280}\n"
	"@media "
	"(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ec;--soft:#9aa5b1;--line:#343b44;"
	"\n"
	"--card:#1c2127;--bad:#ff7b72;--s0:#6ea8fe;--s1:#f0b429;--s2:#4cc38a;--s3:#ff7a90;--s4:#"
	"b292f0;\n"
	"--s5:#4fc3dc;--s6:#ee7ab8;--s7:#a3acb8}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0 auto;max-width:1040px;padding:24px 20px "
	"60px;background:var(--bg);color:var(--fg);\n"
	"font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
	"h1{font-size:26px;margin:0}h2{font-size:20px;margin:0 0 "
	"12px}h3{font-size:16px;margin:20px 0 8px}\n"
	".sub{color:var(--soft);margin:4px 0 20px}\n"
	"nav{margin:18px 0;display:flex;flex-wrap:wrap;gap:4px "
	"16px;font-size:14px}a{color:var(--s0);text-decoration:none}\n"
	"section{background:var(--card);border:1px solid "
	"var(--line);border-radius:10px;padding:20px;margin:20px 0}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}\n"
	".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px "
	"14px}\n"
	".tile b{display:block;font-size:24px;line-height:1.2;font-weight:600}.tile "
	"span{color:var(--soft);font-size:13px}\n"
	"figure{margin:0 0 20px}figcaption{font-weight:600;margin-bottom:4px}\n"
	"svg{display:block;width:100%;height:auto;overflow:visible}\n"
	".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:20px}\n"
	".single{max-width:600px}.wide td{white-space:nowrap}\n"
	"text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
	"Sans',sans-serif;fill:var(--fg)}\n"
	"text.label,text.value{fill:var(--soft)}text.inside{fill:var(--card)}text.head{font-weight:"
	"600}\n"
	".grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}\n"
	".mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}\n"
	".line{fill:none;stroke-width:2;stroke-linejoin:round}.dot{stroke:var(--card);stroke-width:"
	"1}\n"
	".faint{stroke:var(--soft)}.dot.faint{fill:var(--soft)}.bar{rx:2px}\n"
	".s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}\n"
	".s4{stroke:var(--s4)}.s5{stroke:var(--s5)}.s6{stroke:var(--s6)}.s7{stroke:var(--s7)}\n"
	".f0{fill:var(--s0)}.f1{fill:var(--s1)}.f2{fill:var(--s2)}.f3{fill:var(--s3)}\n"
	".f4{fill:var(--s4)}.f5{fill:var(--s5)}.f6{fill:var(--s6)}.f7{fill:var(--s7)}\n"
	".legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 18px;margin:6px 0 "
	"0;padding:0;font-size:13px}\n"
	".key{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;"
	"vertical-align:-1px}\n"
	".k0{background:var(--s0)}.k1{background:var(--s1)}.k2{background:var(--s2)}.k3{background:"
	"var(--s3)}\n"
	".k4{background:var(--s4)}.k5{background:var(--s5)}.k6{background:var(--s6)}.k7{background:"
	"var(--s7)}\n"
	"table{border-collapse:collapse;width:100%;margin:0 0 "
	"20px;font-size:14px;font-variant-numeric:tabular-nums}\n"
	"th,td{padding:5px 10px;border-bottom:1px solid "
	"var(--line);text-align:left;vertical-align:top}\n"
	"th{font-weight:600}th.n,td.n{text-align:right;white-space:nowrap}tr:last-child>*{border-"
	"bottom:0}\n"
	".facts td.n{text-align:left}.facts th{width:12em;color:var(--soft);font-weight:400}\n"
	".facts td{overflow-wrap:anywhere}\n"
	".wide{overflow-x:auto}.bad{color:var(--bad);font-weight:600}.note{color:var(--soft);font-"
	"size:14px}\n"
	"details{margin-top:14px}summary{cursor:pointer;color:var(--soft)}\n";

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
	for (i = 0; i < n_against; i++)
		text_add(out, "<a href=\"#against%zu\">Comparison %zu</a>\n", i, i + 1);
	text_add(out, "<a href=\"#host\">Host</a></nav>\n");
}

/* ---- comparisons --------------------------------------------------------------------------- */

static size_t intervals(const json_t *result, struct chart_interval *list)
{
	const json_t *row;
	size_t i, n = 0;

	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		const json_t *high = json_object_get(row, "high"),
			     *low = json_object_get(row, "low");
		struct chart_interval *c = &list[n];

		if (n == INTERVALS_MAX)
			break;
		/* what has no interval has no place in the picture */
		if (!json_is_number(low) && !json_is_number(high))
			continue;
		n++;
		*c = (struct chart_interval){
			.estimate = json_number_value(json_object_get(row, "change")),
			.low = json_is_number(low) ? json_number_value(low) : -1,
			.high = json_is_number(high) ? json_number_value(high) : 10,
			.limit = json_number_value(json_object_get(row, "limit")),
			.bad = !strcmp(text_of(row, "verdict"), "slower"),
			.open = !strcmp(text_of(row, "verdict"), "undecided"),
		};
		snprintf(c->group, sizeof(c->group), "%s", text_of(row, "id"));
		snprintf(c->name, sizeof(c->name), "%.32s %.12s", text_of(row, "name"),
			text_of(row, "quantity"));
	}
	return n;
}

static void comparison_table(struct text *out, const json_t *result)
{
	const json_t *row, *note;
	size_t i;

	text_add(out,
		"<div class=\"wide\"><table><tr><th>series</th><th class=\"n\"></th><th "
		"class=\"n\">n</th>"
		"<th class=\"n\">then ms</th><th class=\"n\">now ms</th><th class=\"n\">change</th>"
		"<th>verdict</th></tr>\n");
	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		bool bad = !strcmp(text_of(row, "verdict"), "slower");
		double percentile = json_number_value(json_object_get(row, "percentile"));

		if (percentile == COMPARE_FAILURES && !bad)
			continue;

		text_add(out, "<tr><td>");
		text_escape(out, text_of(row, "id"));
		text_add(out, ", ");
		text_escape(out, text_of(row, "name"));
		text_add(out, "</td><td class=\"n\">");
		text_escape(out, text_of(row, "quantity"));
		text_add(out,
			"</td><td class=\"n\">%lld, %lld</td><td class=\"n\">%.2f</td>"
			"<td class=\"n\">%.2f</td><td class=\"n\">%+.1f %%</td><td%s>",
			(long long)json_integer_value(json_object_get(row, "n_old")),
			(long long)json_integer_value(json_object_get(row, "n_new")),
			(double)json_integer_value(json_object_get(row, "old_ns")) / 1e6,
			(double)json_integer_value(json_object_get(row, "new_ns")) / 1e6,
			json_number_value(json_object_get(row, "change")) * 100,
			bad ? " class=\"bad\"" : "");
		text_escape(out, text_of(row, "verdict"));
		text_add(out, "</td></tr>\n");
	}
	text_add(out, "</table></div>\n");
	json_array_foreach(json_object_get(result, "notes"), i, note)
	{
		text_add(out, "<p class=\"note\">");
		text_escape(out, json_string_value(note) ?: "");
		text_add(out, "</p>\n");
	}
	json_array_foreach(json_object_get(result, "why"), i, note)
	{
		text_add(out, "<p class=\"note\">");
		text_escape(out, json_string_value(note) ?: "");
		text_add(out, "</p>\n");
	}
}

static void comparison(
	struct text *out, const json_t *old, const json_t *new, const char *name, size_t number)
{
	static const struct compare_limit limits[] = {
		{50, 0.05}, {90, 0.10}, {99, 0.10}, {COMPARE_FAILURES, 0}};
	static const struct compare_request rq = {
		.limits = limits, .n_limits = 4, .detect = 0.05, .across = ACROSS_ALL};
	struct chart_interval *list = calloc(INTERVALS_MAX, sizeof(*list));
	cleanup_json json_t *result = NULL;
	struct err err;

	if (!list)
		abort();
	text_add(out, "<section id=\"against%zu\"><h2>Compared with ", number);
	text_escape(out, name);
	text_add(out, "</h2><p class=\"sub\">of ");
	text_escape(out, text_of(old, "created"));
	text_add(out, ", parbake ");
	text_escape(out, text_of(old, "parbake"));
	text_add(out,
		"; the change of each percentile with its 95 %% interval, and the limits 5 %% and "
		"10 %%</p>\n");
	if (compare_documents(old, new, &rq, &result, &err) < 0) {
		text_add(out, "<p class=\"note\">");
		text_escape(out, err.text);
		text_add(out, "</p>\n");
	} else {
		chart_intervals(out, "Change", list, intervals(result, list));
		comparison_table(out, result);
	}
	text_add(out, "</section>\n");
	free(list);
}

/* ---- the page ------------------------------------------------------------------------------ */

void report_page(struct text *out, const json_t *doc, json_t *const *against,
	const char *const *names, size_t n)
{
	const json_t *host = json_object_get(doc, "host"), *run;
	size_t i;

	text_add(out,
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
		"<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>parbake "
		"bench</title>\n<style>\n");
	text_add(out, "%s", style);
	text_add(out, "</style></head><body>\n<h1>parbake bench</h1>\n<p class=\"sub\">");
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
	tiles(out, doc);
	navigation(out, doc, n);
	json_array_foreach(json_object_get(doc, "runs"), i, run) report_run(out, run, i);
	for (i = 0; i < n; i++)
		comparison(out, against[i], doc, names[i], i);
	text_add(out, "<section id=\"host\"><h2>Host</h2>\n");
	report_facts(out, host);
	text_add(out, "</section>\n</body></html>\n");
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
