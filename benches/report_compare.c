/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons on a page: all of them as one table, each by itself below; and the verdict of `bench ab`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches/chart.h"
#include "benches/compare_documents.h"
#include "benches/plan.h"
#include "benches/report_private.h"

#define INTERVALS_MAX 64

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

static size_t intervals(const json_t *result, struct chart_interval *list)
{
	const json_t *row;
	size_t i, n = 0;

	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		const json_t *high = json_object_get(row, "high"),
			     *low = json_object_get(row, "low");
		struct chart_interval *c = &list[n];

		if (n == INTERVALS_MAX)
			break;
		/* what has no interval has no place in the picture */
		if (!json_is_number(low) && !json_is_number(high))
			continue;
		n++;
		*c = (struct chart_interval){
			.estimate = json_number_value(json_object_get(row, "change")),
			.low = json_is_number(low) ? json_number_value(low) : -1,
			.high = json_is_number(high) ? json_number_value(high) : 10,
			.limit = json_number_value(json_object_get(row, "limit")),
			.bad = !strcmp(text_of(row, "verdict"), "slower"),
			.open = !strcmp(text_of(row, "verdict"), "undecided"),
		};
		snprintf(c->group, sizeof(c->group), "%s", text_of(row, "id"));
		snprintf(c->name, sizeof(c->name), "%.32s %.12s", text_of(row, "name"),
			text_of(row, "quantity"));
	}
	return n;
}

static void comparison_table(struct text *out, const json_t *result)
{
	const json_t *row, *note;
	size_t i;

	report_scroller(out, "each series, then and now");
	text_add(out,
		"<table><tr><th>series</th><th class=\"n\"></th><th "
		"class=\"n\">n</th>"
		"<th class=\"n\">then</th><th class=\"n\">now</th><th class=\"n\">change</th>"
		"<th>verdict</th></tr>\n");
	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		bool bad = !strcmp(text_of(row, "verdict"), "slower");
		double percentile = json_number_value(json_object_get(row, "percentile"));
		char then[24], now[24];

		if (percentile == COMPARE_FAILURES && !bad)
			continue;
		text_add(out, "<tr><td>");
		text_escape(out, text_of(row, "id"));
		text_add(out, ", ");
		text_escape(out, text_of(row, "name"));
		text_add(out, "</td><td class=\"n\">");
		text_escape(out, text_of(row, "quantity"));
		text_add(out,
			"</td><td class=\"n\">%lld, %lld</td><td class=\"n\">%s</td>"
			"<td class=\"n\">%s</td><td class=\"n\">%+.1f %%</td><td%s>",
			(long long)json_integer_value(json_object_get(row, "n_old")),
			(long long)json_integer_value(json_object_get(row, "n_new")),
			compare_value_text(row, "old_ns", then),
			compare_value_text(row, "new_ns", now),
			json_number_value(json_object_get(row, "change")) * 100,
			bad ? " class=\"bad\"" : "");
		text_escape(out, text_of(row, "verdict"));
		text_add(out, "</td></tr>\n");
	}
	text_add(out, "</table></div>\n");
	json_array_foreach(json_object_get(result, "notes"), i, note)
	{
		text_add(out, "<p class=\"note\">");
		text_escape(out, json_string_value(note) ?: "");
		text_add(out, "</p>\n");
	}
	json_array_foreach(json_object_get(result, "why"), i, note)
	{
		text_add(out, "<p class=\"note\">");
		text_escape(out, json_string_value(note) ?: "");
		text_add(out, "</p>\n");
	}
}

/* The row that says most: the worst that is slower, else the greatest change of a median. */
static const json_t *worst_row(const json_t *result)
{
	const json_t *row, *worst = NULL;
	bool worst_bad = false;
	size_t i;

	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		double percentile = json_number_value(json_object_get(row, "percentile"));
		bool bad = !strcmp(text_of(row, "verdict"), "slower");

		if (percentile == COMPARE_FAILURES || (!bad && percentile != 50))
			continue;
		if (!worst || bad > worst_bad ||
			(bad == worst_bad &&
				json_number_value(json_object_get(row, "change")) >
					json_number_value(json_object_get(worst, "change")))) {
			worst = row;
			worst_bad = bad;
		}
	}
	return worst;
}

static json_t *compared(const json_t *old, const json_t *new)
{
	static const struct compare_limit limits[] = {
		{50, 0.05}, {90, 0.10}, {99, 0.10}, {COMPARE_FAILURES, 0}};
	const bool in_turn = old == new;
	const struct compare_request rq = {.limits = in_turn ? plan_limits : limits,
		.n_limits = in_turn ? PLAN_LIMITS : 4,
		.detect = in_turn
			? json_number_value(json_object_get(json_object_get(old, "ab"), "detect"))
			: PLAN_DETECT,
		.cost_regress = in_turn ? 0 : 0.05,
		.across = ACROSS_ALL};
	json_t *result = NULL;
	struct err err;

	if (compare_documents(old, new, &rq, &result, &err) < 0)
		result = json_pack("{s:s, s:[s], s:[], s:[]}", "verdict", "incomparable", "why",
			err.text, "rows", "notes");
	return result;
}

static void summary_row(
	struct text *out, const json_t *old, const char *name, const json_t *result, size_t number)
{
	const json_t *row = worst_row(result);
	bool bad = !strcmp(text_of(result, "verdict"), "slower");

	text_add(out, "<tr><td><a href=\"#against%zu\">", number);
	text_escape(out, name);
	text_add(out, "</a></td><td>");
	text_escape(out, text_of(old, "created"));
	text_add(out, "</td><td%s>", bad ? " class=\"bad\"" : "");
	text_escape(out, text_of(result, "verdict"));
	text_add(out, "</td><td>");
	if (row) {
		text_escape(out, text_of(row, "id"));
		text_add(out, ", ");
		text_escape(out, text_of(row, "name"));
		text_add(out, " ");
		text_escape(out, text_of(row, "quantity"));
	}
	text_add(out, "</td><td class=\"n\">");
	if (row)
		text_add(out, "%+.1f %%", json_number_value(json_object_get(row, "change")) * 100);
	text_add(out, "</td></tr>\n");
}

static void one_comparison(struct text *out, const json_t *old, const char *name,
	const json_t *result, size_t number, bool open)
{
	struct chart_interval *list = calloc(INTERVALS_MAX, sizeof(*list));

	if (!list)
		abort();
	text_add(out, "<details id=\"against%zu\"%s><summary>", number,
		open ? " open=\"open\"" : "");
	text_escape(out, name);
	text_add(out, ", of ");
	text_escape(out, text_of(old, "created"));
	text_add(out, ", parbake ");
	text_escape(out, text_of(old, "parbake"));
	text_add(out, ": ");
	text_escape(out, text_of(result, "verdict"));
	text_add(out, "</summary>\n");
	chart_intervals(out, "Change, with its 95 % interval", list, intervals(result, list));
	comparison_table(out, result);
	text_add(out, "</details>\n");
	free(list);
}

void report_comparisons(struct text *out, const json_t *doc, json_t *const *against,
	const char *const *names, size_t n)
{
	json_t **results = calloc(n ?: 1, sizeof(*results));

	if (!results)
		abort();
	if (n) {
		text_add(out, "<section id=\"against\"><h2>Compared with</h2>\n");
		report_scroller(out, "all comparisons");
		text_add(out,
			"<table><tr><th>document</th><th>of</th><th>verdict</th><th>most</th><th "
			"class=\"n\">change</th></tr>\n");
	}
	for (size_t i = 0; i < n; i++) {
		results[i] = compared(against[i], doc);
		summary_row(out, against[i], names[i], results[i], i);
	}
	if (n)
		text_add(out, "</table></div>\n");
	for (size_t i = 0; i < n; i++) {
		/* a target of a link opens by itself in some browsers only: few are open from the start */
		one_comparison(out, against[i], names[i], results[i], i, n <= 3);
		json_decref(results[i]);
	}
	if (n)
		text_add(out, "</section>\n");
	free(results);
}

void report_in_turn(struct text *out, const json_t *doc)
{
	const json_t *ab = json_object_get(doc, "ab");
	cleanup_json json_t *result = NULL;

	if (!ab)
		return;
	result = compared(doc, doc);
	text_add(out,
		"<section id=\"ab\"><h2>Old and new, measured in turn: %s</h2>\n<p "
		"class=\"sub\">old: ",
		text_of(result, "verdict"));
	text_escape(out, text_of(ab, "old"));
	text_add(out, "<br/>new: ");
	text_escape(out, text_of(ab, "new"));
	text_add(out, "<br/>%lld rounds; ",
		(long long)json_integer_value(json_object_get(ab, "rounds")));
	text_escape(out, text_of(ab, "host"));
	text_add(out, "</p>\n");
	one_comparison(out, doc, "each series", result, SIZE_MAX, true);
	text_add(out, "</section>\n");
}
