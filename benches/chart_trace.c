/* SPDX-License-Identifier: Apache-2.0 */
/* Charts of one create: its parts, and its faults over time and addresses. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "benches/chart.h"
#include "benches/svg.h"

#define WIDTH 760.0
#define ROW 24.0
#define NOTE 140.0 /* room for a duration and a number of faults */

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

/* Parts of one kind have one colour. */
static unsigned part_colour(const char *name)
{
	static const struct {
		const char *name;
		unsigned colour;
	} colours[] = {{"wait", 7}, {"open", 7}, {"overlay", 0}, {"memory", 0}, {"spawn", 0},
		{"monitor", 0}, {"state", 1}, {"ask", 2}, {"resume", 2}, {"hello", 2},
		{"identity", 2}, {"thaw", 2}, {"result", 3}};

	for (size_t i = 0; i < sizeof(colours) / sizeof(colours[0]); i++) {
		if (!strcmp(name, colours[i].name))
			return colours[i].colour;
	}
	return 4;
}

static void bar(
	struct svg_plot *p, size_t row, const struct bench_span *s, unsigned colour, long faults)
{
	double y = p->top + ROW * (double)row;
	double from = svg_at(&p->x, ms(s->begin)), to = svg_at(&p->x, ms(s->end));
	char class[16], took[32], note[80], tip[160];

	if (s->end - s->begin < 100000)
		snprintf(took, sizeof(took), "%.0f µs", (double)(s->end - s->begin) / 1e3);
	else
		snprintf(took, sizeof(took), "%.2f ms", ms(s->end - s->begin));
	if (faults > 0)
		snprintf(note, sizeof(note), "%s, %ld fault%s", took, faults,
			faults == 1 ? "" : "s");
	else
		snprintf(note, sizeof(note), "%s", took);
	snprintf(class, sizeof(class), "bar f%u", colour);
	snprintf(tip, sizeof(tip), "%s: %.3f to %.3f ms", s->name, ms(s->begin), ms(s->end));
	svg_text(p, p->left - 8, y + 16, "end", "name", "%s", s->name);
	svg_rect(p, from, y + 4, fmax(1.5, to - from), ROW - 8, class, tip);
	/* the note stands where there is room for it */
	if (to + NOTE < p->width)
		svg_text(p, to + 6, y + 16, "start", "value", "%s", note);
	else if (from - NOTE > p->left)
		svg_text(p, from - 6, y + 16, "end", "value", "%s", note);
	else
		svg_text(p, to - 8, y + 16, "end", "inside", "%s", note);
}

void chart_waterfall(struct text *out, const struct bench_trace *t)
{
	size_t rows = t->n_parts + t->n_pager;
	struct svg_plot p = {.out = out,
		.width = WIDTH,
		.height = 50 + ROW * (double)rows,
		.left = 110,
		.right = 20,
		.top = 6,
		.bottom = 42,
		.x = {.max = fmax(0.001, ms(t->total))},
		.y = {.max = 1}};
	char title[128];

	snprintf(title, sizeof(title), "Where the time goes: the median %s create, %.2f ms",
		t->name, ms(t->total));
	text_add(out, "<figure><figcaption>");
	text_escape(out, title);
	text_add(out, "</figcaption>\n");
	svg_begin(&p, title);
	svg_axis_x(&p, "ms from the request", 10);
	for (size_t i = 0; i < t->n_parts; i++)
		bar(&p, i, &t->parts[i], part_colour(t->parts[i].name),
			(long)bench_trace_part_faults(t, i));
	for (size_t i = 0; i < t->n_pager; i++) {
		if (t->pager[i].end <= 0) {
			svg_text(&p, p.left - 8, p.top + ROW * (double)(t->n_parts + i) + 16, "end",
				"name", "%s", t->pager[i].name);
			svg_text(&p, p.left + 4, p.top + ROW * (double)(t->n_parts + i) + 16,
				"start", "value", "before the request");
		} else {
			bar(&p, t->n_parts + i, &t->pager[i], 4, -1);
		}
	}
	svg_end(&p);
	text_add(out, "</figure>\n");
}

/* ---- faults -------------------------------------------------------------------------------- */

static const unsigned kind_colours[PAGER_TRACE_KINDS] = {
	[PAGER_TRACE_ATTACH] = 4,
	[PAGER_TRACE_DATA] = 0,
	[PAGER_TRACE_HOLE] = 1,
	[PAGER_TRACE_REMOVED] = 3,
};

static void fault_dot(struct svg_plot *p, const struct bench_fault *f)
{
	char class[32], tip[256];

	snprintf(class, sizeof(class), "dot f%u", kind_colours[f->kind]);
	snprintf(tip, sizeof(tip), "%.2f ms, %.0f µs: %s of %s page %#" PRIx64 ", %s%s",
		ms(f->begin), (double)(f->end - f->begin) / 1e3, f->write ? "write" : "read",
		bench_fault_kinds[f->kind], f->offset, f->meaning,
		f->filled ? " (decompressed)" : "");
	svg_dot(p, svg_at(&p->x, ms(f->begin)), svg_at(&p->y, (double)f->offset / (1 << 20)), 3.5,
		class, tip);
}

/* Where parts begin, those wide enough to be told apart. */
static void part_lines(struct svg_plot *p, const struct bench_trace *t)
{
	for (size_t i = 0; i < t->n_parts; i++) {
		double x = svg_at(&p->x, ms(t->parts[i].begin)),
		       to = svg_at(&p->x, ms(t->parts[i].end));

		if (to - x < 40)
			continue;
		svg_line(p, x, p->top, x, p->y.from, "mark");
		svg_text(p, x + 4, p->top + 10, "start", "label", "%s", t->parts[i].name);
	}
}

void chart_faults(struct text *out, const struct bench_trace *t)
{
	struct svg_plot p = {.out = out,
		.width = WIDTH,
		.height = 260,
		.left = 52,
		.right = 20,
		.top = 30,
		.bottom = 42,
		.x = {.max = fmax(0.001, ms(t->total))},
		.y = {.max = 1}};
	size_t n[PAGER_TRACE_KINDS] = {0};
	char title[128];

	if (!t->n_faults)
		return;
	for (size_t i = 0; i < t->n_faults; i++) {
		p.y.max = fmax(p.y.max, (double)t->faults[i].offset / (1 << 20) * 1.05);
		n[t->faults[i].kind]++;
	}
	snprintf(title, sizeof(title), "Faults of the median %s create, over time and guest memory",
		t->name);
	text_add(out, "<figure><figcaption>");
	text_escape(out, title);
	text_add(out, "</figcaption>\n");
	svg_begin(&p, title);
	svg_axis_x(&p, "ms from the request", 10);
	svg_axis_y(&p, "MiB of guest memory", 5);
	part_lines(&p, t);
	for (size_t i = 0; i < t->n_faults; i++)
		fault_dot(&p, &t->faults[i]);
	svg_end(&p);
	text_add(out, "<ul class=\"legend\">\n");
	for (int kind = 0; kind < PAGER_TRACE_KINDS; kind++) {
		if (n[kind])
			text_add(out, "<li><span class=\"key k%u\"></span>%s: %zu</li>\n",
				kind_colours[kind], bench_fault_kinds[kind], n[kind]);
	}
	text_add(out, "<li>mapped before it ran: %" PRIu64 " pages</li></ul>\n</figure>\n",
		t->premapped);
}
