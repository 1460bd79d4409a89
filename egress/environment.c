/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's way out: its own proxies by the environment, and its resolver.
 *
 * A lookup is a thread, as getaddrinfo(3) blocks and nothing else asks all that the host is set
 * up to ask. The thread and the one who waits share the lookup; whoever lets go last frees it,
 * so that nobody has to wait for a slow name server. The number of threads is bounded for the
 * whole process, abandoned ones included.
 */
#include "egress/head.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/limits.h"

/* ---- the environment -------------------------------------------------------------------- */

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

/* ---- names ------------------------------------------------------------------------------ */

struct proxy_lookup {
	atomic_int refs;
	int event;
	char host[256], port[8];
	struct addrinfo *found;
	int rc; /* of getaddrinfo(3) */
};

static atomic_int lookups_running;

static void lookup_run(struct proxy_lookup *l, int flags)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | flags};

	l->rc = getaddrinfo(l->host, l->port, &hints, &l->found);
	if (l->rc)
		l->found = NULL;
	eventfd_write(l->event, 1);
}

static void lookup_unref(struct proxy_lookup *l)
{
	if (atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	if (l->found)
		freeaddrinfo(l->found);
	close(l->event);
	free(l);
}

static void *lookup_thread(void *arg)
{
	lookup_run(arg, 0);
	lookup_unref(arg);
	atomic_fetch_sub(&lookups_running, 1);
	return NULL;
}

/* A detached thread that takes no signals. */
static int lookup_spawn(struct proxy_lookup *l)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, lookup_thread, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

int proxy_lookup_start(const char *host, uint16_t port, struct proxy_lookup **ret)
{
	struct proxy_lookup *l = calloc(1, sizeof(*l));
	char name[256];
	bool literal = false;

	if (!l)
		abort();
	atomic_init(&l->refs, 1);
	l->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->event < 0) {
		free(l);
		return -EMFILE;
	}
	snprintf(l->host, sizeof(l->host), "%s", host);
	snprintf(l->port, sizeof(l->port), "%u", port);
	proxy_host_parse(host, strlen(host), name, &literal);
	if (literal) {
		lookup_run(l, AI_NUMERICHOST);
		*ret = l;
		return 0;
	}
	atomic_fetch_add(&l->refs, 1);
	if (atomic_fetch_add(&lookups_running, 1) >= LIMIT_PROXY_LOOKUPS || lookup_spawn(l) != 0) {
		atomic_fetch_sub(&lookups_running, 1);
		atomic_fetch_sub(&l->refs, 1);
		lookup_unref(l);
		return -EAGAIN;
	}
	*ret = l;
	return 0;
}

int proxy_lookup_fd(const struct proxy_lookup *l)
{
	return l->event;
}

int proxy_lookup_result(
	const struct proxy_lookup *l, const struct addrinfo **ret, const char **ret_why)
{
	eventfd_t count;

	/* pairs with the thread's write: what it found is visible after this */
	if (eventfd_read(l->event, &count) < 0) {
		*ret_why = "not done";
		return -1;
	}
	if (l->rc) {
		*ret_why = gai_strerror(l->rc);
		return -1;
	}
	*ret = l->found;
	return 0;
}

void proxy_lookup_free(struct proxy_lookup *l)
{
	if (l)
		lookup_unref(l);
}
