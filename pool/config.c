/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's configuration.
 *
 * As with recipes, one table names every key with the function that reads it, and the errors for
 * unknown words are made from the same table. [template NAME] and [key NAME] may each stand in the
 * file many times: the section of the entry at hand says which one is meant. A value is checked
 * where it is read, with file and line at hand. What concerns several values is checked when all of
 * them have been read.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"
#include "common/file.h"
#include "common/inifile.h"
#include "common/limits.h"
#include "pool/limits.h"
#include "common/paths.h"
#include "common/str.h"
#include "common/units.h"
#include "pool/config.h"
#include "store/store.h"

#define DEFAULT_TIMEOUT_MS 300000
#define DEFAULT_MAX_TIMEOUT_MS 86400000
#define DEFAULT_SNAPSHOTS 64
#define DEFAULT_SANDBOXES 4096
#define DEFAULT_REFILL 20
#define DEFAULT_PIDS 64
#define DEFAULT_READY 8 /* of standbys, of spares, that auto keeps at most */

struct reader {
	struct config *c;
	const struct inifile *ini;
	const struct inifile_entry *e;
	struct config_template *template; /* of the section at hand */
	struct config_key *key;
	struct err *err;
};

#define bad(rd, ...) inifile_bad((rd)->ini, (rd)->e, (rd)->err, __VA_ARGS__)

static void set(char **field, const char *value)
{
	free(*field);
	*field = str_dup(value);
}

/* ---- words ---------------------------------------------------------------------------------- */

/*
 * A key: @read takes its value into @field, which lies @at bytes into the struct of its section
 * (struct config, config_template, config_key). Numbers and sizes are from @min to @max.
 */
struct word {
	const char *section, *key;
	int (*read)(struct reader *rd, const struct word *w, void *field);
	size_t at;
	uint64_t min, max;
};

/* ---- kinds of values ------------------------------------------------------------------------ */

static int read_path(struct reader *rd, const struct word *w, void *field)
{
	(void)w;
	if (*rd->e->value != '/' || strchr(rd->e->value, '\n'))
		return bad(rd, "must be an absolute path");
	if (strlen(rd->e->value) >= LIMIT_PATH)
		return bad(rd, "a path of more than %d bytes", LIMIT_PATH - 1);
	set(field, rd->e->value);
	return 0;
}

static int read_count(struct reader *rd, const struct word *w, void *field)
{
	const char *s = rd->e->value;
	unsigned long v;
	char *end;

	errno = 0;
	v = strtoul(s, &end, 10);
	if (!isdigit((unsigned char)*s) || *end || errno || v < w->min || v > w->max)
		return bad(rd, "must be a number from %lu to %lu", w->min, w->max);
	*(uint32_t *)field = (uint32_t)v;
	return 0;
}

static int read_time(struct reader *rd, const struct word *w, void *field)
{
	uint64_t v;

	(void)w;
	if (units_parse_time_ms(rd->e->value, &v))
		return bad(rd, "not a time; write 30s, 5m or 24h");
	if (v < 1000 || v > LIMIT_LEASE_MS)
		return bad(rd, "must be from 1s to 8760h, a year");
	*(uint64_t *)field = v;
	return 0;
}

static int read_size(struct reader *rd, const struct word *w, void *field)
{
	uint64_t v;

	if (units_parse_size(rd->e->value, &v))
		return bad(rd, "not a size; write 512M or 16G");
	if (v < w->min || v > w->max)
		return bad(rd, "must be from %luM to %luG", w->min / MIB, w->max / GIB);
	*(uint64_t *)field = v;
	return 0;
}

/* How many are to be ready: a number, or auto. */
static int read_ready(struct reader *rd, const struct word *w, void *field)
{
	if (strcmp(rd->e->value, "auto"))
		return read_count(rd, w, field)
			? bad(rd, "must be auto, or a number from %lu to %lu", w->min, w->max)
			: 0;
	*(uint32_t *)field = CONFIG_AUTO;
	return 0;
}

/* ---- [pool] --------------------------------------------------------------------------------- */

static int read_socket(struct reader *rd, const struct word *w, void *field)
{
	if (strlen(rd->e->value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return bad(rd, "a socket's path may have 107 bytes");
	return read_path(rd, w, field);
}

int config_listen_addr(const char *listen, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	const char *colon = strrchr(listen, ':');
	size_t len = colon ? (size_t)(colon - listen) : 0;
	char host[64], *end;
	unsigned long port;

	if (!len || len >= sizeof(host) || !isdigit((unsigned char)colon[1]))
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (*end || port < 1 || port > 65535 || strlen(colon + 1) > 5)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	if (*listen == '[' && colon[-1] == ']') {
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, listen + 1);
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		*ret_len = sizeof(*v6);
		return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	snprintf(host, sizeof(host), "%.*s", (int)len, listen);
	v4->sin_family = AF_INET;
	v4->sin_port = htons((uint16_t)port);
	*ret_len = sizeof(*v4);
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -EINVAL;
}

static int read_listen(struct reader *rd, const struct word *w, void *field)
{
	struct sockaddr_storage addr;
	socklen_t len;

	(void)w;
	if (config_listen_addr(rd->e->value, &addr, &len))
		return bad(rd, "not an address and port; write 127.0.0.1:3000 or [::1]:3000");
	set(field, rd->e->value);
	return 0;
}

static int read_domain(struct reader *rd, const struct word *w, void *field)
{
	const char *s = rd->e->value;
	size_t label = 0;

	(void)w;
	for (const char *p = s; *p; p++) {
		bool edge = !label || !p[1] || p[1] == '.';

		if (*p == '.' && label) {
			label = 0;
			continue;
		}
		if (!(islower((unsigned char)*p) || isdigit((unsigned char)*p) ||
			    (*p == '-' && !edge)) ||
			++label > 63)
			return bad(rd, "not a domain; write sandboxes.example.org");
	}
	if (!label || strlen(s) > 180)
		return bad(rd, "not a domain; write sandboxes.example.org");
	set(field, s);
	return 0;
}

static int read_memory_count(struct reader *rd, const struct word *w, void *field)
{
	bool reserved = !strcmp(rd->e->value, "reserved");

	(void)w;
	if (!reserved && strcmp(rd->e->value, "measured"))
		return bad(rd, "neither measured nor reserved");
	*(bool *)field = reserved;
	return 0;
}

static int read_cgroup(struct reader *rd, const struct word *w, void *field)
{
	if (strstr(rd->e->value, "/.."))
		return bad(rd, "must be an absolute path without ..");
	return read_path(rd, w, field);
}

/* ---- [key NAME] ----------------------------------------------------------------------------- */

static int read_digest(struct reader *rd, const struct word *w, void *field)
{
	(void)w;
	if (!digest_valid(rd->e->value))
		return bad(rd,
			"not a digest: sha256: and 64 digits of 0-9 a-f; `parbake pool key` "
			"makes a key and its digest");
	for (size_t i = 0; i < rd->c->n_keys; i++)
		if (!strcmp(rd->c->keys[i].digest, rd->e->value))
			return bad(rd, "the key of [key %s] already", rd->c->keys[i].name);
	memcpy(field, rd->e->value, DIGEST_TEXT_SIZE);
	return 0;
}

static int read_creates(struct reader *rd, const struct word *w, void *field)
{
	const char *s = rd->e->value;
	char *end;
	double v = strtod(s, &end);

	(void)w;
	if (s[strspn(s, "0123456789.")] || *end || end == s || !isfinite(v) || v < 0.001 ||
		v > 10000)
		return bad(rd, "must be a number from 0.001 to 10000");
	*(double *)field = v;
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------ */

#define MEMORY_MIN LIMIT_MEMORY_MIN
#define MEMORY_MAX (1024 * 1024 * GIB)
#define POOL(key, kind, field, ...)                                                                \
	{                                                                                          \
		"pool", key, read_##kind, offsetof(struct config, field), __VA_ARGS__              \
	}
#define TEMPLATE(key, kind, field)                                                                 \
	{                                                                                          \
		"template NAME", key, read_##kind, offsetof(struct config_template, field), 0,     \
			LIMIT_POOL_READY                                                           \
	}
#define KEY(key, kind, field, ...)                                                                 \
	{                                                                                          \
		"key NAME", key, read_##kind, offsetof(struct config_key, field), __VA_ARGS__      \
	}

static const struct word words[] = {
	POOL("socket", socket, socket, 0, 0),
	POOL("listen", listen, listen, 0, 0),
	POOL("state", path, state, 0, 0),
	POOL("store", path, store, 0, 0),
	POOL("require_signature", path, require_signature, 0, 0),
	POOL("domain", domain, domain, 0, 0),
	POOL("timeout", time, timeout_ms, 0, 0),
	POOL("max_timeout", time, max_timeout_ms, 0, 0),
	POOL("max_sandboxes", count, max_sandboxes, 1, LIMIT_POOL_SANDBOXES),
	POOL("max_templates", count, max_templates, 1, LIMIT_POOL_TEMPLATES),
	POOL("memory_budget", size, memory_budget, MEMORY_MIN, MEMORY_MAX),
	POOL("memory_reserve", size, memory_reserve, MEMORY_MIN, MEMORY_MAX),
	POOL("memory_count", memory_count, memory_reserved, 0, 0),
	POOL("refill_per_s", count, refill_per_s, 1, 1000),
	POOL("cgroup", cgroup, cgroup, 0, 0),
	POOL("machine_pids", count, machine_pids, 8, 4000000),
	TEMPLATE("standbys", ready, standbys),
	TEMPLATE("spares", ready, spares),
	TEMPLATE("max_standbys", count, max_standbys),
	TEMPLATE("max_spares", count, max_spares),
	/* what standbys were called once */
	TEMPLATE("shells", ready, standbys),
	TEMPLATE("max_shells", count, max_standbys),
	KEY("digest", digest, digest, 0, 0),
	KEY("max_sandboxes", count, max_sandboxes, 1, LIMIT_POOL_SANDBOXES),
	KEY("max_snapshots", count, max_snapshots, 1, LIMIT_POOL_SANDBOXES),
	KEY("creates_per_s", creates, creates_per_s, 0, 0),
	KEY("max_memory", size, max_memory, MEMORY_MIN, MEMORY_MAX),
	KEY("max_disk", size, max_disk, MIB, LIMIT_DISK_MAX *LIMIT_POOL_SANDBOXES),
};

#define N_WORDS (sizeof(words) / sizeof(*words))

/* The name behind "template " or "key "; NULL: @section is no such. */
static const char *name_of(const char *section, const char *what)
{
	size_t len = strlen(what);

	return !strncmp(section, what, len) && section[len] == ' ' ? section + len + 1 : NULL;
}

/* As it stands in words[]. */
static const char *kind_of(const char *section)
{
	if (name_of(section, "template") || !strcmp(section, "template"))
		return "template NAME";
	return name_of(section, "key") || !strcmp(section, "key") ? "key NAME" : section;
}

static int unknown_section(struct reader *rd, const struct inifile_entry *e)
{
	const char *names[N_WORDS];

	for (size_t i = 0; i < N_WORDS; i++)
		names[i] = words[i].section;
	return inifile_unknown_section(rd->ini, e, names, N_WORDS, rd->err);
}

static int read_entry(struct reader *rd)
{
	const char *kind = kind_of(rd->e->section), *names[N_WORDS];
	char *into = *kind == 't' ? (char *)rd->template
		: *kind == 'k'    ? (char *)rd->key
				  : (char *)rd->c;

	for (size_t i = 0; i < N_WORDS; i++) {
		names[i] = strcmp(words[i].section, kind) ? NULL : words[i].key;
		if (names[i] && !strcmp(names[i], rd->e->key))
			return words[i].read(rd, &words[i], into + words[i].at);
	}
	return inifile_unknown_key(rd->ini, rd->e, names, N_WORDS, NULL, rd->err);
}

/* ---- sections ------------------------------------------------------------------------------- */

static int add_template(struct reader *rd, const struct inifile_entry *s, const char *name)
{
	struct config *c = rd->c;
	struct config_template one = {.max_standbys = DEFAULT_READY, .max_spares = DEFAULT_READY};
	const char *colon = strchr(name, ':');
	size_t len = colon ? (size_t)(colon - name) : strlen(name);

	if (len < sizeof(one.name) && (!colon || strlen(colon + 1) < sizeof(one.tag))) {
		memcpy(one.name, name, len);
		strcpy(one.tag, colon ? colon + 1 : "latest");
	}
	if (!store_name_valid(one.name) || !store_name_valid(one.tag))
		return err_set(rd->err, EINVAL,
			"%s:%u: [%s]: not the name of a template; write [template base] or "
			"[template base:latest]",
			rd->ini->path, s->line, s->section);
	one.standbys = one.spares = CONFIG_AUTO;
	for (size_t i = 0; i < c->n_templates; i++)
		if (!strcmp(c->templates[i].name, one.name) &&
			!strcmp(c->templates[i].tag, one.tag))
			return err_set(rd->err, EINVAL, "%s:%u: [%s]: a second section for %s:%s",
				rd->ini->path, s->line, s->section, one.name, one.tag);
	if (c->n_templates == LIMIT_POOL_TEMPLATES)
		return err_set(rd->err, EINVAL, "%s:%u: more than %d templates", rd->ini->path,
			s->line, LIMIT_POOL_TEMPLATES);
	c->templates = reallocarray(c->templates, c->n_templates + 1, sizeof(one));
	if (!c->templates)
		abort();
	c->templates[c->n_templates++] = one;
	return 0;
}

static int add_key(struct reader *rd, const struct inifile_entry *s, const char *name)
{
	struct config *c = rd->c;

	if (!store_name_valid(name))
		return err_set(rd->err, EINVAL,
			"%s:%u: [%s]: not a name; write [key NAME] with up to %d of a-z 0-9, "
			"between them single . _ -",
			rd->ini->path, s->line, s->section, LIMIT_NAME);
	for (size_t i = 0; i < c->n_keys; i++)
		if (!strcmp(c->keys[i].name, name))
			return err_set(rd->err, EINVAL,
				"%s:%u: [%s]: a second section of that name", rd->ini->path,
				s->line, s->section);
	if (c->n_keys == LIMIT_POOL_KEYS)
		return err_set(rd->err, EINVAL, "%s:%u: more than %d keys", rd->ini->path, s->line,
			LIMIT_POOL_KEYS);
	c->keys = reallocarray(c->keys, c->n_keys + 1, sizeof(*c->keys));
	if (!c->keys)
		abort();
	c->keys[c->n_keys] = (struct config_key){.max_snapshots = DEFAULT_SNAPSHOTS};
	memcpy(c->keys[c->n_keys++].name, name, strlen(name) + 1);
	return 0;
}

/* A [section] begins; what follows it may be of it. */
static int begin_section(struct reader *rd, const struct inifile_entry *s)
{
	const char *name;

	if ((name = name_of(s->section, "template")) || !strcmp(s->section, "template"))
		return add_template(rd, s, name ? name : "");
	if ((name = name_of(s->section, "key")) || !strcmp(s->section, "key"))
		return add_key(rd, s, name ? name : "");
	return strcmp(s->section, "pool") ? unknown_section(rd, s) : 0;
}

/* Sections and entries in the order of their lines. */
static int read_all(struct reader *rd)
{
	size_t s = 0;
	int r = 0;

	for (size_t i = 0; i <= rd->ini->n && !r; i++) {
		unsigned line = i < rd->ini->n ? rd->ini->entries[i].line : UINT32_MAX;

		while (!r && s < rd->ini->n_sections && rd->ini->sections[s].line < line)
			r = begin_section(rd, &rd->ini->sections[s++]);
		if (r || i == rd->ini->n)
			break;
		rd->e = &rd->ini->entries[i];
		if (!s || strcmp(rd->ini->sections[s - 1].section, rd->e->section))
			return err_set(rd->err, EINVAL,
				"%s:%u: %s stands in no [section] that begins its line",
				rd->ini->path, rd->e->line, rd->e->key);
		rd->template =
			rd->c->n_templates ? &rd->c->templates[rd->c->n_templates - 1] : NULL;
		rd->key = rd->c->n_keys ? &rd->c->keys[rd->c->n_keys - 1] : NULL;
		r = read_entry(rd);
	}
	return r;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int check(const char *path, const struct config *c, struct err *err)
{
	if (c->timeout_ms > c->max_timeout_ms)
		return err_set(err, EINVAL, "%s: [pool] timeout is longer than max_timeout", path);
	for (size_t i = 0; i < c->n_keys; i++)
		if (!c->keys[i].digest[0])
			return err_set(err, EINVAL,
				"%s: [key %s] has no digest; `parbake pool key %s` makes one", path,
				c->keys[i].name, c->keys[i].name);
	if (c->listen && !c->n_keys)
		return err_set(err, EINVAL,
			"%s: [pool] listen = %s: over TCP every request needs a key, and there is "
			"none; `parbake pool key NAME` makes one",
			path, c->listen);
	return 0;
}

static int default_places(struct config *c, struct err *err)
{
	const char *run;
	int r = 0;

	if (!c->socket) {
		r = paths_get(PATHS_RUN, &run, err);
		if (!r)
			c->socket = str_printf("%s/pool.sock", run);
	}
	if (!r && !c->state)
		r = paths_sub(PATHS_STORE, "pool", &c->state, err);
	if (!c->domain)
		c->domain = str_dup("parbake.localhost");
	return r;
}

static struct config *config_new(void)
{
	struct config *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->timeout_ms = DEFAULT_TIMEOUT_MS;
	c->max_timeout_ms = DEFAULT_MAX_TIMEOUT_MS;
	c->max_sandboxes = DEFAULT_SANDBOXES;
	c->max_templates = LIMIT_POOL_TEMPLATES;
	c->refill_per_s = DEFAULT_REFILL;
	c->machine_pids = DEFAULT_PIDS;
	return c;
}

int config_parse(
	const char *path, const char *text, size_t len, struct config **ret, struct err *err)
{
	cleanup_inifile struct inifile ini = {0};
	cleanup_config struct config *c = config_new();
	struct reader rd = {.c = c, .ini = &ini, .err = err};
	int r = inifile_parse(path, text, len, &ini, err);

	if (!r)
		r = read_all(&rd);
	if (!r)
		r = check(path, c, err);
	if (!r)
		r = default_places(c, err);
	if (!r)
		*ret = steal_ptr(&c);
	return r;
}

int config_read(const char *path, struct config **ret, struct err *err)
{
	cleanup_free char *text = NULL;
	size_t len;
	int r;

	if (!path)
		return config_parse("the defaults", "", 0, ret, err);
	r = file_read_all(AT_FDCWD, path, LIMIT_RECIPE_BYTES, &text, &len, err);
	return r ? r : config_parse(path, text, len, ret, err);
}

void config_free(struct config *c)
{
	if (!c)
		return;
	free(c->socket);
	free(c->listen);
	free(c->state);
	free(c->store);
	free(c->require_signature);
	free(c->domain);
	free(c->cgroup);
	free(c->templates);
	free(c->keys);
	free(c);
}
