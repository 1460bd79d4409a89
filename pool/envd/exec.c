/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /exec: a command for people and shells. {"cmd": "ls -l"} is a line for /bin/sh; {"cmd":
 * "ls", "args": ["-l"]} or {"argv": ["ls", "-l"]} is a program. The answer is one object with its
 * output as text, or, with "stream": true, a line of JSON for each piece of output, in base64, and
 * one for the end.
 */
#include "common/buffer.h"
#include "pool/envd/envd_private.h"

#include <stdlib.h>
#include <string.h>

#include "common/base64.h"

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

/* An array of strings behind *@first (NULL: none); for the caller to free. */
static int exec_strings(struct envd_call *c, const char *key, const json_t *array,
	const char *first, const char ***ret, size_t *ret_n)
{
	size_t n = 0, i;
	const json_t *value;
	const char **argv;

	if (!json_is_array(array) || json_array_size(array) >= LIMIT_EXEC_ARGS) {
		envd_fail(c, ENVD_INVALID, "%s: must be an array of at most %d strings", key,
			LIMIT_EXEC_ARGS - 1);
		return -EINVAL;
	}
	argv = calloc(json_array_size(array) + 1, sizeof(*argv));
	if (!argv)
		abort();
	if (first)
		argv[n++] = first;
	json_array_foreach(array, i, value)
	{
		argv[n] = json_string_value(value);
		if (!argv[n] || strlen(argv[n]) != json_string_length(value)) {
			free(argv);
			envd_fail(c, ENVD_INVALID, "%s: strings are needed, without a NUL", key);
			return -EINVAL;
		}
		n++;
	}
	if (!n) {
		free(argv);
		envd_fail(c, ENVD_INVALID, "%s: the program to run is needed", key);
		return -EINVAL;
	}
	*ret = argv;
	*ret_n = n;
	return 0;
}

/* cmd, args, argv: what runs. */
static int exec_command(struct envd_call *c, const json_t *body, struct envd_process_spec *spec,
	const char ***ret_argv, json_t **ret_config)
{
	const json_t *argv = json_object_get(body, "argv"), *args = json_object_get(body, "args");
	const char *cmd;
	int rc = 0;

	if (envd_string(c, body, "cmd", &cmd) < 0)
		return -EINVAL;
	if (!*cmd == !argv || (args && !*cmd)) {
		envd_fail(c, ENVD_INVALID,
			"one of \"cmd\" (a shell line, or with \"args\" a program) and \"argv\" is "
			"needed");
		return -EINVAL;
	}
	if (argv)
		rc = exec_strings(c, "argv", argv, NULL, ret_argv, &spec->n_argv);
	else if (args)
		rc = exec_strings(c, "args", args, cmd, ret_argv, &spec->n_argv);
	else
		spec->shell = cmd;
	if (rc < 0)
		return rc;
	spec->argv = *ret_argv;
	if (spec->shell) {
		*ret_config =
			json_pack("{s:s,s:[s,s]}", "cmd", "/bin/sh", "args", "-c", spec->shell);
	} else {
		*ret_config = json_pack("{s:s,s:[]}", "cmd", spec->argv[0], "args");
		for (size_t i = 1; i < spec->n_argv; i++)
			json_array_append_new(
				json_object_get(*ret_config, "args"), json_string(spec->argv[i]));
	}
	if (!*ret_config)
		abort();
	return 0;
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
	else if (envd_user(c, user) < 0)
		return -EINVAL;
	if (envd_string(c, body, "cwd", &text) < 0)
		return -EINVAL;
	cwd[0] = '\0';
	return *text ? envd_path(c, text, user, cwd) : 0;
}

static void exec_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct exec_call *e = (struct exec_call *)c;
	char user[LIMIT_USER + 1], cwd[PROTO_PATH_MAX + 1];
	struct envd_process_spec spec = {.cwd = cwd, .user = user, .tag = ""};
	cleanup_free const char **argv = NULL;
	cleanup_json json_t *config = NULL, *env = NULL;
	cleanup_free uint8_t *input = NULL;
	uint64_t asked = UINT64_MAX, limit;
	size_t input_len;

	if (exec_command(c, body, &spec, &argv, &config) < 0 ||
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
	spec.config = config;
	spec.env = env;
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
