/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /execute: code in a sandbox's interpreter, answered as E2B's code interpreter answers it: a
 * line of JSON for each piece of output, for each result, for an error; the last is
 * "end_of_execution". Where the client goes away, its code is interrupted.
 *
 * Variables are fields of the request to the agent: the sandbox's variables (an interpreter that
 * was warm before its sandbox was made does not know them), and those of this call alone.
 *
 * Output may be cut in the middle of a character: the bytes of an incomplete character wait for the
 * next piece.
 */
#include "common/buffer.h"
#include "common/rfc3339.h"
#include "pool/envd/envd_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/utf8.h"
#include "pool/envd/context_private.h"
#include "pool/envd/limits.h"

#define KEEPALIVE_MS 5000

struct code_call {
	struct envd_call call;
	struct guest_stream *s; /* NULL: it is done */
	char context[LIMIT_CONTEXT_NAME + 1];
	struct buffer rest[PROTO_CHANNELS]; /* of a character; of a result's line */
	bool skip; /* the line at hand is too long */
	bool stalled, cut[PROTO_CHANNELS];
	uint64_t limit, taken[PROTO_CHANNELS], timeout_ms, moved, moved_then;
};

/* ---- output ------------------------------------------------------------------------------- */

static void code_line(struct envd_call *c, json_t *line)
{
	envd_begin(c, 200, "application/json");
	envd_line(c, line);
}

static void code_text(
	struct code_call *k, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	char when[RFC3339_SIZE];

	if (!len)
		return;
	rfc3339_text(clock_realtime_ns(), 9, when);
	code_line(&k->call,
		json_pack("{s:s,s:o,s:s}", "type", channel == PROTO_OUT ? "stdout" : "stderr",
			"text", json_lossy(bytes, len), "timestamp", when));
}

/* A piece of output: what is whole goes out, with what had to wait. */
static void code_output(
	struct code_call *k, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct buffer *rest = &k->rest[channel];
	uint64_t left = k->limit - k->taken[channel];
	size_t n;

	if (len > left) {
		k->cut[channel] = true;
		len = (size_t)left;
	}
	k->taken[channel] += len;
	buffer_append(rest, bytes, len);
	if (!rest->len)
		return;
	n = utf8_whole(rest->bytes + rest->head, rest->len);
	code_text(k, channel, rest->bytes + rest->head, n);
	buffer_consume(rest, n);
}

/* A line of the results' channel. What is none (the code may write there itself) is marked as cut. */
static void code_result(struct code_call *k, const uint8_t *line, size_t len)
{
	cleanup_json json_t *value = json_loadb((const char *)line, len, JSON_ALLOW_NUL, NULL);
	const char *type = json_string_value(json_object_get(value, "type"));
	const json_t *data = json_object_get(value, "data");

	if (type && json_is_object(data))
		code_line(&k->call, envd_result(data, !strcmp(type, "result")));
	else
		k->cut[PROTO_RESULT] = true;
}

static void code_results(struct code_call *k, const uint8_t *bytes, size_t len)
{
	struct buffer *rest = &k->rest[PROTO_RESULT];

	while (len) {
		const uint8_t *end = memchr(bytes, '\n', len);
		size_t n = end ? (size_t)(end - bytes) + 1 : len;

		if (rest->len + n > LIMIT_ENVD_RESULT) {
			k->skip = k->cut[PROTO_RESULT] = true;
			buffer_free(rest);
		}
		if (!k->skip)
			buffer_append(rest, bytes, n);
		if (end && !k->skip)
			code_result(k, rest->bytes + rest->head, rest->len);
		if (end) {
			buffer_free(rest);
			k->skip = false;
		}
		bytes += n;
		len -= n;
	}
}

static size_t code_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct code_call *k = user;
	struct envd_call *c = &k->call;
	size_t at = 0;

	if (channel == PROTO_IN || !envd_call_open(c))
		return len;
	while (at < len) {
		size_t n = len - at < LIMIT_ENVD_CHUNK ? len - at : LIMIT_ENVD_CHUNK;

		k->stalled = envd_call_full(c);
		if (k->stalled)
			break;
		if (channel == PROTO_RESULT)
			code_results(k, bytes + at, n);
		else
			code_output(k, channel, bytes + at, n);
		at += n;
	}
	k->moved += at;
	return at;
}

static void code_writable(struct envd_call *c)
{
	struct code_call *k = (struct code_call *)c;

	if (!k->s || !k->stalled)
		return;
	k->stalled = false;
	guest_stream_resume(k->s);
	envd_kick(c->w, c->id);
}

/* ---- the end ------------------------------------------------------------------------------ */

struct code_end {
	uint32_t execution;
	bool timed_out, gone, cut_out, cut_err;
	char *name, *value, *traceback;
};

static void code_end_free(struct code_end *e)
{
	free(e->name);
	free(e->value);
	free(e->traceback);
}

static bool take_text(const struct proto_field *f, char **ret)
{
	free(*ret);
	*ret = strndup((const char *)f->data, f->len);
	return *ret && !memchr(f->data, 0, f->len);
}

static bool end_parse(const struct guest_reply *reply, struct code_end *e)
{
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;
	int rc, on = 0;

	while ((rc = proto_next(&in, &f)) == 1) {
		bool good = true;

		switch (f.tag) {
		case PROTO_T_EXECUTION:
			good = proto_u32(&f, &e->execution) == 0;
			break;
		case PROTO_T_TIMED_OUT:
		case PROTO_T_CONTEXT_GONE:
		case PROTO_T_CUT_OUT:
		case PROTO_T_CUT_ERR:
			good = proto_bool(&f, &on) == 0;
			*(f.tag == PROTO_T_TIMED_OUT                    ? &e->timed_out
					: f.tag == PROTO_T_CONTEXT_GONE ? &e->gone
					: f.tag == PROTO_T_CUT_OUT      ? &e->cut_out
									: &e->cut_err) = on;
			break;
		case PROTO_T_ENAME:
			good = take_text(&f, &e->name);
			break;
		case PROTO_T_EVALUE:
			good = take_text(&f, &e->value);
			break;
		case PROTO_T_TRACEBACK:
			good = take_text(&f, &e->traceback);
			break;
		default:
			break;
		}
		if (!good)
			return false;
	}
	return rc == 0;
}

static json_t *code_string(const char *text)
{
	return json_lossy(text, strlen(text));
}

/* @timed_out: the limit of the call ended it, which a TimeoutError of the code's own is not. */
static void code_error(struct envd_call *c, bool timed_out, const char *name, const char *value,
	const char *traceback)
{
	json_t *line = json_pack("{s:s,s:o,s:o,s:o}", "type", "error", "name", code_string(name),
		"value", code_string(value), "traceback", code_string(traceback));

	if (line && timed_out)
		json_object_set_new(line, "timed_out", json_true());
	code_line(c, line);
}

/* The request failed, or its interpreter died: never an empty success. */
static void code_failed(
	struct code_call *k, const struct guest_reply *reply, const struct code_end *e)
{
	struct envd_call *c = &k->call;

	if (!c->begun && !e->gone) {
		envd_fail_errno(c, reply->error, reply->text);
		return;
	}
	code_error(c, e->timed_out,
		e->timed_out      ? "TimeoutError"
			: e->gone ? "ContextGone"
				  : "UnexpectedEndOfExecution",
		reply->text, "");
}

static void code_raised(struct code_call *k, const struct code_end *e)
{
	char text[128];

	if (e->timed_out) {
		snprintf(text, sizeof(text), "the code ran longer than %llu ms and was interrupted",
			(unsigned long long)k->timeout_ms);
		code_error(&k->call, true, "TimeoutError", text, e->traceback ? e->traceback : "");
	} else if (e->name) {
		code_error(&k->call, false, e->name, e->value ? e->value : "",
			e->traceback ? e->traceback : "");
	}
}

static void code_finish(struct code_call *k, const struct code_end *e)
{
	struct envd_call *c = &k->call;
	json_t *end = json_pack("{s:s}", "type", "end_of_execution");

	if (!end)
		abort();
	if (e->cut_out || k->cut[PROTO_OUT])
		json_object_set_new(end, "stdout_cut", json_true());
	if (e->cut_err || k->cut[PROTO_ERR])
		json_object_set_new(end, "stderr_cut", json_true());
	if (k->cut[PROTO_RESULT])
		json_object_set_new(end, "results_cut", json_true());
	code_line(c, end);
	envd_finish(c);
}

static void code_done(void *user, const struct guest_reply *reply)
{
	struct code_call *k = user;
	struct envd_call *c = &k->call;
	struct code_end e = {0};

	k->s = NULL;
	if (envd_call_open(c)) {
		bool good = end_parse(reply, &e);

		/* what waited for the rest of its character */
		for (enum proto_channel i = PROTO_OUT; i <= PROTO_ERR; i++)
			code_text(k, i, k->rest[i].bytes + k->rest[i].head, k->rest[i].len);
		if (reply->error) {
			code_failed(k, reply, &e);
		} else if (!good) {
			envd_fail(c, ENVD_INTERNAL, "the agent's answer is broken");
		} else {
			code_raised(k, &e);
			code_line(c,
				json_pack("{s:s,s:I}", "type", "number_of_executions",
					"execution_count", (json_int_t)e.execution));
		}
		if (envd_call_open(c))
			code_finish(k, &e);
	}
	code_end_free(&e);
	envd_call_release(c);
}

/* ---- the request -------------------------------------------------------------------------- */

static void code_cancel(struct code_call *k)
{
	if (k->s)
		guest_stream_cancel(k->s);
	envd_kick(k->call.w, k->call.id);
}

static void code_gone(struct envd_call *c)
{
	envd_call_hold(c);
	code_cancel((struct code_call *)c);
	envd_call_release(c);
}

/* The agent should have ended it long ago. A client that still reads is let. */
static void code_late(struct envd_call *c)
{
	struct code_call *k = (struct code_call *)c;

	if (k->moved != k->moved_then) {
		k->moved_then = k->moved;
		envd_call_limit(c, LIMIT_ENVD_CODE_GRACE_MS, code_late);
		return;
	}
	code_cancel(k);
	code_error(c, true, "TimeoutError",
		"the code was given up: the agent did not end it in time", "");
	code_finish(k, &(struct code_end){0});
}

static void code_keepalive(struct envd_call *c)
{
	code_line(c, json_pack("{s:s}", "type", "keepalive"));
}

/* Send the code to the agent. A context that is named (but "default") must be there; one that is not is begun in
 * @home ("": the agent's own choice). */
static void code_send(struct code_call *k, const char *context, const char *language,
	const char *home, const char *code, const json_t *sandbox_env, const json_t *own_env)
{
	static const struct guest_stream_ops ops = {.data = code_data, .done = code_done};
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};
	bool named = *context && strcmp(context, CONTEXT_DEFAULT) != 0;

	if (!buf)
		abort();
	if (*context)
		proto_put_str(&o, PROTO_T_CONTEXT, context);
	if (*language)
		proto_put_str(&o, PROTO_T_LANGUAGE, language);
	proto_put_bool(&o, PROTO_T_EXISTING, named);
	if (*home && !named)
		proto_put_str(&o, PROTO_T_CWD, home);
	proto_put_str(&o, PROTO_T_CODE, code);
	proto_put_u64(&o, PROTO_T_TIMEOUT_MS, k->timeout_ms);
	proto_put_u64(&o, PROTO_T_LIMIT_OUT, k->limit);
	proto_put_u64(&o, PROTO_T_LIMIT_ERR, k->limit);
	envd_put_env(&o, PROTO_T_SANDBOX_ENV, sandbox_env);
	envd_put_env(&o, PROTO_T_ENV, own_env);
	k->s = envd_request(&k->call, PROTO_CODE, &o, &ops, k);
	if (k->s)
		envd_call_limit(&k->call, k->timeout_ms + LIMIT_ENVD_CODE_GRACE_MS, code_late);
}

static void execute_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct code_call *k = (struct code_call *)c;
	const json_t *own = json_object_get(body, "env_vars"),
		     *timeout = json_object_get(body, "timeout_ms");
	/* the template's are in the interpreter since its start */
	const struct envd_target sandbox = {.env = t->env}, none = {0};
	const char *code, *context, *language;
	char home[PROTO_PATH_MAX + 1] = "";
	cleanup_json json_t *sandbox_env = NULL, *own_env = NULL;

	if (envd_string(c, body, "code", &code) < 0 ||
		envd_string(c, body, "context_id", &context) < 0 ||
		envd_string(c, body, "language", &language) < 0 ||
		(t->user && *t->user && envd_path(c, "", t->user, home) < 0))
		return;
	if (!json_is_string(json_object_get(body, "code"))) {
		envd_fail(c, ENVD_INVALID, "code: what is to run is needed");
		return;
	}
	if (*context && *language) {
		envd_fail(c, ENVD_INVALID, "context_id and language: one of them, not both");
		return;
	}
	if (strlen(context) > LIMIT_CONTEXT_NAME || strlen(language) > LIMIT_LANGUAGE) {
		envd_fail(c, ENVD_NOT_FOUND, "no context and no language has so long a name");
		return;
	}
	if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < 0)) {
		envd_fail(c, ENVD_INVALID, "timeout_ms: must be a whole number of ms");
		return;
	}
	sandbox_env = envd_env(c, &sandbox, NULL);
	own_env = sandbox_env ? envd_env(c, &none, own) : NULL;
	if (!own_env)
		return;
	k->timeout_ms =
		envd_timeout(t, timeout ? (uint64_t)json_integer_value(timeout) : UINT64_MAX);
	k->limit = t->output_bytes ? t->output_bytes : LIMIT_OUTPUT_BYTES;
	envd_keepalive(c, KEEPALIVE_MS, code_keepalive);
	code_send(k, context, language, home, code, sandbox_env, own_env);
}

static void code_destroy(struct envd_call *c)
{
	struct code_call *k = (struct code_call *)c;

	for (int i = 0; i < PROTO_CHANNELS; i++)
		buffer_free(&k->rest[i]);
}

const struct envd_route envd_routes_code[] = {
	{.method = "POST",
		.path = "/execute",
		.style = ENVD_LINES,
		.body = true,
		.size = sizeof(struct code_call),
		.start = execute_start,
		.writable = code_writable,
		.gone = code_gone,
		.destroy = code_destroy},
	{0},
};
