/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a name to a whole recipe: finding files, following `from`, applying the chain oldest first,
 * and checking the result. The chain is read newest first (that is where `from` points) and is at
 * most LIMIT_RECIPE_DEPTH files long, so a loop ends there at the latest; a loop is found earlier
 * by the identity of the files.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/recipe/recipe_private.h"
#include "bake/recipe/limits.h"
#include "common/file.h"
#include "common/nearest.h"
#include "common/str.h"
#include "store/store.h"

struct chain {
	struct inifile ini[LIMIT_RECIPE_DEPTH]; /* newest first */
	struct stat st[LIMIT_RECIPE_DEPTH];
	size_t n;
};

static void chain_clear(struct chain *c)
{
	for (size_t i = 0; i < c->n; i++)
		inifile_clear(&c->ini[i]);
}

void recipe_rules_add(struct recipe_rules *rules, const struct proxy_rule *r)
{
	rules->items = reallocarray(rules->items, rules->n + 1, sizeof(*rules->items));
	if (!rules->items)
		abort();
	rules->items[rules->n++] = *r;
}

static int compare_rules(const void *a, const void *b)
{
	const struct proxy_rule *x = a, *y = b;
	char one[PROXY_RULE_TEXT], other[PROXY_RULE_TEXT];
	int order;

	proxy_rule_text(x, one);
	proxy_rule_text(y, other);
	order = strcmp(one, other);
	return order ? order : x->private_ok - y->private_ok;
}

/* Sort the rules, and drop those that are there twice. */
static void recipe_rules_sort(struct recipe_rules *rules)
{
	size_t kept = 0;

	if (!rules->n)
		return;
	qsort(rules->items, rules->n, sizeof(*rules->items), compare_rules);
	for (size_t i = 1; i < rules->n; i++) {
		if (compare_rules(&rules->items[kept], &rules->items[i]))
			rules->items[++kept] = rules->items[i];
	}
	rules->n = kept + 1;
}

static bool is_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* NAME.ini next to @beside (NULL: nowhere), else in @dirs. Caller frees; NULL: nowhere. */
static char *find_recipe(const char *name, const char *beside, const char *const *dirs)
{
	const char *slash = beside ? strrchr(beside, '/') : NULL;
	char *path;

	if (beside) {
		path = slash ? str_printf("%.*s/%s.ini", (int)(slash - beside), beside, name)
			     : str_printf("%s.ini", name);
		if (is_file(path))
			return path;
		free(path);
	}
	for (; dirs && *dirs; dirs++) {
		path = str_printf("%s/%s.ini", *dirs, name);
		if (is_file(path))
			return path;
		free(path);
	}
	return NULL;
}

/* @beside: where a recipe names it, which cannot be by a path; NULL: a command does. */
static int not_found(const char *name, const char *beside, const char *const *dirs, struct err *err)
{
	err_set(err, ENOENT, "no recipe %s.ini%s in", name, beside ? " beside it, nor" : "");
	for (size_t i = 0; dirs && dirs[i]; i++)
		err_append(err, "%s %s", i ? "," : "", dirs[i]);
	if (!dirs || !dirs[0])
		err_append(err, " any directory");
	if (!beside)
		err_append(err, "; write a path (./%s.ini) for one that lies elsewhere", name);
	return -ENOENT;
}

static const struct inifile_entry *find_from(const struct inifile *ini)
{
	for (size_t i = 0; i < ini->n; i++)
		if (!strcmp(ini->entries[i].section, "template") &&
			!strcmp(ini->entries[i].key, "from"))
			return &ini->entries[i];
	return NULL;
}

/* Follow `from` from the newest file, which is in the chain already. */
static int chain_follow(struct chain *c, const char *const *dirs, struct err *err)
{
	for (;;) {
		const struct inifile *ini = &c->ini[c->n - 1];
		const struct inifile_entry *from = find_from(ini);
		cleanup_free char *path = NULL;
		int rc;

		if (!from)
			return 0;
		if (!store_name_valid(from->value))
			return err_set(err, EINVAL,
				"%s:%u: [template] from = %s: not a template name; write the name "
				"alone, "
				"without .ini or a directory",
				ini->path, from->line, from->value);
		path = find_recipe(from->value, ini->path, dirs);
		if (!path) {
			not_found(from->value, ini->path, dirs, err);
			err_prefix(err, "%s:%u: [template] from = %s", ini->path, from->line,
				from->value);
			return -ENOENT;
		}
		if (c->n == LIMIT_RECIPE_DEPTH)
			return err_set(err, EINVAL,
				"%s:%u: [template] from: the chain is longer than %d", ini->path,
				from->line, LIMIT_RECIPE_DEPTH);
		if (stat(path, &c->st[c->n]))
			return err_sys(err, errno, "%s", path);
		for (size_t i = 0; i < c->n; i++)
			if (c->st[i].st_ino == c->st[c->n].st_ino &&
				c->st[i].st_dev == c->st[c->n].st_dev)
				return err_set(err, ELOOP,
					"%s:%u: [template] from = %s: comes back to %s", ini->path,
					from->line, from->value, c->ini[i].path);
		rc = inifile_read(path, &c->ini[c->n], err);
		if (rc)
			return rc;
		c->n++;
	}
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_unique(struct strings *s)
{
	size_t kept = 0;

	if (!s->n)
		return;
	qsort(s->items, s->n, sizeof(*s->items), compare_strings);
	for (size_t i = 0; i < s->n; i++) {
		if (kept && !strcmp(s->items[kept - 1], s->items[i]))
			free(s->items[i]);
		else
			s->items[kept++] = s->items[i];
	}
	s->n = kept;
}

static int compare_files(const void *a, const void *b)
{
	const struct recipe_file *x = a, *y = b;

	return strcmp(x->guest, y->guest);
}

static int check_root(struct recipe *r, const char *path, struct err *err)
{
	if (!r->has_source)
		return err_set(err, EINVAL,
			"%s: no [root] source; write source = debian (or tar), or [template] from "
			"= base",
			path);
	if (r->source == RECIPE_DEBIAN && !r->suite)
		return err_set(err, EINVAL,
			"%s: [root] source = debian needs suite = bookworm or another", path);
	if (r->source != RECIPE_TAR)
		return 0;
	if (!r->url && !r->path)
		return err_set(err, EINVAL, "%s: [root] source = tar needs path = or url =", path);
	if (r->url && !r->sha256[0])
		return err_set(err, EINVAL, "%s: [root] url = needs sha256 =", path);
	if (r->packages.n)
		return err_set(err, EINVAL,
			"%s: [root] packages = needs source = debian; with source = tar install "
			"them in "
			"[install]",
			path);
	return 0;
}

/* What must hold of the whole chain; @ini is its newest file. Sorts the packages. */
static int recipe_check(struct recipe *r, const struct inifile *ini, struct err *err)
{
	int rc = check_root(r, ini->path, err);

	if (rc)
		return rc;
	if (!r->name) {
		const char *base = strrchr(ini->path, '/');
		size_t len;

		base = base ? base + 1 : ini->path;
		len = strlen(base);
		if (len > 4 && !strcmp(base + len - 4, ".ini"))
			len -= 4;
		r->name = str_printf("%.*s", (int)len, base);
		if (!store_name_valid(r->name))
			return err_set(err, EINVAL,
				"%s: the file's name is no template name; write [template] name =",
				ini->path);
	}
	sort_unique(&r->packages);
	recipe_rules_sort(&r->allow);
	sort_unique(&r->pip);
	if (r->env.n)
		qsort(r->env.items, r->env.n, sizeof(*r->env.items), compare_strings);
	if (r->n_files)
		qsort(r->files, r->n_files, sizeof(*r->files), compare_files);
	for (size_t i = 1; i < r->n_files; i++) {
		size_t n = strlen(r->files[i - 1].guest);

		if (!strncmp(r->files[i].guest, r->files[i - 1].guest, n) &&
			r->files[i].guest[n] == '/')
			return err_set(err, EINVAL, "%s: [files] %s lies beneath the file %s",
				ini->path, r->files[i].guest, r->files[i - 1].guest);
	}
	return 0;
}

/* The name is the newest file's alone: a parent's does not go down. */
static void forget_name(struct recipe *r)
{
	free(r->name);
	r->name = NULL;
	free(r->description);
	r->description = NULL;
	strings_clear(&r->aliases);
}

static int chain_finish(
	struct chain *c, const char *const *dirs, struct recipe **ret, struct err *err)
{
	cleanup_recipe struct recipe *r = recipe_new();
	int rc = chain_follow(c, dirs, err);

	for (size_t i = c->n; i-- > 0 && !rc;) {
		forget_name(r);
		rc = recipe_apply(r, &c->ini[i], err);
	}
	if (!rc)
		rc = recipe_check(r, &c->ini[0], err);
	if (rc)
		return rc;
	*ret = steal_ptr(&r);
	return 0;
}

int recipe_parse(const char *path, const char *text, size_t len, const char *const *dirs,
	struct recipe **ret, struct err *err)
{
	cleanup_with(chain_clear) struct chain c = {0};
	int rc = inifile_parse(path, text, len, &c.ini[0], err);

	if (rc)
		return rc;
	if (stat(path, &c.st[0])) /* text alone: no `from` comes back to it */
		c.st[0] = (struct stat){0};
	c.n = 1;
	return chain_finish(&c, dirs, ret, err);
}

int recipe_read(const char *path, const char *const *dirs, struct recipe **ret, struct err *err)
{
	cleanup_free char *found = NULL, *text = NULL;
	struct stat st;
	size_t len;
	int rc;

	if (!strchr(path, '/') && store_name_valid(path))
		found = find_recipe(path, NULL, dirs);
	if (!found && (strchr(path, '/') || is_file(path)))
		found = str_dup(path);
	if (!found)
		return not_found(path, NULL, dirs, err);
	if (stat(found, &st))
		return err_sys(err, errno, "%s", found);
	if (!S_ISREG(st.st_mode))
		return err_set(err, EINVAL, "%s: not a regular file", found);
	rc = file_read_all(AT_FDCWD, found, LIMIT_RECIPE_BYTES, &text, &len, err);
	return rc ? rc : recipe_parse(found, text, len, dirs, ret, err);
}

static void free_steps(struct recipe_steps *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i].text);
	free(s->items);
}

void recipe_free(struct recipe *r)
{
	if (!r)
		return;
	forget_name(r);
	for (size_t i = 0; i < r->n_files_read; i++)
		free(r->files_read[i]);
	free(r->files_read);
	for (size_t i = 0; i < r->n_files; i++) {
		free(r->files[i].guest);
		free(r->files[i].host);
	}
	free(r->files);
	free(r->suite);
	free(r->url);
	free(r->path);
	strings_clear(&r->aliases);
	strings_clear(&r->packages);
	strings_clear(&r->env);
	strings_clear(&r->secrets);
	strings_clear(&r->programs);
	free(r->allow.items);
	strings_clear(&r->pip);
	free_steps(&r->install);
	free_steps(&r->warm);
	free(r->start_command);
	free(r->ready);
	free(r->user);
	free(r);
}

char *recipe_home(const struct recipe *r)
{
	return strcmp(r->user, "root") ? str_printf("/home/%s", r->user) : str_dup("/root");
}

bool recipe_uses_python(const struct recipe *r)
{
	bool python = r->ready && r->ready_python;

	for (size_t i = 0; i < r->warm.n; i++)
		python |= r->warm.items[i].python;
	return python;
}

bool recipe_settles_addresses(const struct recipe *r, bool emulated)
{
	if (r->addresses != RECIPE_ADDRESSES_UNSAID)
		return r->addresses == RECIPE_ADDRESSES_SETTLED;
	return emulated;
}
