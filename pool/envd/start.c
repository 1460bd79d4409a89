/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.Process, the service by which the ecosystem's SDKs run commands: Connect's protocol with
 * JSON. Start and Connect answer with a stream of events (start, data, keepalive, end) in
 * envelopes; the others are unary requests. Fields that E2B's envd does not have are sent only
 * where they apply: "timedOut", "oom" and "cut" of an end.
 *
 * A command goes on when the client that started it goes, and Connect follows its output again.
 * Every command has a time limit (Connect-Timeout-Ms, else the template's).
 */
#include "pool/envd/envd_private.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base64.h"
#include "pool/envd/limits.h"

#define PTY_ROWS 24
#define PTY_COLS 80
#define KEEPALIVE_MS 30000 /* also how soon a client that has gone is noticed */

struct start_call {
	struct envd_call call;
	struct envd_process *p; /* NULL: it has ended */
};

static void start_event(struct envd_call *c, unsigned flags, json_t *event)
{
	json_t *message = flags ? event : json_pack("{s:o}", "event", event);
	char *text = json_text(message);
	uint8_t head[ENVD_ENVELOPE_HEAD];

	envd_envelope_head(head, flags, (uint32_t)strlen(text));
	envd_write(c, head, sizeof(head));
	envd_write(c, text, strlen(text));
	free(text);
	json_decref(message);
}

static void start_keepalive(struct envd_call *c)
{
	start_event(c, 0, json_pack("{s:{}}", "keepalive"));
}

static void start_started(struct envd_call *c, uint32_t pid)
{
	envd_begin(c, 200, "application/connect+json");
	start_event(c, 0, json_pack("{s:{s:I}}", "start", "pid", (json_int_t)pid));
}

static void start_data(
	struct envd_call *c, enum proto_channel channel, bool pty, const uint8_t *bytes, size_t len)
{
	char *text = base64_encode(bytes, len);

	start_event(c, 0,
		json_pack("{s:{s:s}}", "data",
			pty                            ? "pty"
				: channel == PROTO_OUT ? "stdout"
						       : "stderr",
			text));
	free(text);
}

static void start_ended(struct envd_call *c, const struct envd_end *end)
{
	struct start_call *s = (struct start_call *)c;
	char status[64];
	json_t *e;

	s->p = NULL;
	if (end->error) {
		envd_fail_end(c, end);
		return;
	}
	if (end->exited)
		snprintf(status, sizeof(status), "exit status %u", end->exit_code);
	else
		snprintf(status, sizeof(status), "signal: %s", strsignal((int)end->exit_signal));
	if (!end->exited)
		status[8] = (char)tolower((unsigned char)status[8]); /* "killed", as there */
	e = json_pack("{s:i,s:b,s:s}", "exitCode", end->exited ? (int)end->exit_code : -1, "exited",
		end->exited, "status", status);
	if (!e)
		abort();
	if (end->timed_out)
		json_object_set_new(e, "timedOut", json_true());
	if (end->oom)
		json_object_set_new(e, "oom", json_true());
	if (end->cut_out || end->cut_err)
		json_object_set_new(e, "cut",
			json_pack("{s:b,s:b,s:I,s:I}", "stdout", end->cut_out, "stderr",
				end->cut_err, "stdoutBytes", (json_int_t)end->total_out,
				"stderrBytes", (json_int_t)end->total_err));
	if (end->oom)
		json_object_set_new(e, "error", json_string("out of memory"));
	else if (!end->exited || end->exit_code)
		json_object_set_new(e, "error", json_string(status));
	start_event(c, 0, json_pack("{s:o}", "end", e));
	if (end->timed_out) {
		envd_fail(c, ENVD_DEADLINE, "the command ran longer than %llu ms and was killed",
			(unsigned long long)end->timeout_ms);
		return;
	}
	start_event(c, ENVD_ENVELOPE_END, json_object());
	envd_finish(c);
}

static const struct envd_reader_ops start_ops = {
	.started = start_started, .data = start_data, .ended = start_ended};

static void start_writable(struct envd_call *c)
{
	struct start_call *s = (struct start_call *)c;

	if (s->p)
		envd_process_resume(s->p);
}

static void start_gone(struct envd_call *c)
{
	struct start_call *s = (struct start_call *)c;

	if (s->p)
		envd_process_leave(s->p, c);
	s->p = NULL;
}

static void start_beat(struct envd_call *c)
{
	const char *text = http_header(c->rq, "Keepalive-Ping-Interval");
	unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;

	envd_keepalive(c, seconds && seconds < KEEPALIVE_MS / 1000 ? seconds * 1000 : KEEPALIVE_MS,
		start_keepalive);
}

/* ---- Start -------------------------------------------------------------------------------- */

/* {"process": {cmd, args}}, or {"process": {argvBase64}}. */
static int start_argv(struct envd_call *c, const json_t *process, struct envd_words *words)
{
	const json_t *coded = json_object_get(process, "argvBase64");
	const char *cmd;

	if (envd_string(c, process, "cmd", &cmd) < 0)
		return -EINVAL;
	if (!*cmd == !json_array_size(coded)) {
		envd_fail(c, ENVD_INVALID,
			"process.cmd: the program to run is needed (or process.argvBase64 in its "
			"place)");
		return -EINVAL;
	}
	if (*cmd)
		envd_words_put(words, cmd);
	return *cmd
		? envd_words_add(c, "process.args", json_object_get(process, "args"), false, words)
		: envd_words_add(c, "process.argvBase64", coded, true, words);
}

/* {"pty": {"size": {rows, cols}}}: 0 and 0 where there is none. A terminal of 0 by 0 is an ordinary one. */
static int start_size(
	struct envd_call *c, const json_t *pty, unsigned *ret_rows, unsigned *ret_cols)
{
	const json_t *size = json_object_get(pty, "size");
	json_int_t rows = json_integer_value(json_object_get(size, "rows"));
	json_int_t cols = json_integer_value(json_object_get(size, "cols"));

	*ret_rows = *ret_cols = 0;
	if (!pty || json_is_null(pty))
		return 0;
	if (rows < 0 || cols < 0 || rows > UINT16_MAX || cols > UINT16_MAX) {
		envd_fail(c, ENVD_INVALID, "pty.size: rows and cols are from 0 to %d", UINT16_MAX);
		return -EINVAL;
	}
	*ret_rows = rows ? (unsigned)rows : PTY_ROWS;
	*ret_cols = cols ? (unsigned)cols : PTY_COLS;
	return 0;
}

static void start_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	struct start_call *s = (struct start_call *)c;
	const json_t *process = json_object_get(body, "process");
	const json_t *has_in = json_object_get(body, "stdin");
	char user[LIMIT_USER + 1], cwd[PROTO_PATH_MAX + 1];
	cleanup_envd_words struct envd_words words = {0}, env_bytes = {0};
	struct envd_process_spec spec = {
		.argv = &words, .cwd = cwd, .user = user, .env_bytes = &env_bytes};
	cleanup_json json_t *env = NULL;
	uint64_t asked;

	if (!json_is_object(process)) {
		envd_fail(c, ENVD_INVALID, "process: what is to run is needed");
		return;
	}
	if (envd_user(c, t->user, user) < 0 || envd_timeout_header(c, &asked) < 0 ||
		start_argv(c, process, &words) < 0 ||
		envd_env_bytes(c, "process.envsBase64", json_object_get(process, "envsBase64"),
			&env_bytes) < 0 ||
		envd_cwd(c, process, "cwd", "cwdBase64", user, cwd) < 0 ||
		envd_string(c, body, "tag", &spec.tag) < 0 ||
		start_size(c, json_object_get(body, "pty"), &spec.rows, &spec.cols) < 0)
		return;
	env = envd_env(c, t, json_object_get(process, "envs"));
	if (!env)
		return;
	if (strlen(spec.tag) > PROTO_TAG_MAX) {
		envd_fail(c, ENVD_INVALID, "tag: longer than %u bytes", PROTO_TAG_MAX);
		return;
	}
	spec.env = env;
	spec.timeout_ms = envd_timeout(t, asked);
	spec.limit_out = spec.limit_err = t->output_bytes ? t->output_bytes : LIMIT_ENVD_STREAM;
	spec.has_stdin = spec.rows || !json_is_false(has_in);
	s->p = envd_process_start(c, t, &spec, &start_ops);
	if (s->p)
		start_beat(c);
}

/* ---- those that name a running one -------------------------------------------------------- */

/* Such a request while the guest is asked for the command. */
struct named_call {
	struct envd_call call;
	json_t *body;
};

static void named_destroy(struct envd_call *c)
{
	json_decref(((struct named_call *)c)->body);
}

static const json_t *named_body(const struct envd_call *c)
{
	return ((const struct named_call *)c)->body;
}

static void select_process(struct envd_call *c, const json_t *body,
	void (*fn)(struct envd_call *c, struct envd_process *p))
{
	const json_t *selector = json_object_get(body, "process");
	const json_t *pid = json_object_get(selector, "pid");
	const char *tag = json_string_value(json_object_get(selector, "tag"));
	json_int_t n = json_integer_value(pid);

	if (tag ? !*tag || strlen(tag) > PROTO_TAG_MAX : !pid)
		envd_fail(c, ENVD_INVALID, "process: {\"pid\": …} or {\"tag\": …} is needed");
	else if (!tag && (n <= 0 || n > UINT32_MAX))
		envd_fail(c, ENVD_NOT_FOUND, "no command with the number %lld runs", (long long)n);
	else
		envd_process_seek(c, (uint32_t)n, tag, fn);
}

static void named_select(struct envd_call *c, const json_t *body,
	void (*fn)(struct envd_call *c, struct envd_process *p))
{
	((struct named_call *)c)->body = json_incref((json_t *)body);
	select_process(c, body, fn);
}

static void connect_found(struct envd_call *c, struct envd_process *p)
{
	struct start_call *s = (struct start_call *)c;

	if (!envd_process_follow(p, c, &start_ops))
		return;
	s->p = p;
	start_beat(c);
}

static void connect_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	select_process(c, body, connect_found);
}

static void input_found(struct envd_call *c, struct envd_process *p)
{
	const json_t *input = json_object_get(named_body(c), "input");
	const json_t *plain = json_object_get(input, "stdin"), *pty = json_object_get(input, "pty");
	const json_t *value = plain ? plain : pty;
	uint8_t *bytes;
	size_t len;

	if (!json_is_string(value) || (plain && pty) ||
		!envd_base64_decode(
			json_string_value(value), json_string_length(value), &bytes, &len)) {
		envd_fail(c, ENVD_INVALID,
			"input: {\"stdin\": …} or {\"pty\": …} is needed, in base64");
		return;
	}
	if (!envd_process_has_input(p) || envd_process_is_pty(p) != !!pty) {
		free(bytes);
		envd_fail(c, ENVD_PRECONDITION, "the command %u %s", envd_process_pid(p),
			!envd_process_has_input(p) ? "has no input, or it is closed"
				: pty              ? "has no terminal: send stdin"
						   : "has a terminal: send pty");
		return;
	}
	if (envd_process_input(p, c, bytes, len, false) < 0)
		envd_fail(c, ENVD_EXHAUSTED, "the command %u does not read: %d inputs wait already",
			envd_process_pid(p), LIMIT_ENVD_INPUTS);
}

static void input_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	named_select(c, body, input_found);
}

static void close_found(struct envd_call *c, struct envd_process *p)
{
	if (envd_process_is_pty(p))
		envd_fail(c, ENVD_PRECONDITION,
			"the command %u has a terminal: its input ends with the byte 4 (Ctrl-D)",
			envd_process_pid(p));
	else if (!envd_process_has_input(p))
		envd_reply(c, 200, json_object());
	else if (envd_process_input(p, c, NULL, 0, true) < 0)
		envd_fail(c, ENVD_EXHAUSTED, "the command %u does not read: %d inputs wait already",
			envd_process_pid(p), LIMIT_ENVD_INPUTS);
}

static void close_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	named_select(c, body, close_found);
}

/* SIGNAL_SIGTERM, SIGNAL_SIGKILL or a number. 0: none. */
static int signal_number(const json_t *value)
{
	static const struct {
		const char *name;
		int number;
	} names[] = {{"SIGNAL_SIGTERM", SIGTERM}, {"SIGNAL_SIGKILL", SIGKILL},
		{"SIGNAL_SIGINT", SIGINT}, {"SIGNAL_SIGHUP", SIGHUP}, {"SIGNAL_SIGQUIT", SIGQUIT},
		{"SIGNAL_SIGUSR1", SIGUSR1}, {"SIGNAL_SIGUSR2", SIGUSR2},
		{"SIGNAL_SIGSTOP", SIGSTOP}, {"SIGNAL_SIGCONT", SIGCONT}};
	const char *name = json_string_value(value);
	json_int_t n = json_integer_value(value);

	for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i].name))
			return names[i].number;
	}
	return n >= 1 && n <= 64 ? (int)n : 0;
}

static void signal_found(struct envd_call *c, struct envd_process *p)
{
	envd_process_signal(p, signal_number(json_object_get(named_body(c), "signal")));
	envd_reply(c, 200, json_object());
}

static void signal_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	if (signal_number(json_object_get(body, "signal")))
		named_select(c, body, signal_found);
	else
		envd_fail(c, ENVD_INVALID,
			"signal: SIGNAL_SIGTERM, SIGNAL_SIGKILL or a number from 1 to 64");
}

static void update_found(struct envd_call *c, struct envd_process *p)
{
	unsigned rows, cols;

	if (start_size(c, json_object_get(named_body(c), "pty"), &rows, &cols) < 0)
		return;
	if (rows && !envd_process_is_pty(p)) {
		envd_fail(c, ENVD_PRECONDITION, "the command %u has no terminal",
			envd_process_pid(p));
		return;
	}
	if (rows)
		envd_process_resize(p, rows, cols);
	envd_reply(c, 200, json_object());
}

static void update_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	named_select(c, body, update_found);
}

static void list_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	(void)t;
	(void)body;
	envd_process_list(c);
}

#define UNARY(name, fn)                                                                            \
	{                                                                                          \
		.method = "POST", .path = "/process.Process/" name, .style = ENVD_UNARY,           \
		.body = true, .size = sizeof(struct named_call), .start = (fn),                    \
		.destroy = named_destroy                                                           \
	}
#define STREAM(name, fn)                                                                           \
	{                                                                                          \
		.method = "POST", .path = "/process.Process/" name, .style = ENVD_STREAM,          \
		.body = true, .size = sizeof(struct start_call), .start = (fn),                    \
		.writable = start_writable, .gone = start_gone                                     \
	}

const struct envd_route envd_routes_process[] = {
	STREAM("Start", start_start),
	STREAM("Connect", connect_start),
	UNARY("SendInput", input_start),
	UNARY("CloseStdin", close_start),
	UNARY("SendSignal", signal_start),
	UNARY("Update", update_start),
	UNARY("List", list_start),
	{0},
};
