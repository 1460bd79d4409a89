/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that come in parts. A part is kept until it is whole, so that a part longer than
 * LIMIT_CLIENT_PART ends the answer, not this process.
 *
 * Frames are those of the Connect protocol's streams (connectrpc.com/docs/protocol, "Enveloped
 * messages"): a byte of flags, the length as four bytes, big endian, then that many bytes.
 */
#include "cli/client_stream.h"

#include <string.h>

#include "common/base64.h"
#include "common/clock.h"
#include "cli/limits.h"
#include "common/str.h"

#define FRAME_HEAD 5

/* ---- parts --------------------------------------------------------------------------------- */

static int take(struct client_parts *p, const char *text, size_t len, unsigned flags)
{
	cleanup_json json_t *obj = NULL;
	int r;

	if (len == 0)
		return 0;
	r = json_parse_output("answer", text, len, &obj, &p->err);
	if (r == 0 && !json_is_object(obj))
		r = err_set(&p->err, EPROTO, "the answer has a part that is no object");
	return r < 0 ? r : p->part(p->user, obj, flags, &p->err);
}

static uint32_t frame_length(const char *head)
{
	const uint8_t *b = (const uint8_t *)head;

	return (uint32_t)b[1] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 8 | b[4];
}

/* The whole part at @at of @left bytes: how many bytes it has, 0 where it is not whole, -errno. */
static ssize_t whole(struct client_parts *p, const char *at, size_t left)
{
	const char *end;
	int r;

	if (!p->framed) {
		end = memchr(at, '\n', left);
		if (!end)
			return 0;
		r = take(p, at, (size_t)(end - at), 0);
		return r < 0 ? r : end + 1 - at;
	}
	if (left < FRAME_HEAD)
		return 0;
	if (frame_length(at) > LIMIT_CLIENT_PART)
		return err_set(
			&p->err, EFBIG, "the answer has a frame of %u bytes", frame_length(at));
	if (left - FRAME_HEAD < frame_length(at))
		return 0;
	r = take(p, at + FRAME_HEAD, frame_length(at), (uint8_t)*at);
	return r < 0 ? r : (ssize_t)(FRAME_HEAD + frame_length(at));
}

int client_parts_feed(struct client_parts *p, const char *bytes, size_t len)
{
	ssize_t n = 0;

	buffer_append(&p->buf, bytes, len);
	while (p->buf.len && (n = whole(p, buffer_text(&p->buf), p->buf.len)) > 0)
		buffer_consume(&p->buf, (size_t)n);
	if (n == 0 && p->buf.len > LIMIT_CLIENT_PART + FRAME_HEAD)
		n = err_set(&p->err, EFBIG, "the answer has a line longer than %lu bytes",
			LIMIT_CLIENT_PART);
	return n < 0 ? (int)n : 0;
}

int client_parts_end(struct client_parts *p)
{
	if (p->framed)
		return p->buf.len ? err_set(&p->err, EPROTO, "the answer was cut short") : 0;
	return take(p, buffer_text(&p->buf), p->buf.len, 0);
}

void client_parts_clear(struct client_parts *p)
{
	buffer_free(&p->buf);
}

void client_frame(const json_t *obj, void **ret, size_t *ret_len)
{
	cleanup_free char *text = json_text(obj);
	size_t len = strlen(text);
	uint8_t *frame = malloc(FRAME_HEAD + len);

	if (!frame)
		abort();
	frame[0] = 0;
	for (unsigned i = 0; i < 4; i++)
		frame[1 + i] = (uint8_t)(len >> (24 - 8 * i));
	memcpy(frame + FRAME_HEAD, text, len);
	*ret = frame;
	*ret_len = FRAME_HEAD + len;
}

/* ---- a command without input --------------------------------------------------------------- */

struct running {
	const struct client_exec *spec;
	struct client_exit *exit;
	struct client_parts parts;
	bool ended;
	int failed; /* negative errno of a part */
	struct err *err;
	bool over;
	int r;
};

static int pass(struct running *run, int fd, const json_t *obj, struct err *err)
{
	cleanup_free char *text = str_dup(client_string(obj, "data"));
	ssize_t n = base64_decode(text, strlen(text), text);
	int r;

	if (n < 0)
		return err_set(err, EPROTO, "the answer has output that is not base 64");
	r = run->spec->output(run->spec->user_data, fd, text, (size_t)n);
	return r < 0 ? err_sys(err, -r, "pass the output on") : 0;
}

static int64_t integer(const json_t *obj, const char *key, int64_t otherwise)
{
	const json_t *value = json_object_get(obj, key);

	return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static bool flag(const json_t *obj, const char *key)
{
	return json_is_true(json_object_get(obj, key));
}

static void take_end(struct client_exit *e, const json_t *obj)
{
	e->signal = (int)integer(obj, "signal", 0);
	e->code = e->signal ? -1 : (int)integer(obj, "exit_code", -1);
	e->timed_out = flag(obj, "timed_out");
	e->oom = flag(obj, "oom");
	e->cut_out = flag(obj, "stdout_cut");
	e->cut_err = flag(obj, "stderr_cut");
	e->total_out = integer(obj, "stdout_bytes", -1);
	e->total_err = integer(obj, "stderr_bytes", -1);
}

int client_errno(const json_t *error)
{
	const char *code = client_string(error, "code"), *reason = client_string(error, "reason");

	return !strcmp(reason, "program_not_found")         ? ENOENT
		: !strcmp(reason, "program_not_executable") ? EACCES
		: !strcmp(code, "deadline_exceeded")        ? ETIMEDOUT
		: !strcmp(code, "resource_exhausted")       ? EAGAIN
		: !strcmp(code, "invalid_argument")         ? EINVAL
							    : EIO;
}

int client_exec_errno(const struct client_answer *a)
{
	cleanup_json json_t *obj = NULL;
	int error;

	if (a->status < 300 || json_parse("answer", a->body, a->len, &obj, NULL) < 0)
		return a->error;
	error = client_errno(obj);
	/* a sandbox that is not there, or not ours, is no program that is not there */
	return error == ENOENT || error == EACCES          ? error
		: a->error == ENOENT || a->error == EACCES ? EIO
							   : a->error;
}

static int on_part(void *user, const json_t *obj, unsigned flags, struct err *err)
{
	struct running *run = user;
	const char *type = client_string(obj, "type");

	(void)flags;
	if (!strcmp(type, "stdout"))
		return pass(run, STDOUT_FILENO, obj, err);
	if (!strcmp(type, "stderr"))
		return pass(run, STDERR_FILENO, obj, err);
	if (!strcmp(type, "error"))
		return err_set(err, client_errno(obj), "%s", client_string(obj, "message"));
	if (!strcmp(type, "end")) {
		take_end(run->exit, obj);
		run->ended = true;
	}
	return 0;
}

static int on_data(void *user, const char *bytes, size_t len)
{
	struct running *run = user;

	run->failed = client_parts_feed(&run->parts, bytes, len);
	return run->failed;
}

static void on_done(void *user, const struct client_answer *a)
{
	struct running *run = user;

	run->over = true;
	if (!run->failed && !a->error)
		run->failed = client_parts_end(&run->parts);
	if (run->failed)
		run->r = err_set(run->err, -run->failed, "%s", run->parts.err.text);
	else if (a->error)
		run->r = err_set(run->err, client_exec_errno(a), "%s", a->text);
	else if (!run->ended)
		run->r = err_set(run->err, ECONNRESET, "the answer ended before the command");
}

/* ---- what is to run ------------------------------------------------------------------------ */

static bool is_text(const char *bytes)
{
	cleanup_json json_t *value = json_string(bytes);

	return value != NULL;
}

static bool are_text(const char *const *strings)
{
	for (; *strings; strings++)
		if (!is_text(*strings))
			return false;
	return true;
}

static json_t *bytes_json(const char *bytes)
{
	cleanup_free char *text = base64_encode(bytes, strlen(bytes));

	return json_string(text);
}

static void put_string(json_t *obj, const char *key, const char *key_bytes, const char *value)
{
	if (value && is_text(value))
		json_object_set_new(obj, key, json_string(value));
	else if (value)
		json_object_set_new(obj, key_bytes, bytes_json(value));
}

static void put_list(json_t *obj, const char *key, const char *const *strings, bool text)
{
	json_t *list = json_array();

	for (; *strings; strings++)
		json_array_append_new(list, text ? json_string(*strings) : bytes_json(*strings));
	json_object_set_new(obj, key, list);
}

static void put_env(json_t *obj, const char *key, const char *key_bytes, const char *const *env)
{
	json_t *vars;

	if (!env || !*env)
		return;
	if (!are_text(env)) {
		put_list(obj, key_bytes, env, false);
		return;
	}
	vars = json_object();
	for (; *env; env++) {
		const char *equals = strchr(*env, '=');

		json_object_setn_new(vars, *env, (size_t)(equals - *env), json_string(equals + 1));
	}
	json_object_set_new(obj, key, vars);
}

void client_exec_put(const struct client_exec *spec, bool connect, json_t *obj)
{
	const char *line[] = {"/bin/sh", "-c", spec->shell, NULL};
	const char *const *argv = spec->argv ? spec->argv : line;

	put_env(obj, connect ? "envs" : "env", connect ? "envsBase64" : "env_base64", spec->env);
	put_string(obj, "cwd", connect ? "cwdBase64" : "cwd_base64", spec->cwd);
	if (!are_text(argv)) {
		put_list(obj, connect ? "argvBase64" : "argv_base64", argv, false);
	} else if (connect) {
		json_object_set_new(obj, "cmd", json_string(argv[0]));
		put_list(obj, "args", argv + 1, true);
	} else if (spec->argv) {
		put_list(obj, "argv", argv, true);
	} else {
		json_object_set_new(obj, "cmd", json_string(spec->shell));
	}
}

char *client_exec_user(const struct client_exec *spec)
{
	cleanup_free char *who = NULL, *text = NULL;

	if (!spec->user)
		return NULL;
	who = str_printf("%s:", spec->user);
	text = base64_encode(who, strlen(who));
	return str_printf("Authorization: Basic %s", text);
}

static json_t *request_of(const struct client_exec *spec)
{
	json_t *obj = json_pack("{s:b}", "stream", 1);

	client_exec_put(spec, false, obj);
	if (spec->timeout_ms)
		json_object_set_new(obj, "timeout_ms", json_integer((json_int_t)spec->timeout_ms));
	return obj;
}

int client_exec_run(struct client *c, const char *id, const struct client_exec *spec,
	struct client_exit *ret, struct err *err)
{
	cleanup_json json_t *body = request_of(spec);
	cleanup_free char *path = str_printf("/sandboxes/%s/exec", id);
	cleanup_free char *user = client_exec_user(spec);
	const char *const headers[] = {user, NULL};
	struct client_exit e = {0};
	struct running run = {
		.spec = spec, .exit = &e, .err = err, .parts = {.part = on_part, .user = &run}};
	const struct client_spec request = {.method = "POST",
		.path = path,
		.json = body,
		.headers = headers,
		.timeout_ms = -1,
		.data = on_data,
		.done = on_done,
		.user = &run};
	struct client_call *call = client_begin(c, &request, err);
	int r = call ? 0 : -EIO;

	while (r == 0 && !run.over)
		r = client_turn(c, NULL, 0, CLOCK_NEVER, err);
	if (call && !run.over)
		client_drop(call);
	client_parts_clear(&run.parts);
	if (r == 0)
		r = run.r;
	if (r == 0)
		*ret = e;
	return r;
}
