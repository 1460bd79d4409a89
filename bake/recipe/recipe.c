/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the keys of a recipe mean.
 *
 * One table names every section and key with the function that reads it (apply.c looks
 * them up). A scalar is simply overwritten by a newer file of a `from` chain, and lists (packages,
 * steps, files, env) grow. Values are checked where they are read, with file and line at hand;
 * what concerns the chain as a whole is in recipe_check().
 */
#include "bake/recipe/recipe.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "common/str.h"
#include "common/units.h"
#include "egress/proxy.h"
#include "bake/recipe/recipe_private.h"
#include "common/limits.h"
#include "bake/recipe/limits.h"
#include "egress/limits.h"
#include "store/snapshot.h"
#include "store/store.h"

#define STEP_NUMBER_MAX 9999
#define PIP_MAX 256
#define WORDS " \t\n"

__attribute__((format(printf, 2, 3))) static int bad(struct recipe_reader *rd, const char *fmt, ...)
{
	cleanup_free char *why = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&why, fmt, args) < 0)
		abort();
	va_end(args);
	return inifile_bad(rd->ini, rd->e, rd->err, "%s", why);
}

static void set(char **field, const char *value)
{
	free(*field);
	*field = str_dup(value);
}

static int set_line(struct recipe_reader *rd, char **field)
{
	if (!*rd->e->value || strchr(rd->e->value, '\n'))
		return bad(rd, "must be one line that is not empty");
	set(field, rd->e->value);
	return 0;
}

/* Call @fn with each word of the value. */
static int each_word(
	struct recipe_reader *rd, int (*fn)(struct recipe_reader *rd, const char *word))
{
	cleanup_free char *copy = str_dup(rd->e->value);
	char *save = NULL;

	for (char *w = strtok_r(copy, WORDS, &save); w; w = strtok_r(NULL, WORDS, &save)) {
		int rc;

		if (*w == '#' || *w == ';')
			return bad(rd,
				"'%s' is one of its words: a comment has its own line, from the "
				"first column on",
				w);
		rc = fn(rd, w);

		if (rc)
			return rc;
	}
	return 0;
}

/* ---- [template], [machine], [limits] ---------------------------------------------------- */

static int read_name(struct recipe_reader *rd)
{
	if (!store_name_valid(rd->e->value))
		return bad(rd,
			"not a template name; write up to %d of a-z 0-9, between them single . _ -",
			LIMIT_NAME);
	set(&rd->r->name, rd->e->value);
	return 0;
}

static int read_from(struct recipe_reader *rd)
{
	/* the chain is resolved before any file is applied */
	return store_name_valid(rd->e->value) ? 0 : bad(rd, "not a template name");
}

static int read_description(struct recipe_reader *rd)
{
	return set_line(rd, &rd->r->description);
}

static int add_alias(struct recipe_reader *rd, const char *word)
{
	if (!store_name_valid(word))
		return bad(rd, "\"%s\" is not a template name", word);
	if (rd->r->aliases.n == LIMIT_ALIASES)
		return bad(rd, "more than %d names", LIMIT_ALIASES);
	strings_add(&rd->r->aliases, word);
	return 0;
}

static int read_aliases(struct recipe_reader *rd)
{
	return each_word(rd, add_alias);
}

static int read_size(
	struct recipe_reader *rd, uint64_t min, uint64_t max, uint64_t step, uint64_t *ret)
{
	uint64_t v;

	if (units_parse_size(rd->e->value, &v))
		return bad(rd, "not a size; write 512M or 2G");
	if (v < min || v > max)
		return bad(rd, "must be from %luM to %luM", (unsigned long)(min / MIB),
			(unsigned long)(max / MIB));
	if (v % step)
		return bad(rd, "must be a multiple of %luM", (unsigned long)(step / MIB));
	*ret = v;
	return 0;
}

static int read_memory(struct recipe_reader *rd)
{
	return read_size(rd, LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX, 2 * MIB, &rd->r->memory_bytes);
}

static int read_disk(struct recipe_reader *rd)
{
	return read_size(rd, LIMIT_DISK_MIN, LIMIT_DISK_MAX, MIB, &rd->r->disk_bytes);
}

static int read_count(struct recipe_reader *rd, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *s = rd->e->value;
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(s, &end, 10);
	if (!isdigit((unsigned char)*s) || *end || errno || v < min || v > max)
		return bad(rd, "must be a number from %lu to %lu", (unsigned long)min,
			(unsigned long)max);
	*ret = v;
	return 0;
}

static int read_vcpus(struct recipe_reader *rd)
{
	uint64_t v = 0;
	int rc = read_count(rd, 1, LIMIT_VCPUS, &v);

	if (!rc)
		rd->r->vcpus = (unsigned)v;
	return rc;
}

static int read_randomize(struct recipe_reader *rd)
{
	bool yes = !strcmp(rd->e->value, "yes");

	if (!yes && strcmp(rd->e->value, "no"))
		return bad(rd, "must be yes or no");
	rd->r->addresses = yes ? RECIPE_ADDRESSES_RANDOM : RECIPE_ADDRESSES_SETTLED;
	return 0;
}

static int read_timeout(struct recipe_reader *rd)
{
	uint64_t v;

	if (units_parse_time_ms(rd->e->value, &v))
		return bad(rd, "not a time; write 500ms, 30s or 5m");
	if (v < 1 || v > LIMIT_TIMEOUT_MS)
		return bad(rd, "must be from 1ms to 8760h, a year");
	rd->r->exec_timeout_ms = v;
	return 0;
}

static int read_output(struct recipe_reader *rd)
{
	return read_size(rd, MIB, GIB, MIB, &rd->r->output_bytes);
}

static int read_exec_memory(struct recipe_reader *rd)
{
	return read_size(rd, MIB, LIMIT_MEMORY_MAX, MIB, &rd->r->exec_memory_bytes);
}

static int read_pids(struct recipe_reader *rd)
{
	return read_count(rd, 1, 4000000, &rd->r->exec_pids);
}

/* ---- [root] ----------------------------------------------------------------------------- */

static int read_source(struct recipe_reader *rd)
{
	if (!strcmp(rd->e->value, "debian"))
		rd->r->source = RECIPE_DEBIAN;
	else if (!strcmp(rd->e->value, "tar"))
		rd->r->source = RECIPE_TAR;
	else
		return bad(rd, "must be debian or tar");
	rd->r->has_source = true;
	return 0;
}

static bool only(const char *s, const char *allowed)
{
	return *s && !s[strspn(s, allowed)];
}

static int read_suite(struct recipe_reader *rd)
{
	if (!only(rd->e->value, "abcdefghijklmnopqrstuvwxyz0123456789-") ||
		strlen(rd->e->value) > 40)
		return bad(rd, "not the name of a Debian release; write bookworm");
	set(&rd->r->suite, rd->e->value);
	return 0;
}

/* Debian policy 5.6.7 */
static int add_package(struct recipe_reader *rd, const char *word)
{
	if (!only(word, "abcdefghijklmnopqrstuvwxyz0123456789+-.") || strlen(word) < 2 ||
		strlen(word) > 128 || !isalnum((unsigned char)*word))
		return bad(rd, "'%s' is not a package name", word);
	if (rd->r->packages.n == LIMIT_PACKAGES)
		return bad(rd, "more than %d packages", LIMIT_PACKAGES);
	strings_add(&rd->r->packages, word);
	return 0;
}

static int read_packages(struct recipe_reader *rd)
{
	return each_word(rd, add_package);
}

static int read_url(struct recipe_reader *rd)
{
	const char *v = rd->e->value;

	if (strncmp(v, "http://", 7) && strncmp(v, "https://", 8) && strncmp(v, "file:///", 8))
		return bad(rd, "must begin with https://, http:// or file:///");
	if (strpbrk(v, WORDS))
		return bad(rd, "has a blank in it");
	set(&rd->r->url, v);
	set(&rd->r->path, NULL);
	return 0;
}

/* @name next to the recipe at hand, or as it is where it is absolute. Caller frees. */
static char *beside(const struct recipe_reader *rd, const char *name)
{
	const char *slash = strrchr(rd->ini->path, '/');

	if (*name == '/' || !slash)
		return str_dup(name);
	return str_printf("%.*s/%s", (int)(slash - rd->ini->path), rd->ini->path, name);
}

static int read_path(struct recipe_reader *rd)
{
	if (!*rd->e->value || strchr(rd->e->value, '\n'))
		return bad(rd, "must be one path");
	free(rd->r->path);
	rd->r->path = beside(rd, rd->e->value);
	set(&rd->r->url, NULL);
	return 0;
}

static int read_sha256(struct recipe_reader *rd)
{
	if (!only(rd->e->value, "0123456789abcdef") || strlen(rd->e->value) != 64)
		return bad(rd, "must be 64 lower-case hexadecimal digits");
	memcpy(rd->r->sha256, rd->e->value, 65);
	return 0;
}

/* ---- [files], [env], [network] ---------------------------------------------------------- */

static int check_guest_path(struct recipe_reader *rd, const char *path)
{
	static const char *const taken[] = {"/proc", "/sys", "/dev", "/run"};
	size_t len = strlen(path);

	if (*path != '/' || len < 2 || path[len - 1] == '/' || len > LIMIT_PATH - 1)
		return bad(rd, "the key must be an absolute path of a file in the guest");
	for (const char *p = path; p; p = strchr(p + 1, '/')) {
		size_t n = strcspn(p + 1, "/");

		if (!n || (n == 1 && p[1] == '.') || (n == 2 && p[1] == '.' && p[2] == '.'))
			return bad(rd, "the key has an empty, '.' or '..' component");
		if (n > 255)
			return bad(rd, "the key has a component of more than 255 bytes");
	}
	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
		size_t n = strlen(taken[i]);

		if (!strncmp(path, taken[i], n) && (!path[n] || path[n] == '/'))
			return bad(rd, "%s is mounted over in the guest", taken[i]);
	}
	return 0;
}

static int read_file(struct recipe_reader *rd)
{
	cleanup_free char *value = str_dup(rd->e->value);
	struct recipe *r = rd->r;
	struct recipe_file *f = NULL;
	unsigned mode = 0644;
	char *last;
	int rc = check_guest_path(rd, rd->e->key);

	if (rc)
		return rc;
	last = strpbrk(value, WORDS) ? value + strlen(value) : NULL;
	while (last && !strchr(WORDS, last[-1]))
		last--;
	if (last && only(last, "01234567") && strlen(last) >= 3 && strlen(last) <= 5) {
		mode = (unsigned)strtoul(last, NULL, 8);
		if (mode > 07777)
			return bad(rd, "mode %s is out of range", last);
		while (last > value && strchr(WORDS, last[-1]))
			last--;
		*last = '\0';
	}
	if (!*value || strchr(value, '\n'))
		return bad(
			rd, "must be a path next to the recipe, and a mode such as 0755 or none");
	for (size_t i = 0; i < r->n_files; i++)
		if (!strcmp(r->files[i].guest, rd->e->key))
			f = &r->files[i];
	if (!f) {
		r->files = reallocarray(r->files, r->n_files + 1, sizeof(*r->files));
		if (!r->files)
			abort();
		f = &r->files[r->n_files++];
		*f = (struct recipe_file){.guest = str_dup(rd->e->key)};
	}
	free(f->host);
	f->host = beside(rd, value);
	f->mode = mode;
	return 0;
}

static bool is_variable(const char *name)
{
	return only(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") &&
		!isdigit((unsigned char)*name);
}

/* Add KEY=@value, in place of what KEY had. */
static int add_pair(struct recipe_reader *rd, struct strings *pairs, const char *value)
{
	size_t len = strlen(rd->e->key);
	char *pair;

	if (!is_variable(rd->e->key))
		return bad(rd, "the key is not a variable's name");
	if (strchr(value, '\n'))
		return bad(rd, "must be one line");
	pair = str_printf("%s=%s", rd->e->key, value);
	for (size_t i = 0; i < pairs->n; i++) {
		if (strncmp(pairs->items[i], pair, len + 1))
			continue;
		free(pairs->items[i]);
		pairs->items[i] = pair;
		return 0;
	}
	strings_add(pairs, pair);
	free(pair);
	return 0;
}

static int read_env(struct recipe_reader *rd)
{
	return add_pair(rd, &rd->r->env, rd->e->value);
}

/* Where a secret is, never what it is. */
static int read_secret(struct recipe_reader *rd)
{
	cleanup_free char *path = NULL, *file = NULL;

	if (!strncmp(rd->e->value, "env:", 4) && is_variable(rd->e->value + 4))
		return add_pair(rd, &rd->r->secrets, rd->e->value);
	if (strncmp(rd->e->value, "file:", 5) || !rd->e->value[5])
		return bad(
			rd, "must be env:VARIABLE or file:PATH: where the secret is, on the host");
	path = beside(rd, rd->e->value + 5);
	file = str_printf("file:%s", path);
	return add_pair(rd, &rd->r->secrets, file);
}

/* What proxy_rule_parse() takes, and the word "private", which belongs to the one before it. */
static int add_allow(struct recipe_reader *rd, const char *word)
{
	struct recipe_rules *allow = &rd->r->allow;
	struct proxy_rule rule;
	struct err why;

	if (!strcmp(word, "private")) {
		if (!rd->allow_added)
			return bad(rd, "'private' stands behind a host");
		allow->items[allow->n - 1].private_ok = true;
		rd->allow_added = false;
		return 0;
	}
	if (allow->n == LIMIT_PROXY_RULES)
		return bad(rd, "more than %d hosts", LIMIT_PROXY_RULES);
	if (proxy_rule_parse(word, &rule, &why))
		return bad(rd, "'%s': %s", word, why.text);
	/* whoever writes an address means that one */
	rule.private_ok = rule.literal && !rule.network;
	recipe_rules_add(allow, &rule);
	rd->allow_added = true;
	return 0;
}

static int read_allow(struct recipe_reader *rd)
{
	return each_word(rd, add_allow);
}

/* ---- [install], [start], [warm] --------------------------------------------------------- */

/* "python: code" → the code; otherwise the text as it is. Borrowed. Code that begins on the next line keeps
 * its indent: what is not Python is for Python to say. */
static const char *python_part(const char *text, bool *ret_python)
{
	*ret_python = !strncmp(text, "python:", 7);
	if (!*ret_python)
		return text;
	text += 7;
	text += strspn(text, " \t");
	return text + strspn(text, "\n");
}

static int read_step(struct recipe_reader *rd, struct recipe_steps *steps, bool may_python)
{
	struct recipe_step step = {.file = rd->file, .line = rd->e->line};
	const char *text = python_part(rd->e->value, &step.python);
	uint64_t number = 0;
	size_t at = steps->n;

	for (const char *p = rd->e->key; *p; p++)
		number = number > STEP_NUMBER_MAX ? number : number * 10 + (uint64_t)(*p - '0');
	if (number > STEP_NUMBER_MAX)
		return bad(rd, "steps are numbered from 0 to %d", STEP_NUMBER_MAX);
	step.number = (unsigned)number;
	if (!*text)
		return bad(rd, "the step is empty");
	if (step.python && !may_python)
		return bad(rd,
			"python: runs in the warm interpreter, which is there from [warm] on; "
			"write python3 -c");
	if (steps->n == LIMIT_RECIPE_STEPS)
		return bad(rd, "more than %d steps", LIMIT_RECIPE_STEPS);
	for (; at && steps->items[at - 1].number >= step.number; at--)
		if (steps->items[at - 1].number == step.number)
			return bad(rd, "step %u is there already, in line %u", step.number,
				steps->items[at - 1].line);
	steps->items = reallocarray(steps->items, steps->n + 1, sizeof(*steps->items));
	if (!steps->items)
		abort();
	memmove(steps->items + at + 1, steps->items + at, (steps->n - at) * sizeof(*steps->items));
	step.text = str_dup(text);
	steps->items[at] = step;
	steps->n++;
	return 0;
}

static int read_install_step(struct recipe_reader *rd)
{
	return read_step(rd, &rd->install, false);
}

static int read_warm_step(struct recipe_reader *rd)
{
	return read_step(rd, &rd->warm, true);
}

static int add_pip(struct recipe_reader *rd, const char *word)
{
	if (*word == '-')
		return bad(rd, "'%s': options of pip are not for recipes", word);
	if (rd->r->pip.n == PIP_MAX)
		return bad(rd, "more than %d requirements", PIP_MAX);
	strings_add(&rd->r->pip, word);
	return 0;
}

static int read_pip(struct recipe_reader *rd)
{
	return each_word(rd, add_pip);
}

static int read_command(struct recipe_reader *rd)
{
	if (!*rd->e->value)
		return bad(rd, "is empty");
	set(&rd->r->start_command, rd->e->value);
	return 0;
}

static int read_ready(struct recipe_reader *rd)
{
	const char *text = python_part(rd->e->value, &rd->r->ready_python);

	if (!*text)
		return bad(rd, "is empty");
	set(&rd->r->ready, text);
	return 0;
}

static int read_user(struct recipe_reader *rd)
{
	if (!snapshot_user_good(rd->e->value))
		return bad(rd,
			"must be the name of a user: at most %d of a-z, 0-9, _ and -, a letter or "
			"_ first",
			LIMIT_ACCOUNT);
	set(&rd->r->user, rd->e->value);
	return 0;
}

static int read_caches(struct recipe_reader *rd)
{
	if (strcmp(rd->e->value, "drop") && strcmp(rd->e->value, "keep"))
		return bad(rd, "must be drop or keep");
	rd->r->keep_caches = !strcmp(rd->e->value, "keep");
	return 0;
}

static int read_programs(struct recipe_reader *rd)
{
	cleanup_free char *copy = str_dup(rd->e->value);
	struct strings *to = &rd->r->programs;
	char *save = NULL;

	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line += strspn(line, " \t");
		if (!*line)
			continue;
		if (to->n == LIMIT_PROGRAMS)
			return bad(rd, "more than %d programs", LIMIT_PROGRAMS);
		strings_add(to, line);
	}
	return to->n ? 0 : bad(rd, "names none");
}

/* ---- the table -------------------------------------------------------------------------- */

const struct recipe_key recipe_keys[] = {
	{"template", "name", read_name},
	{"template", "from", read_from},
	{"template", "description", read_description},
	{"template", "aliases", read_aliases},
	{"machine", "memory", read_memory},
	{"machine", "vcpus", read_vcpus},
	{"machine", "disk", read_disk},
	{"machine", "randomize_addresses", read_randomize},
	{"root", "source", read_source},
	{"root", "suite", read_suite},
	{"root", "packages", read_packages},
	{"root", "url", read_url},
	{"root", "path", read_path},
	{"root", "sha256", read_sha256},
	{"files", KEY_ANY, read_file},
	{"env", KEY_ANY, read_env},
	{"network", "allow", read_allow},
	{"secrets", KEY_ANY, read_secret},
	{"install", KEY_NUMBER, read_install_step},
	{"install", "pip", read_pip},
	{"start", "command", read_command},
	{"start", "ready", read_ready},
	{"start", "user", read_user},
	{"warm", KEY_NUMBER, read_warm_step},
	{"warm", "caches", read_caches},
	{"warm", "programs", read_programs},
	{"limits", "timeout", read_timeout},
	{"limits", "output", read_output},
	{"limits", "memory", read_exec_memory},
	{"limits", "pids", read_pids},
};
const size_t recipe_n_keys = sizeof(recipe_keys) / sizeof(*recipe_keys);
_Static_assert(sizeof(recipe_keys) / sizeof(*recipe_keys) <= RECIPE_KEYS_MAX, "raise it");
