/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pip knows best what pip is configured with (files of the host, the user, the environment, in its
 * own order of precedence), so pip is asked: `pip config list` prints `section.key='value'` lines,
 * those of the environment as `:env:.key`. Without pip on the host the environment alone is read.
 * find-links is not lent: it is mostly a directory of the host.
 */
#include "bake/pip_lend.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bake/recipe/recipe.h"
#include "common/proc.h"
#include "common/str.h"

#define CONFIG_MAX (256 << 10)

/* Later ones win. */
static const char *const sections[] = {"global.", "install.", ":env:."};

/* A Python string literal as repr() prints it, without its quotes; \n becomes a blank. */
static char *unquote(const char *s)
{
	char *out = str_dup(s), *to = out;
	char quote = *s == '\'' || *s == '"' ? *s++ : '\0';

	for (; *s && *s != quote; s++) {
		if (*s == '\\' && s[1]) {
			s++;
			*to++ = *s == 'n' || *s == 't' ? ' ' : *s;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
	return out;
}

/* The value of @key in the output of `pip config list`. Caller frees; NULL: not set. */
static char *find(const char *config, const char *key)
{
	char *found = NULL;

	for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
		cleanup_free char *name = str_printf("%s%s=", sections[i], key);

		for (const char *p = config; p && *p; p = strchr(p, '\n')) {
			cleanup_free char *line = NULL;

			p += *p == '\n';
			if (strncmp(p, name, strlen(name)))
				continue;
			p += strlen(name);
			line = strndup(p, strcspn(p, "\n"));
			if (!line)
				abort();
			free(found);
			found = unquote(line);
		}
	}
	return found;
}

char *pip_url_host(const char *url)
{
	const char *p = strstr(url, "://"), *at;
	bool https = !strncasecmp(url, "https:", 6);
	cleanup_free char *host = NULL;

	if (!p)
		return NULL;
	p += 3;
	host = strndup(p, strcspn(p, "/?#"));
	if (!host)
		abort();
	at = strrchr(host, '@');
	if (at)
		memmove(host, at + 1, strlen(at + 1) + 1);
	for (char *c = host; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (!*host)
		return NULL;
	return strchr(host, ':') ? steal_ptr(&host) : str_printf("%s:%d", host, https ? 443 : 80);
}

static void add_hosts(struct pip_lend *l, const char *urls)
{
	cleanup_free char *copy = str_dup(urls);
	char *save = NULL;

	for (char *w = strtok_r(copy, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
		cleanup_free char *host = pip_url_host(w);

		if (host)
			strings_add(&l->hosts, host);
	}
}

static void add_env(struct pip_lend *l, const char *name, const char *value)
{
	cleanup_free char *pair = str_printf("%s=%s", name, value);

	strings_add(&l->env, pair);
}

void pip_lend_parse(const char *config, struct pip_lend *ret)
{
	cleanup_free char *index = find(config, "index-url"),
			  *extra = find(config, "extra-index-url");
	cleanup_free char *trusted = find(config, "trusted-host"), *cert = find(config, "cert");
	cleanup_free char *timeout = find(config, "default-timeout");

	*ret = (struct pip_lend){0};
	if (index) {
		add_env(ret, "PIP_INDEX_URL", index);
		add_hosts(ret, index);
		ret->index = str_dup(index);
	}
	if (extra) {
		add_env(ret, "PIP_EXTRA_INDEX_URL", extra);
		add_hosts(ret, extra);
	}
	if (trusted)
		add_env(ret, "PIP_TRUSTED_HOST", trusted);
	if (timeout)
		add_env(ret, "PIP_DEFAULT_TIMEOUT", timeout);
	if (cert && access(cert, R_OK) == 0)
		ret->ca_path = steal_ptr(&cert);
}

/* The environment as `pip config list` would have shown it. */
static char *config_of_environment(void)
{
	static const char *const keys[][2] = {{"PIP_INDEX_URL", "index-url"},
		{"PIP_EXTRA_INDEX_URL", "extra-index-url"}, {"PIP_TRUSTED_HOST", "trusted-host"},
		{"PIP_CERT", "cert"}};
	char *out = str_dup("");

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const char *value = getenv(keys[i][0]);
		char *grown;

		if (!value || !*value || strpbrk(value, "'\\\n"))
			continue;
		grown = str_printf("%s:env:.%s='%s'\n", out, keys[i][1], value);
		free(out);
		out = grown;
	}
	return out;
}

void pip_lend_get(struct pip_lend *ret)
{
	static const char *const argv[] = {"python3", "-m", "pip", "config", "list", NULL};
	static const char *const bundles[] = {
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
	static const char fallback[] = "/etc/ssl/certs/ca-certificates.crt";
	struct proc_spec spec = {.argv = argv};
	cleanup_free char *config = NULL;

	if (proc_output(&spec, 60000, CONFIG_MAX, &config, NULL))
		config = config_of_environment();
	pip_lend_parse(config, ret);
	for (size_t i = 0; i < sizeof(bundles) / sizeof(*bundles) && !ret->ca_path; i++) {
		const char *path = getenv(bundles[i]);

		if (path && access(path, R_OK) == 0)
			ret->ca_path = str_dup(path);
	}
	if (!ret->ca_path && access(fallback, R_OK) == 0)
		ret->ca_path = str_dup(fallback);
}

void pip_lend_clear(struct pip_lend *l)
{
	strings_clear(&l->env);
	strings_clear(&l->hosts);
	free(l->index);
	free(l->ca_path);
	*l = (struct pip_lend){0};
}
