/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /exec: a command, for people and scripts. {"cmd": "ls -l"} is a line for /bin/sh; {"cmd":
 * "ls", "args": ["-l"]} or {"argv": ["ls", "-l"]} is a program. The answer is one object with its
 * output as text, or, with "stream": true, a line of JSON for each piece of output, in base64, and
 * one for the end.
 */
#include "common/buffer.h"
#include "pool/envd/envd_private.h"

#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "pool/envd/limits.h"

#define KEEPALIVE_MS 15000

struct exec_call {
	struct envd_call call;
	struct envd_process *p; /* NULL: it has ended */
	bool stream;
	struct buffer out, err;
};

static void exec_started(struct envd_call *c, uint32_t pid)
{
	struct exec_call *e = (struct exec_call *)c;

	if (!e->stream)
		return;
	envd_begin(c, 200, "application/x-ndjson");
	envd_line(c, json_pack("{s:s,s:I}", "type", "start", "pid", (json_int_t)pid));
}

static void exec_data(
	struct envd_call *c, enum proto_channel channel, bool pty, const uint8_t *bytes, size_t len)
{
	struct exec_call *e = (struct exec_call *)c;
	char *text;

	(void)pty;
	if (!e->stream) {
		buffer_append(channel == PROTO_OUT ? &e->out : &e->err, bytes, len);
		return;
	}
	text = base64_encode(bytes, len);
	envd_line(c,
		json_pack("{s:s,s:s}", "type", channel == PROTO_OUT ? "stdout" : "stderr", "data",
			text));
	free(text);
}

static json_t *exec_result(const struct envd_end *end)
{
	json_t *r = json_pack("{s:b,s:b,s:I,s:I,s:b,s:b,s:I}", "timed_out", end->timed_out, "oom",
		end->oom, "stdout_bytes", (json_int_t)end->total_out, "stderr_bytes",
		(json_int_t)end->total_err, "stdout_cut", end->cut_out, "stderr_cut", end->cut_err,
		"duration_ms", (json_int_t)(end->duration_ns / 1000000));

	if (!r)
		abort();
	json_object_set_new(
		r, "exit_code", end->exited ? json_integer(end->exit_code) : json_null());
	json_object_set_new(
		r, "signal", end->exited ? json_null() : json_integer(end->exit_signal));
	return r;
}

static json_t *exec_text(const struct buffer *b)
{
	return json_lossy(b->bytes + b->head, b->len);
}

static void exec_ended(struct envd_call *c, const struct envd_end *end)
{
	struct exec_call *e = (struct exec_call *)c;
	json_t *r;

	e->p = NULL;
	if (end->error) {
		envd_fail_end(c, end);
		return;
	}
	r = exec_result(end);
	if (e->stream) {
		json_object_set_new(r, "type", json_string("end"));
		envd_line(c, r);
		envd_finish(c);
		return;
	}
	json_object_set_new(r, "stdout", exec_text(&e->out));
	json_object_set_new(r, "stderr", exec_text(&e->err));
	envd_reply(c, 200, r);
}

static const struct envd_reader_ops exec_ops = {
	.started = exec_started, .data = exec_data, .ended = exec_ended};

static void exec_writable(struct envd_call *c)
{
	struct exec_call *e = (struct exec_call *)c;

	if (e->p)
		envd_process_resume(e->p);
}

static void exec_gone(struct envd_call *c)
{
	struct exec_call *e = (struct exec_call *)c;

	if (e->p)
		envd_process_leave(e->p, c);
	e->p = NULL;
}

static void exec_destroy(struct envd_call *c)
{
	struct exec_call *e = (struct exec_call *)c;

	buffer_free(&e->out);
	buffer_free(&e->err);
}

static void exec_keepalive(struct envd_call *c)
{
	if (c->begun)
		envd_line(c, json_pack("{s:s}", "type", "keepalive"));
}

/* ---- the request -------------------------------------------------------------------------- */

/* cmd, args, argv, argv_base64: what runs. */
static int exec_command(struct envd_call *c, const json_t *body, struct envd_process_spec *spec,
	struct envd_words *words)
{
	const json_t *argv = json_object_get(body, "argv"), *args = json_object_get(body, "args");
	const json_t *coded = json_object_get(body, "argv_base64");
	const char *cmd;

	if (envd_string(c, body, "cmd", &cmd) < 0)
		return -EINVAL;
	if (!!*cmd + !!argv + !!coded != 1 || (args && !*cmd)) {
		envd_fail(c, ENVD_INVALID,
			"one of \"cmd\" (a shell line, or with \"args\" a program), \"argv\" and "
			"\"argv_base64\" is needed");
		return -EINVAL;
	}
	if (*cmd && !args) {
		spec->shell = cmd;
		return 0;
	}
	if (*cmd)
		envd_words_put(words, cmd);
	if (envd_words_add(c, "args", args, false, words) < 0 ||
		envd_words_add(c, "argv", argv, false, words) < 0 ||
		envd_words_add(c, "argv_base64", coded, true, words) < 0)
		return -EINVAL;
	spec->argv = words;
	if (words->n)
		return 0;
	envd_fail(
		c, ENVD_INVALID, "%s: the program to run is needed", argv ? "argv" : "argv_base64");
	return -EINVAL;
}

/* An unsigned number at @key; @ret as it was where there is none. */
static int exec_number(
	struct envd_call *c, const json_t *object, const char *key, uint64_t max, uint64_t *ret)
{
	const json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		(uint64_t)json_integer_value(value) > max) {
		envd_fail(c, ENVD_INVALID, "%s: must be a whole number from 0 to %llu", key,
			(unsigned long long)max);
		return -EINVAL;
	}
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int exec_terminal(struct envd_call *c, const json_t *body, struct envd_process_spec *spec)
{
	const json_t *tty = json_object_get(body, "tty");
	uint64_t rows = 24, cols = 80;

	if (!tty || json_is_null(tty) || json_is_false(tty))
		return 0;
	if (exec_number(c, tty, "rows", UINT16_MAX, &rows) < 0 ||
		exec_number(c, tty, "cols", UINT16_MAX, &cols) < 0)
		return -EINVAL;
	spec->rows = rows ? (unsigned)rows : 24;
	spec->cols = cols ? (unsigned)cols : 80;
	return 0;
}

/* stdin (text) or stdin_base64: *@ret is the caller's; NULL: none. */
static int exec_input(struct envd_call *c, const json_t *body, uint8_t **ret, size_t *ret_len)
{
	const json_t *text = json_object_get(body, "stdin");
	const json_t *coded = json_object_get(body, "stdin_base64");

	*ret = NULL;
	*ret_len = 0;
	if (text && !json_is_null(text)) {
		if (!json_is_string(text) || coded) {
			envd_fail(c, ENVD_INVALID,
				"stdin: must be text; for bytes there is stdin_base64, instead");
			return -EINVAL;
		}
		*ret_len = json_string_length(text);
		*ret = malloc(*ret_len + 1);
		if (!*ret)
			abort();
		memcpy(*ret, json_string_value(text), *ret_len);
		return 0;
	}
	if (!coded || json_is_null(coded))
		return 0;
	if (json_is_string(coded) &&
		envd_base64_decode(
			json_string_value(coded), json_string_length(coded), ret, ret_len))
		return 0;
	envd_fail(c, ENVD_INVALID, "stdin_base64: is not base64");
	return -EINVAL;
}

/* Who runs it and where: the body's user goes before the header's. */
static int exec_place(struct envd_call *c, const json_t *body, char user[LIMIT_USER + 1],
	char cwd[PROTO_PATH_MAX + 1])
{
	const char *text;

	if (envd_string(c, body, "user", &text) < 0)
		return -EINVAL;
	if (strlen(text) > LIMIT_USER) {
		envd_fail(c, ENVD_INVALID, "user: longer than %d bytes", LIMIT_USER);
		return -EINVAL;
	}
	if (*text)
		strcpy(user, text);
	else if (envd_user(c, NULL, user) < 0)
		return -EINVAL;
	return envd_cwd(c, body, "cwd", "cwd_base64", user, cwd);
}

static void exec_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct exec_call *e = (struct exec_call *)c;
	char user[LIMIT_USER + 1], cwd[PROTO_PATH_MAX + 1];
	struct envd_process_spec spec = {.cwd = cwd, .user = user, .tag = ""};
	cleanup_envd_words struct envd_words words = {0}, env_bytes = {0};
	cleanup_json json_t *env = NULL;
	cleanup_free uint8_t *input = NULL;
	uint64_t asked = UINT64_MAX, limit;
	size_t input_len;

	if (exec_command(c, body, &spec, &words) < 0 ||
		envd_env_bytes(c, "env_base64", json_object_get(body, "env_base64"), &env_bytes) <
			0 ||
		exec_place(c, body, user, cwd) < 0 || exec_terminal(c, body, &spec) < 0 ||
		exec_number(c, body, "timeout_ms", LIMIT_TIMEOUT_MS, &asked) < 0 ||
		exec_input(c, body, &input, &input_len) < 0)
		return;
	env = envd_env(c, t, json_object_get(body, "env"));
	if (!env)
		return;
	e->stream = json_is_true(json_object_get(body, "stream"));
	limit = t->output_bytes ? t->output_bytes : LIMIT_ENVD_STREAM;
	if (!e->stream && limit > LIMIT_ENVD_COLLECT)
		limit = LIMIT_ENVD_COLLECT;
	spec.env = env;
	spec.env_bytes = &env_bytes;
	spec.timeout_ms = envd_timeout(t, asked);
	spec.limit_out = spec.limit_err = limit;
	/* with a stream and a terminal, more may come by SendInput */
	spec.has_stdin = input || (e->stream && spec.rows);
	e->p = envd_process_start(c, t, &spec, &exec_ops);
	if (!e->p)
		return;
	if (input)
		envd_process_input(e->p, NULL, steal_ptr(&input), input_len, !spec.rows);
	envd_keepalive(c, KEEPALIVE_MS, exec_keepalive);
}

const struct envd_route envd_routes_exec[] = {
	{.method = "POST",
		.path = "/exec",
		.style = ENVD_LINES,
		.body = true,
		.size = sizeof(struct exec_call),
		.start = exec_start,
		.writable = exec_writable,
		.gone = exec_gone,
		.destroy = exec_destroy},
	{0},
};
