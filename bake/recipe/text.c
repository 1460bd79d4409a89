/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical text of a recipe: an INI file again, every key that has a value, in one order,
 * steps numbered from 1, units in their smallest terms. Two recipes with one meaning give one text,
 * wherever their files lie: host paths stand in it by their last component alone (the content of
 * those files is added to the cache keys by the caller). To read the canonical text as a recipe
 * gives the same text again.
 */
#include <string.h>

#include "bake/fetch/fetch.h"
#include "bake/recipe/recipe.h"
#include "common/str.h"

struct text {
	FILE *f;
	const char *section; /* the one begun last */
};

static void put(struct text *t, const char *section, const char *key, const char *value)
{
	if (!value)
		return;
	if (!t->section || strcmp(t->section, section))
		fprintf(t->f, "%s[%s]\n", t->section ? "\n" : "", section);
	t->section = section;
	fprintf(t->f, "%s = ", key);
	for (const char *p = value; *p; p++) {
		fputc(*p, t->f);
		if (*p == '\n')
			fputc('\t', t->f);
	}
	fputc('\n', t->f);
}

static void put_u64(
	struct text *t, const char *section, const char *key, uint64_t v, const char *unit)
{
	cleanup_free char *value = str_printf("%llu%s", (unsigned long long)v, unit);

	put(t, section, key, value);
}

static void put_words(struct text *t, const char *section, const char *key, const struct strings *s)
{
	cleanup_free char *joined = NULL;
	size_t len = 0;
	FILE *f;

	if (!s->n)
		return;
	f = open_memstream(&joined, &len);
	if (!f)
		abort();
	for (size_t i = 0; i < s->n; i++)
		fprintf(f, "%s%s", i ? "\n" : "", s->items[i]);
	fclose(f);
	put(t, section, key, joined);
}

static void put_rules(
	struct text *t, const char *section, const char *key, const struct recipe_rules *rules)
{
	cleanup_free char *joined = NULL;
	size_t len = 0;
	FILE *f;

	if (!rules->n)
		return;
	f = open_memstream(&joined, &len);
	if (!f)
		abort();
	for (size_t i = 0; i < rules->n; i++) {
		const struct proxy_rule *r = &rules->items[i];
		bool said = r->private_ok && (!r->literal || r->network);
		char text[PROXY_RULE_TEXT];

		proxy_rule_text(r, text);
		fprintf(f, "%s%s%s", i ? "\n" : "", text, said ? " private" : "");
	}
	fclose(f);
	put(t, section, key, joined);
}

/* Code with more than one line begins on a line of its own. */
static char *with_python(const char *text, bool python)
{
	return python ? str_printf("python:%s%s", strchr(text, '\n') ? "\n" : " ", text)
		      : str_dup(text);
}

static void put_steps(struct text *t, const char *section, const struct recipe_steps *s)
{
	for (size_t i = 0; i < s->n; i++) {
		cleanup_free char *key = str_printf("%zu", i + 1);
		cleanup_free char *value = with_python(s->items[i].text, s->items[i].python);

		put(t, section, key, value);
	}
}

/*
 * "./" and the last component: as if the file lay beside the text. Caller frees; NULL stays NULL.
 */
static char *beside(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return path ? str_printf("./%s", slash ? slash + 1 : path) : NULL;
}

static void put_root(struct text *t, const struct recipe *r)
{
	cleanup_free char *path = beside(r->path), *url = r->url ? fetch_url_shown(r->url) : NULL;

	if (r->source == RECIPE_DEBIAN) {
		put(t, "root", "source", "debian");
		put(t, "root", "suite", r->suite);
		put_words(t, "root", "packages", &r->packages);
		return;
	}
	put(t, "root", "source", "tar");
	put(t, "root", "url",
		url); /* the digest says what it is; the text goes into the snapshot */
	put(t, "root", "path", path);
	if (r->sha256[0])
		put(t, "root", "sha256", r->sha256);
}

static void put_pairs(struct text *t, const struct recipe *r)
{
	for (size_t i = 0; i < r->n_files; i++) {
		cleanup_free char *host = beside(r->files[i].host);
		cleanup_free char *value = str_printf("%s %04o", host, r->files[i].mode);

		put(t, "files", r->files[i].guest, value);
	}
	for (size_t i = 0; i < r->env.n; i++) {
		const char *equals = strchr(r->env.items[i], '=');
		cleanup_free char *key =
			strndup(r->env.items[i], (size_t)(equals - r->env.items[i]));

		if (!key)
			abort();
		put(t, "env", key, equals + 1);
	}
}

/* Of a file its last component alone, as of all files. */
static void put_secrets(struct text *t, const struct recipe *r)
{
	for (size_t i = 0; i < r->secrets.n; i++) {
		const char *equals = strchr(r->secrets.items[i], '=');
		cleanup_free char *key =
			strndup(r->secrets.items[i], (size_t)(equals - r->secrets.items[i]));
		cleanup_free char *path =
			strncmp(equals + 1, "file:", 5) ? NULL : beside(equals + 6);
		cleanup_free char *value = path ? str_printf("file:%s", path) : str_dup(equals + 1);

		if (!key)
			abort();
		put(t, "secrets", key, value);
	}
}

char *recipe_text(const struct recipe *r)
{
	char *out = NULL;
	size_t len = 0;
	struct text t = {.f = open_memstream(&out, &len)};
	cleanup_free char *ready = r->ready ? with_python(r->ready, r->ready_python) : NULL;

	if (!t.f)
		abort();
	put(&t, "template", "name", r->name);
	put(&t, "template", "description", r->description);
	put_words(&t, "template", "aliases", &r->aliases);
	put_u64(&t, "machine", "memory", r->memory_bytes >> 20, "M");
	put_u64(&t, "machine", "vcpus", r->vcpus, "");
	put_u64(&t, "machine", "disk", r->disk_bytes >> 20, "M");
	if (r->addresses != RECIPE_ADDRESSES_UNSAID)
		put(&t, "machine", "randomize_addresses",
			r->addresses == RECIPE_ADDRESSES_RANDOM ? "yes" : "no");
	put_root(&t, r);
	put_pairs(&t, r);
	put_rules(&t, "network", "allow", &r->allow);
	put_secrets(&t, r);
	put_steps(&t, "install", &r->install);
	put_words(&t, "install", "pip", &r->pip);
	put(&t, "start", "command", r->start_command);
	put(&t, "start", "ready", ready);
	put(&t, "start", "user", r->user);
	put_steps(&t, "warm", &r->warm);
	put_words(&t, "warm", "programs", &r->programs);
	put(&t, "warm", "caches", r->keep_caches ? "keep" : "drop");
	if (r->exec_timeout_ms)
		put_u64(&t, "limits", "timeout", r->exec_timeout_ms, "ms");
	if (r->output_bytes)
		put_u64(&t, "limits", "output", r->output_bytes >> 20, "M");
	if (r->exec_memory_bytes)
		put_u64(&t, "limits", "memory", r->exec_memory_bytes >> 20, "M");
	if (r->exec_pids)
		put_u64(&t, "limits", "pids", r->exec_pids, "");
	if (fclose(t.f))
		abort();
	return out;
}
