/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of measurements by commit, and what they say together. */
#include "benches/history.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "benches/document.h"
#include "benches/permute.h"
#include "benches/series.h"
#include "benches/stats.h"
#include "common/file.h"
#include "common/str.h"

#define STEP_CHANCE 0.05
#define LEVEL_LEAST 3
#define ALARM 0.002 /* probability of a value beyond the limit, were nothing changed */

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

/* ---- files --------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct history_entry *x = a, *y = b;
	int order = strcmp(x->time, y->time);

	return order ? order : strcmp(x->file, y->file);
}

static int read_entry(const char *dir, const char *name, struct history *h, struct err *err)
{
	cleanup_free char *path = str_printf("%s/%s", dir, name);
	cleanup_json json_t *doc = NULL;
	const json_t *label;
	int r = bench_document_read(path, &doc, err);

	if (r < 0)
		return r;
	label = json_object_get(doc, "history");
	if (!*text_of(label, "commit") || !*text_of(label, "time"))
		return err_set(
			err, EINVAL, "%s: not an entry of `parbake bench history add`", path);
	if (h->n == HISTORY_ENTRIES_MAX)
		return err_set(err, E2BIG, "%s: more than %d entries", dir, HISTORY_ENTRIES_MAX);
	h->entries = reallocarray(h->entries, h->n + 1, sizeof(*h->entries));
	if (!h->entries)
		abort();
	h->entries[h->n++] = (struct history_entry){
		.file = str_dup(name),
		.commit = str_dup(text_of(label, "commit")),
		.branch = str_dup(text_of(label, "branch")),
		.time = str_dup(text_of(label, "time")),
		.release = str_dup(text_of(label, "release")),
		.note = str_dup(text_of(label, "note")),
		.doc = steal_ptr(&doc),
	};
	return 0;
}

int history_read(const char *dir, struct history *ret, struct err *err)
{
	struct history h = {0};
	struct dirent *e;
	DIR *d = opendir(dir);
	int r = d ? 0 : err_sys(err, errno, "the history %s", dir);

	while (d && r == 0 && (e = readdir(d))) {
		size_t len = strlen(e->d_name);

		if (e->d_name[0] != '.' && len > 5 && !strcmp(e->d_name + len - 5, ".json"))
			r = read_entry(dir, e->d_name, &h, err);
	}
	if (d)
		closedir(d);
	if (r < 0) {
		history_clear(&h);
		return r;
	}
	if (h.n)
		qsort(h.entries, h.n, sizeof(*h.entries), by_time);
	*ret = h;
	return 0;
}

void history_clear(struct history *h)
{
	for (size_t i = 0; i < h->n; i++) {
		struct history_entry *e = &h->entries[i];

		free(e->file);
		free(e->commit);
		free(e->branch);
		free(e->time);
		free(e->release);
		free(e->note);
		json_decref(e->doc);
	}
	free(h->entries);
	*h = (struct history){0};
}

/* Letters and digits alone: it becomes part of a file's name. */
static void plain(const char *text, size_t max, char *ret)
{
	size_t n = 0;

	for (; *text && n < max; text++) {
		if (strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *text))
			ret[n++] = *text;
	}
	ret[n] = '\0';
}

int history_add(const char *dir, json_t *doc, const struct history_label *label, char **ret_file,
	struct err *err)
{
	char time[32], commit[16];
	cleanup_free char *file = NULL;
	int r = file_mkdir_p(dir, 0777, err);

	plain(label->time, sizeof(time) - 1, time);
	plain(label->commit, 12, commit);
	if (r == 0 && (!*time || !*commit))
		r = err_set(err, EINVAL, "a commit and its time are needed");
	if (r < 0)
		return r;
	json_object_set_new(doc, "history",
		json_pack("{s:s, s:s, s:s, s:s, s:s}", "commit", label->commit, "branch",
			label->branch ?: "", "time", label->time, "release", label->release ?: "",
			"note", label->note ?: ""));
	file = str_printf("%s/%s-%s.json", dir, time, commit);
	r = bench_document_write(doc, file, err);
	if (r == 0)
		*ret_file = steal_ptr(&file);
	return r;
}

/* ---- trends -------------------------------------------------------------------------------- */

void history_trend_clear(struct history_trend *t)
{
	free(t->id);
	free(t->name);
	free(t->points);
	*t = (struct history_trend){0};
}

static struct history_trend *trend_get(
	struct history_trend *trends, size_t *n, const char *id, const char *name)
{
	for (size_t i = 0; i < *n; i++) {
		if (!strcmp(trends[i].id, id) && !strcmp(trends[i].name, name))
			return &trends[i];
	}
	if (*n == HISTORY_SERIES_MAX)
		return NULL;
	trends[*n] = (struct history_trend){.id = str_dup(id), .name = str_dup(name)};
	return &trends[(*n)++];
}

/* One run's series joins the entry's point: medians are of runs' medians in the end (see finish_points()). */
static void take_series(struct history_trend *t, size_t entry, const struct bench_series *s)
{
	struct history_point *p;

	if (!s->n)
		return;
	if (!t->n || t->points[t->n - 1].entry != entry) {
		t->points = reallocarray(t->points, t->n + 1, sizeof(*t->points));
		if (!t->points)
			abort();
		t->points[t->n++] = (struct history_point){.entry = entry};
	}
	p = &t->points[t->n - 1];
	/* geometric means over runs: no run counts more than another */
	p->p50_ms += log(fmax(1, (double)bench_series_percentile(s, 50)));
	p->p90_ms += log(fmax(1, (double)bench_series_percentile(s, 90)));
	p->p99_ms += log(fmax(1, (double)bench_series_percentile(s, 99)));
	p->n += s->n;
	p->runs++;
}

static void take_entry(
	const struct history *h, size_t entry, struct history_trend *trends, size_t *n)
{
	const json_t *run, *obj;
	size_t i, j;

	json_array_foreach(json_object_get(h->entries[entry].doc, "runs"), i, run)
	{
		if (!strcmp(text_of(run, "side"), "old"))
			continue;
		json_array_foreach(json_object_get(run, "series"), j, obj)
		{
			cleanup_series struct bench_series s = {0};
			struct history_trend *t;
			struct err err;

			if (bench_series_from_json(obj, &s, &err) < 0 ||
				(!strcmp(s.name, "first") && s.n <= 1))
				continue;
			t = trend_get(trends, n, text_of(run, "id"), s.name);
			if (t)
				take_series(t, entry, &s);
		}
	}
}

size_t history_trends(const struct history *h, const char *branch,
	struct history_trend ret[static HISTORY_SERIES_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < h->n; i++) {
		if (!branch || !strcmp(h->entries[i].branch, branch))
			take_entry(h, i, ret, &n);
	}
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < ret[i].n; j++) {
			struct history_point *p = &ret[i].points[j];

			p->p50_ms = exp(p->p50_ms / (double)p->runs) / 1e6;
			p->p90_ms = exp(p->p90_ms / (double)p->runs) / 1e6;
			p->p99_ms = exp(p->p99_ms / (double)p->runs) / 1e6;
		}
	}
	return n;
}

/* ---- steps, and the gate ------------------------------------------------------------------- */

/* The best place of a step within values [from, to), and how probable one as great is by chance there. */
static double best_step(const double *v, size_t from, size_t to, size_t *ret_at)
{
	double best = 1;
	size_t places = 0;

	for (size_t at = from + LEVEL_LEAST; at + LEVEL_LEAST <= to; at++) {
		struct permute_shift s;
		double p;

		permute_two(v + from, at - from, v + at, to - at, 0, &s);
		p = 2 * fmin(s.above, s.below);
		places++;
		if (p < best) {
			best = p;
			*ret_at = at;
		}
	}
	return best * (double)places;
}

static void split(const double *v, size_t from, size_t to, bool *ret)
{
	size_t at = from;

	if (to - from < 2 * LEVEL_LEAST || best_step(v, from, to, &at) >= STEP_CHANCE)
		return;
	ret[at] = true;
	split(v, from, at, ret);
	split(v, at, to, ret);
}

void history_changes(const double *values, size_t n, bool *ret)
{
	memset(ret, 0, n * sizeof(*ret));
	split(values, 0, n, ret);
}

/* What a variable of Student's distribution exceeds with the probability @tail: Cornish and Fisher's expansion. */
static double student_tail(double tail, double degrees)
{
	double z = permute_normal_tail(tail), z3 = z * z * z, z5 = z3 * z * z;

	return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees * degrees);
}

int history_above(const double *values, size_t n, size_t n_base, double *ret_limit)
{
	double mean = 0, squares = 0, recent = 0, sd, t;
	size_t n_recent = n > n_base ? n - n_base : 0;

	if (n_base < HISTORY_BASELINE_LEAST || !n_recent)
		return -1;
	n_recent = n_recent > HISTORY_RECENT ? HISTORY_RECENT : n_recent;
	for (size_t i = 0; i < n_base; i++)
		mean += log(fmax(values[i], 1e-9)) / (double)n_base;
	for (size_t i = 0; i < n_base; i++)
		squares += pow(log(fmax(values[i], 1e-9)) - mean, 2);
	sd = sqrt(squares / (double)(n_base - 1));
	for (size_t i = n - n_recent; i < n; i++)
		recent += log(fmax(values[i], 1e-9)) / (double)n_recent;
	/* both looks share the probability */
	t = student_tail(ALARM / 2, (double)n_base - 1);
	*ret_limit = exp(mean + t * sd * sqrt(1 + 1 / (double)n_base));
	return values[n - 1] > *ret_limit ||
		recent > mean + t * sd * sqrt(1 / (double)n_recent + 1 / (double)n_base);
}

void history_print(struct text *out, const struct history *h, const char *branch)
{
	struct history_trend *trends = calloc(HISTORY_SERIES_MAX, sizeof(*trends));
	size_t n;

	if (!trends)
		abort();
	n = history_trends(h, branch, trends);
	for (size_t i = 0; i < n; i++) {
		struct history_trend *t = &trends[i];
		cleanup_free double *values = calloc(t->n ?: 1, sizeof(*values));
		cleanup_free bool *steps = calloc(t->n ?: 1, sizeof(*steps));

		if (!values || !steps)
			abort();
		for (size_t j = 0; j < t->n; j++)
			values[j] = log(t->points[j].p50_ms);
		history_changes(values, t->n, steps);
		text_add(out, "%s %s\n  %-20s %-12s %-12s %5s %6s %9s %9s %9s\n", t->id, t->name,
			"time", "commit", "branch", "runs", "n", "p50 ms", "p90", "p99");
		for (size_t j = 0; j < t->n; j++) {
			const struct history_point *p = &t->points[j];
			const struct history_entry *e = &h->entries[p->entry];

			text_add(out,
				"%s %-20.20s %-12.12s %-12.12s %5zu %6zu %9.2f %9.2f "
				"%9.2f%s%s%s%s\n",
				steps[j] ? "*" : " ", e->time, e->commit, e->branch, p->runs, p->n,
				p->p50_ms, p->p90_ms, p->p99_ms, *e->release ? "  release " : "",
				e->release, *e->note ? "  " : "", e->note);
		}
		history_trend_clear(t);
	}
	free(trends);
}
