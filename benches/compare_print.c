/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison as a table for a terminal. */
#include <string.h>

#include "benches/compare_documents.h"

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

const char *compare_value_text(const json_t *row, const char *key, char ret[static 24])
{
	long long value = (long long)json_integer_value(json_object_get(row, key));
	const char *measure = text_of(row, "measure");
	bool is_time = !strcmp(measure, "time") || !strcmp(measure, "cpu_ns");

	if (!is_time || json_number_value(json_object_get(row, "percentile")) == COMPARE_FAILURES)
		snprintf(ret, 24, "%lld", value);
	else
		snprintf(ret, 24, "%.2f", (double)value / 1e6);
	return ret;
}

static const char *percent(const json_t *row, const char *key, char ret[static 24])
{
	const json_t *x = json_object_get(row, key);

	if (json_is_number(x))
		snprintf(ret, 24, "%+.1f %%", json_number_value(x) * 100);
	else
		snprintf(ret, 24, "open");
	return ret;
}

static void print_row(struct text *out, const json_t *row)
{
	bool failures = json_number_value(json_object_get(row, "percentile")) == COMPARE_FAILURES;
	char a[24], b[24], interval[64];

	snprintf(interval, sizeof(interval), "%s to %s", percent(row, "low", a),
		percent(row, "high", b));
	text_add(out, "  %-8s %-8s %7lld %7lld %9s", text_of(row, "name"), text_of(row, "quantity"),
		(long long)json_integer_value(json_object_get(row, "n_old")),
		(long long)json_integer_value(json_object_get(row, "n_new")),
		compare_value_text(row, "old_ns", a));
	text_add(out, " %9s", compare_value_text(row, "new_ns", a));
	if (failures)
		text_add(out, " %9s  %-20s %8s  %s\n", "", "", "", text_of(row, "verdict"));
	else
		text_add(out, " %9s  %-20s %8s  %s (%s)\n", percent(row, "change", a), interval,
			percent(row, "could_see", b), text_of(row, "verdict"),
			text_of(row, "method"));
}

void compare_print(struct text *out, const json_t *result)
{
	const json_t *row, *one;
	const char *last = "";
	size_t i;

	if (json_array_size(json_object_get(result, "rows")))
		text_add(out, "  %-8s %-8s %7s %7s %9s %9s %9s  %-20s %8s  %s\n", "series", "",
			"n old", "n new", "old ms", "new ms", "change", "95 % interval", "sees",
			"verdict");
	json_array_foreach(json_object_get(result, "rows"), i, row)
	{
		if (strcmp(last, text_of(row, "id")))
			text_add(out, "%s\n", last = text_of(row, "id"));
		print_row(out, row);
	}
	json_array_foreach(json_object_get(result, "notes"), i, one)
		text_add(out, "note: %s\n", json_string_value(one) ?: "");
	json_array_foreach(json_object_get(result, "why"), i, one)
		text_add(out, "because: %s\n", json_string_value(one) ?: "");
	text_add(out, "verdict: %s\n", text_of(result, "verdict"));
}
