/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_SVG_H
#define PARBAKE_BENCHES_SVG_H

#include <stdbool.h>
#include <stddef.h>

#include "benches/text.h"

/*
 * A plot: a frame of fixed size in SVG (in HTML, so without a namespace declaration of its own),
 * two scales and their ticks. Colours come from the page's style by class: s0 … s7 for series,
 * axis, grid, label.
 */
#define SVG_COLOURS 8

struct svg_scale {
	double min, max; /* values at the ends */
	bool log; /* min > 0 */
	double from, to; /* pixels there */
};

struct svg_plot {
	struct text *out;
	double width, height, left, right, top, bottom; /* the frame, and its margins */
	struct svg_scale x, y;
};

/* Where a value lies, in pixels; values beyond the ends lie at the ends. */
double svg_at(const struct svg_scale *s, double value);

/* Begin: <svg> with its title. The scales' ends are set, their pixels are set here. */
void svg_begin(struct svg_plot *p, const char *title);
void svg_end(struct svg_plot *p);
/* Grid lines and labels along the x or y axis, at most about @max, and the axis' name. */
void svg_axis_x(struct svg_plot *p, const char *name, unsigned max);
void svg_axis_y(struct svg_plot *p, const char *name, unsigned max);

/* All in pixels; @class is as in CSS. */
void svg_line(struct svg_plot *p, double x1, double y1, double x2, double y2, const char *class);
/* @tip (or NULL) is shown to a mouse that rests on it. */
void svg_rect(struct svg_plot *p, double x, double y, double w, double h, const char *class,
	const char *tip);
void svg_dot(
	struct svg_plot *p, double x, double y, double radius, const char *class, const char *tip);
/* @anchor: start, middle or end. */
void svg_text(struct svg_plot *p, double x, double y, const char *anchor, const char *class,
	const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* A line through @n points in values. */
void svg_path(struct svg_plot *p, const double (*points)[2], size_t n, const char *class);

/* A number as people write it: 0.35, 12.4, 128, 1,800. @ret is as good as the return value. */
const char *svg_number(double value, char ret[static 32]);

#endif
