/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to what runs in a sandbox, from its headers to the last byte of its answer. A call is
 * held by its HTTP request (until that has ended, one way or the other), by each stream that is
 * open for it in the guest (until that is done) and by whoever else has a pointer to it. The last
 * holder frees it. So neither a client that goes nor a machine that dies leaves a dangling pointer.
 *
 * What HTTP has no room for waits in `pending`. A producer stops when envd_call_full() is true, so
 * that at most one of its pieces waits there. A client that reads slowly thus slows the guest down,
 * through the credit of its stream, and costs the daemon no memory.
 */
#include "common/buffer.h"
#include "pool/envd/envd_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* ---- holding ------------------------------------------------------------------------------ */

void envd_call_hold(struct envd_call *c)
{
	c->refs++;
}

void envd_call_release(struct envd_call *c)
{
	if (--c->refs)
		return;
	loop_timer_cancel(c->timer);
	loop_timer_cancel(c->keepalive);
	buffer_free(&c->pending);
	if (c->route->destroy)
		c->route->destroy(c);
	free(c->rest);
	envd_release(c->w);
	free(c);
}

bool envd_call_open(const struct envd_call *c)
{
	return c->rq && !c->answered;
}

bool envd_call_full(const struct envd_call *c)
{
	return c->pending.len > 0;
}

static void call_timers_stop(struct envd_call *c)
{
	loop_timer_cancel(c->timer);
	loop_timer_cancel(c->keepalive);
	c->timer = c->keepalive = NULL;
}

void envd_call_quiet(struct envd_call *c)
{
	call_timers_stop(c);
	buffer_free(&c->pending);
}

/* ---- answering ---------------------------------------------------------------------------- */

void envd_reply(struct envd_call *c, unsigned status, json_t *body)
{
	if (!envd_call_open(c)) {
		json_decref(body);
		return;
	}
	c->answered = true;
	call_timers_stop(c);
	http_reply(c->rq, status, body);
}

static void call_flush(struct envd_call *c)
{
	while (c->rq && c->pending.len) {
		size_t n = http_stream_write(
			c->rq, c->pending.bytes + c->pending.head, c->pending.len);

		if (!n)
			return;
		buffer_consume(&c->pending, n);
	}
	if (c->rq && c->answered && !c->closed) {
		c->closed = true;
		http_stream_end(c->rq);
	}
}

static void call_writable(void *user)
{
	struct envd_call *c = user;

	if (!c->rq || c->closed)
		return;
	envd_call_hold(c);
	call_flush(c);
	if (envd_call_open(c) && !envd_call_full(c) && c->route->writable)
		c->route->writable(c);
	envd_call_release(c);
}

void envd_begin(struct envd_call *c, unsigned status, const char *type)
{
	if (!envd_call_open(c) || c->begun)
		return;
	c->begun = true;
	http_stream_begin(c->rq, status, type, call_writable, c);
}

void envd_write(struct envd_call *c, const void *bytes, size_t len)
{
	size_t n = 0;

	if (!envd_call_open(c) || !c->begun)
		return;
	if (!envd_call_full(c))
		n = http_stream_write(c->rq, bytes, len);
	buffer_append(&c->pending, (const uint8_t *)bytes + n, len - n);
}

void envd_line(struct envd_call *c, json_t *value)
{
	char *text = json_text(value);

	envd_write(c, text, strlen(text));
	envd_write(c, "\n", 1);
	free(text);
	json_decref(value);
}

void envd_finish(struct envd_call *c)
{
	if (!envd_call_open(c))
		return;
	c->answered = true;
	call_timers_stop(c);
	call_flush(c);
}

void envd_abort(struct envd_call *c)
{
	if (!envd_call_open(c))
		return;
	if (!c->begun) {
		envd_fail(c, ENVD_INTERNAL, "the request was given up");
		return;
	}
	c->answered = c->closed = true;
	call_timers_stop(c);
	buffer_free(&c->pending);
	http_stream_abort(c->rq);
}

/* ---- errors ------------------------------------------------------------------------------- */

static const struct {
	const char *name; /* of Connect's protocol */
	unsigned unary, plain; /* HTTP status there, and where there is no name */
} codes[] = {
	[ENVD_CANCELED] = {"canceled", 499, 409},
	[ENVD_INVALID] = {"invalid_argument", 400, 400},
	[ENVD_DEADLINE] = {"deadline_exceeded", 504, 504},
	[ENVD_NOT_FOUND] = {"not_found", 404, 404},
	[ENVD_EXISTS] = {"already_exists", 409, 409},
	[ENVD_DENIED] = {"permission_denied", 403, 403},
	[ENVD_EXHAUSTED] = {"resource_exhausted", 429, 429},
	[ENVD_FULL] = {"resource_exhausted", 429, 507},
	[ENVD_PRECONDITION] = {"failed_precondition", 400, 409},
	[ENVD_UNIMPLEMENTED] = {"unimplemented", 501, 501},
	[ENVD_INTERNAL] = {"internal", 500, 500},
	[ENVD_UNAVAILABLE] = {"unavailable", 503, 503},
	[ENVD_UNAUTHENTICATED] = {"unauthenticated", 401, 401},
	[ENVD_TYPE] = {"unimplemented", 415, 415},
};
_Static_assert(sizeof(codes) / sizeof(codes[0]) == ENVD_CODES, "a row for each code");

static unsigned envd_code_status(enum envd_style style, enum envd_code code)
{
	return style == ENVD_UNARY ? codes[code].unary : codes[code].plain;
}

enum envd_code envd_code_of(int error)
{
	switch (error) {
	case ENOENT:
		return ENVD_NOT_FOUND;
	case EEXIST:
		return ENVD_EXISTS;
	case EINVAL:
	case ENAMETOOLONG:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case EXDEV:
	case E2BIG:
	case ENOTEMPTY:
		return ENVD_INVALID;
	case EACCES:
	case EPERM:
	case EROFS:
		return ENVD_DENIED;
	case ESRCH: /* the agent: no such user */
		return ENVD_UNAUTHENTICATED;
	case ETIMEDOUT:
		return ENVD_DEADLINE;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return ENVD_FULL;
	case EBUSY:
	case EAGAIN:
	case ENOMEM:
	case EMFILE: /* as many contexts as there may be, some of them not started yet */
		return ENVD_EXHAUSTED;
	case ECONNRESET:
	case EPIPE:
		return ENVD_UNAVAILABLE;
	case ECANCELED:
		return ENVD_CANCELED;
	case ENOSYS:
	case EOPNOTSUPP:
		return ENVD_UNIMPLEMENTED;
	default:
		return ENVD_INTERNAL;
	}
}

static json_t *envd_error_object(enum envd_code code, const char *text)
{
	json_t *object = json_pack("{s:s}", "code", codes[code].name);

	if (!object || json_object_set_new(object, "message", json_lossy(text, strlen(text))) < 0)
		abort();
	return object;
}

static json_t *fail_object(const struct envd_call *c, enum envd_code code, const char *text)
{
	json_t *object = envd_error_object(code, text);

	if (c->reason)
		json_object_set_new(object, "reason", json_string(c->reason));
	return object;
}

static void fail_stream(struct envd_call *c, enum envd_code code, const char *text)
{
	json_t *end = json_pack("{s:o}", "error", fail_object(c, code, text));
	uint8_t head[ENVD_ENVELOPE_HEAD];
	char *body;

	if (!end)
		abort();
	body = json_text(end);
	json_decref(end);
	envd_begin(c, 200, "application/connect+json");
	envd_envelope_head(head, ENVD_ENVELOPE_END, (uint32_t)strlen(body));
	envd_write(c, head, sizeof(head));
	envd_write(c, body, strlen(body));
	envd_finish(c);
	free(body);
}

static void call_fail(struct envd_call *c, enum envd_code code, const char *text)
{
	unsigned status = envd_code_status(c->style, code);
	json_t *body;

	if (!envd_call_open(c))
		return;
	if (c->style == ENVD_STREAM && code != ENVD_TYPE) {
		fail_stream(c, code, text);
		return;
	}
	body = fail_object(c, code, text);
	if (c->begun && c->style == ENVD_LINES) {
		json_object_set_new(body, "type", json_string("error"));
		envd_line(c, body);
		envd_finish(c);
		return;
	}
	if (c->begun) {
		json_decref(body);
		envd_abort(c);
		return;
	}
	if (c->style != ENVD_UNARY)
		json_object_set_new(body, "code", json_integer(status));
	envd_reply(c, status, body);
}

void envd_asleep(struct envd_call *c)
{
	envd_reply(c, 502,
		json_pack("{s:s, s:s, s:i}", "sandboxId", c->id, "message",
			"The sandbox was not found", "code", 502));
}

void envd_fail(struct envd_call *c, enum envd_code code, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	call_fail(c, code, text);
}

void envd_fail_errno(struct envd_call *c, int error, const char *text)
{
	call_fail(c, envd_code_of(error), text && *text ? text : strerror(error));
}

/* ---- time --------------------------------------------------------------------------------- */

static void call_keepalive(void *user)
{
	struct envd_call *c = user;

	c->keepalive = loop_timer(c->w->loop, clock_now_ns() + c->keepalive_ns, call_keepalive, c);
	if (!envd_call_open(c) || envd_call_full(c))
		return;
	envd_call_hold(c);
	c->on_keepalive(c);
	envd_call_release(c);
}

void envd_keepalive(struct envd_call *c, uint64_t interval_ms, void (*fn)(struct envd_call *c))
{
	c->keepalive_ns = (int64_t)interval_ms * 1000000;
	c->on_keepalive = fn;
	loop_timer_cancel(c->keepalive);
	c->keepalive = loop_timer(c->w->loop, clock_now_ns() + c->keepalive_ns, call_keepalive, c);
}

static void call_limit(void *user)
{
	struct envd_call *c = user;

	c->timer = NULL;
	envd_call_hold(c);
	c->on_limit(c);
	envd_call_release(c);
}

void envd_call_limit(struct envd_call *c, uint64_t ms, void (*fn)(struct envd_call *c))
{
	loop_timer_cancel(c->timer);
	c->timer = NULL;
	c->on_limit = fn;
	if (ms)
		c->timer = loop_timer(c->w->loop, clock_deadline((int64_t)ms), call_limit, c);
}

/* ---- the guest ---------------------------------------------------------------------------- */

struct guest_stream *envd_request(struct envd_call *c, enum proto_type type,
	const struct proto_out *body, const struct guest_stream_ops *ops, void *user)
{
	struct envd_target t;
	struct guest_stream *s;

	if (body->failed) {
		envd_fail(c, ENVD_INVALID, "the request is longer than the %u bytes that fit",
			PROTO_BODY_MAX);
		return NULL;
	}
	if (!envd_find(c->w, c->id, &t) || !t.guest) {
		envd_fail(c, ENVD_UNAVAILABLE, "the sandbox %s does not run any more", c->id);
		return NULL;
	}
	s = guest_request(t.guest, type, body->buf, body->len, ops, user);
	if (!s) {
		envd_fail(c, ENVD_EXHAUSTED,
			"the sandbox %s has %u calls open, which is as many as may be; wait for "
			"some to end",
			c->id, PROTO_STREAMS_MAX);
		return NULL;
	}
	envd_call_hold(c);
	envd_kick(c->w, c->id);
	return s;
}

void envd_kick(struct envd *w, const char *id)
{
	w->ops->kick(w->user, id);
}

bool envd_find(struct envd *w, const char *id, struct envd_target *ret)
{
	return w->ops->find(w->user, id, ret);
}
