/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file of a recipe's `from` chain is applied to the recipe, oldest first: each entry is read by
 * the function that recipe_keys[] has for it. The error for a word that is not in that table is
 * made from the same table.
 */
#include <string.h>

#include "bake/recipe/recipe_private.h"
#include "common/limits.h"
#include "common/str.h"

#define DEFAULT_MEMORY (256 * MIB)
#define DEFAULT_DISK (2 * GIB)

static int unknown_section(
	const struct inifile *ini, const struct inifile_entry *e, struct err *err)
{
	const char *names[RECIPE_KEYS_MAX];

	for (size_t i = 0; i < recipe_n_keys; i++)
		names[i] = recipe_keys[i].section;
	return inifile_unknown_section(ini, e, names, recipe_n_keys, err);
}

static int unknown_key(const struct inifile *ini, const struct inifile_entry *e, struct err *err)
{
	const char *names[RECIPE_KEYS_MAX];
	bool numbers = false;

	for (size_t i = 0; i < recipe_n_keys; i++) {
		bool same = !strcmp(recipe_keys[i].section, e->section);

		names[i] = same && recipe_keys[i].key[0] > 2 ? recipe_keys[i].key : NULL;
		numbers |= same && !strcmp(recipe_keys[i].key, KEY_NUMBER);
	}
	return inifile_unknown_key(
		ini, e, names, recipe_n_keys, numbers ? "are step numbers" : NULL, err);
}

static const struct recipe_key *find_known(const struct inifile_entry *e, bool *ret_section)
{
	*ret_section = false;
	for (size_t i = 0; i < recipe_n_keys; i++) {
		if (strcmp(recipe_keys[i].section, e->section))
			continue;
		*ret_section = true;
		if (!e->key || !strcmp(recipe_keys[i].key, KEY_ANY) ||
			!strcmp(recipe_keys[i].key, e->key) ||
			(!strcmp(recipe_keys[i].key, KEY_NUMBER) && *e->key &&
				!e->key[strspn(e->key, "0123456789")]))
			return &recipe_keys[i];
	}
	return NULL;
}

static void append_steps(struct recipe_steps *to, struct recipe_steps *from)
{
	to->items = reallocarray(to->items, to->n + from->n + 1, sizeof(*to->items));
	if (!to->items)
		abort();
	if (from->n)
		memcpy(to->items + to->n, from->items, from->n * sizeof(*to->items));
	to->n += from->n;
	free(from->items);
	*from = (struct recipe_steps){0};
}

int recipe_apply(struct recipe *r, const struct inifile *ini, struct err *err)
{
	struct recipe_reader rd = {.r = r, .ini = ini, .err = err, .file = str_dup(ini->path)};
	bool section;
	int rc = 0;

	r->files_read = reallocarray(r->files_read, r->n_files_read + 1, sizeof(*r->files_read));
	if (!r->files_read)
		abort();
	r->files_read[r->n_files_read++] = rd.file;
	for (size_t i = 0; i < ini->n_sections && !rc; i++)
		if (!find_known(&ini->sections[i], &section))
			rc = unknown_section(ini, &ini->sections[i], err);
	for (size_t i = 0; i < ini->n && !rc; i++) {
		const struct recipe_key *k = find_known(&ini->entries[i], &section);

		rd.e = &ini->entries[i];
		if (!*rd.e->section)
			rc = err_set(err, EINVAL, "%s:%u: %s stands before the first [section]",
				ini->path, rd.e->line, rd.e->key);
		else if (!section)
			rc = unknown_section(ini, rd.e, err);
		else if (!k)
			rc = unknown_key(ini, rd.e, err);
		else
			rc = k->read(&rd);
	}
	append_steps(&r->install, &rd.install);
	append_steps(&r->warm, &rd.warm);
	return rc;
}

struct recipe *recipe_new(void)
{
	struct recipe *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->memory_bytes = DEFAULT_MEMORY;
	r->disk_bytes = DEFAULT_DISK;
	r->vcpus = 1;
	return r;
}
