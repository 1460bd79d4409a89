/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to what runs in a sandbox, from its headers to the last byte of its answer. It is
 * held by its HTTP request (until that has ended, one way or the other), by each stream that is
 * open for it in the guest (until that is done) and by whoever else counts on it; the last one
 * frees it. So neither a client that goes nor a machine that dies leaves a pointer behind.
 *
 * What HTTP has no room for waits in `pending`. A producer looks at wire_call_full() and stops
 * there, so that at most one of its pieces waits: a client that reads slowly slows the guest down,
 * through the credit of its stream, and costs the daemon no memory.
 */
#include "pool/envd/envd_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* ---- holding ------------------------------------------------------------------------------ */

void wire_call_hold(struct wire_call *c)
{
	c->refs++;
}

void wire_call_release(struct wire_call *c)
{
	if (--c->refs)
		return;
	loop_timer_cancel(c->timer);
	loop_timer_cancel(c->keepalive);
	wire_buf_free(&c->pending);
	if (c->route->destroy)
		c->route->destroy(c);
	free(c->rest);
	wire_release(c->w);
	free(c);
}

bool wire_call_open(const struct wire_call *c)
{
	return c->rq && !c->answered;
}

bool wire_call_full(const struct wire_call *c)
{
	return c->pending.len > 0;
}

static void call_timers_stop(struct wire_call *c)
{
	loop_timer_cancel(c->timer);
	loop_timer_cancel(c->keepalive);
	c->timer = c->keepalive = NULL;
}

void wire_call_quiet(struct wire_call *c)
{
	call_timers_stop(c);
	wire_buf_free(&c->pending);
}

/* ---- answering ---------------------------------------------------------------------------- */

void wire_reply(struct wire_call *c, unsigned status, json_t *body)
{
	if (!wire_call_open(c)) {
		json_decref(body);
		return;
	}
	c->answered = true;
	call_timers_stop(c);
	http_reply(c->rq, status, body);
}

static void call_flush(struct wire_call *c)
{
	while (c->rq && c->pending.len) {
		size_t n = http_stream_write(
			c->rq, c->pending.bytes + c->pending.head, c->pending.len);

		if (!n)
			return;
		wire_buf_consume(&c->pending, n);
	}
	if (c->rq && c->answered && !c->closed) {
		c->closed = true;
		http_stream_end(c->rq);
	}
}

static void call_writable(void *user)
{
	struct wire_call *c = user;

	if (!c->rq || c->closed)
		return;
	wire_call_hold(c);
	call_flush(c);
	if (wire_call_open(c) && !wire_call_full(c) && c->route->writable)
		c->route->writable(c);
	wire_call_release(c);
}

void wire_begin(struct wire_call *c, unsigned status, const char *type)
{
	if (!wire_call_open(c) || c->begun)
		return;
	c->begun = true;
	http_stream_begin(c->rq, status, type, call_writable, c);
}

void wire_write(struct wire_call *c, const void *bytes, size_t len)
{
	size_t n = 0;

	if (!wire_call_open(c) || !c->begun)
		return;
	if (!wire_call_full(c))
		n = http_stream_write(c->rq, bytes, len);
	wire_buf_append(&c->pending, (const uint8_t *)bytes + n, len - n);
}

void wire_line(struct wire_call *c, json_t *value)
{
	char *text = json_text(value);

	wire_write(c, text, strlen(text));
	wire_write(c, "\n", 1);
	free(text);
	json_decref(value);
}

void wire_finish(struct wire_call *c)
{
	if (!wire_call_open(c))
		return;
	c->answered = true;
	call_timers_stop(c);
	call_flush(c);
}

void wire_abort(struct wire_call *c)
{
	if (!wire_call_open(c))
		return;
	if (!c->begun) {
		wire_fail(c, WIRE_INTERNAL, "the request was given up");
		return;
	}
	c->answered = c->closed = true;
	call_timers_stop(c);
	wire_buf_free(&c->pending);
	http_stream_abort(c->rq);
}

/* ---- errors ------------------------------------------------------------------------------- */

static const struct {
	const char *name; /* of Connect's protocol */
	unsigned unary, plain; /* HTTP status there, and where there is no name */
} codes[] = {
	[WIRE_CANCELED] = {"canceled", 499, 409},
	[WIRE_INVALID] = {"invalid_argument", 400, 400},
	[WIRE_DEADLINE] = {"deadline_exceeded", 504, 504},
	[WIRE_NOT_FOUND] = {"not_found", 404, 404},
	[WIRE_EXISTS] = {"already_exists", 409, 409},
	[WIRE_DENIED] = {"permission_denied", 403, 403},
	[WIRE_EXHAUSTED] = {"resource_exhausted", 429, 429},
	[WIRE_FULL] = {"resource_exhausted", 429, 507},
	[WIRE_PRECONDITION] = {"failed_precondition", 400, 409},
	[WIRE_UNIMPLEMENTED] = {"unimplemented", 501, 501},
	[WIRE_INTERNAL] = {"internal", 500, 500},
	[WIRE_UNAVAILABLE] = {"unavailable", 503, 503},
	[WIRE_UNAUTHENTICATED] = {"unauthenticated", 401, 401},
	[WIRE_TYPE] = {"unimplemented", 415, 415},
};
_Static_assert(sizeof(codes) / sizeof(codes[0]) == WIRE_CODES, "a row for each code");

unsigned wire_code_status(enum wire_style style, enum wire_code code)
{
	return style == WIRE_UNARY ? codes[code].unary : codes[code].plain;
}

enum wire_code wire_code_of(int error)
{
	switch (error) {
	case ENOENT:
		return WIRE_NOT_FOUND;
	case EEXIST:
		return WIRE_EXISTS;
	case EINVAL:
	case ENAMETOOLONG:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case EXDEV:
	case E2BIG:
	case ENOTEMPTY:
		return WIRE_INVALID;
	case EACCES:
	case EPERM:
	case EROFS:
		return WIRE_DENIED;
	case ESRCH: /* the agent: no such user */
		return WIRE_UNAUTHENTICATED;
	case ETIMEDOUT:
		return WIRE_DEADLINE;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return WIRE_FULL;
	case EBUSY:
	case EAGAIN:
	case ENOMEM:
	case EMFILE: /* as many contexts as there may be, some of them not started yet */
		return WIRE_EXHAUSTED;
	case ECONNRESET:
	case EPIPE:
		return WIRE_UNAVAILABLE;
	case ECANCELED:
		return WIRE_CANCELED;
	case ENOSYS:
	case EOPNOTSUPP:
		return WIRE_UNIMPLEMENTED;
	default:
		return WIRE_INTERNAL;
	}
}

json_t *wire_error_object(enum wire_code code, const char *text)
{
	json_t *object = json_pack("{s:s}", "code", codes[code].name);

	if (!object || json_object_set_new(object, "message", json_lossy(text, strlen(text))) < 0)
		abort();
	return object;
}

static json_t *fail_object(const struct wire_call *c, enum wire_code code, const char *text)
{
	json_t *object = wire_error_object(code, text);

	if (c->reason)
		json_object_set_new(object, "reason", json_string(c->reason));
	return object;
}

static void fail_stream(struct wire_call *c, enum wire_code code, const char *text)
{
	json_t *end = json_pack("{s:o}", "error", fail_object(c, code, text));
	uint8_t head[WIRE_ENVELOPE_HEAD];
	char *body;

	if (!end)
		abort();
	body = json_text(end);
	json_decref(end);
	wire_begin(c, 200, "application/connect+json");
	wire_envelope_head(head, WIRE_ENVELOPE_END, (uint32_t)strlen(body));
	wire_write(c, head, sizeof(head));
	wire_write(c, body, strlen(body));
	wire_finish(c);
	free(body);
}

static void call_fail(struct wire_call *c, enum wire_code code, const char *text)
{
	unsigned status = wire_code_status(c->style, code);
	json_t *body;

	if (!wire_call_open(c))
		return;
	if (c->style == WIRE_STREAM && code != WIRE_TYPE) {
		fail_stream(c, code, text);
		return;
	}
	body = fail_object(c, code, text);
	if (c->begun && c->style == WIRE_LINES) {
		json_object_set_new(body, "type", json_string("error"));
		wire_line(c, body);
		wire_finish(c);
		return;
	}
	if (c->begun) {
		json_decref(body);
		wire_abort(c);
		return;
	}
	if (c->style != WIRE_UNARY)
		json_object_set_new(body, "code", json_integer(status));
	wire_reply(c, status, body);
}

void wire_fail(struct wire_call *c, enum wire_code code, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	call_fail(c, code, text);
}

void wire_fail_errno(struct wire_call *c, int error, const char *text)
{
	call_fail(c, wire_code_of(error), text && *text ? text : strerror(error));
}

/* ---- time --------------------------------------------------------------------------------- */

static void call_keepalive(void *user)
{
	struct wire_call *c = user;

	c->keepalive = loop_timer(c->w->loop, clock_now_ns() + c->keepalive_ns, call_keepalive, c);
	if (!wire_call_open(c) || wire_call_full(c))
		return;
	wire_call_hold(c);
	c->on_keepalive(c);
	wire_call_release(c);
}

void wire_keepalive(struct wire_call *c, uint64_t interval_ms, void (*fn)(struct wire_call *c))
{
	c->keepalive_ns = (int64_t)interval_ms * 1000000;
	c->on_keepalive = fn;
	loop_timer_cancel(c->keepalive);
	c->keepalive = loop_timer(c->w->loop, clock_now_ns() + c->keepalive_ns, call_keepalive, c);
}

static void call_limit(void *user)
{
	struct wire_call *c = user;

	c->timer = NULL;
	wire_call_hold(c);
	c->on_limit(c);
	wire_call_release(c);
}

void wire_call_limit(struct wire_call *c, uint64_t ms, void (*fn)(struct wire_call *c))
{
	loop_timer_cancel(c->timer);
	c->timer = NULL;
	c->on_limit = fn;
	if (ms)
		c->timer = loop_timer(c->w->loop, clock_deadline((int64_t)ms), call_limit, c);
}

/* ---- the guest ---------------------------------------------------------------------------- */

struct guest_stream *wire_request(struct wire_call *c, enum proto_type type,
	const struct proto_out *body, const struct guest_stream_ops *ops, void *user)
{
	struct wire_target t;
	struct guest_stream *s;

	if (body->failed) {
		wire_fail(c, WIRE_INVALID, "the request is longer than the %u bytes that fit",
			PROTO_BODY_MAX);
		return NULL;
	}
	if (!wire_find(c->w, c->id, &t) || !t.guest) {
		wire_fail(c, WIRE_UNAVAILABLE, "the sandbox %s does not run any more", c->id);
		return NULL;
	}
	s = guest_request(t.guest, type, body->buf, body->len, ops, user);
	if (!s) {
		wire_fail(c, WIRE_EXHAUSTED,
			"the sandbox %s has %u calls open, which is as many as may be; wait for "
			"some to end",
			c->id, PROTO_STREAMS_MAX);
		return NULL;
	}
	wire_call_hold(c);
	wire_kick(c->w, c->id);
	return s;
}

void wire_kick(struct wire *w, const char *id)
{
	w->ops->kick(w->user, id);
}

bool wire_find(struct wire *w, const char *id, struct wire_target *ret)
{
	return w->ops->find(w->user, id, ret);
}
