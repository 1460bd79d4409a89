/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WATCH and WATCHED: a worker (notify.c) watches, a pipe carries what it tells. Of a watcher that is kept the pipe is
 * the queue: it holds QUEUE_BYTES, and what does not fit waits in the kernel's, which is bounded as well. So it goes
 * wherever the machine goes, and costs nothing while nobody asks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "agent/agent.h"
#include "agent/pump.h"
#include "agent/request.h"
#include "agent/notify.h"
#include "agent/worker.h"

/* An event of 9 bytes takes 17 in a reply: all of them fit. */
#define QUEUE_BYTES (512u << 10)
_Static_assert(QUEUE_BYTES / 9 * 17 + PROTO_PATH_MAX + 8 <= PROTO_BODY_MAX,
	"a reply tells what the queue holds");

struct watcher {
	LIST_ENTRY(watcher) link; /* where it is kept */
	char *tag, *path; /* NULL: not kept */
	struct stream *stream; /* gets the events; of a kept one: waits for the start, else NULL */
	struct worker worker;
	struct source out;
	int queue; /* kept: the pipe; -1 */
	struct watch *watch; /* until it has started */
	char why[sizeof(((struct fail *)0)->text)]; /* it has ended; "": it has not */
};

static LIST_HEAD(, watcher) watchers = LIST_HEAD_INITIALIZER(watchers);

static void watcher_free(struct watcher *w)
{
	if (w->tag)
		LIST_REMOVE(w, link);
	worker_kill(&w->worker);
	source_close(&w->out);
	watch_remove(w->watch);
	close_fd(&w->queue);
	free(w->tag);
	free(w->path);
	free(w);
}

/* The worker has ended, which it never does but by failing. */
static void watcher_ended(void *user, int err, const char *text, const uint8_t *body, uint32_t len)
{
	struct watcher *w = user;

	(void)body;
	(void)len;
	if (!err) {
		err = EIO;
		text = "the watcher has ended";
	}
	if (!w->stream) {
		snprintf(w->why, sizeof(w->why), "%s", text);
		return;
	}
	stream_reply_error(w->stream, err, text);
	watcher_free(w);
}

/* The first event has come. */
static void watcher_started(void *user, uint32_t events)
{
	struct watcher *w = user;
	struct proto_event e;
	struct proto_out none = {0};

	(void)events;
	if (read(w->queue, &e, sizeof(e)) != sizeof(e))
		return; /* its end: watcher_ended() says why */
	watch_remove(w->watch);
	w->watch = NULL;
	stream_reply(w->stream, &none);
	w->stream = NULL;
}

static void watcher_credit(struct stream *s, unsigned channel)
{
	struct watcher *w = stream_user(s);

	if (channel == PROTO_OUT && !w->tag)
		source_credit(&w->out);
}

static void watcher_abort(struct stream *s)
{
	watcher_free(stream_user(s));
}

static void watcher_cancel(struct stream *s)
{
	watcher_free(stream_user(s));
	stream_reply_error(s, ECANCELED, "canceled");
}

static const struct stream_ops watcher_ops = {
	.credit = watcher_credit,
	.cancel = watcher_cancel,
	.abort = watcher_abort,
};

static struct watcher *watcher_find(const char *tag)
{
	struct watcher *w;

	LIST_FOREACH(w, &watchers, link)
		if (tag && !strcmp(w->tag, tag))
			return w;
	return NULL;
}

static int watcher_check(const struct request *r, struct fail *f)
{
	struct watcher *w;
	unsigned n = 0;

	if (!r->path || r->path[0] != '/')
		return fail_set(f, EINVAL, "a path must be absolute");
	LIST_FOREACH(w, &watchers, link)
		n++;
	if (r->tag && n >= AGENT_WATCHERS_MAX)
		return fail_set(f, EMFILE, "there are %u watchers already: remove one", n);
	if (r->tag && watcher_find(r->tag))
		return fail_set(f, EEXIST, "there is a watcher '%s' already", r->tag);
	return 0;
}

void watcher_request(struct stream *s, unsigned type, struct request *r)
{
	struct watcher *w;
	int pipe[2];
	struct fail f;

	(void)type;
	if (watcher_check(r, &f) < 0 ||
		(pipe2(pipe, O_CLOEXEC) < 0 &&
			fail_set(&f, errno, "cannot make a pipe: %s", strerror(errno)) < 0)) {
		stream_reply_error(s, f.err, f.text);
		return;
	}
	w = agent_alloc(sizeof(*w));
	w->stream = s;
	w->queue = w->out.fd = -1;
	w->out.done = true;
	if (worker_start(&w->worker, notify_run, r, pipe[1], watcher_ended, w, &f) < 0) {
		close(pipe[0]);
		close(pipe[1]);
		free(w);
		stream_reply_error(s, f.err, f.text);
		return;
	}
	close(pipe[1]);
	fcntl(pipe[0], F_SETFL, O_NONBLOCK);
	stream_set(s, &watcher_ops, w);
	if (!r->tag) {
		source_start(&w->out, pipe[0], s, PROTO_OUT, NULL, w);
		return;
	}
	fcntl(pipe[0], F_SETPIPE_SZ, QUEUE_BYTES);
	w->queue = pipe[0];
	w->watch = watch_add(w->queue, EPOLLIN, watcher_started, w);
	w->tag = r->tag;
	w->path = r->path;
	r->tag = r->path = NULL;
	LIST_INSERT_HEAD(&watchers, w, link);
}

/* What the queue holds: whole events. -EIO: something else wrote there. */
static int queue_tell(struct watcher *w, struct proto_out *o)
{
	uint8_t *bytes = agent_alloc(QUEUE_BYTES);
	ssize_t n = read(w->queue, bytes, QUEUE_BYTES);
	uint32_t len = n > 0 ? (uint32_t)n : 0, one = 0;

	for (uint32_t at = 0; at < len; at += one) {
		one = notify_event_len(bytes + at, len - at);
		if (!one)
			break;
		proto_put(o, PROTO_T_EVENT, bytes + at, one);
	}
	free(bytes);
	return len && !one ? -EIO : 0;
}

void watcher_events_request(struct stream *s, unsigned type, struct request *r)
{
	struct watcher *w = watcher_find(r->tag);
	struct proto_out o = {.buf = NULL};

	(void)type;
	if (!w || w->stream) {
		stream_reply_error(s, ENOENT, "there is no such watcher");
		return;
	}
	if (r->action && !strcmp(r->action, "stop")) {
		watcher_free(w);
		stream_reply(s, &o);
		return;
	}
	o.buf = agent_alloc(PROTO_BODY_MAX);
	o.max = PROTO_BODY_MAX;
	proto_put_str(&o, PROTO_T_PATH, w->path);
	if (queue_tell(w, &o) < 0 && !*w->why)
		snprintf(w->why, sizeof(w->why), "the watcher's events are broken");
	if (*w->why) {
		stream_reply_error(s, EIO, w->why);
		watcher_free(w);
	} else {
		stream_reply(s, &o);
	}
	free(o.buf);
}
