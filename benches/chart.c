/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charts of numbers: distribution functions, lines, bars, intervals. Those of one create are in
 * chart_trace.c.
 */
#include "benches/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/stats.h"
#include "benches/svg.h"

#define POINTS_MAX 400 /* of a curve: more than the picture has columns for */
#define WIDTH 760.0

static void figure_begin(struct text *out, const char *title)
{
	text_add(out, "<figure><figcaption>");
	text_escape(out, title);
	text_add(out, "</figcaption>\n");
}

static void figure_end(struct text *out)
{
	text_add(out, "</figure>\n");
}

static void legend_begin(struct text *out)
{
	text_add(out, "<ul class=\"legend\">\n");
}

static void legend_item(struct text *out, size_t colour, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void legend_item(struct text *out, size_t colour, const char *fmt, ...)
{
	char line[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	text_add(out, "<li><span class=\"key k%zu\"></span>", colour % SVG_COLOURS);
	text_escape(out, line);
	text_add(out, "</li>\n");
}

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

/* ---- distribution functions ---------------------------------------------------------------- */

static int64_t *sorted_totals(const struct bench_series *s)
{
	int64_t *values = calloc(s->n, sizeof(*values));

	if (!values)
		abort();
	for (size_t i = 0; i < s->n; i++)
		values[i] = s->samples[i].total > 1 ? s->samples[i].total : 1;
	stats_sort(values, s->n);
	return values;
}

/* Steps; of many samples each so many, but the slowest hundred all. */
static void ecdf_curve(struct svg_plot *p, const int64_t *sorted, size_t n, size_t colour)
{
	double(*points)[2] = calloc(2 * (POINTS_MAX + 102), sizeof(*points));
	size_t stride = n > POINTS_MAX ? n / POINTS_MAX + 1 : 1, k = 0;
	double below = 0;
	char class[32];

	if (!points)
		abort();
	for (size_t i = 0; i < n; i++) {
		double x = ms(sorted[i]), y = (double)(i + 1) / (double)n * 100;

		if (i % stride && i + 100 < n)
			continue;
		points[k][0] = points[k + 1][0] = x;
		points[k][1] = below;
		points[k + 1][1] = y;
		k += 2;
		below = y;
	}
	snprintf(class, sizeof(class), "line s%zu", colour % SVG_COLOURS);
	svg_path(p, points, k, class);
	free(points);
}

static void ecdf_marks(
	struct svg_plot *p, const struct bench_series *s, const int64_t *sorted, size_t colour)
{
	static const double percentiles[] = {50, 99};
	char class[32];

	snprintf(class, sizeof(class), "dot f%zu", colour % SVG_COLOURS);
	for (int i = 0; i < 2; i++) {
		double at = ms(stats_percentile_sorted(sorted, s->n, percentiles[i]));
		char tip[96];

		snprintf(tip, sizeof(tip), "%s p%.0f: %.2f ms", s->name, percentiles[i], at);
		svg_dot(p, svg_at(&p->x, at), svg_at(&p->y, percentiles[i]), 4, class, tip);
	}
}

void chart_ecdf(
	struct text *out, const char *title, const struct bench_series *const *series, size_t n)
{
	struct svg_plot p = {.out = out,
		.width = WIDTH,
		.height = 300,
		.left = 44,
		.right = 44,
		.top = 28,
		.bottom = 42,
		.x = {.log = true},
		.y = {.min = 0, .max = 100}};
	int64_t *sorted[CHART_SERIES_MAX] = {0};
	double low = INFINITY, high = 0;

	n = n > CHART_SERIES_MAX ? CHART_SERIES_MAX : n;
	for (size_t i = 0; i < n; i++) {
		if (!series[i]->n)
			continue;
		sorted[i] = sorted_totals(series[i]);
		low = fmin(low, ms(sorted[i][0]));
		high = fmax(high, ms(sorted[i][series[i]->n - 1]));
	}
	if (high <= 0)
		return;
	p.x.min = low / 1.15;
	p.x.max = high * 1.15;
	figure_begin(out, title);
	svg_begin(&p, title);
	svg_axis_x(&p, "ms", 12);
	svg_axis_y(&p, "%", 4);
	for (int i = 0; i < 2; i++) {
		double y = svg_at(&p.y, i ? 99 : 50);

		svg_line(&p, p.x.from, y, p.x.to, y, "mark");
		svg_text(&p, p.x.to + 6, y + 4, "start", "label", i ? "p99" : "p50");
	}
	for (size_t i = 0; i < n; i++) {
		if (sorted[i])
			ecdf_curve(&p, sorted[i], series[i]->n, i);
	}
	for (size_t i = 0; i < n; i++) {
		if (sorted[i])
			ecdf_marks(&p, series[i], sorted[i], i);
	}
	svg_end(&p);
	legend_begin(out);
	for (size_t i = 0; i < n; i++) {
		if (sorted[i])
			legend_item(out, i, "%s: p50 %.2f ms, p99 %.2f ms, n %zu", series[i]->name,
				ms(stats_percentile_sorted(sorted[i], series[i]->n, 50)),
				ms(stats_percentile_sorted(sorted[i], series[i]->n, 99)),
				series[i]->n);
		free(sorted[i]);
	}
	text_add(out, "</ul>\n");
	figure_end(out);
}

/* ---- lines --------------------------------------------------------------------------------- */

static void line_scales(struct svg_plot *p, const struct chart_line *lines, size_t n)
{
	double low = INFINITY, high = -INFINITY, top = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < lines[i].n; j++) {
			low = fmin(low, lines[i].points[j][0]);
			high = fmax(high, lines[i].points[j][0]);
			top = fmax(top, lines[i].points[j][1]);
		}
	}
	p->x.log &= low > 0;
	p->x.min = p->x.log ? low / 1.1 : fmin(low, 0);
	p->x.max = p->x.log ? high * 1.1 : high;
	p->y.max = top > 0 ? top * 1.05 : 1;
}

void chart_lines(struct text *out, const char *title, const char *x_name, const char *y_name,
	bool log_x, const struct chart_line *lines, size_t n)
{
	struct svg_plot p = {.out = out,
		.width = 480,
		.height = 270,
		.left = 52,
		.right = 16,
		.top = 28,
		.bottom = 42,
		.x = {.log = log_x}};
	size_t points = 0;

	n = n > CHART_SERIES_MAX ? CHART_SERIES_MAX : n;
	for (size_t i = 0; i < n; i++)
		points += lines[i].n;
	if (!points)
		return;
	line_scales(&p, lines, n);
	figure_begin(out, title);
	svg_begin(&p, title);
	svg_axis_x(&p, x_name, 8);
	svg_axis_y(&p, y_name, 6);
	for (size_t i = 0; i < n; i++) {
		char class[32], x[32], y[32], tip[160];

		snprintf(class, sizeof(class), "line s%zu", i);
		svg_path(&p, (const double(*)[2])lines[i].points, lines[i].n, class);
		snprintf(class, sizeof(class), "dot f%zu", i);
		for (size_t j = 0; j < lines[i].n; j++) {
			const double *at = lines[i].points[j];

			snprintf(tip, sizeof(tip), "%s: %s %s, %s %s", lines[i].name,
				svg_number(at[0], x), x_name, svg_number(at[1], y), y_name);
			svg_dot(&p, svg_at(&p.x, at[0]), svg_at(&p.y, at[1]), 3.5, class, tip);
		}
	}
	svg_end(&p);
	legend_begin(out);
	for (size_t i = 0; i < n; i++) {
		if (lines[i].n)
			legend_item(out, i, "%s", lines[i].name);
	}
	text_add(out, "</ul>\n");
	figure_end(out);
}

/* ---- bars and intervals -------------------------------------------------------------------- */

#define ROW 26.0

void chart_bars(struct text *out, const char *title, const char *x_name,
	const struct chart_bar *bars, size_t n)
{
	struct svg_plot p = {.out = out,
		.width = WIDTH,
		.height = 50 + ROW * (double)n,
		.left = 230,
		.right = 150,
		.top = 6,
		.bottom = 42,
		.y = {.max = 1}};

	for (size_t i = 0; i < n; i++)
		p.x.max = fmax(p.x.max, bars[i].value);
	if (p.x.max <= 0)
		return;
	figure_begin(out, title);
	svg_begin(&p, title);
	svg_axis_x(&p, x_name, 6);
	for (size_t i = 0; i < n; i++) {
		double y = p.top + ROW * (double)i, x = svg_at(&p.x, bars[i].value);

		svg_text(&p, p.left - 8, y + 17, "end", "name", "%s", bars[i].name);
		svg_rect(&p, p.left, y + 4, fmax(1, x - p.left), ROW - 8, i ? "bar f5" : "bar f0",
			bars[i].text);
		svg_text(&p, x + 6, y + 17, "start", "value", "%s", bars[i].text);
	}
	svg_end(&p);
	figure_end(out);
}

static size_t count_groups(const struct chart_interval *list, size_t n)
{
	size_t groups = 0;

	for (size_t i = 0; i < n; i++)
		groups += i == 0 || strcmp(list[i].group, list[i - 1].group) != 0;
	return groups;
}

/* What is decided sets the scale; of the rest, and of a far end, the frame shows what it can. */
static void interval_scale(struct svg_scale *x, const struct chart_interval *list, size_t n)
{
	x->min = -0.05;
	x->max = 0.1;
	for (size_t i = 0; i < n; i++) {
		const struct chart_interval *c = &list[i];

		x->min = fmin(x->min, fmax(-1, c->open ? c->estimate : c->low * 1.1));
		x->max = fmax(x->max, fmin(2, c->open ? c->estimate : c->high * 1.1));
	}
	x->min *= 100;
	x->max *= 100;
}

static void interval_row(struct svg_plot *p, const struct chart_interval *c, double y)
{
	double limit = svg_at(&p->x, c->limit * 100);
	const char *line = c->bad ? "line s3" : c->open ? "line faint" : "line s2";
	const char *dot = c->bad ? "dot f3" : c->open ? "dot faint" : "dot f2";

	svg_text(p, p->left - 8, y + 4, "end", "name", "%s", c->name);
	svg_line(p, svg_at(&p->x, c->low * 100), y, svg_at(&p->x, c->high * 100), y, line);
	svg_line(p, limit, y - 9, limit, y + 9, "mark");
	svg_dot(p, svg_at(&p->x, c->estimate * 100), y, 4.5, dot, NULL);
	svg_text(p, p->x.to + 8, y + 4, "start", "value", "%+.1f %%%s", c->estimate * 100,
		c->open ? ", undecided" : "");
}

void chart_intervals(
	struct text *out, const char *title, const struct chart_interval *list, size_t n)
{
	struct svg_plot p = {.out = out,
		.width = WIDTH,
		.height = 56 + ROW * (double)(n + count_groups(list, n)),
		.left = 110,
		.right = 140,
		.top = 8,
		.bottom = 42,
		.y = {.max = 1}};
	double y = p.top + ROW / 2;

	if (!n)
		return;
	interval_scale(&p.x, list, n);
	figure_begin(out, title);
	svg_begin(&p, title);
	svg_axis_x(&p, "change, %", 8);
	svg_line(&p, svg_at(&p.x, 0), p.top, svg_at(&p.x, 0), p.y.from, "axis");
	for (size_t i = 0; i < n; i++, y += ROW) {
		if (i == 0 || strcmp(list[i].group, list[i - 1].group) != 0) {
			svg_text(&p, 4, y + 4, "start", "head", "%s", list[i].group);
			y += ROW;
		}
		interval_row(&p, &list[i], y);
	}
	svg_end(&p);
	figure_end(out);
}
