/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run as a section of the page: its pictures by what was measured, its samples and its table
 * as they are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/chart.h"
#include "benches/report_private.h"
#include "benches/svg.h"

#define SERIES_MAX 16
#define POINTS_MAX 64

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static void report_cell(struct text *out, const json_t *value)
{
	char number[32];

	if (json_is_number(value)) {
		text_add(out, "<td class=\"n\">%s</td>",
			svg_number(json_number_value(value), number));
		return;
	}
	text_add(out, "<td>");
	text_escape(out,
		json_is_true(value) ? "yes"
			: json_is_false(value) ? "no"
					       : json_string_value(value) ?: "–");
	text_add(out, "</td>");
}

void report_facts(struct text *out, const json_t *facts)
{
	const char *key;
	json_t *value;

	text_add(out, "<table class=\"facts\">\n");
	json_object_foreach((json_t *)facts, key, value)
	{
		if (!json_is_string(value) && !json_is_number(value))
			continue;
		text_add(out, "<tr><th>");
		text_escape(out, key);
		text_add(out, "</th>");
		report_cell(out, value);
		text_add(out, "</tr>\n");
	}
	text_add(out, "</table>\n");
}

/* ---- series -------------------------------------------------------------------------------- */

static void series_row(struct text *out, const struct bench_series *s)
{
	text_add(out, "<tr><th>");
	text_escape(out, s->name);
	text_add(out, "</th><td class=\"n\">%zu</td><td class=\"n%s\">%zu</td>", s->n,
		s->failed ? " bad" : "", s->failed);
	for (int i = 0; i < 4; i++) {
		static const double percentiles[] = {50, 90, 99, 100};

		text_add(out, "<td class=\"n\">%.2f</td>",
			ms(bench_series_percentile(s, percentiles[i])));
	}
	if (s->has_faults)
		text_add(out, "<td class=\"n\">%llu</td><td class=\"n\">%llu</td>",
			(unsigned long long)bench_median_faults(s),
			(unsigned long long)bench_median_premapped(s));
	else
		text_add(out, "<td class=\"n\">–</td><td class=\"n\">–</td>");
	text_add(out, "</tr>\n");
	if (s->failed) {
		text_add(out, "<tr><td colspan=\"9\" class=\"bad\">first failure: ");
		text_escape(out, s->first_error.text);
		text_add(out, "</td></tr>\n");
	}
}

static void series_section(struct text *out, const json_t *run)
{
	const struct bench_series *curves[SERIES_MAX];
	struct bench_series *all = calloc(SERIES_MAX, sizeof(*all));
	size_t n = 0, n_curves = 0, i;
	const json_t *one;

	if (!all)
		abort();
	json_array_foreach(json_object_get(run, "series"), i, one)
	{
		struct err err;

		if (n == SERIES_MAX || bench_series_from_json(one, &all[n], &err) < 0)
			continue;
		/* a curve of one point is none */
		if (all[n].n > 1)
			curves[n_curves++] = &all[n];
		n++;
	}
	if (n_curves)
		chart_ecdf(out, "How many are done by when", curves, n_curves);
	report_scroller(out, "percentiles of each series");
	text_add(out,
		"<table>\n<tr><th></th><th class=\"n\">n</th><th class=\"n\">failed</th>"
		"<th class=\"n\">p50 ms</th><th class=\"n\">p90</th><th class=\"n\">p99</th>"
		"<th class=\"n\">max</th><th class=\"n\">faults</th><th "
		"class=\"n\">premapped</th></tr>\n");
	for (i = 0; i < n; i++) {
		series_row(out, &all[i]);
		bench_series_clear(&all[i]);
	}
	text_add(out, "</table></div>\n");
	free(all);
}

static void traces_section(struct text *out, const json_t *run)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(run, "traces"), i, one)
	{
		cleanup_trace struct bench_trace t = {0};
		struct err err;

		if (bench_trace_from_json(one, &t, &err) < 0)
			continue;
		chart_waterfall(out, &t);
		chart_faults(out, &t);
	}
}

/* ---- tables and what can be drawn of them --------------------------------------------------- */

static void table_section(struct text *out, const json_t *run)
{
	const json_t *table = json_object_get(run, "table"), *row, *cell;
	size_t i, j;

	if (!json_array_size(json_object_get(table, "rows")))
		return;
	report_scroller(out, "what was measured");
	text_add(out, "<table>\n<tr>");
	json_array_foreach(json_object_get(table, "columns"), i, cell)
	{
		const json_t *below =
			json_array_get(json_array_get(json_object_get(table, "rows"), 0), i);

		text_add(out, "<th%s>", json_is_number(below) ? " class=\"n\"" : "");
		text_escape(out, json_string_value(cell) ?: "");
		text_add(out, "</th>");
	}
	text_add(out, "</tr>\n");
	json_array_foreach(json_object_get(table, "rows"), i, row)
	{
		text_add(out, "<tr>");
		json_array_foreach(row, j, cell) report_cell(out, cell);
		text_add(out, "</tr>\n");
	}
	text_add(out, "</table></div>\n");
}

/* Lines being gathered: points by the name of their line. */
struct lines {
	struct chart_line list[CHART_SERIES_MAX];
	double points[CHART_SERIES_MAX][POINTS_MAX][2];
	size_t n;
};

static void add_point(struct lines *l, const char *name, double x, double y)
{
	size_t i = 0;
	struct chart_line *line;

	while (i < l->n && strcmp(l->list[i].name, name))
		i++;
	if (i == CHART_SERIES_MAX)
		return;
	line = &l->list[i];
	if (i == l->n) {
		l->n++;
		snprintf(line->name, sizeof(line->name), "%s", name);
		line->points = l->points[i];
	}
	if (line->n == POINTS_MAX)
		return;
	line->points[line->n][0] = x;
	line->points[line->n++][1] = y;
}

static double cell(const json_t *row, size_t column)
{
	return json_number_value(json_array_get(row, column));
}

static const char *cell_text(const json_t *row, size_t column)
{
	return json_string_value(json_array_get(row, column)) ?: "";
}

static const json_t *rows_of(const json_t *run)
{
	return json_object_get(json_object_get(run, "table"), "rows");
}

/* Columns as cli/bench_density.c has them. */
static void density_section(struct text *out, const json_t *run)
{
	struct lines *own = calloc(1, sizeof(*own)), *all = calloc(1, sizeof(*all));
	double boot =
		json_number_value(json_object_get(json_object_get(run, "facts"), "boot_pss_mib"));
	const json_t *row;
	size_t i;

	if (!own || !all)
		abort();
	json_array_foreach(rows_of(run), i, row)
	{
		add_point(own, cell_text(row, 1), cell(row, 0), cell(row, 2));
		add_point(all, cell_text(row, 1), cell(row, 0), cell(row, 7));
	}
	if (boot > 0 && all->n) {
		const struct chart_line *first = &all->list[0];
		size_t points = first->n;

		for (i = 0; i < points; i++)
			add_point(all, "as many machines booted", all->list[0].points[i][0],
				all->list[0].points[i][0] * boot);
	}
	text_add(out, "<div class=\"pair\">\n");
	chart_lines(out, "Guest memory a clone has for itself", "clones", "MiB", false, own->list,
		own->n);
	chart_lines(out, "All that they take (PSS), the pager included", "clones", "MiB", false,
		all->list, all->n);
	text_add(out, "</div>\n");
	free(own);
	free(all);
}

/* Columns as cli/bench_fault.c has them. */
static void fault_section(struct text *out, const json_t *run)
{
	struct lines *l = calloc(1, sizeof(*l));
	double frame = 0;
	const json_t *row;
	size_t i;

	if (!l)
		abort();
	json_array_foreach(rows_of(run), i, row)
	{
		char name[48];

		if (!strcmp(cell_text(row, 0), "private mapping"))
			continue; /* knows no windows */
		frame = cell(row, 3);
		if (!strcmp(cell_text(row, 0), "zstd frame"))
			snprintf(name, sizeof(name), "zstd frame of %.0f KiB", frame);
		else
			snprintf(name, sizeof(name), "%.20s, %.8s", cell_text(row, 0),
				cell_text(row, 1));
		add_point(l, name, cell(row, 2), cell(row, 4));
	}
	text_add(out, "<div class=\"single\">\n");
	chart_lines(out, "µs a page by window size", "KiB a window", "µs", true, l->list, l->n);
	text_add(out, "</div>\n");
	free(l);
}

/* Columns as cli/bench_image.c has them. */
static void image_section(struct text *out, const json_t *run)
{
	struct lines *size = calloc(1, sizeof(*size)), *wait = calloc(1, sizeof(*wait));
	const json_t *row;
	size_t i;

	if (!size || !wait)
		abort();
	json_array_foreach(rows_of(run), i, row)
	{
		char name[48];

		snprintf(name, sizeof(name), "%.30s, level %.0f", cell_text(row, 0), cell(row, 2));
		add_point(size, name, cell(row, 1), cell(row, 4));
		add_point(wait, name, cell(row, 1), cell(row, 8));
	}
	text_add(out, "<div class=\"pair\">\n");
	chart_lines(
		out, "Stored size by frame size", "KiB a frame", "MiB", true, size->list, size->n);
	chart_lines(out, "What a fault waits for", "KiB a frame", "µs at p50", true, wait->list,
		wait->n);
	text_add(out, "</div>\n");
	free(size);
	free(wait);
}

/* Columns as benches/peers/peers.c has them. */
static void peers_section(struct text *out, const json_t *run)
{
	static const char *const until[] = {"answer", "output"};
	static const char *const titles[] = {
		"Until the agent answers, p50", "Until the first command's output, p50"};

	for (size_t which = 0; which < 2; which++) {
		struct chart_bar bars[16] = {0};
		const json_t *row;
		size_t i, n = 0;

		json_array_foreach(rows_of(run), i, row)
		{
			struct chart_bar *b = &bars[n];

			if (n == 16 || strcmp(cell_text(row, 1), until[which]) || cell(row, 4) <= 0)
				continue;
			snprintf(b->name, sizeof(b->name), "%.40s", cell_text(row, 0));
			b->value = cell(row, 4);
			snprintf(b->text, sizeof(b->text), "%.1f ms, %.2f ×", cell(row, 4),
				cell(row, 6));
			n++;
		}
		chart_bars(out, titles[which], "ms", bars, n);
	}
}

void report_run(struct text *out, const json_t *run, size_t number)
{
	static const struct {
		const char *bench;
		void (*section)(struct text *out, const json_t *run);
	} sections[] = {{"density", density_section}, {"fault", fault_section},
		{"image", image_section}, {"peers", peers_section}};
	const json_t *note;
	size_t i;

	text_add(out, "<section id=\"run%zu\"><h2>", number);
	text_escape(out, text_of(run, "title"));
	text_add(out, "</h2>\n");
	for (i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
		if (!strcmp(text_of(run, "bench"), sections[i].bench))
			sections[i].section(out, run);
	}
	if (json_array_size(json_object_get(run, "series")))
		series_section(out, run);
	traces_section(out, run);
	table_section(out, run);
	json_array_foreach(json_object_get(run, "notes"), i, note)
	{
		text_add(out, "<p class=\"note\">");
		text_escape(out, json_string_value(note) ?: "");
		text_add(out, "</p>\n");
	}
	text_add(out, "<details><summary>Measured on</summary>\n");
	report_facts(out, json_object_get(run, "facts"));
	text_add(out, "</details></section>\n");
}
