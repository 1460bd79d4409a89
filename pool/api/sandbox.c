/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests about one sandbox: each is read, passed to the pool, and answered when the pool has
 * answered. A client that goes away meanwhile changes nothing: the request stays valid until then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/api/control_private.h"

struct control_call *control_call_new(
	struct api *a, const struct api_caller *who, struct http_request *rq, const char *id)
{
	struct control_call *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->api = a;
	c->rq = rq;
	snprintf(c->id, sizeof(c->id), "%s", id);
	snprintf(c->key, sizeof(c->key), "%s", who->key ? who->key->name : "");
	return c;
}

void control_call_free(void *call)
{
	struct control_call *c = call;

	json_decref(c->results);
	free(c);
}

void control_not_found(struct http_request *rq, const char *id)
{
	api_error(rq, 404, "sandbox \"%.64s\" doesn't exist or you don't have access to it", id);
}

static void answer_error(struct control_call *c, int error, const char *text)
{
	if (error == ENOENT)
		control_not_found(c->rq, c->id);
	else
		api_error(c->rq, api_status(error), "%s", text);
}

/* ---- 204 -------------------------------------------------------------------------------------- */

static void done_empty(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct control_call *c = user;

	(void)sb;
	if (error)
		answer_error(c, error, text);
	else
		http_reply(c->rq, 204, NULL);
	control_call_free(c);
}

/* The body's fields, or the request has been answered. */
static bool change_read(struct control_call *c, struct http_request *rq, const char *body,
	size_t len, const char *timeout, bool required, struct control_change *ret)
{
	struct err err;

	*ret = (struct control_change){.auto_pause = -1, .count = 1};
	if (control_change_parse(body, len, timeout, required, ret, &err) == 0)
		return true;
	api_error(rq, 400, "%s", err.text);
	control_call_free(c);
	return false;
}

/* Its lease ends now: what happens at its end happens. */
static void lease_over(struct control_call *c)
{
	struct pool_sandbox *sb = pool_find(c->api->pool, c->id);
	struct pool_sandbox_info f = {0};

	if (sb)
		pool_sandbox_info(sb, &f);
	if (sb && f.auto_pause)
		pool_pause(c->api->pool, c->id, done_empty, c);
	else
		pool_kill(c->api->pool, c->id, done_empty, c);
}

static void timeout_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (!change_read(c, rq, body, len, "timeout", true, &change))
		return;
	if (change.timeout_ms)
		pool_renew(c->api->pool, c->id, change.timeout_ms, false, done_empty, c);
	else
		lease_over(c);
}

static void refresh_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (!change_read(c, rq, body, len, "duration", false, &change))
		return;
	if (change.has_timeout && !change.timeout_ms) {
		http_reply(rq, 204, NULL);
		control_call_free(c);
		return;
	}
	pool_renew(c->api->pool, c->id, change.timeout_ms, true, done_empty, c);
}

static void pause_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (change_read(c, rq, body, len, NULL, false, &change))
		pool_pause(c->api->pool, c->id, done_empty, c);
}

/* ---- resume, connect ---------------------------------------------------------------------------- */

static void done_sandbox(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct control_call *c = user;
	struct pool_sandbox_info f;

	if (error || !sb) {
		answer_error(c, error ? error : ENOENT, text);
	} else {
		pool_sandbox_info(sb, &f);
		http_reply(c->rq, c->was_running ? 200 : 201, control_sandbox(c->api, &f));
	}
	control_call_free(c);
}

static void wake(struct control_call *c, const struct control_change *change, bool or_running)
{
	struct pool_sandbox *sb = pool_find(c->api->pool, c->id);
	struct pool_sandbox_info f;

	if (!sb) {
		control_not_found(c->rq, c->id);
		control_call_free(c);
		return;
	}
	pool_sandbox_info(sb, &f);
	c->was_running = f.state == POOL_RUNNING;
	if (c->was_running && !or_running) {
		api_error(c->rq, 409, "sandbox \"%s\" is already running", c->id);
		control_call_free(c);
		return;
	}
	pool_resume(c->api->pool, c->id, change->timeout_ms, change->auto_pause, done_sandbox, c);
}

static void resume_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (change_read(c, rq, body, len, "timeout", false, &change))
		wake(c, &change, false);
}

static void connect_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (change_read(c, rq, body, len, "timeout", true, &change))
		wake(c, &change, true);
}

static void connect_2_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (change_read(c, rq, body, len, "timeout", false, &change))
		wake(c, &change, true);
}

/* ---- fork ------------------------------------------------------------------------------------- */

static void forked(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct control_call *c = user;
	json_t *one;

	if (error || !sb) {
		int code = (int)api_status(error ? error : EIO);
		cleanup_free char *told = api_hide(text);

		one = json_pack("{s:{s:i, s:o}}", "error", "code", code, "message",
			json_lossy(told, strlen(told)));
		c->error = error ? error : EIO;
		snprintf(c->text, sizeof(c->text), "%s", text);
	} else {
		struct pool_sandbox_info f;

		pool_sandbox_info(sb, &f);
		one = json_pack("{s:o}", "sandbox", control_sandbox(c->api, &f));
		c->some = true;
	}
	json_array_append_new(c->results, one);
	if (json_array_size(c->results) < c->count)
		return;
	/* none at all: then it was not the one fork that failed */
	if (!c->some)
		answer_error(c, c->error, c->text);
	else
		http_reply(c->rq, 201, json_incref(c->results));
	control_call_free(c);
}

static void fork_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (!change_read(c, rq, body, len, "timeout", false, &change))
		return;
	c->count = (unsigned)change.count;
	c->results = json_array();
	pool_fork(c->api->pool, c->id, c->count, change.timeout_ms, forked, c);
}

/* ---- snapshots -------------------------------------------------------------------------------- */

static void snapshot_made(void *user, const char *snapshot_id, int error, const char *text)
{
	struct control_call *c = user;

	if (error)
		answer_error(c, error, text);
	else if (c->named)
		http_reply(c->rq, 201,
			json_pack("{s:s, s:[s]}", "snapshotID", snapshot_id, "names", snapshot_id));
	else
		http_reply(
			c->rq, 201, json_pack("{s:s, s:[]}", "snapshotID", snapshot_id, "names"));
	control_call_free(c);
}

static void snapshot_read(void *user, struct http_request *rq, const char *body, size_t len)
{
	struct control_call *c = user;
	struct control_change change;

	if (!change_read(c, rq, body, len, NULL, false, &change))
		return;
	c->named = change.name[0] != '\0';
	/* templates are everybody's: a key may add to them, and replaces none but its own */
	pool_snapshot(c->api->pool, c->id, c->named ? change.name : NULL,
		c->key[0] != '\0' || change.replace != 1, snapshot_made, c);
}

/* ---- routes ----------------------------------------------------------------------------------- */

static const struct {
	const char *path;
	void (*read)(void *user, struct http_request *rq, const char *body, size_t len);
} posts[] = {
	{"/timeout", timeout_read},
	{"/refreshes", refresh_read},
	{"/pause", pause_read},
	{"/resume", resume_read},
	{"/connect", connect_read},
	{"/v2/connect", connect_2_read},
	{"/fork", fork_read},
	{"/snapshots", snapshot_read},
};

bool control_one(struct api *a, const struct api_caller *who, struct http_request *rq,
	const char *id, const char *rest)
{
	const char *method = http_method(rq);
	bool post = !strcmp(method, "POST"), get = !strcmp(method, "GET");
	struct pool_sandbox *sb = pool_find(a->pool, id);
	struct pool_sandbox_info f;
	size_t i = 0;

	while (i < sizeof(posts) / sizeof(posts[0]) && (!post || strcmp(rest, posts[i].path)))
		i++;
	if (i == sizeof(posts) / sizeof(posts[0]) &&
		!(get &&
			(!*rest || !strcmp(rest, "/metrics") || !strcmp(rest, "/logs") ||
				!strcmp(rest, "/v2/logs"))) &&
		!(!*rest && !strcmp(method, "DELETE")))
		return false;
	if (sb)
		pool_sandbox_info(sb, &f);
	if (!sb || !control_owns(who, f.key))
		control_not_found(rq, id);
	else if (post)
		http_collect(rq, LIMIT_HTTP_BODY, posts[i].read, control_call_free,
			control_call_new(a, who, rq, id));
	else if (!get)
		pool_kill(a->pool, id, done_empty, control_call_new(a, who, rq, id));
	else if (!*rest)
		http_reply(rq, 200, control_detail(a, &f));
	else if (!strcmp(rest, "/metrics"))
		control_metrics(a, rq, id);
	else
		control_logs(a, rq, id, rest[1] == 'v');
	return true;
}
