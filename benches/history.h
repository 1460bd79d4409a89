/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BENCHES_HISTORY_H
#define PARBAKE_BENCHES_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "benches/text.h"
#include "common/err.h"
#include "common/json.h"

/*
 * Measurements of many commits: a directory with one document for each (document.h), which has besides
 *
 *     "history": {"commit", "branch", "time", "release", "note"}
 *
 * in a file named by time and commit. Of a document of `bench ab` the new side is the commit's. The directory may be
 * a branch's work tree: files are only ever added.
 */
#define HISTORY_ENTRIES_MAX 4096
#define HISTORY_SERIES_MAX 64
#define HISTORY_BASELINE                                                                           \
	10 /* entries that a new one is compared with, at most; of few, the first two thirds */
#define HISTORY_BASELINE_LEAST 5
#define HISTORY_RECENT 3 /* the newest entries whose mean is looked at beside the newest alone */

struct history_entry {
	char *file, *commit, *branch, *time, *release,
		*note; /* release, note: "" where there is none */
	json_t *doc;
};

struct history {
	struct history_entry *entries; /* by time */
	size_t n;
};

/* Read all of @dir. -EINVAL names a file that is no entry. Free with history_clear(). */
int history_read(const char *dir, struct history *ret, struct err *err);
void history_clear(struct history *h);
#define cleanup_history __attribute__((__cleanup__(history_clear)))

/* What an entry is of; all but @commit and @time may be NULL. */
struct history_label {
	const char *commit, *branch, *time, *release, *note;
};
/* Write @doc (changed: its "history" is set) into @dir, which is made where it is not there. Caller frees *@ret_file. */
int history_add(const char *dir, json_t *doc, const struct history_label *label, char **ret_file,
	struct err *err);

/* One series over the history: entries that lack it have no point. */
struct history_point {
	size_t entry;
	double p50_ms, p90_ms, p99_ms;
	size_t n, runs;
};

struct history_trend {
	char *id, *name;
	struct history_point *points;
	size_t n;
};

/* The trends of entries of @branch (NULL: all): at most HISTORY_SERIES_MAX. Caller frees each with history_trend_clear(). */
size_t history_trends(const struct history *h, const char *branch,
	struct history_trend ret[static HISTORY_SERIES_MAX]);
void history_trend_clear(struct history_trend *t);

/*
 * Where the values change for good: ret[i] says that a new level begins at i. Each step is one that exchanging values
 * explains with a probability below 5 %, among all places it could be; a level has at least three values.
 */
void history_changes(const double *values, size_t n, bool *ret);

/*
 * Is the newest of @n values above the first @n_base of them, by more than these vary, or are the newest
 * HISTORY_RECENT together? The level compared with stays where it is, so that small steps add up. *@ret_limit: the
 * least newest value that would be. -1: too few to say.
 */
int history_above(const double *values, size_t n, size_t n_base, double *ret_limit);

/* A table for a terminal. */
void history_print(struct text *out, const struct history *h, const char *branch);
/* All trends on one page: charts by commit, levels with their noise, steps and notes marked. */
void history_page(struct text *out, const struct history *h, const char *branch);

#endif
