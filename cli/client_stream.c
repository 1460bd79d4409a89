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
#include "common/limits.h"
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
	size_t at = 0;
	ssize_t n;

	if (p->len + len > p->room) {
		size_t room = 2 * (p->len + len);
		char *more = realloc(p->buf, room);

		if (!more)
			abort();
		p->buf = more;
		p->room = room;
	}
	memcpy(p->buf + p->len, bytes, len);
	p->len += len;
	while ((n = whole(p, p->buf + at, p->len - at)) > 0)
		at += (size_t)n;
	memmove(p->buf, p->buf + at, p->len - at);
	p->len -= at;
	if (n == 0 && p->len > LIMIT_CLIENT_PART + FRAME_HEAD)
		n = err_set(&p->err, EFBIG, "the answer has a line longer than %lu bytes",
			LIMIT_CLIENT_PART);
	return n < 0 ? (int)n : 0;
}

int client_parts_end(struct client_parts *p)
{
	if (p->framed)
		return p->len ? err_set(&p->err, EPROTO, "the answer was cut short") : 0;
	return take(p, p->buf, p->len, 0);
}

void client_parts_clear(struct client_parts *p)
{
	free(p->buf);
	p->buf = NULL;
	p->len = p->room = 0;
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

static void set_string(json_t *obj, const char *key, const char *text)
{
	if (text)
		json_object_set_new(obj, key, json_lossy(text, strlen(text)));
}

static json_t *request_of(const struct client_exec *spec)
{
	json_t *obj = json_pack("{s:b}", "stream", 1);

	if (spec->argv) {
		json_t *argv = json_array();

		for (unsigned i = 0; spec->argv[i]; i++)
			json_array_append_new(
				argv, json_lossy(spec->argv[i], strlen(spec->argv[i])));
		json_object_set_new(obj, "argv", argv);
	}
	set_string(obj, "cmd", spec->shell);
	set_string(obj, "cwd", spec->cwd);
	set_string(obj, "user", spec->user);
	if (spec->env)
		json_object_set(obj, "env", (json_t *)spec->env);
	if (spec->timeout_ms)
		json_object_set_new(obj, "timeout_ms", json_integer((json_int_t)spec->timeout_ms));
	return obj;
}

int client_exec_run(struct client *c, const char *id, const struct client_exec *spec,
	struct client_exit *ret, struct err *err)
{
	cleanup_json json_t *body = request_of(spec);
	cleanup_free char *path = str_printf("/sandboxes/%s/exec", id);
	struct client_exit e = {0};
	struct running run = {
		.spec = spec, .exit = &e, .err = err, .parts = {.part = on_part, .user = &run}};
	const struct client_spec request = {.method = "POST",
		.path = path,
		.json = body,
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
