/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a command, and code in an interpreter, to the end: input carried, output collected or
 * passed on, the reply's fields read. The agent enforces the timeout and the limits; as it is not
 * trusted, they are enforced here too: output past a limit is dropped and counts as cut, and a
 * command that outlives its timeout by GRACE_MS ends the call.
 */
#include "common/buffer.h"
#include "vmm/guest/guest_private.h"

#include <fcntl.h>
#include <poll.h>

#include "common/clock.h"
#include "common/limits.h"

#define GRACE_MS 10000

struct exec_call {
	const struct guest_exec_spec *spec;
	struct guest_result *r;
	bool has_status; /* CODE and what is detached have no exit status */
	struct guest_stream *s;
	bool done, broken;
	int error;
	int output_error; /* positive: the caller did not take its output */
	int64_t stalled_ns; /* time that the caller took to pass output on */
	char *text;
	struct guest_pump pump; /* buf NULL: no input */
	struct guest_watch *resize;
	struct {
		struct buffer bytes;
		uint64_t limit, taken;
		bool cut;
	} out[PROTO_CHANNELS];
};

void guest_result_free(struct guest_result *r)
{
	free(r->out);
	free(r->err);
	free(r->ename);
	free(r->evalue);
	free(r->traceback);
	free(r->results);
	*r = (struct guest_result){0};
}

static void exec_pass_on(
	struct exec_call *c, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	int64_t begin = clock_now_ns();
	int rc;

	if (!len || c->output_error)
		return;
	rc = c->spec->output(c->spec->user_data, channel, bytes, len);
	c->stalled_ns += clock_now_ns() - begin;
	if (rc < 0) {
		c->output_error = -rc;
		guest_stream_cancel(c->s);
	}
}

static size_t exec_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct exec_call *c = user;
	uint64_t left = c->out[channel].limit - c->out[channel].taken;
	size_t n = len < left ? len : (size_t)left;

	if (n < len)
		c->out[channel].cut = true;
	c->out[channel].taken += n;
	if (channel != PROTO_RESULT && c->spec->output) {
		exec_pass_on(c, channel, bytes, n);
	} else {
		buffer_append(&c->out[channel].bytes, bytes, n);
	}
	return len;
}

static void exec_resize(void *user, short revents)
{
	struct exec_call *c = user;
	unsigned rows = 0, cols = 0;

	(void)revents;
	c->spec->resize(c->spec->user_data, &rows, &cols);
	if (rows && cols)
		guest_stream_resize(c->s, rows, cols);
}

static void exec_eof(void *user, enum proto_channel channel)
{
	struct exec_call *c = user;

	if (channel == PROTO_IN)
		guest_pump_stop(&c->pump);
}

static void exec_writable(void *user, enum proto_channel channel)
{
	struct exec_call *c = user;

	(void)channel;
	guest_pump_writable(&c->pump);
}

/* A string field into fresh memory; a second one of its kind replaces the first. */
static int take_text(const struct proto_field *f, char **ret)
{
	if (memchr(f->data, 0, f->len))
		return -1;
	free(*ret);
	*ret = strndup((const char *)f->data, f->len);
	if (!*ret)
		abort();
	return 0;
}

/* One field of the reply: -1 where it is broken. Others are ignored. */
static int take_field(struct guest_result *r, const struct proto_field *f, bool *ret_ended)
{
	uint32_t n = 0;
	int on = 0, rc = 0;

	switch (f->tag) {
	case PROTO_T_EXIT_CODE:
		rc = proto_u32(f, &n);
		if (n > 255)
			return -1;
		r->exit_code = (int)n;
		r->exit_signal = 0;
		*ret_ended = true;
		return rc;
	case PROTO_T_EXIT_SIGNAL:
		rc = proto_u32(f, &n);
		if (n < 1 || n > 64)
			return -1;
		r->exit_code = -1;
		r->exit_signal = (int)n;
		*ret_ended = true;
		return rc;
	case PROTO_T_TIMED_OUT:
		rc = proto_bool(f, &on);
		r->timed_out = on;
		return rc;
	case PROTO_T_OOM:
		rc = proto_bool(f, &on);
		r->oom = on;
		return rc;
	case PROTO_T_CONTEXT_GONE:
		rc = proto_bool(f, &on);
		r->context_gone = on;
		return rc;
	case PROTO_T_CUT_OUT:
		rc = proto_bool(f, &on);
		r->cut_out = on;
		return rc;
	case PROTO_T_CUT_ERR:
		rc = proto_bool(f, &on);
		r->cut_err = on;
		return rc;
	case PROTO_T_TOTAL_OUT:
		return proto_u64(f, &r->total_out);
	case PROTO_T_TOTAL_ERR:
		return proto_u64(f, &r->total_err);
	case PROTO_T_DURATION_NS:
		return proto_u64(f, &r->duration_ns);
	case PROTO_T_EXECUTION:
		return proto_u32(f, &r->execution);
	case PROTO_T_ENAME:
		return take_text(f, &r->ename);
	case PROTO_T_EVALUE:
		return take_text(f, &r->evalue);
	case PROTO_T_TRACEBACK:
		return take_text(f, &r->traceback);
	default:
		return 0;
	}
}

static void exec_done(void *user, const struct guest_reply *reply)
{
	struct exec_call *c = user;
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;
	bool ended = !c->has_status;

	guest_pump_stop(&c->pump);
	guest_watch_remove(c->resize);
	c->resize = NULL;
	c->done = true;
	c->error = reply->error;
	while (proto_next(&in, &f) == 1) {
		if (take_field(c->r, &f, &ended) < 0)
			c->broken = true;
	}
	if (reply->error && c->r->context_gone && !c->has_status) {
		/* the code ran, and its interpreter is no more: a result, with what came before */
		c->error = 0;
		c->r->timed_out |= reply->error == ETIMEDOUT;
		free(c->r->traceback);
		c->r->traceback = strdup(reply->text);
		return;
	}
	if (reply->error) {
		c->text = strdup(reply->text);
		return;
	}
	if (!ended)
		c->broken = true;
}

/* What was collected, terminated; NULL where the caller had it passed on. */
static char *take_output(struct exec_call *c, enum proto_channel channel, size_t *ret_len)
{
	struct buffer *b = &c->out[channel].bytes;
	char *text;

	*buffer_reserve(b, 1) = '\0';
	if (b->head)
		memmove(b->bytes, b->bytes + b->head, b->len + 1);
	*ret_len = b->len;
	text = (char *)b->bytes;
	*b = (struct buffer){0};
	return text;
}

/* Until it is done or the time is up. A reader of our output that is slow spends time of its own. */
static int exec_wait_done(
	struct guest *g, struct exec_call *c, int64_t until, int also_fd, struct err *err)
{
	struct err late = {0};
	int64_t counted;
	int rc;

	do {
		counted = c->stalled_ns;
		rc = guest_wait(g, &c->done, until == CLOCK_NEVER ? until : until + counted,
			also_fd, &late);
	} while (rc == -ETIMEDOUT && c->stalled_ns > counted);
	if (rc == 0)
		return 0;
	return guest_wait_stream(g, c->s, &c->done, clock_now_ns(), also_fd, err);
}

/* Wait for it and make the result of what came. */
static int exec_wait(struct guest *g, struct exec_call *c, int64_t deadline, int also_fd,
	const char *what, struct err *err)
{
	int64_t own = c->spec->timeout_ms && c->spec->timeout_ms < INT64_MAX / 2000000
		? clock_deadline((int64_t)c->spec->timeout_ms + GRACE_MS)
		: CLOCK_NEVER;
	size_t len;
	int rc = exec_wait_done(g, c, deadline < own ? deadline : own, also_fd, err);

	guest_pump_stop(&c->pump);
	if (c->pump.error)
		return err_sys(err, c->pump.error, "%s: reading its input", what);
	if (c->output_error)
		return err_sys(err, c->output_error, "%s: passing its output on", what);
	if (rc == -ETIMEDOUT && own <= deadline)
		return err_set(err, ETIMEDOUT,
			"%s: the agent did not end it at its timeout of %llu ms; cancelled", what,
			(unsigned long long)c->spec->timeout_ms);
	if (rc < 0) {
		err_prefix(err, "%s", what);
		return rc;
	}
	if (c->error)
		return guest_reply_error(what, c->error, c->text, err);
	if (c->broken)
		return err_set(err, EPROTO, "%s: the agent's reply is broken", what);
	c->r->cut_out |= c->out[PROTO_OUT].cut;
	c->r->cut_err |= c->out[PROTO_ERR].cut;
	if (!c->spec->output) {
		c->r->out = take_output(c, PROTO_OUT, &c->r->out_len);
		c->r->err = take_output(c, PROTO_ERR, &c->r->err_len);
	}
	c->r->results = take_output(c, PROTO_RESULT, &len);
	c->r->cut_results = c->out[PROTO_RESULT].cut;
	if (c->r->cut_results) {
		char *end = memrchr(c->r->results, '\n', len);

		c->r->results[end ? end + 1 - c->r->results : 0] = '\0';
	}
	return 0;
}

static int exec_run(struct guest *g, enum proto_type type, const struct proto_out *o,
	const struct guest_exec_spec *spec, int64_t deadline, int also_fd, const char *what,
	struct guest_result *ret, struct err *err)
{
	static const struct guest_stream_ops ops = {
		.data = exec_data, .eof = exec_eof, .writable = exec_writable, .done = exec_done};
	struct guest_result r = {0};
	struct exec_call c = {
		.spec = spec, .r = &r, .has_status = type == PROTO_EXEC && !spec->detach};
	int rc;

	if (o->failed)
		return guest_request_error(g, type, UINT32_MAX, err);
	c.out[PROTO_OUT].limit = spec->limit_out ? spec->limit_out : LIMIT_OUTPUT_BYTES;
	c.out[PROTO_ERR].limit = spec->limit_err ? spec->limit_err : LIMIT_OUTPUT_BYTES;
	c.out[PROTO_RESULT].limit = LIMIT_OUTPUT_BYTES;
	c.s = guest_request(g, type, o->buf, o->len, &ops, &c);
	if (!c.s)
		return guest_request_error(g, type, o->len, err);
	if (c.has_status && spec->stdin_fd >= 0)
		guest_pump_start(&c.pump, g, c.s, spec->stdin_fd);
	if (c.has_status && spec->resize)
		c.resize = guest_watch_add(g, spec->resize_fd, POLLIN, exec_resize, &c);
	rc = exec_wait(g, &c, deadline, also_fd, what, err);
	guest_watch_remove(c.resize);
	for (int i = 0; i < PROTO_CHANNELS; i++)
		buffer_free(&c.out[i].bytes);
	free(c.text);
	if (rc < 0)
		guest_result_free(&r);
	else
		*ret = r;
	return rc;
}

/* Fields that EXEC and CODE share. */
static void put_limits(struct proto_out *o, const struct guest_exec_spec *spec)
{
	uint64_t out = spec->limit_out ? spec->limit_out : LIMIT_OUTPUT_BYTES;
	uint64_t errors = spec->limit_err ? spec->limit_err : LIMIT_OUTPUT_BYTES;

	proto_put_u64(o, PROTO_T_TIMEOUT_MS, spec->timeout_ms);
	proto_put_u64(o, PROTO_T_LIMIT_OUT, out);
	proto_put_u64(o, PROTO_T_LIMIT_ERR, errors);
}

/* Bounds of the agent that its breaches would be. */
static int check_spec(const struct guest_exec_spec *spec, struct err *err)
{
	size_t n_args = 0, n_env = 0;
	int rc;

	if (spec->argv ? !spec->argv[0] : !spec->shell)
		return err_set(err, EINVAL, "no command was given");
	while (spec->argv && spec->argv[n_args])
		n_args++;
	while (spec->env && spec->env[n_env])
		n_env++;
	if (n_args > LIMIT_EXEC_ARGS || n_env > LIMIT_EXEC_ARGS)
		return err_set(err, E2BIG, "more than %d arguments or variables", LIMIT_EXEC_ARGS);
	if (spec->stdin_fd >= 0 && fcntl(spec->stdin_fd, F_GETFD) < 0)
		return err_sys(err, errno, "the command's input");
	rc = guest_check_text("the working directory", spec->cwd, PROTO_PATH_MAX, err);
	return rc < 0 ? rc : guest_check_text("the user's name", spec->user, LIMIT_USER, err);
}

/* The request's fields. */
static void put_spec(struct proto_out *o, const struct guest_exec_spec *spec)
{
	for (size_t i = 0; spec->argv && spec->argv[i]; i++)
		proto_put_str(o, PROTO_T_ARG, spec->argv[i]);
	if (!spec->argv)
		proto_put_str(o, PROTO_T_SHELL, spec->shell);
	for (size_t i = 0; spec->env && spec->env[i]; i++)
		proto_put_str(o, PROTO_T_ENV, spec->env[i]);
	if (spec->cwd)
		proto_put_str(o, PROTO_T_CWD, spec->cwd);
	if (spec->user)
		proto_put_str(o, PROTO_T_USER, spec->user);
	put_limits(o, spec);
	if (spec->memory_max)
		proto_put_u64(o, PROTO_T_MEMORY_MAX, spec->memory_max);
	if (spec->pids_max)
		proto_put_u64(o, PROTO_T_PIDS_MAX, spec->pids_max);
	if (spec->stdin_fd >= 0 && !spec->detach)
		proto_put_bool(o, PROTO_T_STDIN, 1);
	if (spec->rows && spec->cols) {
		uint16_t size[2] = {(uint16_t)spec->rows, (uint16_t)spec->cols};

		proto_put(o, PROTO_T_PTY, size, sizeof(size));
	}
	if (spec->detach)
		proto_put_bool(o, PROTO_T_DETACH, 1);
}

int guest_exec(struct guest *g, const struct guest_exec_spec *spec, int64_t deadline, int also_fd,
	struct guest_result *ret, struct err *err)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};
	char what[128];
	int rc;

	if (!buf)
		return err_set(err, ENOMEM, "out of memory");
	rc = check_spec(spec, err);
	if (rc < 0)
		return rc;
	put_spec(&o, spec);
	snprintf(what, sizeof(what), "running %s in the guest",
		spec->argv ? spec->argv[0] : spec->shell);
	for (char *p = what; *p; p++) {
		if ((unsigned char)*p < 0x20)
			*p = ' ';
	}
	return exec_run(g, PROTO_EXEC, &o, spec, deadline, also_fd, what, ret, err);
}

int guest_code(struct guest *g, const char *context, const char *code,
	const struct guest_exec_spec *spec, int64_t deadline, int also_fd, struct guest_result *ret,
	struct err *err)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};
	int rc;

	if (!buf)
		return err_set(err, ENOMEM, "out of memory");
	rc = guest_check_text("the context's name", context, LIMIT_CONTEXT_NAME, err);
	if (rc < 0)
		return rc;
	if (context)
		proto_put_str(&o, PROTO_T_CONTEXT, context);
	proto_put_str(&o, PROTO_T_CODE, code);
	put_limits(&o, spec);
	return exec_run(
		g, PROTO_CODE, &o, spec, deadline, also_fd, "running code in the guest", ret, err);
}
