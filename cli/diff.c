/* SPDX-License-Identifier: Apache-2.0 */
/* `parbake diff`: what differs between two template versions. */
#include "cli/cli.h"

#include <stdarg.h>
#include <string.h>

#include "benches/compare_documents.h"
#include "benches/document.h"
#include "cli/diff_page.h"
#include "cli/recipes.h"
#include "common/progress.h"
#include "common/str.h"
#include "prove/diff.h"

#define FILES_SHOWN 200 /* of each list, for people; --json has all */

struct args {
	const char *store_a, *store_b, *a, *b, *page;
	struct words benches; /* none, or a document of each version */
	bool json;
};

/* Names and lines come from a guest: nothing of them moves a terminal's cursor. */
static void put_text(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		bool c1 = *p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;

		putchar((*p < ' ' && *p != '\t') || *p == 0x7f || c1 ? '?' : *p);
		p += c1;
	}
}

static const char *text_of(const json_t *obj, const char *key)
{
	const char *text = json_string_value(json_object_get(obj, key));

	return text ? text : "";
}

static uint64_t number_of(const json_t *obj, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(obj, key));
}

static void put_value(const json_t *value)
{
	cleanup_free char *text = NULL;

	if (json_is_string(value)) {
		put_text(json_string_value(value));
		return;
	}
	text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
	put_text(text ? text : "");
}

static bool heading(const json_t *list, const char *text)
{
	if (json_array_size(list))
		printf("\n%s\n", text);
	return json_array_size(list) > 0;
}

static void put_config(const json_t *list)
{
	const json_t *e;
	size_t i;

	heading(list, "config");
	json_array_foreach(list, i, e)
	{
		printf("  %s: ", text_of(e, "field"));
		put_value(json_object_get(e, "a"));
		printf(" → ");
		put_value(json_object_get(e, "b"));
		putchar('\n');
	}
}

static void put_lines(const json_t *lines, const char *indent)
{
	const json_t *e;
	size_t i;

	json_array_foreach(lines, i, e)
	{
		fputs(indent, stdout);
		put_text(json_string_value(e));
		putchar('\n');
	}
}

static void put_packages(const json_t *list)
{
	const json_t *e;
	size_t i;

	heading(list, "packages");
	json_array_foreach(list, i, e)
	{
		const char *a = json_string_value(json_object_get(e, "a"));
		const char *b = json_string_value(json_object_get(e, "b"));

		printf("  %c %s ", !a ? '+' : !b ? '-' : '~', text_of(e, "kind"));
		put_text(text_of(e, "name"));
		putchar(' ');
		put_text(a ? a : b);
		if (a && b) {
			printf(" → ");
			put_text(b);
		}
		if (a && b && !strcmp(a, b))
			printf(", other files");
		putchar('\n');
	}
}

static void put_one_sided(const json_t *list, char sign)
{
	const json_t *e;
	char size[16];
	size_t i;

	json_array_foreach(list, i, e)
	{
		if (i == FILES_SHOWN) {
			printf("  %c and %zu more\n", sign, json_array_size(list) - i);
			break;
		}
		printf("  %c ", sign);
		put_text(text_of(e, "path"));
		if (!strcmp(text_of(e, "type"), "file"))
			printf(", %s", progress_bytes(number_of(e, "bytes"), size));
		else
			printf(", a %s", text_of(e, "type"));
		putchar('\n');
	}
}

static void put_changed(const json_t *list)
{
	const json_t *e, *what;
	char size[2][16];
	size_t i, j;

	json_array_foreach(list, i, e)
	{
		if (i == FILES_SHOWN) {
			printf("  ~ and %zu more\n", json_array_size(list) - i);
			break;
		}
		printf("  ~ ");
		put_text(text_of(e, "path"));
		json_array_foreach(json_object_get(e, "what"), j, what)
			printf("%s %s", j ? "," : ":", json_string_value(what));
		if (number_of(e, "a_bytes") != number_of(e, "b_bytes"))
			printf(", %s → %s", progress_bytes(number_of(e, "a_bytes"), size[0]),
				progress_bytes(number_of(e, "b_bytes"), size[1]));
		putchar('\n');
		put_lines(json_object_get(e, "lines"), "      ");
	}
}

static void put_files(const json_t *files)
{
	const json_t *added = json_object_get(files, "added");
	const json_t *removed = json_object_get(files, "removed");
	const json_t *changed = json_object_get(files, "changed");
	const json_t *dirs = json_object_get(files, "directories"), *e;
	char size[2][16];
	size_t i;

	if (json_array_size(added) + json_array_size(removed) + json_array_size(changed))
		printf("\nfiles: %zu added, %zu removed, %zu changed\n", json_array_size(added),
			json_array_size(removed), json_array_size(changed));
	put_one_sided(removed, '-');
	put_one_sided(added, '+');
	put_changed(changed);
	heading(dirs, "size by directory");
	json_array_foreach(dirs, i, e)
	{
		uint64_t was = number_of(e, "a"), is = number_of(e, "b");

		printf("  ");
		put_text(text_of(e, "path"));
		printf(": %s, %c %s\n", progress_bytes(was, size[0]), is < was ? '-' : '+',
			progress_bytes(is < was ? was - is : is - was, size[1]));
	}
}

static void put_memory(const json_t *m)
{
	uint64_t same = number_of(m, "same_pages"), differ = number_of(m, "different_pages");
	uint64_t a = number_of(m, "pages_only_a"), b = number_of(m, "pages_only_b");
	uint64_t all = same + differ + a + b;
	char size[2][16];

	printf("\nmemory: %s → %s; of all pages with data %.1f %% are the same at the same place\n",
		progress_bytes(number_of(m, "a_bytes"), size[0]),
		progress_bytes(number_of(m, "b_bytes"), size[1]),
		all ? 100.0 * (double)same / (double)all : 100.0);
}

static void put_sizes(const json_t *e)
{
	const json_t *sides[] = {json_object_get(e, "a"), json_object_get(e, "b")};
	char size[16];

	for (size_t i = 0; i < 2; i++) {
		printf("%s", i ? " → " : ": ");
		if (json_is_integer(sides[i]))
			printf("%s", progress_bytes((uint64_t)json_integer_value(sides[i]), size));
		else
			printf("not there");
	}
}

static void put_paths(const json_t *paths, char sign)
{
	const json_t *path;
	size_t i;

	json_array_foreach(paths, i, path)
	{
		printf("      %c ", sign);
		put_text(json_string_value(path));
		putchar('\n');
	}
}

static void put_processes(const json_t *processes)
{
	const json_t *list = json_object_get(processes, "processes"), *e;
	const json_t *kernel = json_object_get(processes, "kernel");
	size_t i;

	if (!json_is_object(processes)) {
		printf("processes: not recorded in both, so not compared\n");
		return;
	}
	heading(list, "processes, with what of them is in memory");
	json_array_foreach(list, i, e)
	{
		uint64_t was = number_of(e, "a_count"), is = number_of(e, "b_count");

		printf("  %c ", !was ? '+' : !is ? '-' : '~');
		put_text(text_of(e, "command"));
		put_sizes(e);
		if (was && is && was != is)
			printf(", %lu of them → %lu", (unsigned long)was, (unsigned long)is);
		putchar('\n');
		put_paths(json_object_get(e, "files_removed"), '-');
		put_paths(json_object_get(e, "files_added"), '+');
	}
	heading(kernel, "uses of memory");
	json_array_foreach(kernel, i, e)
	{
		printf("  ");
		put_text(text_of(e, "use"));
		put_sizes(e);
		putchar('\n');
	}
}

static void put_latency(const json_t *latency)
{
	const json_t *list = json_object_get(latency, "rows"), *e;
	size_t i;

	heading(list, "create latency");
	json_array_foreach(list, i, e)
	{
		printf("  ");
		put_text(text_of(e, "id"));
		putchar(' ');
		put_text(text_of(e, "name"));
		printf(", ");
		put_text(text_of(e, "quantity"));
		printf(": %.2f ms → %.2f ms, %+.1f %%: ", (double)number_of(e, "old_ns") / 1e6,
			(double)number_of(e, "new_ns") / 1e6,
			100 * json_number_value(json_object_get(e, "change")));
		put_text(text_of(e, "verdict"));
		putchar('\n');
	}
}

static void put_all(const json_t *all)
{
	static const char *const sides[] = {"a", "b"};

	for (size_t i = 0; i < 2; i++) {
		const json_t *side = json_object_get(all, sides[i]);

		printf("%c %s%s%s %s%s%s\n", i ? '+' : '-', text_of(side, "name"),
			*text_of(side, "tag") ? ":" : " of the recipe", text_of(side, "tag"),
			text_of(side, "digest"), *text_of(side, "created") ? ", " : "",
			text_of(side, "created"));
	}
	put_config(json_object_get(all, "config"));
	if (heading(json_object_get(all, "recipe"), "recipe"))
		put_lines(json_object_get(all, "recipe"), "  ");
	put_packages(json_object_get(all, "packages"));
	put_files(json_object_get(all, "files"));
	if (json_object_get(all, "memory")) {
		put_memory(json_object_get(all, "memory"));
		put_processes(json_object_get(all, "processes"));
	}
	put_latency(json_object_get(all, "latency"));
	if (json_is_true(json_object_get(all, "same")))
		printf("the same, but for memory\n");
}

static int compare_versions(const struct args *a, json_t **ret, struct err *err)
{
	cleanup_store struct store *x = NULL, *y = NULL;
	cleanup_manifest struct store_manifest m = {0}, n = {0};
	struct progress *progress;
	int r = cli_resolve(a->store_a, a->a, &x, &m, err);

	if (!r)
		r = cli_resolve(a->store_b ? a->store_b : a->store_a, a->b, &y, &n, err);
	if (r)
		return r;
	progress = progress_new(a->json ? PROGRESS_SILENT : PROGRESS_AUTO);
	r = diff_versions(
		&(struct diff_side){x, &m}, &(struct diff_side){y, &n}, progress, ret, err);
	progress_free(progress);
	return r;
}

/* The version that a recipe is compared with, and what comes of it. */
struct with_recipe {
	const struct store_manifest *version;
	json_t *made; /* owned */
};

static int at_plan(void *user, enum bake_point point, const struct bake_view *view, struct err *err)
{
	struct with_recipe *w = user;

	return point == BAKE_PLANNED ? diff_recipe(view, w->version, &w->made, err) : 0;
}

static int compare_recipe(const struct args *a, json_t **ret, struct err *err)
{
	cleanup_store struct store *s = NULL;
	cleanup_manifest struct store_manifest m = {0};
	cleanup_recipe struct recipe *r = NULL;
	cleanup_bake_result struct bake_result res = {0};
	struct recipe_dirs dirs = {0};
	struct with_recipe with = {.version = &m};
	struct bake_options opt = {
		.from = PLAN_STAGES, .dry = true, .check = at_plan, .check_user = &with};
	int rc = cli_resolve(a->store_b ? a->store_b : a->store_a, a->b, &s, &m, err);

	recipe_dirs_find(&dirs);
	if (!rc)
		rc = recipe_read(a->a, (const char *const *)dirs.items, &r, err);
	recipe_dirs_clear(&dirs);
	if (!rc)
		rc = monitor_default_accel(&opt.accel, err);
	if (!rc)
		rc = bake_run(s, r, &opt, &res, err);
	if (rc)
		json_decref(with.made);
	else
		*ret = with.made;
	return rc;
}

static int compare_benches(const struct args *a, json_t *all, struct err *err)
{
	static const struct compare_limit limits[] = {{50, 0.05}, {90, 0.10}, {99, 0.10}};
	struct compare_request rq = {.limits = limits,
		.n_limits = sizeof(limits) / sizeof(*limits),
		.detect = 0.05,
		.across = ACROSS_TEMPLATE | ACROSS_PARBAKE};
	cleanup_json json_t *one = NULL, *other = NULL, *result = NULL;
	int r = bench_document_read(a->benches.items[0], &one, err);

	if (!r)
		r = bench_document_read(a->benches.items[1], &other, err);
	if (!r)
		r = compare_documents(one, other, &rq, &result, err);
	if (!r)
		json_object_set(all, "latency", result);
	return r;
}

/* A name with a slash, or of a file of that kind, is a recipe's. */
static bool is_recipe(const char *text)
{
	size_t len = strlen(text);

	return strchr(text, '/') || (len > 4 && !strcmp(text + len - 4, ".ini"));
}

static int compare(const struct args *a, struct err *err)
{
	cleanup_json json_t *all = NULL;
	int r = is_recipe(a->a) ? compare_recipe(a, &all, err) : compare_versions(a, &all, err);

	if (!r && a->benches.n)
		r = compare_benches(a, all, err);
	if (!r && a->page)
		r = diff_page_write(a->page, all, err);
	if (r)
		return r;
	if (a->json)
		json_print_line(all);
	else
		put_all(all);
	return json_is_true(json_object_get(all, "same")) ? CLI_OK : CLI_DIFFERS;
}

static int run(void *user)
{
	const struct args *a = user;
	struct err err = {0};
	int r;

	if (is_recipe(a->b))
		return command_usage(&command_diff, "a recipe is named first, then the version");
	if (a->benches.n != 0 && a->benches.n != 2)
		return command_usage(
			&command_diff, "--bench: a document of each version, in their order");
	r = compare(a, &err);
	return r < 0 ? cli_fail(&err) : r;
}

static const struct option_entry options[] = {
	{"html", 0, OPTION_TEXT, "FILE", AT(page), "all of it as one page, too", NAMES_FILE},
	{"bench", 0, OPTION_WORDS, "FILE", AT(benches),
		"compare create latency: what `bench create --save` wrote, of each version",
		NAMES_FILE},
	{"other-store", 0, OPTION_TEXT, "DIR", AT(store_b), "where B lies (as A)", NAMES_DIR},
	{"json", AT(json), "all of it, one JSON object"},
	OPTION_STORE(struct args, store_a),
	{0},
};

static const struct operand_entry operands[] = {
	{"A", AT(a), NAMES_TEMPLATE},
	{"B", AT(b), NAMES_TEMPLATE},
	{0},
};

const struct command command_diff = {"diff",
	"what differs between two versions: config, packages, files, memory, processes",
	.notes = "A may be a recipe, too (a path, or NAME.ini).\nExit status: 0 the same but for "
		 "memory; 3 something differs; 1 it failed.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args), .run = run};
