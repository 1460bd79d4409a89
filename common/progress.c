/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress. On a terminal the line is redrawn at most ten times a second, by the thread that
 * updates it; nothing runs in the background, so a silent stage costs nothing and a child's output
 * never meets a half-drawn line for long.
 */
#include "common/progress.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/json.h"

#define REDRAW_NS 100000000LL
#define PLAIN_NS 10000000000LL

enum output { OUT_TERMINAL, OUT_PLAIN, OUT_JSON, OUT_SILENT };

struct progress {
	pthread_mutex_t lock; /* all below; a leaf lock */
	enum output output;
	char stage[64], unit[16];
	uint64_t now, total;
	int64_t began, shown;
	bool open; /* a stage is under way */
	bool drawn; /* the terminal's line holds something */
};

struct progress *progress_new(enum progress_style style)
{
	struct progress *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	pthread_mutex_init(&p->lock, NULL);
	switch (style) {
	case PROGRESS_JSON:
		p->output = OUT_JSON;
		break;
	case PROGRESS_SILENT:
		p->output = OUT_SILENT;
		break;
	case PROGRESS_PLAIN:
		p->output = OUT_PLAIN;
		break;
	case PROGRESS_AUTO:
		p->output = isatty(STDERR_FILENO) ? OUT_TERMINAL : OUT_PLAIN;
		break;
	}
	return p;
}

const char *progress_bytes(uint64_t bytes, char ret[static 16])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit < sizeof(units) / sizeof(units[0]) - 1) {
		value /= 1024;
		unit++;
	}
	snprintf(ret, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return ret;
}

static void amounts(const struct progress *p, char *buf, size_t len)
{
	char now[16], total[16];

	buf[0] = '\0';
	if (!p->unit[0])
		return;
	if (!strcmp(p->unit, "bytes")) {
		progress_bytes(p->now, now);
		progress_bytes(p->total, total);
		snprintf(buf, len, p->total ? " %s of %s" : " %s", now, total);
	} else if (p->total) {
		snprintf(buf, len, " %" PRIu64 " of %" PRIu64 " %s", p->now, p->total, p->unit);
	} else {
		snprintf(buf, len, " %" PRIu64 " %s", p->now, p->unit);
	}
}

static double seconds(const struct progress *p)
{
	return (double)(clock_now_ns() - p->began) / 1e9;
}

static void erase(struct progress *p)
{
	if (p->drawn)
		fputs("\r\033[K", stderr);
	p->drawn = false;
}

static unsigned columns(void)
{
	struct winsize ws;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 20 ? ws.ws_col : 80;
}

static void draw(struct progress *p)
{
	char text[160], line[256];

	amounts(p, text, sizeof(text));
	snprintf(line, sizeof(line), "  %-12s%s  %.1f s", p->stage, text, seconds(p));
	if (strlen(line) >= columns())
		line[columns() - 1] = '\0';
	fprintf(stderr, "\r%s\033[K", line);
	p->drawn = true;
}

static void event(struct progress *p, const char *name, const char *text)
{
	cleanup_json json_t *obj = json_pack("{s:s, s:o, s:f}", "event", name, "stage",
		json_lossy(p->stage, strlen(p->stage)), "seconds", p->open ? seconds(p) : 0.0);

	if (!obj)
		abort();
	if (p->unit[0] && p->open) {
		json_object_set_new(obj, p->unit, json_integer((json_int_t)p->now));
		if (p->total)
			json_object_set_new(obj, "total", json_integer((json_int_t)p->total));
	}
	if (text)
		json_object_set_new(obj, "text", json_lossy(text, strlen(text)));
	json_print_line(obj);
}

void progress_stage(struct progress *p, const char *stage, const char *unit, uint64_t total)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	snprintf(p->stage, sizeof(p->stage), "%s", stage);
	snprintf(p->unit, sizeof(p->unit), "%s", unit ? unit : "");
	p->now = 0;
	p->total = total;
	p->began = p->shown = clock_now_ns();
	p->open = true;
	if (p->output == OUT_TERMINAL)
		draw(p);
	else if (p->output == OUT_PLAIN)
		fprintf(stderr, "  %s …\n", p->stage);
	else if (p->output == OUT_JSON)
		event(p, "stage", NULL);
	pthread_mutex_unlock(&p->lock);
}

void progress_update(struct progress *p, uint64_t now)
{
	int64_t t;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->now = now;
	t = clock_now_ns();
	if (p->open && t - p->shown >= (p->output == OUT_TERMINAL ? REDRAW_NS : PLAIN_NS)) {
		char text[160];

		p->shown = t;
		amounts(p, text, sizeof(text));
		if (p->output == OUT_TERMINAL)
			draw(p);
		else if (p->output == OUT_PLAIN)
			fprintf(stderr, "  %s:%s, %.0f s\n", p->stage, text, seconds(p));
		else if (p->output == OUT_JSON)
			event(p, "progress", NULL);
	}
	pthread_mutex_unlock(&p->lock);
}

void progress_total(struct progress *p, uint64_t total)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->total = total;
	pthread_mutex_unlock(&p->lock);
}

/* A line of its own, or (@done) the end of the stage. */
static void tell(struct progress *p, bool done, const char *fmt, va_list args)
{
	char text[2048] = "";

	if (fmt)
		vsnprintf(text, sizeof(text), fmt, args);
	for (char *c = text; *c; c++) {
		if ((unsigned char)*c < ' ' && *c != '\t')
			*c = ' ';
	}
	pthread_mutex_lock(&p->lock);
	if (p->output == OUT_TERMINAL)
		erase(p);
	if (p->output == OUT_JSON)
		event(p, done ? "done" : "note", text[0] || !done ? text : NULL);
	else if (p->output != OUT_SILENT && done)
		fprintf(stderr, "  %-12s %s%s%.1f s\n", p->stage, text, text[0] ? ", " : "",
			seconds(p));
	else if (p->output != OUT_SILENT)
		fprintf(stderr, "    %s\n", text);
	if (done)
		p->open = false;
	else if (p->output == OUT_TERMINAL && p->open)
		draw(p);
	pthread_mutex_unlock(&p->lock);
}

void progress_done(struct progress *p, const char *fmt, ...)
{
	va_list args;

	if (!p)
		return;
	va_start(args, fmt);
	tell(p, true, fmt, args);
	va_end(args);
}

void progress_note(struct progress *p, const char *fmt, ...)
{
	va_list args;

	if (!p)
		return;
	va_start(args, fmt);
	tell(p, false, fmt, args);
	va_end(args);
}

void progress_free(struct progress *p)
{
	if (!p)
		return;
	if (p->open && p->output == OUT_TERMINAL)
		erase(p);
	if (p->open && (p->output == OUT_TERMINAL || p->output == OUT_PLAIN))
		fprintf(stderr, "  %-12s failed after %.1f s\n", p->stage, seconds(p));
	else if (p->open && p->output == OUT_JSON)
		event(p, "failed", NULL);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
