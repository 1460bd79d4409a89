/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP API's entry: who sends a request, and which part of the API it is for.
 *
 * A key comes as X-API-Key or as Authorization: Bearer. Over TCP there must be one. At the unix
 * socket the kernel says who connected: root and the daemon's own user may do everything. Others
 * need a key where keys are configured; where none are, whoever may open the socket may use it. A
 * wrong key is refused wherever it comes from.
 *
 * A request for what runs in a sandbox names the sandbox by its host name, by a header, or by a
 * path below /sandboxes/ID/, where the control plane's routes come first. A key sees its own
 * sandboxes alone. The inside of a sandbox is also open to whoever has its token, which is in the
 * answer to its create: SDKs send the token there, and no key.
 */
#include "pool/api/api.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <strings.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"
#include "pool/api/limits.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/str.h"
#include "pool/api/api_private.h"
#include "pool/envd/envd.h"
#include "pool/relay/relay.h"

#define RETRY_AFTER_S "1" /* what a refusal that will pass tells clients to wait */
#define PORT_ENVD 49983 /* of the SDKs' host names: commands and files … */
#define PORT_CODE 49999 /* … and code; both are the agent */

/* Where things lie on the host is its operator's to know, and stands in the log: clients are told "…". One API a process. */
static char *hidden[4];

static void hide(size_t i, const char *path)
{
	free(hidden[i]);
	hidden[i] = path && path[0] == '/' && path[1] ? str_dup(path) : NULL;
}

static void hide_places(const struct config *c)
{
	const char *place;

	hide(0, c->state);
	hide(1, c->store || paths_get(PATHS_STORE, &place, NULL) < 0 ? c->store : place);
	hide(2, paths_get(PATHS_CACHE, &place, NULL) < 0 ? NULL : place);
	hide(3, paths_get(PATHS_RUN, &place, NULL) < 0 ? NULL : place);
}

int api_new(struct loop *l, struct pool *p, const struct config *config, struct metrics *m,
	struct api **ret, struct err *err)
{
	struct api *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return err_set(err, ENOMEM, "no memory for the API");
	*a = (struct api){.loop = l, .pool = p, .config = config, .metrics = m};
	a->started_ns = clock_now_ns();
	r = api_token_open(a, err);
	if (r < 0) {
		free(a);
		return r;
	}
	api_monitoring_new(a);
	hide_places(config);
	*ret = a;
	return 0;
}

void api_configure(struct api *a, const struct config *config)
{
	a->config = config;
	hide_places(config);
}

void api_drain(struct api *a)
{
	a->draining = true;
}

void api_pool_gone(struct api *a)
{
	a->pool = NULL;
	api_monitoring_drop(a);
}

void api_free(struct api *a)
{
	if (!a)
		return;
	envd_free(a->envd);
	relays_free(a->relays);
	api_monitoring_free(a);
	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		hide(i, NULL);
	free(a);
}

/* ---- errors --------------------------------------------------------------------------------- */

char *api_hide(const char *text)
{
	char *out = str_dup(text);

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
		char *at = out;

		while (hidden[i] && (at = strstr(at, hidden[i]))) {
			cleanup_free char *old = out;

			out = str_printf("%.*s…%s", (int)(at - old), old, at + strlen(hidden[i]));
			at = out + (at - old) + strlen("…");
		}
	}
	return out;
}

void api_error(struct http_request *rq, unsigned status, const char *fmt, ...)
{
	char path[LOG_QUOTED], said[LOG_QUOTED];
	cleanup_free char *text = NULL, *told = NULL;
	json_t *message;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		abort();
	va_end(args);
	if (status >= 500)
		log_warn("%s %s: %u %s", http_method(rq), log_quote(http_path(rq), path), status,
			log_quote(text, said));
	else
		log_debug("%s %s: %u %s", http_method(rq), log_quote(http_path(rq), path), status,
			log_quote(text, said));
	told = api_hide(text);
	message = json_lossy(told, strlen(told));
	if (status == 429 || status == 503)
		http_add_header(rq, "Retry-After", RETRY_AFTER_S);
	http_reply(rq, status, json_pack("{s:i, s:o}", "code", (int)status, "message", message));
}

unsigned api_status(int error)
{
	static const struct {
		int error;
		unsigned status;
	} known[] = {
		{0, 200},
		{EINVAL, 400},
		{E2BIG, 400},
		{ENAMETOOLONG, 400},
		{EPERM, 403},
		{EACCES, 403},
		{ENOENT, 404},
		{EEXIST, 409},
		{EBUSY, 409},
		{EMSGSIZE, 413},
		{EFBIG, 413},
		{EDQUOT, 429},
		{EAGAIN, 429},
		{ENOTSUP, 501},
		{ENOSYS, 501},
		{ENOMEM, 503},
		{ESHUTDOWN, 503},
		{ETIMEDOUT, 504},
		{ENOSPC, 507},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].error == error)
			return known[i].status;
	return 500;
}

/* ---- who asks ------------------------------------------------------------------------------- */

/* The key as it was sent; NULL: none. */
static const char *sent_key(const struct http_request *rq)
{
	const char *text = http_header(rq, "X-API-Key");

	if (text)
		return text;
	text = http_header(rq, "Authorization");
	if (!text || strncasecmp(text, "Bearer ", 7))
		return NULL;
	text += 7;
	return text + strspn(text, " ");
}

/* Its connection is @key's from now on. False: that has its share, and so it has been answered. */
static bool admit(struct http_request *rq, const char *key)
{
	if (http_admit(rq, key))
		return true;
	api_error(
		rq, 429, "too many connections of this key are open: use one for several requests");
	return false;
}

/* false: refused, and answered. */
static bool authenticate(struct api *a, struct http_request *rq, struct api_caller *ret)
{
	const char *text = sent_key(rq);
	bool tcp = http_from_tcp(rq);
	uid_t uid = http_peer_uid(rq);

	*ret = (struct api_caller){0};
	if (text && strlen(text) <= LIMIT_POOL_KEY_TEXT)
		ret->key = config_find_key(a->config, text);
	if (ret->key || (!tcp && !a->config->n_keys) ||
		(!text && !tcp && (uid == 0 || uid == geteuid())))
		return admit(rq, ret->key ? ret->key->name : NULL);
	http_add_header(rq, "WWW-Authenticate", "Bearer");
	if (text)
		api_error(rq, 401, "that key is not known here");
	else
		api_error(rq, 401,
			"a key is needed: send it as X-API-Key, or as Authorization: Bearer");
	return false;
}

/* ---- what of a sandbox ---------------------------------------------------------------------- */

/* An id, as the pool makes them, of @len bytes at @text, into @ret. */
static bool take_id(const char *text, size_t len, char ret[static LIMIT_NAME_SIZE])
{
	if (!len || len >= LIMIT_NAME_SIZE)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!islower((unsigned char)text[i]) && !isdigit((unsigned char)text[i]))
			return false;
	}
	memcpy(ret, text, len);
	ret[len] = '\0';
	return true;
}

/* PORT-ID.DOMAIN[:PORT] */
static bool host_names(
	const struct api *a, const char *host, char ret[static LIMIT_NAME_SIZE], unsigned *ret_port)
{
	size_t len = strcspn(host, ":"), domain = strlen(a->config->domain);
	const char *dash = memchr(host, '-', len);
	char *end;

	if (!dash || len < domain + 2 || host[len - domain - 1] != '.' ||
		strncasecmp(host + len - domain, a->config->domain, domain) ||
		!isdigit((unsigned char)*host) || dash - host > 5)
		return false;
	*ret_port = (unsigned)strtoul(host, &end, 10);
	return end == dash && take_id(dash + 1, len - domain - 1 - (size_t)(dash + 1 - host), ret);
}

/* Which sandbox's inside is meant, by host name or header? */
static bool names_sandbox(const struct api *a, const struct http_request *rq,
	char ret[static LIMIT_NAME_SIZE], unsigned *ret_port)
{
	const char *id = http_header(rq, "E2b-Sandbox-Id"),
		   *port = http_header(rq, "E2b-Sandbox-Port");
	const char *host = http_header(rq, "Host");

	*ret_port = PORT_ENVD;
	if (!id)
		id = http_header(rq, "X-Sandbox-Id");
	if (!id)
		return host && host_names(a, host, ret, ret_port);
	if (port)
		*ret_port = (unsigned)strtoul(port, NULL, 10);
	if (!take_id(id, strlen(id), ret))
		strcpy(ret, "?"); /* the pool has none of that name */
	return true;
}

/* The sandbox @id, where @who may see it; else NULL. */
static struct pool_sandbox *visible(struct api *a, const struct api_caller *who, const char *id)
{
	struct pool_sandbox *sb = pool_find(a->pool, id);
	struct pool_sandbox_info f;

	if (sb)
		pool_sandbox_info(sb, &f);
	return sb && (!who->key || !strcmp(f.key, who->key->name)) ? sb : NULL;
}

static bool is_agent(unsigned port)
{
	return port == PORT_ENVD || port == PORT_CODE;
}

void api_inside(struct api *a, struct pool_sandbox *sb, struct http_request *rq,
	const struct api_inside *to)
{
	if (!is_agent(to->port))
		api_port(a, sb, rq, to->port);
	else if (!api_envd(a, sb, rq, to))
		api_error(rq, 404, "there is no %s %.200s in a sandbox", http_method(rq), to->path);
}

/* Whose sandbox it is; NULL: nobody's, or there is none. */
static const char *owner(struct api *a, const char *id)
{
	struct pool_sandbox *sb = pool_find(a->pool, id);
	struct pool_sandbox_info f = {0};

	if (sb)
		pool_sandbox_info(sb, &f);
	return f.key;
}

static void inside(struct api *a, const struct api_caller *who, struct http_request *rq,
	const struct api_inside *to)
{
	struct pool_sandbox *sb = visible(a, who, to->id);
	struct pool_sandbox_info f;

	if (!sb) {
		if (to->routed)
			api_asleep_answer(rq, to->id);
		else
			api_error(rq, 404, "there is no sandbox %s", to->id);
		return;
	}
	pool_sandbox_info(sb, &f);
	if (!api_wake(a, &f, rq, to))
		api_inside(a, sb, rq, to);
}

/* /sandboxes/ID/REST, also below /v1: REST with its slash, the id into @ret; NULL: no such. */
static const char *below_sandbox(const char *path, char ret[static LIMIT_NAME_SIZE])
{
	static const char above[] = "/sandboxes/";
	const char *id, *slash;

	if (!strncmp(path, "/v1/", 4))
		path += 3;
	if (strncmp(path, above, sizeof(above) - 1))
		return NULL;
	id = path + sizeof(above) - 1;
	slash = strchr(id, '/');
	return slash && take_id(id, (size_t)(slash - id), ret) ? slash : NULL;
}

/* ---- the daemon's own ----------------------------------------------------------------------- */

static void healthz(struct api *a, struct http_request *rq)
{
	(void)a;
	http_reply(rq, 200, json_pack("{s:s}", "status", "ok"));
}

/* Asked every few seconds: no line of the log each time. */
static void not_ready(struct http_request *rq, const char *why)
{
	http_reply(rq, 503, json_pack("{s:i, s:s}", "code", 503, "message", why));
}

/* Creates are answered, as fast as configured: what a load balancer asks. */
static void readyz(struct api *a, struct http_request *rq)
{
	struct err why = {0};

	if (a->draining)
		not_ready(rq, "the daemon is ending");
	else if (!pool_settled(a->pool, &why))
		not_ready(rq, "standbys and spares are still being made");
	else if (why.text[0])
		http_reply(rq, 200,
			json_pack("{s:s, s:o}", "status", "degraded", "why",
				json_lossy(why.text, strlen(why.text))));
	else
		http_reply(rq, 200, json_pack("{s:s}", "status", "ready"));
}

static const struct own_route {
	const char *path;
	void (*get)(struct api *a, struct http_request *rq);
	bool open; /* needs no key: says nothing of anybody */
} own_routes[] = {
	{"/healthz", healthz, true},
	{"/health", healthz, true}, /* by E2B's name */
	{"/readyz", readyz, true},
	{"/metrics", api_metrics, false},
	{"/v1/pool", api_pool, false},
};

static const struct own_route *find_own(const char *path)
{
	for (size_t i = 0; i < sizeof(own_routes) / sizeof(*own_routes); i++)
		if (!strcmp(own_routes[i].path, path))
			return &own_routes[i];
	return NULL;
}

static void own(struct api *a, struct http_request *rq, const struct own_route *r)
{
	const char *method = http_method(rq);

	if (!strcmp(method, "GET") || !strcmp(method, "HEAD")) {
		r->get(a, rq);
		return;
	}
	http_add_header(rq, "Allow", "GET, HEAD");
	api_error(rq, 405, "%s can only be read", r->path);
}

/* Is it a signed address of a file, from someone without a key? Then it is dealt with. */
static bool signed_file(struct api *a, struct http_request *rq, const struct api_inside *routed)
{
	struct api_inside to = *routed;
	const char *method = http_method(rq), *why;
	struct api_signature s = {.path = http_query(rq, "path"),
		.username = http_query(rq, "username"),
		.signature = http_query(rq, "signature"),
		.expiration = http_query(rq, "signature_expiration"),
		.write = !strcmp(method, "POST")};

	if (!s.signature || http_header(rq, "X-API-Key") || http_header(rq, "X-Access-Token"))
		return false;
	if (!to.routed)
		to.path = below_sandbox(http_path(rq), to.id);
	if (!to.path || strcmp(to.path, "/files") != 0 || (!s.write && strcmp(method, "GET") != 0))
		return false;
	s.id = to.id;
	why = api_signature_wrong(a, &s, (int64_t)time(NULL));
	if (why)
		api_error(rq, 401, "%s", why);
	else if (admit(rq, owner(a, to.id)))
		inside(a, &(struct api_caller){0}, rq, &to);
	return true;
}

void api_handle(void *user, struct http_request *rq)
{
	struct api *a = user;
	const char *path = http_path(rq), *rest;
	struct api_inside to = {.path = path, .port = PORT_ENVD};
	char shown[LOG_QUOTED];
	const struct own_route *r;
	struct api_caller who;

	log_debug("%s %s", http_method(rq), log_quote(path, shown));
	to.routed = names_sandbox(a, rq, to.id, &to.port);
	r = to.routed ? NULL : find_own(path);
	if (r && r->open) {
		own(a, rq, r);
		return;
	}
	if (to.routed && !is_agent(to.port)) {
		if (api_port_open(a, rq, &to))
			inside(a, &(struct api_caller){0}, rq, &to);
		return;
	}
	if (to.routed &&
		(api_token_is(a, to.id, http_header(rq, "X-Access-Token")) ||
			api_token_is(a, to.id, http_header(rq, "E2b-Traffic-Access-Token")))) {
		if (admit(rq, owner(a, to.id)))
			inside(a, &(struct api_caller){0}, rq, &to);
		return;
	}
	if (signed_file(a, rq, &to) || !authenticate(a, rq, &who))
		return;
	if (to.routed) {
		inside(a, &who, rq, &to);
	} else if (r) {
		own(a, rq, r);
	} else if (!api_control(a, &who, rq)) {
		rest = below_sandbox(path, to.id);
		to.path = rest;
		if (rest)
			inside(a, &who, rq, &to);
		else
			api_error(rq, 404, "there is no %s %.200s", http_method(rq), path);
	}
}
