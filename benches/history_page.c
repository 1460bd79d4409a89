/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history as one page: for each series its p50 by commit, the level of each stretch with the band that it varies
 * in, steps marked, releases and notes told. Pages are as those of report.c: no script, nothing fetched.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/history.h"
#include "benches/report_private.h"
#include "benches/stats.h"
#include "benches/svg.h"

#define BAND_SD 2 /* of a level, to each side */
#define CHART_WIDTH 760.0

/* A level: the stretch of values between two steps, their geometric mean and how they vary around it. */
struct level {
	size_t from, to;
	double middle, low, high;
};

static struct level level_of(const double *values, size_t from, size_t to)
{
	double mean = 0, squares = 0, sd;

	for (size_t i = from; i < to; i++)
		mean += values[i] / (double)(to - from);
	for (size_t i = from; i < to; i++)
		squares += pow(values[i] - mean, 2);
	sd = to - from > 1 ? sqrt(squares / (double)(to - from - 1)) : 0;
	return (struct level){.from = from,
		.to = to,
		.middle = exp(mean),
		.low = exp(mean - BAND_SD * sd),
		.high = exp(mean + BAND_SD * sd)};
}

static void draw_level(struct svg_plot *p, const struct level *l)
{
	double x1 = svg_at(&p->x, (double)l->from), x2 = svg_at(&p->x, (double)l->to - 1);
	double high = svg_at(&p->y, l->high), low = svg_at(&p->y, l->low);
	double middle = svg_at(&p->y, l->middle);

	svg_rect(p, x1, high, x2 - x1, low - high, "band", NULL);
	svg_line(p, x1, middle, x2, middle, "mark");
}

static void draw_points(struct svg_plot *p, const struct history *h, const struct history_trend *t,
	const bool *steps)
{
	double(*line)[2] = calloc(t->n, sizeof(*line));

	if (!line)
		abort();
	for (size_t i = 0; i < t->n; i++) {
		line[i][0] = (double)i;
		line[i][1] = t->points[i].p50_ms;
	}
	svg_path(p, line, t->n, "line s0");
	free(line);
	for (size_t i = 0; i < t->n; i++) {
		const struct history_entry *e = &h->entries[t->points[i].entry];
		double x = svg_at(&p->x, (double)i), y = svg_at(&p->y, t->points[i].p50_ms);
		char tip[256];

		snprintf(tip, sizeof(tip),
			"%.12s %.20s: p50 %.2f ms, p99 %.2f ms, n %zu%s%.40s%s%.80s", e->commit,
			e->time, t->points[i].p50_ms, t->points[i].p99_ms, t->points[i].n,
			*e->release ? ", release " : "", e->release, *e->note ? ", " : "", e->note);
		if (steps[i])
			svg_line(p, x, p->y.to, x, p->y.from, "step");
		if (*e->release)
			svg_text(p, x, p->y.to - 2, "middle", "label", "%.12s", e->release);
		svg_dot(p, x, y, steps[i] || *e->note ? 5 : 3, steps[i] ? "dot f3" : "dot f0", tip);
	}
}

/* What happened: each step with its size, each note, as a list below the picture. */
static void tell(struct text *out, const struct history *h, const struct history_trend *t,
	const bool *steps, const struct level *levels, size_t n_levels)
{
	text_add(out, "<ul class=\"told\">\n");
	for (size_t i = 0; i < t->n; i++) {
		const struct history_entry *e = &h->entries[t->points[i].entry];

		if (!steps[i] && !*e->note && !*e->release)
			continue;
		text_add(out, "<li>");
		text_escape(out, e->time);
		text_add(out, " <code>");
		text_escape(out, e->commit);
		text_add(out, "</code> ");
		for (size_t k = 1; k < n_levels && steps[i]; k++) {
			if (levels[k].from == i)
				text_add(out, "<b class=\"%s\">p50 %.2f → %.2f ms (%+.0f %%)</b> ",
					levels[k].middle > levels[k - 1].middle ? "bad" : "good",
					levels[k - 1].middle, levels[k].middle,
					(levels[k].middle / levels[k - 1].middle - 1) * 100);
		}
		if (*e->release) {
			text_add(out, "release ");
			text_escape(out, e->release);
			text_add(out, " ");
		}
		text_escape(out, e->note);
		text_add(out, "</li>\n");
	}
	text_add(out, "</ul>\n");
}

static void trend_section(
	struct text *out, const struct history *h, const struct history_trend *t, size_t number)
{
	struct svg_plot p = {.out = out,
		.width = CHART_WIDTH,
		.height = 260,
		.left = 52,
		.right = 16,
		.top = 28,
		.bottom = 42,
		.x = {.min = 0, .max = t->n > 1 ? (double)t->n - 1 : 1}};
	double *values = calloc(t->n, sizeof(*values));
	bool *steps = calloc(t->n, sizeof(*steps));
	struct level *levels = calloc(t->n, sizeof(*levels));
	size_t n_levels = 0, from = 0;

	if (!values || !steps || !levels)
		abort();
	for (size_t i = 0; i < t->n; i++) {
		values[i] = log(t->points[i].p50_ms);
		p.y.max = fmax(p.y.max, t->points[i].p50_ms * 1.1);
	}
	history_changes(values, t->n, steps);
	for (size_t i = 1; i <= t->n; i++) {
		if (i < t->n && !steps[i])
			continue;
		levels[n_levels++] = level_of(values, from, i);
		p.y.max = fmax(p.y.max, levels[n_levels - 1].high);
		from = i;
	}
	text_add(out, "<section id=\"trend%zu\"><h2>", number);
	text_escape(out, t->id);
	text_add(out, ", ");
	text_escape(out, t->name);
	text_add(out,
		"</h2>\n<figure><figcaption>p50 by commit, and the band that each level varies "
		"in</figcaption>\n");
	svg_begin(&p, "p50 by commit");
	svg_axis_y(&p, "ms", 6);
	svg_axis_x(&p, "commits, oldest first", t->n < 11 ? (unsigned)t->n - 1 : 10);
	for (size_t i = 0; i < n_levels; i++)
		draw_level(&p, &levels[i]);
	draw_points(&p, h, t, steps);
	svg_end(&p);
	text_add(out, "</figure>\n");
	tell(out, h, t, steps, levels, n_levels);
	text_add(out, "</section>\n");
	free(values);
	free(steps);
	free(levels);
}

void history_page(struct text *out, const struct history *h, const char *branch)
{
	struct history_trend *trends = calloc(HISTORY_SERIES_MAX, sizeof(*trends));
	size_t n;

	if (!trends)
		abort();
	n = history_trends(h, branch, trends);
	report_begin(out, "parbake bench history");
	text_add(out, "<h1>parbake bench history</h1>\n<p class=\"sub\">%zu measurements", h->n);
	if (branch) {
		text_add(out, ", branch ");
		text_escape(out, branch);
	}
	if (h->n) {
		text_add(out, ", ");
		text_escape(out, h->entries[0].time);
		text_add(out, " to ");
		text_escape(out, h->entries[h->n - 1].time);
	}
	text_add(out, "</p>\n<nav>\n");
	for (size_t i = 0; i < n; i++) {
		text_add(out, "<a href=\"#trend%zu\">", i);
		text_escape(out, trends[i].id);
		text_add(out, ", ");
		text_escape(out, trends[i].name);
		text_add(out, "</a>\n");
	}
	text_add(out, "</nav>\n");
	for (size_t i = 0; i < n; i++) {
		trend_section(out, h, &trends[i], i);
		history_trend_clear(&trends[i]);
	}
	free(trends);
	report_end(out);
}
