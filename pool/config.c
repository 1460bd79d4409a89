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

/* ---- kinds of values ------------------------------------------------------------------------ */

static int read_path(struct reader *rd, char **field)
{
	if (*rd->e->value != '/' || strchr(rd->e->value, '\n'))
		return bad(rd, "must be an absolute path");
	if (strlen(rd->e->value) >= LIMIT_PATH)
		return bad(rd, "a path of more than %d bytes", LIMIT_PATH - 1);
	set(field, rd->e->value);
	return 0;
}

static int read_count(struct reader *rd, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *s = rd->e->value;
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (!isdigit((unsigned char)*s) || *end || errno || v < min || v > max)
		return bad(rd, "must be a number from %llu to %llu", (unsigned long long)min,
			(unsigned long long)max);
	*ret = v;
	return 0;
}

static int read_count32(struct reader *rd, uint32_t min, uint32_t max, uint32_t *ret)
{
	uint64_t v = 0;
	int r = read_count(rd, min, max, &v);

	if (!r)
		*ret = (uint32_t)v;
	return r;
}

static int read_time(struct reader *rd, uint64_t *ret)
{
	uint64_t v;

	if (units_parse_time_ms(rd->e->value, &v))
		return bad(rd, "not a time; write 30s, 5m or 24h");
	if (v < 1000 || v > LIMIT_LEASE_MS)
		return bad(rd, "must be from 1s to 8760h, a year");
	*ret = v;
	return 0;
}

static int read_size(struct reader *rd, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t v;

	if (units_parse_size(rd->e->value, &v))
		return bad(rd, "not a size; write 512M or 16G");
	if (v < min || v > max)
		return bad(rd, "must be from %luM to %luG", (unsigned long)(min / MIB),
			(unsigned long)(max / GIB));
	*ret = v;
	return 0;
}

/* How many are to be ready: a number, or auto. */
static int read_ready(struct reader *rd, uint32_t *ret)
{
	if (strcmp(rd->e->value, "auto"))
		return read_count32(rd, 0, LIMIT_POOL_READY, ret)
			? bad(rd, "must be auto, or a number from 0 to %d", LIMIT_POOL_READY)
			: 0;
	*ret = CONFIG_AUTO;
	return 0;
}

/* ---- [pool] --------------------------------------------------------------------------------- */

static int read_socket(struct reader *rd)
{
	if (strlen(rd->e->value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return bad(rd, "a socket's path may have 107 bytes");
	return read_path(rd, &rd->c->socket);
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

static int read_listen(struct reader *rd)
{
	struct sockaddr_storage addr;
	socklen_t len;

	if (config_listen_addr(rd->e->value, &addr, &len))
		return bad(rd, "not an address and port; write 127.0.0.1:3000 or [::1]:3000");
	set(&rd->c->listen, rd->e->value);
	return 0;
}

static int read_state(struct reader *rd)
{
	return read_path(rd, &rd->c->state);
}

static int read_store(struct reader *rd)
{
	return read_path(rd, &rd->c->store);
}

static int read_domain(struct reader *rd)
{
	const char *s = rd->e->value;
	size_t label = 0;

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
	set(&rd->c->domain, s);
	return 0;
}

static int read_timeout(struct reader *rd)
{
	return read_time(rd, &rd->c->timeout_ms);
}

static int read_max_timeout(struct reader *rd)
{
	return read_time(rd, &rd->c->max_timeout_ms);
}

static int read_sandboxes(struct reader *rd)
{
	return read_count32(rd, 1, LIMIT_POOL_SANDBOXES, &rd->c->max_sandboxes);
}

static int read_templates(struct reader *rd)
{
	return read_count32(rd, 1, LIMIT_POOL_TEMPLATES, &rd->c->max_templates);
}

static int read_memory(struct reader *rd)
{
	return read_size(rd, LIMIT_MEMORY_MIN, 1024 * 1024 * GIB, &rd->c->memory_budget);
}

static int read_reserve(struct reader *rd)
{
	return read_size(rd, LIMIT_MEMORY_MIN, 1024 * 1024 * GIB, &rd->c->memory_reserve);
}

static int read_memory_count(struct reader *rd)
{
	bool reserved = !strcmp(rd->e->value, "reserved");

	if (!reserved && strcmp(rd->e->value, "measured"))
		return bad(rd, "neither measured nor reserved");
	rd->c->memory_reserved = reserved;
	return 0;
}

static int read_refill(struct reader *rd)
{
	return read_count32(rd, 1, 1000, &rd->c->refill_per_s);
}

static int read_cgroup(struct reader *rd)
{
	if (strstr(rd->e->value, "/.."))
		return bad(rd, "must be an absolute path without ..");
	return read_path(rd, &rd->c->cgroup);
}

static int read_pids(struct reader *rd)
{
	return read_count(rd, 8, 4000000, &rd->c->machine_pids);
}

/* ---- [template NAME] ------------------------------------------------------------------------ */

static int read_standbys(struct reader *rd)
{
	return read_ready(rd, &rd->template->standbys);
}

static int read_spares(struct reader *rd)
{
	return read_ready(rd, &rd->template->spares);
}

static int read_max_standbys(struct reader *rd)
{
	return read_count32(rd, 0, LIMIT_POOL_READY, &rd->template->max_standbys);
}

static int read_max_spares(struct reader *rd)
{
	return read_count32(rd, 0, LIMIT_POOL_READY, &rd->template->max_spares);
}

/* ---- [key NAME] ----------------------------------------------------------------------------- */

static int read_digest(struct reader *rd)
{
	if (!digest_valid(rd->e->value))
		return bad(rd,
			"not a digest: sha256: and 64 digits of 0-9 a-f; `parbake pool key` "
			"makes a key and its digest");
	for (size_t i = 0; i < rd->c->n_keys; i++)
		if (!strcmp(rd->c->keys[i].digest, rd->e->value))
			return bad(rd, "the key of [key %s] already", rd->c->keys[i].name);
	memcpy(rd->key->digest, rd->e->value, DIGEST_TEXT_SIZE);
	return 0;
}

static int read_key_sandboxes(struct reader *rd)
{
	return read_count32(rd, 1, LIMIT_POOL_SANDBOXES, &rd->key->max_sandboxes);
}

static int read_key_snapshots(struct reader *rd)
{
	return read_count32(rd, 1, LIMIT_POOL_SANDBOXES, &rd->key->max_snapshots);
}

static int read_creates(struct reader *rd)
{
	const char *s = rd->e->value;
	char *end;
	double v = strtod(s, &end);

	if (s[strspn(s, "0123456789.")] || *end || end == s || !isfinite(v) || v < 0.001 ||
		v > 10000)
		return bad(rd, "must be a number from 0.001 to 10000");
	rd->key->creates_per_s = v;
	return 0;
}

static int read_key_memory(struct reader *rd)
{
	return read_size(rd, LIMIT_MEMORY_MIN, 1024 * 1024 * GIB, &rd->key->max_memory);
}

/* ---- words ---------------------------------------------------------------------------------- */

static const struct word {
	const char *section, *key;
	int (*read)(struct reader *rd);
} words[] = {
	{"pool", "socket", read_socket},
	{"pool", "listen", read_listen},
	{"pool", "state", read_state},
	{"pool", "store", read_store},
	{"pool", "domain", read_domain},
	{"pool", "timeout", read_timeout},
	{"pool", "max_timeout", read_max_timeout},
	{"pool", "max_sandboxes", read_sandboxes},
	{"pool", "max_templates", read_templates},
	{"pool", "memory_budget", read_memory},
	{"pool", "memory_reserve", read_reserve},
	{"pool", "memory_count", read_memory_count},
	{"pool", "refill_per_s", read_refill},
	{"pool", "cgroup", read_cgroup},
	{"pool", "machine_pids", read_pids},
	{"template NAME", "standbys", read_standbys},
	{"template NAME", "shells", read_standbys}, /* what standbys were called once */
	{"template NAME", "spares", read_spares},
	{"template NAME", "max_standbys", read_max_standbys},
	{"template NAME", "max_shells", read_max_standbys},
	{"template NAME", "max_spares", read_max_spares},
	{"key NAME", "digest", read_digest},
	{"key NAME", "max_sandboxes", read_key_sandboxes},
	{"key NAME", "max_snapshots", read_key_snapshots},
	{"key NAME", "creates_per_s", read_creates},
	{"key NAME", "max_memory", read_key_memory},
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

	for (size_t i = 0; i < N_WORDS; i++) {
		names[i] = strcmp(words[i].section, kind) ? NULL : words[i].key;
		if (names[i] && !strcmp(names[i], rd->e->key))
			return words[i].read(rd);
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
	free(c->domain);
	free(c->cgroup);
	free(c->templates);
	free(c->keys);
	free(c);
}
