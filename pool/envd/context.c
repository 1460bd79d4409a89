/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /contexts: more interpreters in a sandbox beside the one that was warm when it was made
 * ("default"), each with its own variables and in one of the template's languages. The agent is
 * asked each time which contexts there are: they live in the machine, so a fork has its own, and
 * they outlive a pause and this daemon.
 */
#include "pool/envd/context_private.h"
#include "pool/envd/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct context_call {
	struct envd_call call;
	struct guest_stream *s;
	json_t *(*answer)(const struct guest_reply *reply);
	char id[LIMIT_CONTEXT_NAME + 1];
};

/* ---- what the agent says ------------------------------------------------------------------ */

static void set_text(json_t *object, const char *key, const struct proto_field *f)
{
	if (object)
		json_object_set_new(object, key, json_lossy(f->data, f->len));
}

/* The contexts of a reply, as an array. NULL: it is broken. */
static json_t *reply_contexts(const struct guest_reply *reply)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	json_t *list = json_array(), *at = NULL;
	struct proto_field f;
	int rc;

	if (!list)
		abort();
	while ((rc = proto_next(&in, &f)) == 1) {
		if (f.tag == PROTO_T_CONTEXT) {
			at = json_pack("{s:s,s:s}", "language", "python", "cwd", "");
			set_text(at, "id", &f);
			json_array_append_new(list, at);
		} else if (f.tag == PROTO_T_LANGUAGE) {
			set_text(at, "language", &f);
		} else if (f.tag == PROTO_T_CWD) {
			set_text(at, "cwd", &f);
		}
	}
	if (rc == 0)
		return list;
	json_decref(list);
	return NULL;
}

static json_t *answer_one(const struct guest_reply *reply)
{
	cleanup_json json_t *list = reply_contexts(reply);

	return json_incref(json_array_get(list, 0));
}

/* "default" is always there for clients: it starts with its first code. */
static json_t *answer_list(const struct guest_reply *reply)
{
	json_t *list = reply_contexts(reply), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		if (!strcmp(json_string_value(json_object_get(one, "id")), CONTEXT_DEFAULT))
			return list;
	}
	if (list)
		json_array_insert_new(list, 0,
			json_pack("{s:s,s:s,s:s}", "id", CONTEXT_DEFAULT, "language", "python",
				"cwd", ""));
	return list;
}

static void context_done(void *user, const struct guest_reply *reply)
{
	struct context_call *x = user;
	struct envd_call *c = &x->call;
	json_t *answer = NULL;

	x->s = NULL;
	if (reply->error == ENOENT)
		envd_fail(c, ENVD_NOT_FOUND, "context %.100s not found; POST /contexts makes one",
			x->id);
	else if (reply->error)
		envd_fail_errno(c, reply->error, reply->text);
	else if (x->answer && !(answer = x->answer(reply)))
		envd_fail(c, ENVD_INTERNAL, "the agent's answer is broken");
	else
		envd_reply(c, 200, answer);
	envd_call_release(c);
}

static void context_late(struct envd_call *c)
{
	struct context_call *x = (struct context_call *)c;

	if (x->s)
		guest_stream_cancel(x->s);
	envd_kick(c->w, c->id);
	envd_fail(c, ENVD_DEADLINE, "the interpreter did not answer in %d s",
		LIMIT_ENVD_CONTEXT_MS / 1000);
}

static void context_ask(struct context_call *x, const char *action, struct proto_out *o)
{
	static const struct guest_stream_ops ops = {.done = context_done};

	proto_put_str(o, PROTO_T_ACTION, action);
	if (*x->id)
		proto_put_str(o, PROTO_T_CONTEXT, x->id);
	x->s = envd_request(&x->call, PROTO_CONTEXT, o, &ops, x);
	if (x->s)
		envd_call_limit(&x->call, LIMIT_ENVD_CONTEXT_MS, context_late);
}

/* ---- the requests ------------------------------------------------------------------------- */

static void make_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct context_call *x = (struct context_call *)c;
	char path[PROTO_PATH_MAX + 1] = "", user[LIMIT_USER + 1];
	const char *language, *cwd;
	cleanup_json json_t *env = NULL;
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};
	uint32_t r[4];

	if (!buf || getrandom(r, sizeof(r), 0) != sizeof(r))
		abort();
	if (envd_string(c, body, "language", &language) < 0 ||
		envd_string(c, body, "cwd", &cwd) < 0 || envd_user(c, t->user, user) < 0 ||
		((*cwd || *user) && envd_path(c, cwd, user, path) < 0))
		return;
	if (strlen(language) > LIMIT_LANGUAGE) {
		envd_fail(c, ENVD_INVALID, "language: none has so long a name");
		return;
	}
	env = envd_env(c, t, NULL);
	if (!env)
		return;
	snprintf(x->id, sizeof(x->id), "%08x%08x%08x%08x", r[0], r[1], r[2], r[3]);
	if (*path)
		proto_put_str(&o, PROTO_T_CWD, path);
	if (*language)
		proto_put_str(&o, PROTO_T_LANGUAGE, language);
	envd_put_env(&o, PROTO_T_ENV, env);
	x->answer = answer_one;
	context_ask(x, "start", &o);
}

static void list_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct context_call *x = (struct context_call *)c;
	uint8_t buf[64];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	(void)t;
	(void)body;
	x->answer = answer_list;
	context_ask(x, "list", &o);
}

/* @action on the context of the path, which must be there; @suffix is taken off the path's end. */
static void named_start(struct context_call *x, const char *suffix, const char *action)
{
	struct envd_call *c = &x->call;
	size_t n = strlen(c->rest), m = strlen(suffix);
	uint8_t buf[256];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	if (n <= m || strcmp(c->rest + n - m, suffix) != 0 || n - m > LIMIT_CONTEXT_NAME ||
		memchr(c->rest, '/', n - m)) {
		envd_fail(c, ENVD_NOT_FOUND,
			"no such path; there are DELETE /contexts/ID and POST "
			"/contexts/ID/restart");
		return;
	}
	memcpy(x->id, c->rest, n - m);
	x->id[n - m] = '\0';
	proto_put_bool(&o, PROTO_T_EXISTING, strcmp(x->id, CONTEXT_DEFAULT) != 0);
	context_ask(x, action, &o);
}

static void remove_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	(void)body;
	named_start((struct context_call *)c, "", "stop");
}

static void restart_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	(void)body;
	named_start((struct context_call *)c, "/restart", "restart");
}

const struct envd_route envd_routes_contexts[] = {
	{.method = "POST",
		.path = "/contexts",
		.style = ENVD_PLAIN,
		.body = true,
		.size = sizeof(struct context_call),
		.start = make_start},
	{.method = "GET",
		.path = "/contexts",
		.style = ENVD_PLAIN,
		.size = sizeof(struct context_call),
		.start = list_start},
	{.method = "POST",
		.path = "/contexts/",
		.style = ENVD_PLAIN,
		.size = sizeof(struct context_call),
		.start = restart_start},
	{.method = "DELETE",
		.path = "/contexts/",
		.style = ENVD_PLAIN,
		.size = sizeof(struct context_call),
		.start = remove_start},
	{0},
};
