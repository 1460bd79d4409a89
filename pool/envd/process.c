/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that run in sandboxes. Each is a stream of EXEC in its guest, a number that clients call
 * it by (the daemon's own: the agent does not tell pids), and the calls that follow it. All
 * followers get the same bytes: output is taken from the guest only when each of them has sent what
 * it got before, so the slowest sets the pace, and nothing is kept here.
 *
 * A command whose last follower has gone is cancelled, and its tree killed, unless it was started
 * to go on (`keep`): then its output is read and dropped, as nobody hears it, until somebody
 * follows it again.
 *
 * Whether a command could be started at all is known when the agent has answered something: so an
 * INFO goes out behind the EXEC, and its answer (or the first output) is what "started" means.
 *
 * The agent enforces the time limit. As it is not trusted, the command is given up here when it has
 * not ended LIMIT_ENVD_GRACE_MS later and nothing moves.
 */
#include "pool/envd/envd_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

struct envd_input {
	struct envd_call *c; /* answered when it is through; NULL: nobody waits */
	uint8_t *bytes;
	size_t len, at;
	bool close;
	struct envd_input *next;
};

struct envd_reader {
	struct envd_call *c;
	const struct envd_reader_ops *ops;
};

struct envd_process {
	struct envd *w;
	char id[LIMIT_NAME_SIZE];
	struct guest_stream *s; /* NULL: it has ended */
	uint32_t pid;
	char *tag; /* or NULL */
	json_t *config;
	uint64_t timeout_ms, limit[PROTO_CHANNELS], taken[PROTO_CHANNELS];
	uint64_t moved, moved_then; /* bytes taken; when the guard last looked */
	bool pty, has_stdin, keep, started, ended, stalled, cut[PROTO_CHANNELS];
	struct loop_timer *guard;
	struct envd_reader readers[LIMIT_ENVD_READERS];
	unsigned n_readers;
	struct envd_input *inputs;
	unsigned n_inputs;
	size_t input_bytes; /* of them */
	unsigned refs; /* the stream, the probe, and whoever runs a loop over its readers */
	struct envd_process *next;
};

/* ---- the table ---------------------------------------------------------------------------- */

static void process_release(struct envd_process *p)
{
	if (--p->refs)
		return;
	loop_timer_cancel(p->guard);
	json_decref(p->config);
	free(p->tag);
	envd_release(p->w);
	free(p);
}

void envd_processes_unguard(struct envd *w)
{
	for (struct envd_process *p = w->processes; p; p = p->next) {
		loop_timer_cancel(p->guard);
		p->guard = NULL;
	}
}

static void process_link(struct envd_process *p)
{
	struct envd_process **at = &p->w->processes;

	do {
		p->pid = ++p->w->last_pid;
	} while (!p->pid);
	while (*at)
		at = &(*at)->next;
	*at = p;
}

static void process_unlink(struct envd_process *p)
{
	struct envd_process **at = &p->w->processes;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
}

struct envd_process *envd_process_next(
	struct envd *w, const char *id, const struct envd_process *after)
{
	struct envd_process *p = after ? after->next : w->processes;

	while (p && (p->ended || strcmp(p->id, id) != 0))
		p = p->next;
	return p;
}

struct envd_process *envd_process_find(
	struct envd *w, const char *id, uint32_t pid, const char *tag)
{
	for (struct envd_process *p = envd_process_next(w, id, NULL); p;
		p = envd_process_next(w, id, p)) {
		if (tag ? p->tag && !strcmp(p->tag, tag) : p->pid == pid)
			return p;
	}
	return NULL;
}

/* What LIST shows of it: its words and its directory, as far as LIMIT_ENVD_CONFIG; no variables. */
static json_t *config_copy(const json_t *config)
{
	const json_t *args = json_object_get(config, "args"), *arg;
	const char *cmd = json_string_value(json_object_get(config, "cmd"));
	size_t left = LIMIT_ENVD_CONFIG, n = cmd ? strlen(cmd) : 0, i;
	json_t *copy = json_object(), *words = json_array();

	if (!copy || !words)
		abort();
	n = n < left ? n : left;
	left -= n;
	json_object_set_new(copy, "cmd", json_lossy((cmd ? cmd : ""), n));
	json_array_foreach(args, i, arg)
	{
		n = json_string_length(arg);
		n = n < left ? n : left;
		left -= n;
		if (!left)
			break;
		json_array_append_new(words, json_lossy(json_string_value(arg), n));
	}
	json_object_set_new(copy, "args", words);
	if (json_string_length(json_object_get(config, "cwd")) < left)
		json_object_set(copy, "cwd", json_object_get(config, "cwd"));
	return copy;
}

json_t *envd_process_info(const struct envd_process *p)
{
	json_t *info = json_pack("{s:O,s:I}", "config", p->config, "pid", (json_int_t)p->pid);

	if (!info || (p->tag && json_object_set_new(info, "tag", json_string(p->tag)) < 0))
		abort();
	return info;
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
	if (p->ended || !p->s)
		return;
	if (!p->n_readers && !p->keep) {
		guest_stream_cancel(p->s);
		envd_kick(p->w, p->id);
	}
	envd_process_resume(p);
}

static void process_started(struct envd_process *p)
{
	if (p->started || p->ended)
		return;
	p->started = true;
	for (unsigned i = 0; i < p->n_readers;) {
		struct envd_reader r = p->readers[i];

		envd_call_hold(r.c); /* it may leave while it is told */
		r.ops->started(r.c, p->pid);
		i += i < p->n_readers && p->readers[i].c == r.c;
		envd_call_release(r.c);
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
	struct envd_input *in = p->inputs;

	p->inputs = in->next;
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
	while (p->inputs && p->s) {
		struct envd_input *in = p->inputs;

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
	struct envd_input *in, **at = &p->inputs;

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
	while (*at)
		at = &(*at)->next;
	*at = in;
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

static size_t process_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct envd_process *p = user;
	size_t at = 0;

	if (channel != PROTO_OUT && channel != PROTO_ERR)
		return len;
	process_started(p);
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
	while (p->inputs)
		input_done(p, false);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void process_done(void *user, const struct guest_reply *reply)
{
	struct envd_process *p = user;
	struct envd_end end = {.timeout_ms = p->timeout_ms};

	p->s = NULL;
	while (p->inputs)
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
	process_unlink(p);
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

static void probe_done(void *user, const struct guest_reply *reply)
{
	struct envd_process *p = user;

	if (!reply->error)
		process_started(p);
	process_release(p);
}

static void process_probe(struct envd_process *p, struct guest *g)
{
	static const struct guest_stream_ops ops = {.done = probe_done};

	p->refs++;
	if (guest_request(g, PROTO_INFO, NULL, 0, &ops, p))
		return;
	p->refs--;
	process_started(p); /* no stream is left: trust it */
}

static void put_spec(
	struct proto_out *o, const struct envd_target *t, const struct envd_process_spec *spec)
{
	for (size_t i = 0; i < spec->n_argv; i++)
		proto_put_str(o, PROTO_T_ARG, spec->argv[i]);
	if (spec->shell)
		proto_put_str(o, PROTO_T_SHELL, spec->shell);
	envd_put_env(o, PROTO_T_ENV, spec->env);
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

struct envd_process *envd_process_start(struct envd_call *c, const struct envd_target *t,
	const struct envd_process_spec *spec, const struct envd_reader_ops *ops)
{
	cleanup_free uint8_t *buf = malloc(PROTO_BODY_MAX);
	struct proto_out o = {.buf = buf, .max = PROTO_BODY_MAX};
	struct envd_process *p = calloc(1, sizeof(*p));

	if (!buf || !p)
		abort();
	put_spec(&o, t, spec);
	p->w = c->w;
	p->refs = 2;
	p->s = envd_request(c, PROTO_EXEC, &o, &process_ops, p);
	if (!p->s) {
		free(p);
		return NULL;
	}
	envd_hold(p->w);
	snprintf(p->id, sizeof(p->id), "%s", c->id);
	p->tag = *spec->tag ? strdup(spec->tag) : NULL;
	p->config = config_copy(spec->config);
	p->timeout_ms = spec->timeout_ms;
	p->limit[PROTO_OUT] = spec->limit_out;
	p->limit[PROTO_ERR] = spec->limit_err;
	p->pty = spec->rows && spec->cols;
	p->has_stdin = spec->has_stdin;
	p->keep = spec->keep;
	process_link(p);
	/* from here on the stream is the process's: not the call, which may go before it */
	envd_process_follow(p, c, ops);
	envd_call_release(c);
	p->guard = loop_timer(p->w->loop,
		clock_deadline((int64_t)(spec->timeout_ms + LIMIT_ENVD_GRACE_MS)), process_guard,
		p);
	process_probe(p, t->guest);
	envd_kick(p->w, p->id);
	process_release(p);
	return p;
}
