/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two records of processes. Processes are known by their command: numbers differ at each boot. */
#include "prove/processes.h"

#include <string.h>

#include "common/str.h"

/* All processes of one command. */
struct group {
	const char *command; /* borrowed from the record */
	uint64_t bytes;
	json_int_t count;
	json_t *files; /* owned: an object, its keys are the paths; NULL: none */
};

struct groups {
	struct group *items;
	size_t n;
};

static int by_command(const void *a, const void *b)
{
	return strcmp(((const struct group *)a)->command, ((const struct group *)b)->command);
}

static void add(struct groups *g, const json_t *process)
{
	const char *command = json_string_value(json_object_get(process, "command"));
	struct group *one = NULL;
	const json_t *file;
	size_t i;

	if (!command)
		return;
	for (i = 0; i < g->n && !one; i++)
		if (!strcmp(g->items[i].command, command))
			one = &g->items[i];
	if (!one) {
		g->items = reallocarray(g->items, g->n + 1, sizeof(*g->items));
		if (!g->items)
			abort();
		one = &g->items[g->n++];
		*one = (struct group){.command = command, .files = json_object()};
	}
	one->count++;
	one->bytes += (uint64_t)json_integer_value(json_object_get(process, "resident_bytes"));
	json_array_foreach(json_object_get(process, "files"), i, file)
	{
		const char *path = json_string_value(json_object_get(file, "path"));

		if (path)
			json_object_set_new(one->files, path, json_true());
	}
}

static void fill(struct groups *g, const json_t *record)
{
	const json_t *process;
	size_t i;

	json_array_foreach(json_object_get(record, "processes"), i, process) add(g, process);
	if (g->n)
		qsort(g->items, g->n, sizeof(*g->items), by_command);
}

static void groups_clear(struct groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		json_decref(g->items[i].files);
	free(g->items);
}

/* The sorted paths that @these has and @others has not. */
static json_t *only_in(json_t *these, const json_t *others)
{
	cleanup_with(strings_clear) struct strings paths = {0};
	json_t *list = json_array(), *value;
	const char *path;

	json_object_foreach(these, path, value) if (!json_object_get(others, path))
		strings_add(&paths, path);
	strings_sort(&paths);
	for (size_t i = 0; i < paths.n; i++)
		json_array_append_new(list, json_string(paths.items[i]));
	return list;
}

static json_t *bytes_or_null(const struct group *g)
{
	return g->count ? json_integer((json_int_t)g->bytes) : json_null();
}

static void tell(json_t *list, const struct group *a, const struct group *b)
{
	json_t *added, *removed;
	bool files;

	added = only_in(b->files, a->files);
	removed = only_in(a->files, b->files);
	files = a->count && b->count && (json_array_size(added) || json_array_size(removed));
	/* of what is there once alone, that it is there is enough */
	if (!a->count || !b->count) {
		json_array_clear(added);
		json_array_clear(removed);
	}
	if (a->count == b->count && a->bytes == b->bytes && !files) {
		json_decref(added);
		json_decref(removed);
		return;
	}
	json_array_append_new(list,
		json_pack("{s:s, s:o, s:o, s:I, s:I, s:o, s:o}", "command",
			a->count ? a->command : b->command, "a", bytes_or_null(a), "b",
			bytes_or_null(b), "a_count", a->count, "b_count", b->count, "files_added",
			added, "files_removed", removed));
}

static json_t *compare_processes(const json_t *a, const json_t *b)
{
	static const struct group none = {0};
	cleanup_with(groups_clear) struct groups x = {0}, y = {0};
	json_t *list = json_array();
	size_t i = 0, j = 0;

	fill(&x, a);
	fill(&y, b);
	while (i < x.n || j < y.n) {
		int order = i == x.n ? 1 : j == y.n ? -1 : by_command(&x.items[i], &y.items[j]);

		tell(list, order <= 0 ? &x.items[i] : &none, order >= 0 ? &y.items[j] : &none);
		i += order <= 0;
		j += order >= 0;
	}
	return list;
}

static void tell_use(json_t *list, const char *use, json_t *a, json_t *b)
{
	if (a && b && json_equal(a, b))
		return;
	json_array_append_new(list,
		json_pack("{s:s, s:o, s:o}", "use", use, "a", a ? json_incref(a) : json_null(), "b",
			b ? json_incref(b) : json_null()));
}

static json_t *compare_kernels(json_t *a, json_t *b)
{
	json_t *list = json_array(), *value;
	const char *use;

	json_object_foreach(a, use, value) tell_use(list, use, value, json_object_get(b, use));
	json_object_foreach(b, use, value) if (!json_object_get(a, use))
		tell_use(list, use, NULL, value);
	return list;
}

json_t *processes_compare(const json_t *a, const json_t *b)
{
	if (!json_is_array(json_object_get(a, "processes")) ||
		!json_is_array(json_object_get(b, "processes")))
		return json_null();
	return json_pack("{s:o, s:o}", "processes", compare_processes(a, b), "kernel",
		compare_kernels(json_object_get(a, "kernel"), json_object_get(b, "kernel")));
}

bool processes_same(const json_t *comparison)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(comparison, "processes"), i, e)
	{
		if (json_array_size(json_object_get(e, "files_added")) ||
			json_array_size(json_object_get(e, "files_removed")) ||
			!json_equal(json_object_get(e, "a_count"), json_object_get(e, "b_count")))
			return false;
	}
	return true;
}
