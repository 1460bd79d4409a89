/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CODE: cells run in a context one after the other. A cell's output is what comes
 * through the context's pipes while it runs; what children it left behind print between
 * cells is dropped. The driver says that a cell is done after its last byte is in the pipes,
 * so the reply waits until these have been read empty.
 *
 * A timeout or cancel is a SIGINT first (the variables stay), and kills the context
 * if the code has not stopped AGENT_INTERRUPT_MS of the machine's own time later (run_timer.h).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/context_private.h"

#define CODE_REPLY_ROOM 1024u /* of a reply, beside what D has: totals, or why it is gone */

static void timers_stop(struct context *c)
{
	timer_stop(&c->timer);
	run_timer_stop(&c->grace);
}

static void cell_free(struct cell *l)
{
	for (unsigned i = 0; i < l->nenv; i++)
		free(l->env[i]);
	for (unsigned i = 0; i < l->nsandbox_env; i++)
		free(l->sandbox_env[i]);
	free(l->env);
	free(l->sandbox_env);
	free(l->code);
	free(l);
}

static struct source *source_of(struct context *c, unsigned i)
{
	return i == 0 ? &c->out : i == 1 ? &c->err : &c->results;
}

/* ---- replies -------------------------------------------------------------------------- */

static void put_totals(struct context *c, struct proto_out *o)
{
	proto_put_bool(o, PROTO_T_TIMED_OUT, c->cell->timed_out);
	proto_put_u64(o, PROTO_T_TOTAL_OUT, c->out.total);
	proto_put_u64(o, PROTO_T_TOTAL_ERR, c->err.total);
	proto_put_bool(o, PROTO_T_CUT_OUT, c->out.cut);
	proto_put_bool(o, PROTO_T_CUT_ERR, c->err.cut);
	proto_put_u64(o, PROTO_T_DURATION_NS, (uint64_t)(agent_now() - c->cell->started));
}

/* The fields of D: checked when it came. */
static void put_done(struct context *c, struct proto_out *o)
{
	static const uint16_t tags[3] = {PROTO_T_ENAME, PROTO_T_EVALUE, PROTO_T_TRACEBACK};
	uint32_t at = 5, len;

	proto_put(o, PROTO_T_EXECUTION, c->done, 4);
	for (unsigned i = 0; i < 3 && c->done[4]; i++) {
		memcpy(&len, c->done + at, 4);
		proto_put(o, tags[i], c->done + at + 4, len);
		at += 4 + len;
	}
}

static void put_gone(struct context *c, struct proto_out *o)
{
	uint8_t value[512];
	uint32_t err = !c->ready ? ENOEXEC : c->cell && c->cell->timed_out ? ETIMEDOUT : ECONNRESET;
	int len;

	memcpy(value, &err, 4);
	len = snprintf((char *)value + 4, sizeof(value) - 4,
		"the interpreter of context '%s' %s: %s", c->name,
		c->ready ? "is gone with its variables" : "did not start", c->why);
	proto_put(o, PROTO_T_ERROR, value, 4 + (uint32_t)len);
	if (c->ready)
		proto_put_bool(o, PROTO_T_CONTEXT_GONE, 1);
}

/* Reply to the current cell and forget it. */
static void cell_reply(struct context *c, bool gone)
{
	struct cell *l = c->cell;
	struct proto_out o = {.max = CODE_REPLY_ROOM + c->done_len};

	timers_stop(c);
	if (l->stream) {
		o.buf = agent_alloc(o.max);
		if (gone)
			put_gone(c, &o);
		else
			put_done(c, &o);
		put_totals(c, &o);
		for (unsigned channel = PROTO_OUT; channel <= PROTO_RESULT; channel++)
			stream_eof(l->stream, channel);
		stream_reply(l->stream, &o);
		free(o.buf);
	}
	for (unsigned i = 0; i < 3; i++)
		if (!source_of(c, i)->done)
			source_attach(source_of(c, i), NULL, 0, 0);
	c->cell = NULL;
	cell_free(l);
}

void code_queue_gone(struct context *c)
{
	struct cell *l;

	while ((l = TAILQ_FIRST(&c->queue))) {
		uint8_t buf[640];
		struct proto_out o = {.buf = buf, .max = sizeof(buf)};

		TAILQ_REMOVE(&c->queue, l, link);
		c->queued--;
		put_gone(c, &o);
		stream_reply(l->stream, &o);
		cell_free(l);
	}
}

/* ---- running -------------------------------------------------------------------------- */

static void cell_overdue(void *user)
{
	struct context *c = user;

	context_kill(c,
		c->cell->timed_out ? "the code ran out of time and did not stop when interrupted"
				   : "the code was canceled and did not stop when interrupted");
}

static void cell_interrupt(struct context *c)
{
	context_send(c, 'I', NULL, 0); /* first: the signal may come before the cell has begun */
	if (c->tree.main)
		kill(-c->tree.main, SIGINT); /* it leads the process group of what it runs */
	timer_stop(&c->timer);
	run_timer_arm(&c->grace, AGENT_INTERRUPT_MS, AGENT_RUN_MAX_MS, cell_overdue, c);
}

static void cell_timeout(void *user)
{
	struct context *c = user;

	c->cell->timed_out = true;
	cell_interrupt(c);
}

/* The host does not take the output of a cell that is to end: count it and drop it. */
static void cell_drop(void *user)
{
	struct context *c = user;

	for (unsigned i = 0; i < 3; i++) {
		struct source *s = source_of(c, i);

		s->limit = 0;
		source_credit(s);
	}
}

static uint8_t *put_string(uint8_t *at, const char *text)
{
	uint32_t len = (uint32_t)strlen(text);

	memcpy(at, &len, 4);
	memcpy(at + 4, text, len);
	return at + 4 + len;
}

static uint8_t *put_list(uint8_t *at, char *const *list, uint32_t n)
{
	memcpy(at, &n, 4);
	at += 4;
	for (uint32_t i = 0; i < n; i++)
		at = put_string(at, list[i]);
	return at;
}

static size_t list_size(char *const *list, unsigned n)
{
	size_t size = 4;

	for (unsigned i = 0; i < n; i++)
		size += 4 + strlen(list[i]);
	return size;
}

/* Give the cell to the driver: its code, the sandbox's variables and its own. */
static void cell_send(struct context *c, const struct cell *l)
{
	size_t size = 4 + strlen(l->code) + list_size(l->sandbox_env, l->nsandbox_env) +
		list_size(l->env, l->nenv);
	uint8_t *body = agent_alloc(size), *at = put_string(body, l->code);

	at = put_list(at, l->sandbox_env, l->nsandbox_env);
	put_list(at, l->env, l->nenv);
	context_send(c, 'C', body, (uint32_t)size);
	explicit_bzero(body, size);
	free(body);
}

void code_next(struct context *c)
{
	struct cell *l = TAILQ_FIRST(&c->queue);

	if (!l || c->state != CONTEXT_IDLE || c->stopping)
		return;
	TAILQ_REMOVE(&c->queue, l, link);
	c->queued--;
	c->cell = l;
	c->state = CONTEXT_BUSY;
	l->started = agent_now();
	source_attach(&c->out, l->stream, PROTO_OUT, l->limit_out);
	source_attach(&c->err, l->stream, PROTO_ERR, l->limit_err);
	source_attach(&c->results, l->stream, PROTO_RESULT, UINT64_MAX);
	cell_send(c, l);
	if (l->timeout_ms)
		timer_arm(&c->timer, l->timeout_ms, cell_timeout, c);
}

/* One more of the sources is through. */
static void cell_emptied(void *user)
{
	struct context *c = user;

	if (c->emptying == 0 || --c->emptying > 0)
		return;
	if (c->state == CONTEXT_EMPTYING) {
		cell_reply(c, false);
		c->state = CONTEXT_IDLE;
		code_next(c);
	} else if (c->state == CONTEXT_DYING) {
		cell_reply(c, !c->finished);
		context_over(c);
	}
}

void code_source_done(void *user)
{
	struct context *c = user;

	if (c->state == CONTEXT_EMPTYING || c->state == CONTEXT_DYING)
		cell_emptied(c);
}

/* Is D well-formed? */
static bool done_good(const uint8_t *body, uint32_t len)
{
	uint32_t at = 5, n;

	if (len < 5 || body[4] > 1)
		return false;
	for (unsigned i = 0; i < 3; i++) {
		if (len - at < 4)
			return false;
		memcpy(&n, body + at, 4);
		at += 4;
		if (n > len - at || memchr(body + at, 0, n))
			return false;
		at += n;
	}
	return at == len;
}

bool code_done(struct context *c, const uint8_t *body, uint32_t len)
{
	if (!done_good(body, len))
		return false;
	free(c->done);
	c->done = agent_alloc(len);
	memcpy(c->done, body, len);
	c->done_len = len;
	c->state = CONTEXT_EMPTYING;
	timers_stop(c);
	if (c->cell->timed_out || c->cell->canceled)
		timer_arm(&c->timer, AGENT_DRAIN_MS, cell_drop, c);
	c->emptying = 1;
	for (unsigned i = 0; i < 3; i++) {
		if (source_of(c, i)->done)
			continue;
		c->emptying++;
		source_empty(source_of(c, i), cell_emptied);
	}
	cell_emptied(c);
	return true;
}

void code_gone(struct context *c)
{
	struct cell *l = c->cell;
	/* who canceled it, or went away, does not hear that the variables are lost: the next one does */
	bool told = (l && !c->finished && l->stream && !l->canceled) || !TAILQ_EMPTY(&c->queue);

	code_queue_gone(c);
	c->told = told;
	timers_stop(c);
	if (l)
		timer_arm(&c->timer, AGENT_DRAIN_MS, cell_drop, c);
	c->emptying = 1;
	for (unsigned i = 0; i < 3; i++) {
		struct source *s = source_of(c, i);

		if (s->done)
			continue;
		s->on_empty = NULL;
		if (l) {
			c->emptying++;
			source_drain(s);
		} else {
			source_close(s);
		}
	}
	if (l)
		cell_emptied(c);
	else
		context_over(c);
}

/* ---- the stream ----------------------------------------------------------------------- */

static void code_credit(struct stream *s, unsigned channel)
{
	struct cell *l = stream_user(s);

	if (l == l->context->cell && channel >= PROTO_OUT && channel <= PROTO_RESULT)
		source_credit(source_of(l->context, channel - PROTO_OUT));
}

/* Take it out of the queue: it was in it. */
static bool cell_dequeue(struct cell *l)
{
	if (l == l->context->cell)
		return false;
	TAILQ_REMOVE(&l->context->queue, l, link);
	l->context->queued--;
	return true;
}

static void cell_end(struct cell *l)
{
	struct context *c = l->context;

	if (l->canceled)
		return;
	l->canceled = true;
	if (c->state == CONTEXT_BUSY)
		cell_interrupt(c);
	else
		timer_arm(&c->timer, AGENT_DRAIN_MS, cell_drop, c);
}

static void code_cancel(struct stream *s)
{
	struct cell *l = stream_user(s);

	if (!cell_dequeue(l)) {
		cell_end(l);
		return;
	}
	cell_free(l);
	stream_reply_error(s, ECANCELED, "canceled");
}

static void code_abort(struct stream *s)
{
	struct cell *l = stream_user(s);
	struct context *c = l->context;

	if (cell_dequeue(l)) {
		cell_free(l);
		return;
	}
	l->stream = NULL;
	for (unsigned i = 0; i < 3; i++)
		source_of(c, i)->stream = NULL;
	cell_end(l);
	cell_drop(c);
}

static const struct stream_ops code_ops = {
	.credit = code_credit,
	.cancel = code_cancel,
	.abort = code_abort,
};

/* The context died when nobody was waiting: say so once, without running anything. */
static void code_was_gone(struct stream *s, struct context *c)
{
	uint8_t buf[640];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	put_gone(c, &o);
	stream_reply(s, &o);
	c->told = true;
}

/*
 * The cell of @r, which gives up its code and lists. What is left in @r is how to start an
 * interpreter: with the sandbox's variables and without those of this cell.
 */
static struct cell *cell_take(struct stream *s, struct request *r)
{
	struct cell *l = agent_alloc(sizeof(*l));

	*l = (struct cell){.stream = s,
		.code = r->code,
		.env = r->env,
		.nenv = r->nenv,
		.sandbox_env = r->sandbox_env,
		.nsandbox_env = r->nsandbox_env,
		.timeout_ms = r->timeout_ms,
		.limit_out = r->limit_out,
		.limit_err = r->limit_err};
	r->code = NULL;
	r->env = r->sandbox_env = NULL;
	r->nenv = r->nsandbox_env = 0;
	if (l->nsandbox_env)
		r->env = agent_alloc((l->nsandbox_env + 1) * sizeof(*r->env));
	for (; r->nenv < l->nsandbox_env; r->nenv++) {
		r->env[r->nenv] = strdup(l->sandbox_env[r->nenv]);
		if (!r->env[r->nenv])
			abort();
	}
	return l;
}

void code_request(struct stream *s, unsigned type, struct request *r)
{
	struct context *c;
	struct cell *l;
	struct fail f;

	(void)type;
	if (!r->code) {
		stream_reply_error(s, EINVAL, "CODE without code");
		return;
	}
	if (!context_language(s, r))
		return;
	c = context_find(r);
	if (!c && r->existing) {
		stream_reply_error(s, ENOENT, "there is no such context");
		return;
	}
	l = cell_take(s, r);
	if (c && c->state == CONTEXT_DEAD && !c->told) {
		cell_free(l);
		code_was_gone(s, c);
		return;
	}
	if (!c || c->state == CONTEXT_DEAD)
		c = context_make(r, &f);
	else if (c->queued >= AGENT_CODE_QUEUE_MAX)
		fail_set(&f, EBUSY, "%u cells wait for this context already", c->queued);
	else if ((c->stopping || c->state == CONTEXT_DYING) && !c->restart)
		fail_set(&f, EBUSY, "this context is being stopped");
	if (!c || c->queued >= AGENT_CODE_QUEUE_MAX ||
		((c->stopping || c->state == CONTEXT_DYING) && !c->restart)) {
		cell_free(l);
		stream_reply_error(s, f.err, f.text);
		return;
	}
	l->context = c;
	TAILQ_INSERT_TAIL(&c->queue, l, link);
	c->queued++;
	stream_set(s, &code_ops, l);
	code_next(c);
}
