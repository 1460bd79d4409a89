/* SPDX-License-Identifier: Apache-2.0 */
/* The host's own proxies, read from the environment. */
#include "egress/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "Basic …" of user:password as a URL has it (percent-encoded). Caller frees; NULL: broken. */
static char *basic_auth(const char *userinfo, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char *raw = calloc(1, len + 3);
	char *text = malloc(6 + (len / 3 + 1) * 4 + 1), *to;
	size_t n = 0;

	if (!raw || !text)
		abort();
	for (size_t i = 0; i < len; i++) {
		char hex[3] = {0};

		raw[n++] = (unsigned char)userinfo[i];
		if (userinfo[i] != '%')
			continue;
		if (len - i < 3 || !strchr("0123456789abcdefABCDEF", userinfo[i + 1]) ||
			!strchr("0123456789abcdefABCDEF", userinfo[i + 2])) {
			free(raw);
			free(text);
			return NULL;
		}
		memcpy(hex, userinfo + i + 1, 2);
		raw[n - 1] = (unsigned char)strtoul(hex, NULL, 16);
		i += 2;
	}
	to = stpcpy(text, "Basic ");
	raw[n] = raw[n + 1] = 0;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 8 | raw[i + 2];

		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*to++ = i + 2 < n ? digits[v & 63] : '=';
	}
	*to = '\0';
	free(raw);
	return text;
}

/* A value may hold a password: errors name the variable alone. */
static int upstream_parse(
	const char *name, const char *value, struct proxy_upstream *ret, struct err *err)
{
	const char *at = value, *end, *user;
	bool literal;

	if (!value || !*value)
		return 0;
	if (!strncasecmp(at, "http://", 7))
		at += 7;
	else if (strstr(at, "://"))
		return err_set(err, EINVAL, "%s: only http:// proxies can be gone through", name);
	end = at + strcspn(at, "/?#");
	user = memrchr(at, '@', (size_t)(end - at));
	ret->port = 80;
	if (user) {
		ret->auth = basic_auth(at, (size_t)(user - at));
		at = user + 1;
	}
	if ((user && !ret->auth) ||
		!proxy_authority_parse(at, (size_t)(end - at), ret->host, &literal, &ret->port)) {
		ret->port = 0;
		return err_set(err, EINVAL, "%s: not a proxy's URL: write http://host:port", name);
	}
	return 0;
}

int proxy_env_read(struct proxy_env *ret, struct err *err)
{
	const char *no_proxy = getenv("no_proxy") ?: getenv("NO_PROXY");
	const char *https = getenv("https_proxy") ?: getenv("HTTPS_PROXY");
	struct proxy_env env = {0};
	int rc = upstream_parse("https_proxy", https, &env.https, err);

	/* not HTTP_PROXY: in a CGI's environment that is a request's header */
	if (rc == 0)
		rc = upstream_parse("http_proxy", getenv("http_proxy"), &env.http, err);
	if (rc < 0) {
		proxy_env_free(&env);
		return rc;
	}
	env.no_proxy = strdup(no_proxy ?: "");
	if (!env.no_proxy)
		abort();
	*ret = env;
	return 0;
}

void proxy_env_free(struct proxy_env *env)
{
	free(env->https.auth);
	free(env->http.auth);
	free(env->no_proxy);
	*env = (struct proxy_env){0};
}

/* One word of no_proxy. */
static bool exempts(const char *word, size_t len, const char *host, uint16_t port)
{
	char name[256];
	size_t n = strlen(host), domain;
	uint16_t only = 0;
	bool literal;

	if (len == 1 && *word == '*')
		return true;
	if (len > 1 && word[0] == '*' && word[1] == '.') {
		word += 2;
		len -= 2;
	} else if (len && word[0] == '.') {
		word++;
		len--;
	}
	if (!proxy_host_parse(word, len, name, &literal) &&
		!proxy_authority_parse(word, len, name, &literal, &only))
		return false;
	if (only && only != port)
		return false;
	domain = strlen(name);
	return !strcmp(name, host) ||
		(!literal && n > domain + 1 && host[n - domain - 1] == '.' &&
			!strcmp(host + n - domain, name));
}

const struct proxy_upstream *proxy_env_for(
	const struct proxy_env *env, bool connect, const char *host, uint16_t port)
{
	const struct proxy_upstream *up = connect ? &env->https : &env->http;

	if (!up->port)
		return NULL;
	for (const char *p = env->no_proxy; *p;) {
		size_t len = strcspn(p, ", \t");

		if (len && exempts(p, len, host, port))
			return NULL;
		p += len;
		p += strspn(p, ", \t");
	}
	return up;
}
