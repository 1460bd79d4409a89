/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parbake code: code in an interpreter of a sandbox of the pool, Python's warm one if no other is named. What it prints passes through,
 * the value of the last expression is shown as an interactive interpreter does, an exception is
 * exit status 1.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/client_stream.h"
#include "cli/terminal.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/str.h"

struct args {
	const char *sandbox, *text, *context, *language;
	char *owned;
	uint64_t timeout_ms;
	bool json;
	struct client_parts parts;
	bool over, ended, raised, timed_out;
	int r;
	struct err *err;
};

static int print_text(int fd, const json_t *obj, const char *key, const char *end, struct err *err)
{
	const json_t *text = json_object_get(obj, key);
	int r = terminal_pass(fd, client_string(obj, key), json_string_length(text));

	if (r == 0)
		r = terminal_pass(fd, end, strlen(end));
	return r < 0 ? err_sys(err, -r, "pass the output on") : 0;
}

/* What an error has to show: a traceback, its value, or (of one that is the pool's own) a message. */
static const char *error_key(const json_t *obj)
{
	return *client_string(obj, "traceback") ? "traceback"
		: *client_string(obj, "value")  ? "value"
						: "message";
}

static void say_cut(const json_t *end)
{
	static const char *const keys[] = {"stdout_cut", "stderr_cut", "results_cut"};
	static const char *const names[] = {"standard output", "standard error", "a result"};

	for (unsigned i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		if (json_is_true(json_object_get(end, keys[i])))
			fprintf(stderr, "parbake: %s was cut\n", names[i]);
	}
}

static int on_part(void *user, const json_t *obj, unsigned flags, struct err *err)
{
	struct args *code = user;
	const char *type = client_string(obj, "type");

	(void)flags;
	code->raised |= !strcmp(type, "error");
	code->timed_out |=
		!strcmp(type, "error") && json_is_true(json_object_get(obj, "timed_out"));
	code->ended |= !strcmp(type, "error") || !strcmp(type, "end_of_execution");
	if (code->json && strcmp(type, "keepalive") != 0)
		json_print_line(obj);
	if (code->json)
		return 0;
	if (!strcmp(type, "stdout"))
		return print_text(STDOUT_FILENO, obj, "text", "", err);
	if (!strcmp(type, "stderr"))
		return print_text(STDERR_FILENO, obj, "text", "", err);
	if (!strcmp(type, "result") && json_is_string(json_object_get(obj, "text")))
		return print_text(STDOUT_FILENO, obj, "text", "\n", err);
	if (!strcmp(type, "error")) {
		int r = print_text(STDERR_FILENO, obj, error_key(obj), "\n", err);

		if (r == 0 && code->timed_out)
			fprintf(stderr, "parbake: timed out: %s\n", client_string(obj, "value"));
		return r;
	}
	if (!strcmp(type, "end_of_execution"))
		say_cut(obj);
	return 0;
}

static int on_data(void *user, const char *bytes, size_t len)
{
	struct args *code = user;

	return client_parts_feed(&code->parts, bytes, len);
}

static void on_done(void *user, const struct client_answer *a)
{
	struct args *code = user;

	code->over = true;
	if (!code->parts.err.text[0] && !a->error)
		client_parts_end(&code->parts);
	if (code->parts.err.text[0])
		code->r = err_set(code->err, EPROTO, "%s", code->parts.err.text);
	else if (a->error)
		code->r = err_set(code->err, a->error, "%s", a->text);
	else if (!code->ended)
		code->r = err_set(code->err, ECONNRESET, "the answer ended before the code");
}

static int execute(struct args *code, struct err *err)
{
	cleanup_client struct client *c = NULL;
	cleanup_free char *id = NULL, *path = NULL;
	cleanup_json json_t *body = json_pack("{s:s}", "code", code->text);
	struct client_call *call;
	int r = client_open(code->sandbox, &c, &id, err);

	if (r < 0)
		return r;
	if (!body)
		return err_set(err, EINVAL, "the code is not UTF-8");
	if (code->context)
		json_object_set_new(body, "context_id", json_string(code->context));
	if (code->language)
		json_object_set_new(body, "language", json_string(code->language));
	if (code->timeout_ms)
		json_object_set_new(body, "timeout_ms", json_integer((json_int_t)code->timeout_ms));
	path = str_printf("/sandboxes/%s/execute", id);
	code->parts.part = on_part;
	code->parts.user = code;
	code->err = err;
	call = client_begin(c,
		&(struct client_spec){.method = "POST",
			.path = path,
			.json = body,
			.timeout_ms = -1,
			.data = on_data,
			.done = on_done,
			.user = code},
		err);
	r = call ? 0 : -EIO;
	while (r == 0 && !code->over)
		r = client_turn(c, NULL, 0, CLOCK_NEVER, err);
	client_drop_all(c);
	return r < 0 ? r : code->r;
}

static int read_code(struct args *code, struct err *err)
{
	size_t len;
	int r;

	if (strcmp(code->text, "-"))
		return 0;
	r = file_read_rest(
		STDIN_FILENO, "standard input", LIMIT_HTTP_BODY / 2, &code->owned, &len, err);
	if (r == 0 && strlen(code->owned) != len)
		r = err_set(err, EINVAL, "--code -: there is a NUL byte in the code");
	code->text = code->owned;
	return r;
}

static int run(void *user)
{
	struct args *code = user;
	struct err err = {0};
	int r = read_code(code, &err);

	if (r == 0)
		r = execute(code, &err);
	client_parts_clear(&code->parts);
	free(code->owned);
	if (r < 0) {
		cli_fail(&err);
		return CLI_NOT_RUN;
	}
	return code->timed_out ? CLI_TIMED_OUT : code->raised ? CLI_FAILED : CLI_OK;
}

static const struct option_entry options[] = {
	{"code", 'c', OPTION_TEXT, "CODE", AT(text),
		"what to run (-: standard input, the default)"},
	{"context", 0, OPTION_TEXT, "ID", AT(context), "in an interpreter of its own"},
	{"language", 'l', OPTION_TEXT, "L", AT(language),
		"python, javascript, typescript, bash, r or java"},
	{"timeout", 't', OPTION_DURATION, "T", AT(timeout_ms), "interrupt it after so long"},
	{"json", AT(json), "the events of the execution, one a line"},
	{0},
};

static const struct operand_entry operands[] = {{"ID", AT(sandbox), NAMES_SANDBOX}, {0}};

const struct command command_code = {"code",
	"run code in a sandbox: Python, in its warm interpreter, or another language",
	.notes = "Exit status: 0; 1 it raised; 124 it was timed out; 125 parbake failed.",
	.options = options, .operands = operands, .args_bytes = sizeof(struct args),
	.defaults = &(const struct args){.text = "-"}, .run = run};
