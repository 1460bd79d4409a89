/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes of envd, and what their requests have in common: as which user something runs, in
 * which directory, with which variables and for how long.
 *
 * A request is checked when its headers have come (is there such a route, is the content type
 * right), and again when its body is there: between the two the sandbox may have been paused or be
 * gone.
 */
#include "pool/envd/envd_private.h"
#include "pool/envd/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONNECT_STREAM "application/connect+json"

struct envd *envd_new(struct loop *l, const struct envd_ops *ops, void *user)
{
	struct envd *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->loop = l;
	w->ops = ops;
	w->user = user;
	w->refs = 1;
	TAILQ_INIT(&w->processes);
	return w;
}

void envd_hold(struct envd *w)
{
	w->refs++;
}

void envd_release(struct envd *w)
{
	if (--w->refs)
		return;
	free(w);
}

static bool gone_find(void *user, const char *id, struct envd_target *ret)
{
	(void)user;
	(void)id;
	(void)ret;
	return false;
}

static void gone_kick(void *user, const char *id)
{
	(void)user;
	(void)id;
}

void envd_free(struct envd *w)
{
	static const struct envd_ops gone = {.find = gone_find, .kick = gone_kick};

	if (!w)
		return;
	w->ops = &gone;
	envd_processes_unguard(w);
	envd_release(w);
}

/* ---- routes ------------------------------------------------------------------------------- */

/* It is well where its agent answers: that is what the SDKs ask here. */
static void health_done(void *user, const struct guest_reply *reply)
{
	struct envd_call *c = user;

	if (reply->error)
		envd_fail(c, ENVD_UNAVAILABLE, "the sandbox %s: %s", c->id, reply->text);
	else
		envd_reply(c, 204, NULL);
	envd_call_release(c);
}

static void health_late(struct envd_call *c)
{
	envd_fail(c, ENVD_UNAVAILABLE, "the agent of the sandbox %s has not answered for %d s",
		c->id, LIMIT_ENVD_HEALTH_MS / 1000);
}

static void health_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct guest_stream_ops ops = {.done = health_done};

	(void)t;
	(void)body;
	if (envd_request(c, PROTO_INFO, &(struct proto_out){0}, &ops, c))
		envd_call_limit(c, LIMIT_ENVD_HEALTH_MS, health_late);
}

static const struct envd_route routes_health[] = {
	{.method = "GET",
		.path = "/health",
		.style = ENVD_PLAIN,
		.size = sizeof(struct envd_call),
		.start = health_start},
	{0},
};

static const struct envd_route *const tables[] = {routes_health, envd_routes_process,
	envd_routes_exec, envd_routes_files, envd_routes_filesystem, envd_routes_watch,
	envd_routes_code, envd_routes_contexts};

/* The route of @path; NULL: none. *@ret_method: there is one, for another method. */
static const struct envd_route *route_find(
	const char *method, const char *path, const char **ret_rest, bool *ret_method)
{
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct envd_route *r = tables[i]; r->path; r++) {
			size_t n = strlen(r->path);
			bool below = r->path[n - 1] == '/';

			if (below ? strncmp(path, r->path, n) != 0 || !path[n]
				  : strcmp(path, r->path) != 0)
				continue;
			if (strcmp(method, r->method) != 0) {
				*ret_method = true;
				continue;
			}
			*ret_rest = path + n;
			return r;
		}
	}
	return NULL;
}

/* The media type of a Content-Type, without its parameters. */
static bool type_is(const char *header, const char *type)
{
	size_t n = strlen(type);

	return header && !strncasecmp(header, type, n) &&
		(!header[n] || header[n] == ';' || header[n] == ' ');
}

static bool type_check(struct envd_call *c)
{
	const char *type = http_header(c->rq, "Content-Type");
	const char *coded = http_header(c->rq, "Content-Encoding");

	if (c->route->body && coded && strcasecmp(coded, "identity") != 0) {
		envd_fail(c, ENVD_TYPE, "Content-Encoding: %.60s: send the body as it is", coded);
		return false;
	}

	if (c->style == ENVD_STREAM && !type_is(type, CONNECT_STREAM)) {
		envd_fail(c, ENVD_TYPE,
			"this method streams: send Content-Type: " CONNECT_STREAM
			" and an enveloped message (got %.100s)",
			type ? type : "none");
		return false;
	}
	if (c->style == ENVD_UNARY && !type_is(type, "application/json")) {
		envd_fail(c, ENVD_TYPE, "send Content-Type: application/json (got %.100s)",
			type ? type : "none");
		return false;
	}
	return true;
}

/* The sandbox, where it runs; else the error is answered. */
static bool call_target(struct envd_call *c, struct envd_target *t)
{
	bool there = envd_find(c->w, c->id, t);

	if (c->routed && !(there && t->guest)) {
		envd_asleep(c);
		return false;
	}
	if (!there) {
		envd_fail(c, ENVD_NOT_FOUND, "there is no sandbox %s", c->id);
		return false;
	}
	if (!t->guest && !strcmp(t->state, "running")) {
		/* until its keeper has said why, or has been given up */
		envd_fail(c, ENVD_UNAVAILABLE,
			"the sandbox %s is ending: its machine has ended, or its channel broke",
			c->id);
		return false;
	}
	if (!t->guest) {
		envd_fail(c,
			c->style == ENVD_PLAIN || c->style == ENVD_LINES ? ENVD_PRECONDITION
									 : ENVD_UNAVAILABLE,
			"the sandbox %s is %s; a paused one is resumed first (`parbake resume`, or "
			"POST /sandboxes/%s/connect)",
			c->id, t->state, c->id);
		return false;
	}
	return true;
}

static void call_body(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct envd_call *c = user;
	cleanup_json json_t *value = NULL;
	const char *wrong = NULL;
	struct envd_target t;
	struct err err;

	(void)rq;
	envd_call_hold(c);
	if (c->style == ENVD_STREAM)
		wrong = envd_envelope_single(body, len, &body, &len);
	if (wrong)
		envd_fail(c, ENVD_INVALID, "%s", wrong);
	else if (json_parse("the request's body", body, len, &value, &err) < 0)
		envd_fail(c, ENVD_INVALID, "%s", err.text);
	else if (!json_is_object(value))
		envd_fail(c, ENVD_INVALID, "the request's body is not a JSON object");
	else if (call_target(c, &t))
		c->route->start(c, &t, value);
	envd_call_release(c);
}

static void call_end(void *user, bool complete)
{
	struct envd_call *c = user;

	(void)complete;
	c->rq = NULL;
	c->answered = true;
	envd_call_quiet(c);
	if (c->route->gone)
		c->route->gone(c);
	envd_call_release(c);
}

bool envd_handle(
	struct envd *w, const char *id, struct http_request *rq, const char *path, bool routed)
{
	const char *rest = "";
	bool other_method = false;
	const struct envd_route *r = route_find(http_method(rq), path, &rest, &other_method);
	struct envd_target t;
	struct envd_call *c;

	if (!r && other_method) {
		char text[128];

		snprintf(text, sizeof(text), "%.16s is not a method of this path", http_method(rq));
		http_reply(rq, 405, json_pack("{s:i,s:s}", "code", 405, "message", text));
		return true;
	}
	if (!r)
		return false;
	c = calloc(1, r->size);
	if (!c)
		abort();
	c->w = w;
	envd_hold(w);
	c->route = r;
	c->style = r->style;
	c->rq = rq;
	c->refs = 1;
	c->routed = routed;
	c->rest = strdup(rest);
	snprintf(c->id, sizeof(c->id), "%s", id);
	http_on_end(rq, call_end, c);
	envd_call_hold(c);
	if (!type_check(c)) {
		envd_call_release(c);
		return true;
	}
	if (r->body)
		http_collect(rq, LIMIT_HTTP_BODY, call_body, NULL, c); /* call_end() lets it go */
	else if (call_target(c, &t))
		r->start(c, &t, NULL);
	envd_call_release(c);
	return true;
}

/* ---- what requests say -------------------------------------------------------------------- */

static bool user_good(const char *name)
{
	return strlen(name) <= LIMIT_USER && !strpbrk(name, "\n\r/");
}

int envd_user(struct envd_call *c, const char *standard, char ret[LIMIT_USER + 1])
{
	const char *header = http_header(c->rq, "Authorization");
	const char *query = http_query(c->rq, "username");
	uint8_t *bytes;
	size_t len;

	ret[0] = '\0';
	if (query) {
		if (!user_good(query)) {
			envd_fail(c, ENVD_INVALID, "username: not the name of a user");
			return -EINVAL;
		}
		snprintf(ret, LIMIT_USER + 1, "%s", query);
		return 0;
	}
	if (!header || strncasecmp(header, "Basic ", 6) != 0) {
		snprintf(ret, LIMIT_USER + 1, "%s", standard ? standard : "");
		return 0;
	}
	header += 6 + strspn(header + 6, " ");
	if (envd_base64_decode(header, strlen(header), &bytes, &len)) {
		const uint8_t *colon = memchr(bytes, ':', len);
		size_t n = colon ? (size_t)(colon - bytes) : len;
		bool good = n <= LIMIT_USER && !memchr(bytes, 0, n);

		if (good) {
			memcpy(ret, bytes, n);
			ret[n] = '\0';
			good = user_good(ret);
		}
		free(bytes);
		if (good)
			return 0;
	}
	envd_fail(c, ENVD_UNAUTHENTICATED,
		"Authorization: Basic names the user in the sandbox; this is no name of one");
	return -EINVAL;
}

/* Without empty and "." components, in place; ".." is the guest's business: a link may come before it. */
static void clean_path(char *path)
{
	char *to = path;

	for (const char *p = path; *p;) {
		size_t n = strcspn(p + 1, "/");

		if (n && (n > 1 || p[1] != '.')) {
			memmove(to, p, n + 1);
			to += n + 1;
		}
		p += n + 1;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

int envd_path(struct envd_call *c, const char *path, const char *user, char ret[PROTO_PATH_MAX + 1])
{
	char home[LIMIT_USER + 16];
	bool relative = path[0] != '/';
	int n;

	if (path[0] == '~' && (!path[1] || path[1] == '/'))
		path += path[1] ? 2 : 1;
	else if (path[0] == '~') {
		envd_fail(c, ENVD_INVALID, "%.300s: only ~ and ~/… are understood", path);
		return -EINVAL;
	}
	if (!*user || !strcmp(user, "root"))
		strcpy(home, "/root");
	else
		snprintf(home, sizeof(home), "/home/%s", user);
	n = relative ? snprintf(ret, PROTO_PATH_MAX + 1, "%s%s%s", home, *path ? "/" : "", path)
		     : snprintf(ret, PROTO_PATH_MAX + 1, "%s", path);
	if (n <= (int)PROTO_PATH_MAX) {
		clean_path(ret);
		return 0;
	}
	envd_fail(c, ENVD_INVALID, "the path is longer than %u bytes", PROTO_PATH_MAX);
	return -EINVAL;
}

int envd_string(struct envd_call *c, const json_t *body, const char *key, const char **ret)
{
	const json_t *value = json_object_get(body, key);

	*ret = "";
	if (!value || json_is_null(value))
		return 0;
	*ret = json_string_value(value);
	if (*ret && strlen(*ret) == json_string_length(value))
		return 0;
	*ret = "";
	envd_fail(c, ENVD_INVALID, "%s: must be a string, without a NUL in it", key);
	return -EINVAL;
}

/* Is @key=@value a variable? */
static bool variable_good(const char *key, const json_t *value)
{
	return *key && !strchr(key, '=') && json_is_string(value) &&
		strlen(json_string_value(value)) == json_string_length(value);
}

json_t *envd_env(struct envd_call *c, const struct envd_target *t, const json_t *own)
{
	json_t *env = json_object(), *value;
	const char *key;
	size_t i;

	if (!env)
		abort();
	json_array_foreach(t->template_env, i, value)
	{
		const char *text = json_string_value(value),
			   *equals = text ? strchr(text, '=') : NULL;

		if (equals && equals > text) {
			cleanup_free char *name = strndup(text, (size_t)(equals - text));

			json_object_set_new(env, name, json_string(equals + 1));
		}
	}
	json_object_foreach((json_t *)t->env, key, value)
	{
		if (variable_good(key, value))
			json_object_set(env, key, value);
	}
	if (own && !json_is_null(own) && !json_is_object(own)) {
		envd_fail(c, ENVD_INVALID, "the variables must be an object of strings");
		json_decref(env);
		return NULL;
	}
	json_object_foreach((json_t *)own, key, value)
	{
		if (!variable_good(key, value)) {
			envd_fail(c, ENVD_INVALID,
				"the variable %.100s: a name has no '=', a value is a string, and "
				"neither holds a NUL",
				key);
			json_decref(env);
			return NULL;
		}
		json_object_set(env, key, value);
	}
	if (json_object_size(env) > LIMIT_EXEC_ARGS) {
		envd_fail(c, ENVD_INVALID, "more than %d variables", LIMIT_EXEC_ARGS);
		json_decref(env);
		return NULL;
	}
	return env;
}

void envd_put_env(struct proto_out *o, uint16_t tag, const json_t *env)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)env, key, value)
	{
		cleanup_free char *text = NULL;

		if (asprintf(&text, "%s=%s", key, json_string_value(value)) < 0)
			abort();
		proto_put_str(o, tag, text);
	}
}

int envd_timeout_header(struct envd_call *c, uint64_t *ret)
{
	const char *text = http_header(c->rq, "Connect-Timeout-Ms");
	uint64_t ms = 0;

	*ret = UINT64_MAX;
	if (!text)
		return 0;
	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9' || p - text >= 18) {
			envd_fail(c, ENVD_INVALID, "Connect-Timeout-Ms: %.40s is no number of ms",
				text);
			return -EINVAL;
		}
		ms = ms * 10 + (uint64_t)(*p - '0');
	}
	*ret = ms;
	return 0;
}

uint64_t envd_timeout(const struct envd_target *t, uint64_t asked)
{
	uint64_t ms = asked;

	if (asked == UINT64_MAX)
		ms = t->exec_timeout_ms ? t->exec_timeout_ms : LIMIT_EXEC_TIMEOUT_MS;
	/* as long as may be: the lease bounds it, which may be renewed; the machine's end ends it */
	if (ms == 0 || ms > LIMIT_TIMEOUT_MS)
		ms = LIMIT_TIMEOUT_MS;
	return ms;
}
