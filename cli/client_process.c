/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command with standard input or a terminal: process.Process of the sandbox's envd (the Connect
 * protocol with JSON). Start's answer streams what the command says for as long as it runs; what is typed
 * goes beside it in calls of its own (SendInput, CloseStdin, Update), one at a time, so that it
 * arrives in order and waits where the command does not read.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/client_stream.h"
#include "cli/terminal.h"
#include "common/base64.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/str.h"

#define INPUT_BYTES (64 * KIB) /* of one call */
#define TERMINAL_LINE 4095 /* bytes of a line that Linux's terminals take: termios(3) */

static const char *const connect_header[] = {"Connect-Protocol-Version: 1", NULL};

struct process {
	struct client *client;
	const char *id;
	const struct client_exec *spec;
	struct client_exit exit;
	struct client_parts parts;
	json_int_t pid; /* 0: not started */
	bool ended, over; /* its end was told; the answer has ended */
	bool sending; /* a call beside is under way */
	bool input_over; /* no more input: its end was sent, or nobody reads it */
	bool resized;
	size_t column; /* bytes of the line that the input is in */
	bool warned; /* of one that is too long */
	int resize_fd;
	int failed; /* negative errno */
	struct err *err;
};

static void fail(struct process *p, int error, const char *text)
{
	if (!p->failed)
		p->failed = err_set(p->err, error, "%s", text);
}

/* ---- what it says -------------------------------------------------------------------------- */

static int pass(struct process *p, int fd, const json_t *data, const char *key, struct err *err)
{
	cleanup_free char *text = str_dup(client_string(data, key));
	ssize_t n;
	int r;

	if (!*text)
		return 0;
	n = base64_decode(text, strlen(text), text);
	if (n < 0)
		return err_set(err, EPROTO, "the answer has output that is not base 64");
	r = p->spec->output(p->spec->user_data, fd, text, (size_t)n);
	return r < 0 ? err_sys(err, -r, "pass the output on") : 0;
}

/* "signal: Killed": its number; 0: it is none. */
static int signal_of(const char *status)
{
	static const char prefix[] = "signal: ";

	if (strncasecmp(status, prefix, sizeof(prefix) - 1) != 0)
		return 0;
	status += sizeof(prefix) - 1;
	for (int sig = 1; sig < NSIG; sig++) {
		if (!strcasecmp(status, strsignal(sig)))
			return sig;
	}
	return SIGKILL;
}

/* {"exitCode", "exited", "status"}; and only where it is so: "timedOut", "oom", "cut". */
static void take_end(struct process *p, const json_t *end)
{
	const json_t *cut = json_object_get(end, "cut");
	struct client_exit *e = &p->exit;

	e->signal = json_is_true(json_object_get(end, "exited"))
		? 0
		: signal_of(client_string(end, "status"));
	e->code = e->signal ? -1 : (int)client_number(end, "exitCode");
	e->timed_out = json_is_true(json_object_get(end, "timedOut"));
	e->oom = json_is_true(json_object_get(end, "oom"));
	e->cut_out = json_is_true(json_object_get(cut, "stdout"));
	e->cut_err = json_is_true(json_object_get(cut, "stderr"));
	e->total_out = cut ? (int64_t)client_number(cut, "stdoutBytes") : -1;
	e->total_err = cut ? (int64_t)client_number(cut, "stderrBytes") : -1;
	p->ended = true;
}

static int on_part(void *user, const json_t *obj, unsigned flags, struct err *err)
{
	struct process *p = user;
	const json_t *event = json_object_get(obj, "event"), *one;

	if (flags & CLIENT_FRAME_END) {
		one = json_object_get(obj, "error");
		if (!one)
			return 0;
		if (!strcmp(client_string(one, "code"), "deadline_exceeded") && p->pid) {
			p->exit.timed_out = true;
			p->ended = true;
			return 0;
		}
		return err_set(err, client_errno(one), "%s", client_string(one, "message"));
	}
	if ((one = json_object_get(event, "start")))
		p->pid = (json_int_t)client_number(one, "pid");
	if ((one = json_object_get(event, "data"))) {
		int r = pass(p, STDOUT_FILENO, one, "stdout", err);

		if (r == 0)
			r = pass(p, STDERR_FILENO, one, "stderr", err);
		return r < 0 ? r : pass(p, STDOUT_FILENO, one, "pty", err);
	}
	if ((one = json_object_get(event, "end")))
		take_end(p, one);
	return 0;
}

static int on_data(void *user, const char *bytes, size_t len)
{
	struct process *p = user;
	int r = client_parts_feed(&p->parts, bytes, len);

	if (r < 0)
		fail(p, -r, p->parts.err.text);
	return r;
}

static void on_done(void *user, const struct client_answer *a)
{
	struct process *p = user;

	p->over = true;
	if (p->failed)
		return;
	if (a->error)
		fail(p, client_exec_errno(a), a->text);
	else if (client_parts_end(&p->parts) < 0)
		fail(p, EPROTO, p->parts.err.text);
	else if (!p->ended)
		fail(p, ECONNRESET, "the answer ended before the command");
}

/* ---- what it is told ----------------------------------------------------------------------- */

/* Was the input not wanted any more? The command may end, or close its input, before it has read all. */
static bool unread(const struct client_answer *a)
{
	cleanup_json json_t *obj = NULL;
	const char *code;

	if (a->error == ENOENT)
		return true;
	if (!a->status || json_parse("answer", a->body, a->len, &obj, NULL) < 0)
		return false;
	code = client_string(obj, "code");
	return !strcmp(code, "not_found") || !strcmp(code, "failed_precondition");
}

static void on_sent(void *user, const struct client_answer *a)
{
	struct process *p = user;

	p->sending = false;
	if (!a->error)
		return;
	if (unread(a))
		p->input_over = true;
	else if (!p->ended)
		fail(p, a->error, a->text);
}

/* @body is taken. */
static void send_beside(struct process *p, const char *method, json_t *body)
{
	cleanup_json json_t *mine = body;
	cleanup_free char *path = str_printf("/sandboxes/%s/process.Process/%s", p->id, method);
	const struct client_spec spec = {.method = "POST",
		.path = path,
		.json = mine,
		.headers = connect_header,
		.timeout_ms = -1,
		.done = on_sent,
		.user = p};

	json_object_set_new(mine, "process", json_pack("{s:I}", "pid", p->pid));
	p->sending = client_begin(p->client, &spec, p->err) != NULL;
	if (!p->sending)
		p->failed = -EIO;
}

/* What is typed into a terminal of ours is its guest's own business; what is piped into one may be too long for it. */
static void follow_lines(struct process *p, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		p->column = bytes[i] == '\n' ? 0 : p->column + 1;
		if (p->column != TERMINAL_LINE + 1 || p->warned || isatty(p->spec->stdin_fd))
			continue;
		p->warned = true;
		fprintf(stderr,
			"parbake: a line of the input is longer than %d bytes: a terminal cuts it "
			"there, "
			"unless its program reads keys; leave -t away\n",
			TERMINAL_LINE);
	}
}

static void send_input(struct process *p)
{
	char buf[INPUT_BYTES];
	ssize_t n = read(p->spec->stdin_fd, buf, sizeof(buf));
	int error = n < 0 ? errno : 0;
	cleanup_free char *text = NULL;

	if (error == EAGAIN || error == EINTR)
		return;
	if (error && !isatty(p->spec->stdin_fd)) { /* a terminal that hangs up is at its end */
		p->failed = err_sys(p->err, error, "read standard input");
		return;
	}
	if (n <= 0 && !p->spec->tty) {
		p->input_over = true;
		send_beside(p, "CloseStdin", json_object());
		return;
	}
	if (n <=
		0) { /* a terminal's input has no end but ^D: within a line the first one ends the line alone */
		p->input_over = true;
		n = p->column ? 2 : 1;
		memset(buf, 4, (size_t)n);
	} else if (p->spec->tty) {
		follow_lines(p, buf, (size_t)n);
	}
	text = base64_encode(buf, (size_t)n);
	send_beside(p, "SendInput",
		json_pack("{s:{s:s}}", "input", p->spec->tty ? "pty" : "stdin", text));
}

static json_t *pty_size(void)
{
	unsigned rows, cols;

	terminal_size(&rows, &cols);
	return json_pack("{s:{s:i, s:i}}", "size", "cols", (int)cols, "rows", (int)rows);
}

static int turn(struct process *p, struct err *err)
{
	bool may_read =
		p->pid && !p->ended && !p->sending && !p->input_over && p->spec->stdin_fd >= 0;
	struct pollfd fds[2];
	unsigned n = 0, size = 0, rows, cols;
	int r;

	if (p->resized && p->pid && !p->sending && !p->ended) {
		p->resized = false;
		send_beside(p, "Update", json_pack("{s:o}", "pty", pty_size()));
		may_read = false;
	}
	if (may_read)
		fds[n++] = (struct pollfd){.fd = p->spec->stdin_fd, .events = POLLIN};
	if (p->resize_fd >= 0) {
		size = n;
		fds[n++] = (struct pollfd){.fd = p->resize_fd, .events = POLLIN};
	}
	r = client_turn(p->client, fds, n, CLOCK_NEVER, err);
	if (r < 0)
		return r;
	if (p->resize_fd >= 0 && fds[size].revents) {
		terminal_resized(&p->resize_fd, &rows, &cols);
		p->resized = true;
	}
	if (may_read && fds[0].revents && !p->ended && !p->failed)
		send_input(p);
	return p->failed;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static json_t *start_of(const struct client_exec *spec)
{
	json_t *process = json_object(), *obj = json_object();

	client_exec_put(spec, true, process);
	json_object_set_new(obj, "process", process);
	json_object_set_new(obj, "stdin", json_boolean(spec->stdin_fd >= 0));
	if (spec->tty)
		json_object_set_new(obj, "pty", pty_size());
	return obj;
}

static struct client_call *start(struct process *p)
{
	cleanup_free char *path = str_printf("/sandboxes/%s/process.Process/Start", p->id);
	cleanup_free char *user = client_exec_user(p->spec);
	cleanup_free char *timeout =
		str_printf("Connect-Timeout-Ms: %llu", (unsigned long long)p->spec->timeout_ms);
	const char *headers[4] = {connect_header[0]};
	cleanup_json json_t *body = start_of(p->spec);
	cleanup_free void *frame = NULL;
	unsigned n = 1;
	size_t len;

	client_frame(body, &frame, &len);
	if (user)
		headers[n++] = user;
	if (p->spec->timeout_ms)
		headers[n++] = timeout;
	return client_begin(p->client,
		&(struct client_spec){.method = "POST",
			.path = path,
			.type = "application/connect+json",
			.headers = headers,
			.body = frame,
			.body_len = len,
			.timeout_ms = -1,
			.data = on_data,
			.done = on_done,
			.user = p},
		p->err);
}

int client_process_run(struct client *c, const char *id, const struct client_exec *spec,
	struct client_exit *ret, struct err *err)
{
	struct process p = {.client = c,
		.id = id,
		.spec = spec,
		.err = err,
		.resize_fd = spec->tty ? terminal_resize_fd() : -1,
		.parts = {.part = on_part, .user = &p, .framed = true}};
	struct client_call *call = start(&p);
	int r = call ? 0 : -EIO;

	/* what is being sent when it ends is of no use to anyone */
	while (r == 0 && !p.over)
		r = turn(&p, err);
	if (r == 0)
		r = p.failed;
	client_drop_all(c);
	close_fd(&p.resize_fd);
	client_parts_clear(&p.parts);
	if (r == 0)
		*ret = p.exit;
	return r;
}
