/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that run in sandboxes. Each is a stream of EXEC in its guest, the number of its main
 * process there, and the calls that follow its output. All followers get the same bytes: output is
 * taken from the guest only when each follower has sent on what it got before. So the slowest
 * follower sets the pace, and nothing is buffered here.
 *
 * The guest has the list of commands: its agent keeps them (agent/kept.c) through a pause, a fork
 * and a change of daemons. Here are only those that were used since: commands that began here, or
 * that a request named (then ATTACH makes a stream for them). Where the channel closes, the streams
 * end and the commands go on. A command whose last follower has gone goes on too: its output is
 * read and dropped, until somebody follows it again.
 *
 * The agent enforces the time limit. As the agent is not trusted, a command that was begun here is
 * given up when it has not ended LIMIT_ENVD_GRACE_MS after its limit and no byte of it moves.
 */
#include "pool/envd/envd_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "pool/envd/limits.h"

struct envd_input {
	struct envd_call *c; /* answered when it is through; NULL: nobody waits */
	uint8_t *bytes;
	size_t len, at;
	bool close;
	STAILQ_ENTRY(envd_input) link;
};

/* A call that waits for the guest to find its command. */
struct envd_seeker {
	struct envd_call *c;
	void (*fn)(struct envd_call *c, struct envd_process *p);
	SLIST_ENTRY(envd_seeker) link;
};

struct envd_reader {
	struct envd_call *c;
	const struct envd_reader_ops *ops;
};

struct envd_process {
	struct envd *w;
	char id[LIMIT_NAME_SIZE];
	struct guest_stream *s; /* NULL: it has ended */
	uint32_t pid; /* 0: not told yet */
	char *tag; /* or NULL */
	SLIST_HEAD(, envd_seeker) seekers;
	uint8_t told[PROTO_STARTED_LEN +
		PROTO_TAG_MAX]; /* of a struct proto_started and its tag, as far as it has come */
	size_t n_told;
	uint64_t timeout_ms, limit[PROTO_CHANNELS], taken[PROTO_CHANNELS];
	uint64_t moved, moved_then; /* bytes taken; when the guard last looked */
	bool attached; /* by ATTACH: it did not begin here */
	bool pty, has_stdin, started, ended, stalled, cut[PROTO_CHANNELS];
	struct loop_timer *guard;
	struct envd_reader readers[LIMIT_ENVD_READERS];
	unsigned n_readers;
	STAILQ_HEAD(, envd_input) inputs;
	unsigned n_inputs;
	size_t input_bytes; /* of them */
	unsigned refs; /* the stream, and whoever runs a loop over its readers */
	TAILQ_ENTRY(envd_process) link;
};

/* ---- the table ---------------------------------------------------------------------------- */

static void process_release(struct envd_process *p)
{
	if (--p->refs)
		return;
	loop_timer_cancel(p->guard);
	free(p->tag);
	envd_release(p->w);
	free(p);
}

void envd_processes_unguard(struct envd *w)
{
	struct envd_process *p;

	TAILQ_FOREACH(p, &w->processes, link) {
		loop_timer_cancel(p->guard);
		p->guard = NULL;
	}
}

/* One that has a stream, be it found or still looked for. */
static struct envd_process *process_find(
	struct envd *w, const char *id, uint32_t pid, const char *tag)
{
	struct envd_process *p;

	TAILQ_FOREACH(p, &w->processes, link) {
		if (p->ended || strcmp(p->id, id) != 0)
			continue;
		if (tag ? p->tag && !strcmp(p->tag, tag) : p->pid == pid)
			return p;
	}
	return NULL;
}

bool envd_process_is_pty(const struct envd_process *p)
{
	return p->pty;
}

bool envd_process_has_input(const struct envd_process *p)
{
	return p->has_stdin;
}

uint32_t envd_process_pid(const struct envd_process *p)
{
	return p->pid;
}

/* ---- followers ---------------------------------------------------------------------------- */

bool envd_process_follow(
	struct envd_process *p, struct envd_call *c, const struct envd_reader_ops *ops)
{
	if (p->n_readers == LIMIT_ENVD_READERS) {
		envd_fail(c, ENVD_EXHAUSTED, "%d calls follow the command already",
			LIMIT_ENVD_READERS);
		return false;
	}
	p->readers[p->n_readers++] = (struct envd_reader){c, ops};
	envd_call_hold(c);
	if (p->started)
		ops->started(c, p->pid);
	return true;
}

void envd_process_leave(struct envd_process *p, struct envd_call *c)
{
	for (unsigned i = 0; i < p->n_readers; i++) {
		if (p->readers[i].c != c)
			continue;
		p->readers[i] = p->readers[--p->n_readers];
		envd_call_release(c);
		break;
	}
	if (!p->ended && p->s)
		envd_process_resume(p);
}

static void process_started(struct envd_process *p)
{
	if (p->started || p->ended)
		return;
	p->started = true;
	for (unsigned i = 0; i < p->n_readers;) {
		struct envd_reader r = p->readers[i];

		envd_call_hold(r.c); /* it may leave during the callback */
		r.ops->started(r.c, p->pid);
		i += i < p->n_readers && p->readers[i].c == r.c;
		envd_call_release(r.c);
	}
}

/* The guest has found it, or has not: with @end. */
static void seekers_go(struct envd_process *p, const struct envd_end *end)
{
	struct envd_seeker *k;

	while ((k = SLIST_FIRST(&p->seekers))) {
		SLIST_REMOVE_HEAD(&p->seekers, link);
		if (!envd_call_open(k->c))
			;
		else if (!end)
			k->fn(k->c, p);
		else if (end->error == ESRCH && p->tag)
			envd_fail(k->c, ENVD_NOT_FOUND, "no command with the tag %.100s runs",
				p->tag);
		else if (end->error == ESRCH)
			envd_fail(
				k->c, ENVD_NOT_FOUND, "no command with the number %u runs", p->pid);
		else
			envd_fail_errno(k->c, end->error, end->text);
		envd_call_release(k->c);
		free(k);
	}
}

/* Tell the end to whoever follows; nobody does after it. */
static void process_end(struct envd_process *p, const struct envd_end *end)
{
	if (p->ended)
		return;
	if (!end->error)
		process_started(p);
	p->ended = true;
	seekers_go(p, end);
	loop_timer_cancel(p->guard);
	p->guard = NULL;
	while (p->n_readers) {
		struct envd_reader r = p->readers[0];

		p->readers[0] = p->readers[--p->n_readers];
		if (envd_call_open(r.c))
			r.ops->ended(r.c, end);
		envd_call_release(r.c);
	}
}

/* ---- input -------------------------------------------------------------------------------- */

static void input_done(struct envd_process *p, bool through)
{
	struct envd_input *in = STAILQ_FIRST(&p->inputs);

	STAILQ_REMOVE_HEAD(&p->inputs, link);
	p->n_inputs--;
	p->input_bytes -= in->len;
	if (in->c) {
		if (through)
			envd_reply(in->c, 200, json_object());
		else
			envd_fail(in->c, ENVD_NOT_FOUND,
				"the command %u ended before it was given all of this input",
				p->pid);
		envd_call_release(in->c);
	}
	free(in->bytes);
	free(in);
}

static void inputs_send(struct envd_process *p)
{
	struct envd_input *in;

	while ((in = STAILQ_FIRST(&p->inputs)) && p->s) {
		in->at += guest_stream_send(p->s, PROTO_IN, in->bytes + in->at, in->len - in->at);
		if (in->at < in->len)
			return;
		if (in->close)
			guest_stream_eof(p->s, PROTO_IN);
		input_done(p, true);
	}
}

int envd_process_input(
	struct envd_process *p, struct envd_call *c, uint8_t *bytes, size_t len, bool close)
{
	struct envd_input *in;

	if (p->n_inputs >= LIMIT_ENVD_INPUTS || p->input_bytes > LIMIT_ENVD_INPUT) {
		free(bytes);
		return -EAGAIN;
	}
	in = calloc(1, sizeof(*in));
	if (!in)
		abort();
	*in = (struct envd_input){.c = c, .bytes = bytes, .len = len, .close = close};
	if (c)
		envd_call_hold(c);
	if (close)
		p->has_stdin = false;
	STAILQ_INSERT_TAIL(&p->inputs, in, link);
	p->n_inputs++;
	p->input_bytes += len;
	inputs_send(p);
	envd_kick(p->w, p->id);
	return 0;
}

void envd_process_signal(struct envd_process *p, int sig)
{
	if (!p->s)
		return;
	guest_stream_signal(p->s, sig);
	envd_kick(p->w, p->id);
}

void envd_process_resize(struct envd_process *p, unsigned rows, unsigned cols)
{
	if (!p->s)
		return;
	guest_stream_resize(p->s, rows, cols);
	envd_kick(p->w, p->id);
}

/* ---- output ------------------------------------------------------------------------------- */

static bool readers_full(const struct envd_process *p)
{
	for (unsigned i = 0; i < p->n_readers; i++) {
		if (envd_call_open(p->readers[i].c) && envd_call_full(p->readers[i].c))
			return true;
	}
	return false;
}

static void process_pass_on(
	struct envd_process *p, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	uint64_t left = p->limit[channel] - p->taken[channel];

	if (len > left) {
		p->cut[channel] = true;
		len = (size_t)left;
	}
	p->taken[channel] += len;
	for (unsigned i = 0; len && i < p->n_readers;) {
		struct envd_reader r = p->readers[i];

		envd_call_hold(r.c);
		r.ops->data(r.c, channel, p->pty, bytes, len);
		i += i < p->n_readers && p->readers[i].c == r.c;
		envd_call_release(r.c);
	}
}

/* A struct proto_started, its tag behind it; what comes after them is of no use. */
static void process_told(struct envd_process *p, const uint8_t *bytes, size_t len)
{
	struct proto_started st;
	size_t n = sizeof(p->told) - p->n_told;

	if (p->started)
		return;
	n = len < n ? len : n;
	memcpy(p->told + p->n_told, bytes, n);
	p->n_told += n;
	memcpy(&st, p->told, sizeof(st));
	if (p->n_told < sizeof(st) ||
		(st.tag_len <= PROTO_TAG_MAX && p->n_told < sizeof(st) + st.tag_len))
		return;
	p->pid = st.pid;
	if (p->attached) {
		p->pty = st.flags & PROTO_STARTED_PTY;
		p->has_stdin = st.flags & PROTO_STARTED_STDIN;
	}
	if (!p->tag && st.tag_len && st.tag_len <= PROTO_TAG_MAX)
		p->tag = strndup((const char *)p->told + sizeof(st), st.tag_len);
	p->refs++;
	process_started(p);
	seekers_go(p, NULL);
	process_release(p);
}

static size_t process_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct envd_process *p = user;
	size_t at = 0;

	if (channel == PROTO_RESULT)
		process_told(p, bytes, len);
	if (channel != PROTO_OUT && channel != PROTO_ERR)
		return len;
	while (at < len) {
		size_t n = len - at < LIMIT_ENVD_CHUNK ? len - at : LIMIT_ENVD_CHUNK;

		p->stalled = readers_full(p);
		if (p->stalled)
			break;
		process_pass_on(p, channel, bytes + at, n);
		at += n;
	}
	p->moved += at;
	return at;
}

void envd_process_resume(struct envd_process *p)
{
	p->refs++;
	if (p->stalled && p->s && !readers_full(p)) {
		p->stalled = false;
		guest_stream_resume(p->s);
		envd_kick(p->w, p->id);
	}
	process_release(p);
}

static void process_writable(void *user, enum proto_channel channel)
{
	if (channel == PROTO_IN)
		inputs_send(user);
}

/* The agent has closed the command's input: nobody reads it. What waits is dropped. */
static void process_eof(void *user, enum proto_channel channel)
{
	struct envd_process *p = user;

	if (channel != PROTO_IN)
		return;
	p->has_stdin = false;
	while (!STAILQ_EMPTY(&p->inputs))
		input_done(p, false);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void process_done(void *user, const struct guest_reply *reply)
{
	struct envd_process *p = user;
	struct envd_end end = {.timeout_ms = p->timeout_ms};

	p->s = NULL;
	while (!STAILQ_EMPTY(&p->inputs))
		input_done(p, false);
	if (reply->error) {
		end.error = reply->error;
		end.text = reply->text;
	} else if (!envd_end_parse(reply, &end)) {
		end.error = EPROTO;
		end.text = "the agent's answer is broken";
	}
	end.cut_out |= p->cut[PROTO_OUT];
	end.cut_err |= p->cut[PROTO_ERR];
	process_end(p, &end);
	TAILQ_REMOVE(&p->w->processes, p, link);
	process_release(p);
}

static const struct guest_stream_ops process_ops = {
	.data = process_data,
	.eof = process_eof,
	.writable = process_writable,
	.done = process_done,
};

/* The time is long up. A follower that still reads is let, as long as something moves. */
static void process_guard(void *user)
{
	struct envd_process *p = user;
	struct envd_end end = {.error = ETIMEDOUT,
		.text = "the command was given up: it ran out of time, and the agent did not end "
			"it"};

	p->guard = NULL;
	if (p->moved != p->moved_then) {
		p->moved_then = p->moved;
		p->guard = loop_timer(
			p->w->loop, clock_deadline(LIMIT_ENVD_GRACE_MS), process_guard, p);
		return;
	}
	p->refs++;
	if (p->s)
		guest_stream_cancel(p->s);
	process_end(p, &end);
	envd_kick(p->w, p->id);
	process_release(p);
}

/* ---- the start ---------------------------------------------------------------------------- */

static void put_spec(
	struct proto_out *o, const struct envd_target *t, const struct envd_process_spec *spec)
{
	for (size_t i = 0; !spec->shell && i < spec->argv->n; i++)
		proto_put_str(o, PROTO_T_ARG, spec->argv->items[i]);
	if (spec->shell)
		proto_put_str(o, PROTO_T_SHELL, spec->shell);
	envd_put_env(o, PROTO_T_ENV, spec->env);
	for (size_t i = 0; i < spec->env_bytes->n; i++)
		proto_put_str(o, PROTO_T_ENV, spec->env_bytes->items[i]);
	proto_put_bool(o, PROTO_T_KEEP, 1);
	if (*spec->tag)
		proto_put_str(o, PROTO_T_TAG, spec->tag);
	if (*spec->cwd)
		proto_put_str(o, PROTO_T_CWD, spec->cwd);
	if (*spec->user)
		proto_put_str(o, PROTO_T_USER, spec->user);
	proto_put_u64(o, PROTO_T_TIMEOUT_MS, spec->timeout_ms);
	proto_put_u64(o, PROTO_T_LIMIT_OUT, spec->limit_out);
	proto_put_u64(o, PROTO_T_LIMIT_ERR, spec->limit_err);
	if (t->exec_memory_bytes)
		proto_put_u64(o, PROTO_T_MEMORY_MAX, t->exec_memory_bytes);
	if (t->exec_pids)
		proto_put_u64(o, PROTO_T_PIDS_MAX, t->exec_pids);
	if (spec->has_stdin)
		proto_put_bool(o, PROTO_T_STDIN, 1);
	if (spec->rows && spec->cols) {
		uint16_t size[2] = {(uint16_t)spec->rows, (uint16_t)spec->cols};

		proto_put(o, PROTO_T_PTY, size, sizeof(size));
	}
}

/* A stream of the guest, and the command that it is. NULL: the error was answered. */
static struct envd_process *process_new(
	struct envd_call *c, enum proto_type type, const struct proto_out *o, const char *tag)
{
	struct envd_process *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->w = c->w;
	p->refs = 2;
	STAILQ_INIT(&p->inputs);
	p->s = envd_request(c, type, o, &process_ops, p);
	if (!p->s) {
		free(p);
		return NULL;
	}
	envd_hold(p->w);
	snprintf(p->id, sizeof(p->id), "%s", c->id);
	p->tag = tag && *tag ? strdup(tag) : NULL;
	p->limit[PROTO_OUT] = p->limit[PROTO_ERR] = UINT64_MAX;
	TAILQ_INSERT_TAIL(&p->w->processes, p, link);
	/* from here on the stream is the process's: not the call, which may go before it */
	envd_call_release(c);
	return p;
}

struct envd_process *envd_process_start(struct envd_call *c, const struct envd_target *t,
	const struct envd_process_spec *spec, const struct envd_reader_ops *ops)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};
	struct envd_process *p;

	if (!buf)
		abort();
	put_spec(&o, t, spec);
	if (o.failed) {
		envd_fail(c, ENVD_INVALID,
			"the arguments and variables of the command have more than %u bytes "
			"together: "
			"put some into a file, or send them to standard input",
			PROTO_BODY_MAX);
		return NULL;
	}
	envd_call_hold(c);
	p = process_new(c, PROTO_EXEC, &o, spec->tag);
	if (p) {
		p->timeout_ms = spec->timeout_ms;
		p->limit[PROTO_OUT] = spec->limit_out;
		p->limit[PROTO_ERR] = spec->limit_err;
		p->pty = spec->rows && spec->cols;
		p->has_stdin = spec->has_stdin;
		envd_process_follow(p, c, ops);
		p->guard = loop_timer(p->w->loop,
			clock_deadline((int64_t)(spec->timeout_ms + LIMIT_ENVD_GRACE_MS)),
			process_guard, p);
		envd_kick(p->w, p->id);
		process_release(p);
	}
	envd_call_release(c);
	return p;
}

void envd_process_seek(struct envd_call *c, uint32_t pid, const char *tag,
	void (*fn)(struct envd_call *c, struct envd_process *p))
{
	struct envd_process *p = process_find(c->w, c->id, pid, tag);
	uint8_t buf[PROTO_TAG_MAX + 64];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	struct envd_seeker *k;

	if (p && p->started) {
		fn(c, p);
		return;
	}
	envd_call_hold(c);
	if (!p) {
		if (tag)
			proto_put_str(&o, PROTO_T_TAG, tag);
		else
			proto_put_u32(&o, PROTO_T_PID, pid);
		p = process_new(c, PROTO_ATTACH, &o, tag);
		if (!p) {
			envd_call_release(c);
			return;
		}
		p->pid = tag ? 0 : pid;
		p->attached = true;
		process_release(p);
	}
	k = calloc(1, sizeof(*k));
	if (!k)
		abort();
	*k = (struct envd_seeker){.c = c, .fn = fn};
	SLIST_INSERT_HEAD(&p->seekers, k, link);
}
