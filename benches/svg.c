/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures as text. Nothing is measured in a font: labels have room enough, and stand where there
 * is some.
 */
#include "benches/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double svg_at(const struct svg_scale *s, double value)
{
	double low = s->min, high = s->max, share;

	if (s->log) {
		low = log(low);
		high = log(high);
		value = value > 0 ? log(value) : low;
	}
	share = high > low ? (value - low) / (high - low) : 0.5;
	share = share < 0 ? 0 : share > 1 ? 1 : share;
	return s->from + share * (s->to - s->from);
}

void svg_begin(struct svg_plot *p, const char *title)
{
	p->x.from = p->left;
	p->x.to = p->width - p->right;
	p->y.from = p->height - p->bottom;
	p->y.to = p->top;
	/* on a narrow page it scrolls instead of shrinking, for keys too */
	text_add(p->out, "<div class=\"wide chart\" tabindex=\"0\" role=\"region\" aria-label=\"");
	text_escape(p->out, title);
	text_add(p->out, "\">");
	text_add(
		p->out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\"><title>", p->width, p->height);
	text_escape(p->out, title);
	text_add(p->out, "</title>\n");
}

void svg_end(struct svg_plot *p)
{
	text_add(p->out, "</svg></div>\n");
}

void svg_line(struct svg_plot *p, double x1, double y1, double x2, double y2, const char *class)
{
	text_add(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
		x1, y1, x2, y2, class);
}

static void end_with_tip(struct svg_plot *p, const char *element, const char *tip)
{
	if (!tip) {
		text_add(p->out, "/>\n");
		return;
	}
	text_add(p->out, "><title>");
	text_escape(p->out, tip);
	text_add(p->out, "</title></%s>\n", element);
}

void svg_rect(struct svg_plot *p, double x, double y, double w, double h, const char *class,
	const char *tip)
{
	text_add(p->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"",
		x, y, w < 0 ? 0 : w, h, class);
	end_with_tip(p, "rect", tip);
}

void svg_dot(
	struct svg_plot *p, double x, double y, double radius, const char *class, const char *tip)
{
	text_add(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"", x, y, radius,
		class);
	end_with_tip(p, "circle", tip);
}

void svg_text(struct svg_plot *p, double x, double y, const char *anchor, const char *class,
	const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	text_add(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y,
		anchor, class);
	text_escape(p->out, text);
	text_add(p->out, "</text>\n");
}

void svg_path(struct svg_plot *p, const double (*points)[2], size_t n, const char *class)
{
	if (!n)
		return;
	text_add(p->out, "<path class=\"%s\" d=\"", class);
	for (size_t i = 0; i < n; i++)
		text_add(p->out, "%s%.1f %.1f", i ? "L" : "M", svg_at(&p->x, points[i][0]),
			svg_at(&p->y, points[i][1]));
	text_add(p->out, "\"/>\n");
}

const char *svg_number(double value, char ret[static 32])
{
	double size = fabs(value);
	int digits = size >= 100 || size == 0 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3;

	if (size == floor(size))
		digits = 0;
	if (size == 0)
		value = 0; /* and not -0 */
	if (size >= 10000 && size < 1e9)
		snprintf(ret, 32, "%ld,%03ld", lround(value) / 1000, lround(size) % 1000);
	else
		snprintf(ret, 32, "%.*f", digits, value);
	return ret;
}

/* ---- ticks --------------------------------------------------------------------------------- */

#define TICKS_MAX 64

/* 1, 2 or 5 times a power of ten, so that about @max of them fit. */
static size_t linear_ticks(const struct svg_scale *s, unsigned max, double ticks[static TICKS_MAX])
{
	double raw = (s->max - s->min) / (max ? max : 1), power, step;
	size_t n = 0;

	if (!(raw > 0)) {
		ticks[0] = s->min;
		return 1;
	}
	power = pow(10, floor(log10(raw)));
	step = raw / power <= 1    ? power
		: raw / power <= 2 ? 2 * power
		: raw / power <= 5 ? 5 * power
				   : 10 * power;
	for (double i = ceil(s->min / step - 1e-9);
		i * step <= s->max * (1 + 1e-9) && n < TICKS_MAX; i++)
		ticks[n++] = i * step;
	return n;
}

/* 1, 2 and 5 of each power of ten, or the powers alone where those are too many. */
static size_t log_ticks(const struct svg_scale *s, unsigned max, double ticks[static TICKS_MAX])
{
	static const double in_decade[] = {1, 2, 5};
	double decades = log10(s->max / s->min);
	size_t each = decades * 3 <= max ? 3 : 1, n = 0;

	for (int power = (int)floor(log10(s->min)); power <= log10(s->max); power++) {
		for (size_t i = 0; i < each && n < TICKS_MAX; i++) {
			double at = pow(10, power) * in_decade[i];

			if (at >= s->min * (1 - 1e-9) && at <= s->max * (1 + 1e-9))
				ticks[n++] = at;
		}
	}
	return n;
}

static size_t make_ticks(const struct svg_scale *s, unsigned max, double ticks[static TICKS_MAX])
{
	/* less than a decade holds too few of a logarithm's own */
	return s->log && s->max / s->min >= 10 ? log_ticks(s, max, ticks)
					       : linear_ticks(s, max, ticks);
}

void svg_axis_x(struct svg_plot *p, const char *name, unsigned max)
{
	double ticks[TICKS_MAX];
	size_t n = make_ticks(&p->x, max, ticks);
	char number[32];

	for (size_t i = 0; i < n; i++) {
		double x = svg_at(&p->x, ticks[i]);

		svg_line(p, x, p->y.to, x, p->y.from, "grid");
		svg_text(p, x, p->y.from + 16, "middle", "label", "%s",
			svg_number(ticks[i], number));
	}
	svg_line(p, p->x.from, p->y.from, p->x.to, p->y.from, "axis");
	svg_text(p, p->x.to, p->y.from + 32, "end", "label", "%s", name);
}

void svg_axis_y(struct svg_plot *p, const char *name, unsigned max)
{
	double ticks[TICKS_MAX];
	size_t n = make_ticks(&p->y, max, ticks);
	char number[32];

	for (size_t i = 0; i < n; i++) {
		double y = svg_at(&p->y, ticks[i]);

		svg_line(p, p->x.from, y, p->x.to, y, "grid");
		svg_text(p, p->x.from - 6, y + 4, "end", "label", "%s",
			svg_number(ticks[i], number));
	}
	svg_text(p, p->x.from - 6, p->y.to - 10, "start", "label", "%s", name);
}
