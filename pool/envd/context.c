/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /contexts: more interpreters in a sandbox beside the one that was warm when it was made
 * ("default"), each with its own variables. The agent knows them by name and would make one for any
 * name it is given; so which there are is kept here, for as long as this daemon and the sandbox
 * live. (After a restart of the daemon, and in a fork, only "default" is known.)
 */
#include "pool/envd/context_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

struct envd_context {
	char sandbox[LIMIT_NAME_SIZE], id[40];
	char *cwd;
	struct envd_context *next;
};

struct context_call {
	struct envd_call call;
	struct guest_stream *s;
	struct envd_context *made; /* not in the list yet */
	char id[LIMIT_CONTEXT_NAME + 1];
	bool stop;
};

/* ---- the list ----------------------------------------------------------------------------- */

static void context_free(struct envd_context *x)
{
	free(x->cwd);
	free(x);
}

void envd_contexts_free(struct envd *w)
{
	while (w->contexts) {
		struct envd_context *x = w->contexts;

		w->contexts = x->next;
		context_free(x);
	}
}

/* Forget those of sandboxes that are no more. */
static void contexts_sweep(struct envd *w)
{
	for (struct envd_context **at = &w->contexts; *at;) {
		struct envd_context *x = *at;
		struct envd_target t;

		if (envd_find(w, x->sandbox, &t)) {
			at = &x->next;
			continue;
		}
		*at = x->next;
		context_free(x);
	}
}

static struct envd_context **context_at(struct envd *w, const char *sandbox, const char *id)
{
	struct envd_context **at = &w->contexts;

	while (*at && (strcmp((*at)->sandbox, sandbox) != 0 || strcmp((*at)->id, id) != 0))
		at = &(*at)->next;
	return at;
}

static unsigned contexts_count(const struct envd *w, const char *sandbox)
{
	unsigned n = 0;

	for (const struct envd_context *x = w->contexts; x; x = x->next)
		n += !strcmp(x->sandbox, sandbox);
	return n;
}

bool envd_language(struct envd_call *c, const char *language)
{
	if (!*language || !strcasecmp(language, "python") || !strcasecmp(language, "python3"))
		return true;
	envd_fail(c, ENVD_INVALID, "language: %.60s does not run here; python does", language);
	return false;
}

bool envd_context_known(struct envd_call *c, const char *id)
{
	if (!strcmp(id, "default") || *context_at(c->w, c->id, id))
		return true;
	envd_fail(c, ENVD_NOT_FOUND, "context %.100s not found; POST /contexts makes one", id);
	return false;
}

/* ---- asking the agent --------------------------------------------------------------------- */

static json_t *context_json(const char *id, const char *cwd)
{
	return json_pack("{s:s,s:s,s:o}", "id", id, "language", "python", "cwd",
		json_lossy(cwd, strlen(cwd)));
}

static void context_done(void *user, const struct guest_reply *reply)
{
	struct context_call *x = user;
	struct envd_call *c = &x->call;

	x->s = NULL;
	if (reply->error) {
		envd_fail_errno(c, reply->error, reply->text);
	} else if (x->made) {
		/* also where the client has gone: the interpreter is there */
		x->made->next = c->w->contexts;
		c->w->contexts = x->made;
		envd_reply(c, 200, context_json(x->made->id, x->made->cwd));
		x->made = NULL;
	} else {
		struct envd_context **at = context_at(c->w, c->id, x->id), *gone = *at;

		if (gone && x->stop) {
			*at = gone->next;
			context_free(gone);
		}
		envd_reply(c, 200, NULL);
	}
	envd_call_release(c);
}

static void context_late(struct envd_call *c)
{
	struct context_call *x = (struct context_call *)c;

	if (x->s)
		guest_stream_cancel(x->s);
	envd_kick(c->w, c->id);
	envd_fail(c, ENVD_DEADLINE, "the interpreter did not answer in %d s",
		LIMIT_ENVD_CALL_MS / 1000);
}

static void context_ask(struct context_call *x, const char *action, const char *id, const char *cwd,
	const json_t *env)
{
	static const struct guest_stream_ops ops = {.done = context_done};
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};

	if (!buf)
		abort();
	proto_put_str(&o, PROTO_T_CONTEXT, id);
	proto_put_str(&o, PROTO_T_ACTION, action);
	if (cwd && *cwd)
		proto_put_str(&o, PROTO_T_CWD, cwd);
	if (env)
		envd_put_env(&o, env);
	x->s = envd_request(&x->call, PROTO_CONTEXT, &o, &ops, x);
	if (x->s)
		envd_call_limit(&x->call, LIMIT_ENVD_CALL_MS, context_late);
}

/* ---- the requests ------------------------------------------------------------------------- */

static void make_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct context_call *x = (struct context_call *)c;
	char path[PROTO_PATH_MAX + 1] = "", user[LIMIT_USER + 1];
	const char *language, *cwd;
	cleanup_json json_t *env = NULL;
	uint32_t r[4];

	contexts_sweep(c->w);
	if (envd_string(c, body, "language", &language) < 0 || !envd_language(c, language) ||
		envd_string(c, body, "cwd", &cwd) < 0 || envd_user(c, user) < 0 ||
		(*cwd && envd_path(c, cwd, user, path) < 0))
		return;
	if (contexts_count(c->w, c->id) >= LIMIT_ENVD_CONTEXTS) {
		envd_fail(c, ENVD_EXHAUSTED, "%d contexts are there; remove one first",
			LIMIT_ENVD_CONTEXTS);
		return;
	}
	env = envd_env(c, t, NULL);
	if (!env)
		return;
	x->made = calloc(1, sizeof(*x->made));
	if (!x->made || getrandom(r, sizeof(r), 0) != sizeof(r))
		abort();
	snprintf(x->made->sandbox, sizeof(x->made->sandbox), "%s", c->id);
	snprintf(x->made->id, sizeof(x->made->id), "%08x%08x%08x%08x", r[0], r[1], r[2], r[3]);
	x->made->cwd = strdup(path);
	context_ask(x, "start", x->made->id, path, env);
}

static void list_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	json_t *list = json_array();

	(void)t;
	(void)body;
	json_array_append_new(list, context_json("default", ""));
	for (const struct envd_context *x = c->w->contexts; x; x = x->next) {
		if (!strcmp(x->sandbox, c->id))
			json_array_append_new(list, context_json(x->id, x->cwd));
	}
	envd_reply(c, 200, list);
}

/* The context of the path, in x->id; @suffix is taken off its end. */
static bool context_named(struct context_call *x, const char *suffix)
{
	struct envd_call *c = &x->call;
	size_t n = strlen(c->rest), m = strlen(suffix);

	if (n <= m || strcmp(c->rest + n - m, suffix) != 0 || n - m > LIMIT_CONTEXT_NAME ||
		memchr(c->rest, '/', n - m)) {
		envd_fail(c, ENVD_NOT_FOUND,
			"no such path; there are DELETE /contexts/ID and POST "
			"/contexts/ID/restart");
		return false;
	}
	memcpy(x->id, c->rest, n - m);
	x->id[n - m] = '\0';
	return envd_context_known(c, x->id);
}

static void remove_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct context_call *x = (struct context_call *)c;

	(void)t;
	(void)body;
	if (!context_named(x, ""))
		return;
	x->stop = true;
	context_ask(x, "stop", x->id, NULL, NULL);
}

static void restart_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct context_call *x = (struct context_call *)c;

	(void)t;
	(void)body;
	if (context_named(x, "/restart"))
		context_ask(x, "restart", x->id, NULL, NULL);
}

static void context_destroy(struct envd_call *c)
{
	struct context_call *x = (struct context_call *)c;

	if (x->made)
		context_free(x->made);
}

const struct envd_route envd_routes_contexts[] = {
	{.method = "POST",
		.path = "/contexts",
		.style = ENVD_PLAIN,
		.body = true,
		.size = sizeof(struct context_call),
		.start = make_start,
		.destroy = context_destroy},
	{.method = "GET",
		.path = "/contexts",
		.style = ENVD_PLAIN,
		.size = sizeof(struct envd_call),
		.start = list_start},
	{.method = "POST",
		.path = "/contexts/",
		.style = ENVD_PLAIN,
		.size = sizeof(struct context_call),
		.start = restart_start,
		.destroy = context_destroy},
	{.method = "DELETE",
		.path = "/contexts/",
		.style = ENVD_PLAIN,
		.size = sizeof(struct context_call),
		.start = remove_start,
		.destroy = context_destroy},
	{0},
};
