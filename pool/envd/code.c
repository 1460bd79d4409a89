/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /execute: code in a sandbox's interpreter, answered as the ecosystem's code interpreter
 * does: a line of JSON for each piece of output, for each result, for an error; the last is
 * "end_of_execution". A client that goes away interrupts its code.
 *
 * Variables. An interpreter that was warm before its sandbox was made knows nothing of the
 * sandbox's variables, and a request may bring its own. So where there are any, the code runs
 * between two cells that set them and put back what was there; these take their number off the
 * interpreter's count again. Calls that need this have their turn one after the other (wire.codes),
 * and the code is sent only when the variables are set: an interpreter that has died in between is
 * told as such, and does not come back fresh to run it.
 *
 * Output may be cut in the middle of a character: what is no whole one yet waits for the next
 * piece.
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

#define KEEPALIVE_MS 5000
#define HIDDEN_OUTPUT 4096 /* of the cells around the code, which print nothing */

struct code_call {
	struct envd_call call;
	struct guest_stream *before, *s; /* NULL: none, or it is done */
	char context[LIMIT_CONTEXT_NAME + 1];
	char *code;
	json_t *env;
	bool listed, begun; /* in wire.codes; the code has been sent */
	struct code_call *next;
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

/* A line of the results' channel. What is none (the code may write there itself) is left out. */
static void code_result(struct code_call *k, const uint8_t *line, size_t len)
{
	cleanup_json json_t *value = json_loadb((const char *)line, len, 0, NULL);
	const char *type = json_string_value(json_object_get(value, "type"));
	const json_t *data = json_object_get(value, "data");

	if (type && json_is_object(data))
		code_line(&k->call, envd_result(data, !strcmp(type, "result")));
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

/* ---- cells -------------------------------------------------------------------------------- */

static struct guest_stream *code_queue(
	struct code_call *k, const char *code, uint64_t limit, const struct guest_stream_ops *ops)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};

	if (!buf)
		abort();
	proto_put_str(&o, PROTO_T_CONTEXT, k->context);
	proto_put_str(&o, PROTO_T_CODE, code);
	proto_put_u64(&o, PROTO_T_TIMEOUT_MS, k->timeout_ms);
	proto_put_u64(&o, PROTO_T_LIMIT_OUT, limit);
	proto_put_u64(&o, PROTO_T_LIMIT_ERR, limit);
	return envd_request(&k->call, PROTO_CODE, &o, ops, k);
}

/*
 * The cells that set the variables and put the former ones back. They show nothing (None). The
 * variables go as JSON in a string of Python's, which JSON's is where all of it is ASCII.
 */
static char *env_cell_set(const json_t *env)
{
	cleanup_free char *text = json_dumps(env, JSON_COMPACT | JSON_ENSURE_ASCII);
	cleanup_json json_t *string = json_string(text);
	cleanup_free char *literal = json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	char *cell;

	if (!literal ||
		asprintf(&cell,
			"(lambda e, n, i: (i.__dict__.__setitem__('_parbake_env', {k: e.get(k) for "
			"k "
			"in n}), e.update(n), setattr(i, 'execution_count', i.execution_count - "
			"1), "
			"None)[3])(__import__('os').environ, __import__('json').loads(%s), "
			"get_ipython())",
			literal) < 0)
		abort();
	return cell;
}

static char *env_cell_reset(void)
{
	char *cell = strdup("(lambda e, i: ([e.pop(k, None) if v is None else e.__setitem__(k, v) "
			    "for k, v in i.__dict__.pop('_parbake_env', {}).items()], setattr(i, "
			    "'execution_count', i.execution_count - 1), None)[2])"
			    "(__import__('os').environ, get_ipython())");

	if (!cell)
		abort();
	return cell;
}

static void code_late(struct envd_call *c);

/* The code itself. */
static void code_run(struct code_call *k)
{
	static const struct guest_stream_ops ops = {.data = code_data, .done = code_done};

	k->begun = true;
	k->s = code_queue(k, k->code, k->limit, &ops);
	if (k->s)
		envd_call_limit(&k->call, k->timeout_ms + LIMIT_ENVD_GRACE_MS, code_late);
}

/* ---- variables around it ------------------------------------------------------------------ */

static bool code_same_place(const struct code_call *a, const struct code_call *b)
{
	return !strcmp(a->call.id, b->call.id) && !strcmp(a->context, b->context);
}

/* Is it @k's turn: does nobody before it in the list use the same interpreter? */
static bool code_turn(const struct code_call *k)
{
	for (const struct code_call *o = k->call.w->codes; o != k; o = o->next) {
		if (code_same_place(o, k))
			return false;
	}
	return true;
}

static unsigned code_waiting(const struct code_call *k)
{
	unsigned n = 0;

	for (const struct code_call *o = k->call.w->codes; o; o = o->next)
		n += code_same_place(o, k);
	return n;
}

static void code_before(struct code_call *k);

/* Out of the list; the next that waits for the same interpreter may have its turn. */
static void code_unlist(struct code_call *k)
{
	struct code_call **at = &k->call.w->codes, *o;

	if (!k->listed)
		return;
	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	k->listed = false;
	for (o = *at; o; o = o->next) {
		if (code_same_place(o, k))
			break;
	}
	if (o && !o->before && !o->begun && code_turn(o))
		code_before(o);
	envd_call_release(&k->call);
}

static void code_list(struct code_call *k)
{
	struct code_call **at = &k->call.w->codes;

	while (*at)
		at = &(*at)->next;
	*at = k;
	k->listed = true;
	envd_call_hold(&k->call);
}

static void after_done(void *user, const struct guest_reply *reply)
{
	struct code_call *k = user;

	(void)reply;
	code_unlist(k);
	envd_call_release(&k->call);
}

/* The variables are set: the code, where its client is there, and behind it what resets them. */
static void before_done(void *user, const struct guest_reply *reply)
{
	static const struct guest_stream_ops after = {.done = after_done};
	struct code_call *k = user;
	struct code_end e = {0};
	bool good = end_parse(reply, &e) && !reply->error && !e.name;

	k->before = NULL;
	if (!good) { /* its interpreter is gone, or will not have it: the code has not run */
		if (reply->error && envd_call_open(&k->call)) {
			code_failed(k, reply, &e);
			if (envd_call_open(&k->call))
				code_finish(k, &e);
		} else {
			envd_fail(&k->call, ENVD_INTERNAL, "the variables could not be set: %s",
				e.value ? e.value : "the agent's answer is broken");
		}
		code_unlist(k);
	} else {
		cleanup_free char *cell = env_cell_reset();

		if (envd_call_open(&k->call))
			code_run(k);
		if (!code_queue(k, cell, HIDDEN_OUTPUT, &after))
			code_unlist(k);
	}
	code_end_free(&e);
	envd_call_release(&k->call);
}

static void code_before(struct code_call *k)
{
	static const struct guest_stream_ops ops = {.done = before_done};
	cleanup_free char *cell = env_cell_set(k->env);

	k->before = code_queue(k, cell, HIDDEN_OUTPUT, &ops);
	if (!k->before)
		code_unlist(k);
}

/* A cell that runs or waits is interrupted; the one behind it still puts the variables back. */
static void code_cancel(struct code_call *k)
{
	if (k->s)
		guest_stream_cancel(k->s);
	else if (k->listed && !k->before && !k->begun)
		code_unlist(k);
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
		envd_call_limit(c, LIMIT_ENVD_GRACE_MS, code_late);
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

/* ---- the request -------------------------------------------------------------------------- */

static void execute_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct code_call *k = (struct code_call *)c;
	const json_t *own = json_object_get(body, "env_vars"),
		     *timeout = json_object_get(body, "timeout_ms");
	struct envd_target bare = {.env = t->env};
	const char *code, *context, *language;
	cleanup_json json_t *env = NULL;

	if (envd_string(c, body, "code", &code) < 0 ||
		envd_string(c, body, "context_id", &context) < 0 ||
		envd_string(c, body, "language", &language) < 0)
		return;
	if (!json_is_string(json_object_get(body, "code"))) {
		envd_fail(c, ENVD_INVALID, "code: what is to run is needed");
		return;
	}
	if (*context && *language) {
		envd_fail(c, ENVD_INVALID, "context_id and language: one of them, not both");
		return;
	}
	if (!envd_language(c, language) || !envd_context_known(c, *context ? context : "default"))
		return;
	if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < 0)) {
		envd_fail(c, ENVD_INVALID, "timeout_ms: must be a whole number of ms");
		return;
	}
	env = envd_env(c, &bare, own);
	if (!env)
		return;
	k->timeout_ms =
		envd_timeout(t, timeout ? (uint64_t)json_integer_value(timeout) : UINT64_MAX);
	k->limit = t->output_bytes ? t->output_bytes : LIMIT_OUTPUT_BYTES;
	k->code = strdup(code);
	k->env = json_incref(env);
	snprintf(k->context, sizeof(k->context), "%s", *context ? context : "default");
	envd_keepalive(c, KEEPALIVE_MS, code_keepalive);
	if (!json_object_size(env)) {
		code_run(k);
		return;
	}
	if (code_waiting(k) >= LIMIT_ENVD_CODES) {
		envd_fail(c, ENVD_EXHAUSTED, "%d executions wait for this context already",
			LIMIT_ENVD_CODES);
		return;
	}
	envd_call_limit(c, k->timeout_ms + LIMIT_ENVD_GRACE_MS, code_late);
	code_list(k);
	if (code_turn(k))
		code_before(k);
}

static void code_destroy(struct envd_call *c)
{
	struct code_call *k = (struct code_call *)c;

	for (int i = 0; i < PROTO_CHANNELS; i++)
		buffer_free(&k->rest[i]);
	free(k->code);
	json_decref(k->env);
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
