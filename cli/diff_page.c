/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison of two versions as one page. Names and lines come from a guest: all text is escaped, and lists are cut
 * where the page would become too large to be read; --json has all of it.
 */
#include "cli/diff_page.h"

#include <string.h>

#include "benches/document.h"
#include "benches/report_style.h"
#include "common/progress.h"

#define ROWS 1000 /* of a list */

static const char *text_of(const json_t *obj, const char *key)
{
	return json_string_value(json_object_get(obj, key)) ?: "";
}

static uint64_t number_of(const json_t *obj, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(obj, key));
}

/* ---- pieces ------------------------------------------------------------------------------ */

static void section(struct text *out, const char *title)
{
	text_add(out, "<section><h2>%s</h2>\n", title);
}

/* A table with the columns @heads, ended by NULL; those that begin with '#' are of numbers. */
static void table(struct text *out, const char *label, const char *const *heads)
{
	report_scroller(out, label);
	text_add(out, "<table><tr>");
	for (; *heads; heads++)
		text_add(out, "<th%s>%s</th>", **heads == '#' ? " class=\"n\"" : "",
			*heads + (**heads == '#'));
	text_add(out, "</tr>\n");
}

static void table_end(struct text *out)
{
	text_add(out, "</table></div>\n");
}

static void cell(struct text *out, const char *text)
{
	text_add(out, "<td>");
	text_escape(out, text);
	text_add(out, "</td>");
}

/* Bytes, or a dash where there is none. */
static void cell_bytes(struct text *out, const json_t *value)
{
	char size[16];

	text_add(out, "<td class=\"n\">%s</td>",
		json_is_integer(value) ? progress_bytes((uint64_t)json_integer_value(value), size)
				       : "–");
}

static void cell_change(struct text *out, const json_t *obj)
{
	uint64_t a = number_of(obj, "a"), b = number_of(obj, "b");
	char size[16];

	text_add(out, "<td class=\"n\">%s%s</td>", b < a ? "−" : "+",
		progress_bytes(b < a ? a - b : b - a, size));
}

static void cell_value(struct text *out, const json_t *value)
{
	cleanup_free char *text = NULL;

	if (!json_is_string(value))
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
	cell(out, json_is_null(value) ? "–" : text ? text : json_string_value(value));
}

/* Lines that begin with their sign. */
static void lines(struct text *out, const json_t *list)
{
	const json_t *e;
	size_t i;

	text_add(out, "<pre>");
	json_array_foreach(list, i, e)
	{
		const char *line = json_string_value(e) ?: "";

		text_add(out, "<span class=\"%s\">", *line == '-' ? "bad" : "good");
		text_escape(out, line);
		text_add(out, "</span>\n");
	}
	text_add(out, "</pre>\n");
}

/* Is it the last row that there is room for? Then how many more there are is told. */
static bool cut(struct text *out, const json_t *list, size_t i)
{
	if (i < ROWS)
		return false;
	text_add(out, "<tr><td>and %zu more</td></tr>\n", json_array_size(list) - i);
	return true;
}

static const char *sign_of(bool a, bool b)
{
	return !a ? "new" : !b ? "gone" : "other";
}

/* ---- sections ---------------------------------------------------------------------------- */

static void tile(struct text *out, const char *label, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void tile(struct text *out, const char *label, const char *fmt, ...)
{
	va_list args;

	text_add(out, "<div class=\"tile\"><b>");
	va_start(args, fmt);
	text_add_v(out, fmt, args);
	va_end(args);
	text_add(out, "</b><span>%s</span></div>\n", label);
}

static void tiles(struct text *out, const json_t *all)
{
	const json_t *files = json_object_get(all, "files"), *m = json_object_get(all, "memory");
	char size[2][16];

	text_add(out, "<div class=\"tiles\">\n");
	tile(out, "all but memory", "%s",
		json_is_true(json_object_get(all, "same")) ? "the same" : "differs");
	tile(out, "fields of the config", "%zu", json_array_size(json_object_get(all, "config")));
	if (json_is_array(json_object_get(all, "packages")))
		tile(out, "packages", "%zu", json_array_size(json_object_get(all, "packages")));
	if (files)
		tile(out, "files new, gone, changed", "%zu, %zu, %zu",
			json_array_size(json_object_get(files, "added")),
			json_array_size(json_object_get(files, "removed")),
			json_array_size(json_object_get(files, "changed")));
	if (m)
		tile(out, "memory that holds data", "%s → %s",
			progress_bytes(number_of(m, "a_bytes"), size[0]),
			progress_bytes(number_of(m, "b_bytes"), size[1]));
	text_add(out, "</div>\n");
}

static void config_section(struct text *out, const json_t *list)
{
	static const char *const heads[] = {"Field", "A", "B", NULL};
	const json_t *e;
	size_t i;

	if (!json_array_size(list))
		return;
	section(out, "Config");
	table(out, "config", heads);
	json_array_foreach(list, i, e)
	{
		text_add(out, "<tr>");
		cell(out, text_of(e, "field"));
		cell_value(out, json_object_get(e, "a"));
		cell_value(out, json_object_get(e, "b"));
		text_add(out, "</tr>\n");
	}
	table_end(out);
	text_add(out, "</section>\n");
}

static void package_section(struct text *out, const json_t *list)
{
	static const char *const heads[] = {"", "Kind", "Package", "A", "B", NULL};
	const json_t *e;
	size_t i;

	if (!json_array_size(list))
		return;
	section(out, "Packages");
	table(out, "packages", heads);
	json_array_foreach(list, i, e)
	{
		const json_t *a = json_object_get(e, "a"), *b = json_object_get(e, "b");

		text_add(out, "<tr><td>%s</td>",
			json_equal(a, b) ? "other files"
					 : sign_of(json_is_string(a), json_is_string(b)));
		cell(out, text_of(e, "kind"));
		cell(out, text_of(e, "name"));
		cell_value(out, a);
		cell_value(out, b);
		text_add(out, "</tr>\n");
	}
	table_end(out);
	text_add(out, "</section>\n");
}

static void one_sided(struct text *out, const json_t *list, const char *title)
{
	static const char *const heads[] = {"Path", "Type", "#Size", NULL};
	const json_t *e;
	size_t i;

	if (!json_array_size(list))
		return;
	text_add(out, "<details%s><summary>%zu %s</summary>\n",
		json_array_size(list) <= 20 ? " open=\"\"" : "", json_array_size(list), title);
	table(out, title, heads);
	json_array_foreach(list, i, e)
	{
		if (cut(out, list, i))
			break;
		text_add(out, "<tr>");
		cell(out, text_of(e, "path"));
		cell(out, text_of(e, "type"));
		cell_bytes(out, json_object_get(e, "bytes"));
		text_add(out, "</tr>\n");
	}
	table_end(out);
	text_add(out, "</details>\n");
}

static void changed(struct text *out, const json_t *list)
{
	static const char *const heads[] = {"Path", "What", "#A", "#B", NULL};
	const json_t *e, *what;
	size_t i, j;

	if (!json_array_size(list))
		return;
	text_add(out, "<h3>%zu changed</h3>\n", json_array_size(list));
	table(out, "changed files", heads);
	json_array_foreach(list, i, e)
	{
		if (cut(out, list, i))
			break;
		text_add(out, "<tr><td>");
		text_escape(out, text_of(e, "path"));
		if (json_array_size(json_object_get(e, "lines")))
			lines(out, json_object_get(e, "lines"));
		text_add(out, "</td><td>");
		json_array_foreach(json_object_get(e, "what"), j, what)
			text_add(out, "%s%s", j ? ", " : "", json_string_value(what));
		text_add(out, "</td>");
		cell_bytes(out, json_object_get(e, "a_bytes"));
		cell_bytes(out, json_object_get(e, "b_bytes"));
		text_add(out, "</tr>\n");
	}
	table_end(out);
}

static void directories(struct text *out, const json_t *list)
{
	static const char *const heads[] = {"Directory", "#A", "#B", "#Change", NULL};
	const json_t *e;
	size_t i;

	if (!json_array_size(list))
		return;
	text_add(out, "<h3>Size by directory</h3>\n");
	table(out, "size by directory", heads);
	json_array_foreach(list, i, e)
	{
		text_add(out, "<tr>");
		cell(out, text_of(e, "path"));
		cell_bytes(out, json_object_get(e, "a"));
		cell_bytes(out, json_object_get(e, "b"));
		cell_change(out, e);
		text_add(out, "</tr>\n");
	}
	table_end(out);
}

static void file_section(struct text *out, const json_t *files)
{
	if (json_array_size(json_object_get(files, "added")) +
			json_array_size(json_object_get(files, "removed")) +
			json_array_size(json_object_get(files, "changed")) ==
		0)
		return;
	section(out, "Files");
	changed(out, json_object_get(files, "changed"));
	one_sided(out, json_object_get(files, "removed"), "gone");
	one_sided(out, json_object_get(files, "added"), "new");
	directories(out, json_object_get(files, "directories"));
	text_add(out, "</section>\n");
}

static void sizes(struct text *out, const json_t *list, const char *label, const char *key)
{
	const char *const heads[] = {label, "#A", "#B", "#Change", NULL};
	const json_t *e, *path;
	size_t i, j;

	if (!json_array_size(list))
		return;
	table(out, label, heads);
	json_array_foreach(list, i, e)
	{
		text_add(out, "<tr><td>");
		text_escape(out, text_of(e, key));
		json_array_foreach(json_object_get(e, "files_removed"), j, path)
		{
			text_add(out, "<br/><span class=\"bad\">- ");
			text_escape(out, json_string_value(path));
			text_add(out, "</span>");
		}
		json_array_foreach(json_object_get(e, "files_added"), j, path)
		{
			text_add(out, "<br/><span class=\"good\">+ ");
			text_escape(out, json_string_value(path));
			text_add(out, "</span>");
		}
		text_add(out, "</td>");
		cell_bytes(out, json_object_get(e, "a"));
		cell_bytes(out, json_object_get(e, "b"));
		cell_change(out, e);
		text_add(out, "</tr>\n");
	}
	table_end(out);
}

static void memory_section(struct text *out, const json_t *m, const json_t *processes)
{
	uint64_t same = number_of(m, "same_pages"), differ = number_of(m, "different_pages");
	uint64_t all = same + differ + number_of(m, "pages_only_a") + number_of(m, "pages_only_b");

	if (!m)
		return;
	section(out, "Memory");
	text_add(out,
		"<p>Of all pages with data %.1f %% are the same at the same place. Two bakes of "
		"one recipe never have the same bytes in memory; what stands for them are the "
		"processes and the files that they map.</p>\n",
		all ? 100.0 * (double)same / (double)all : 100.0);
	if (!json_is_object(processes))
		text_add(out, "<p class=\"note\">Processes are not recorded in both.</p>\n");
	sizes(out, json_object_get(processes, "processes"), "Process", "command");
	sizes(out, json_object_get(processes, "kernel"), "Use of memory", "use");
	text_add(out, "</section>\n");
}

static void latency_section(struct text *out, const json_t *latency)
{
	static const char *const heads[] = {
		"Measurement", "Of", "#A", "#B", "#Change", "Verdict", NULL};
	const json_t *e;
	size_t i;

	if (!latency)
		return;
	section(out, "Create latency");
	table(out, "create latency", heads);
	json_array_foreach(json_object_get(latency, "rows"), i, e)
	{
		text_add(out, "<tr><td>");
		text_escape(out, text_of(e, "id"));
		text_add(out, " ");
		text_escape(out, text_of(e, "name"));
		text_add(out, "</td>");
		cell(out, text_of(e, "quantity"));
		text_add(out,
			"<td class=\"n\">%.2f ms</td><td class=\"n\">%.2f ms</td><td "
			"class=\"n\">%+.1f %%</td>",
			(double)number_of(e, "old_ns") / 1e6, (double)number_of(e, "new_ns") / 1e6,
			100 * json_number_value(json_object_get(e, "change")));
		cell(out, text_of(e, "verdict"));
		text_add(out, "</tr>\n");
	}
	table_end(out);
	json_array_foreach(json_object_get(latency, "why"), i, e)
	{
		text_add(out, "<p class=\"note\">");
		text_escape(out, json_string_value(e) ?: "");
		text_add(out, "</p>\n");
	}
	text_add(out, "</section>\n");
}

static void side(struct text *out, const char *label, const json_t *side)
{
	text_add(out, "<br/>%s: ", label);
	text_escape(out, text_of(side, "name"));
	if (*text_of(side, "tag"))
		text_add(out, ":");
	text_escape(out, text_of(side, "tag"));
	text_add(out, " <code>");
	text_escape(out, text_of(side, "digest"));
	text_add(out, "</code> ");
	text_escape(out, text_of(side, "created"));
}

int diff_page_write(const char *path, const json_t *all, struct err *err)
{
	cleanup_text struct text out = {0};
	const json_t *a = json_object_get(all, "a"), *b = json_object_get(all, "b");

	report_begin(&out, "parbake diff");
	text_add(&out, "<h1>");
	text_escape(&out, text_of(a, "name"));
	text_add(&out, " → ");
	text_escape(&out, text_of(b, "name"));
	text_add(&out, "</h1>\n<p class=\"sub\">What differs between two versions");
	side(&out, "A", a);
	side(&out, "B", b);
	text_add(&out, "</p>\n");
	tiles(&out, all);
	config_section(&out, json_object_get(all, "config"));
	if (json_array_size(json_object_get(all, "recipe"))) {
		section(&out, "Recipe");
		lines(&out, json_object_get(all, "recipe"));
		text_add(&out, "</section>\n");
	}
	package_section(&out, json_object_get(all, "packages"));
	file_section(&out, json_object_get(all, "files"));
	memory_section(&out, json_object_get(all, "memory"), json_object_get(all, "processes"));
	latency_section(&out, json_object_get(all, "latency"));
	report_end(&out);
	return bench_publish(path, out.s, out.len, err);
}
