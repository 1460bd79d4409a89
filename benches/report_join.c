/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same measurement, run again and again, is one section of a page: samples of all its runs together, of each side
 * apart. (What is decided about runs is decided from the document, not from this.)
 */
#include <stdlib.h>
#include <string.h>

#include "benches/report_private.h"
#include "benches/series.h"
#include "common/str.h"

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

static json_t *find_run(json_t *runs, const json_t *like)
{
	json_t *run;
	size_t i;

	json_array_foreach(runs, i, run)
	{
		if (!strcmp(text_of(run, "id"), text_of(like, "id")) &&
			!strcmp(text_of(run, "side"), text_of(like, "side")))
			return run;
	}
	return NULL;
}

/* The samples of @more behind those of @to; false: they do not fit. */
static bool join_series(json_t *list, size_t at, const json_t *more)
{
	cleanup_series struct bench_series a = {0}, b = {0};
	struct err err;

	if (bench_series_from_json(json_array_get(list, at), &a, &err) < 0 ||
		bench_series_from_json(more, &b, &err) < 0)
		return false;
	a.has_parts &= b.has_parts;
	a.has_faults &= b.has_faults;
	for (size_t i = 0; i < b.n; i++)
		bench_series_add(&a, &b.samples[i]);
	if (!a.failed)
		a.first_error = b.first_error;
	a.failed += b.failed;
	a.span += b.span;
	json_array_set_new(list, at, bench_series_to_json(&a));
	return true;
}

static void join_run(json_t *to, const json_t *run)
{
	json_t *list = json_object_get(to, "series");
	const json_t *more, *one;
	size_t i, j;

	json_array_foreach(json_object_get(run, "series"), i, more)
	{
		bool joined = false;

		json_array_foreach(list, j, one)
		{
			if (!joined && !strcmp(text_of(one, "name"), text_of(more, "name")))
				joined = join_series(list, j, more);
		}
		if (!joined)
			json_array_append(list, (json_t *)more);
	}
	json_object_set_new(
		to, "joined", json_integer(json_integer_value(json_object_get(to, "joined")) + 1));
}

/* Only samples can be put together: tables and traces stand for themselves. */
static bool joinable(const json_t *run)
{
	return json_is_array(json_object_get(run, "series")) && !json_object_get(run, "table") &&
		!json_object_get(run, "traces");
}

json_t *report_join(const json_t *doc)
{
	json_t *all = json_copy((json_t *)doc), *runs = json_array(), *run;
	size_t i;

	if (!all || !runs)
		abort();
	json_array_foreach(json_object_get(doc, "runs"), i, run)
	{
		json_t *to = joinable(run) ? find_run(runs, run) : NULL;

		if (to && joinable(to)) {
			join_run(to, run);
			continue;
		}
		json_array_append_new(runs, json_deep_copy(run));
	}
	json_array_foreach(runs, i, run)
	{
		long long joined = json_integer_value(json_object_get(run, "joined"));
		const char *side = text_of(run, "side");
		cleanup_free char *title = NULL;

		if (!joined && !*side)
			continue;
		title = str_printf("%s%s%s%s", *side ? side : "", *side ? ": " : "",
			text_of(run, "title"), joined ? ", several runs" : "");
		json_object_set_new(run, "title", json_lossy(title, strlen(title)));
	}
	json_object_set_new(all, "runs", runs);
	return all;
}
