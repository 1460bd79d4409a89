/* SPDX-License-Identifier: Apache-2.0 */
/*
 * filesystem.Filesystem, what happens in a directory: WatchDir, a stream, and the watchers that are asked now and
 * then: CreateWatcher, GetWatcherEvents, RemoveWatcher. All that is known of a watcher is in the guest, so it outlives
 * this daemon and a pause, and a fork has its own.
 *
 * Nothing is gathered here: while a client does not read, the guest's agent waits, and the queue of the guest's kernel
 * grows to its bound. What is lost past that is told: it ends a stream with an error, and is the error of one
 * GetWatcherEvents.
 */
#include "pool/envd/entry.h"
#include "pool/envd/envd_private.h"
#include "pool/envd/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEEPALIVE_MS 30000 /* also how soon a client that has gone is noticed */
#define LOST "events were lost: more happened than was read in time; list the directory anew"

struct watch_call {
	struct envd_call call;
	struct guest_stream *s; /* NULL: none, or it is done */
	char path[PROTO_PATH_MAX + 1]; /* of the directory */
	char id[33]; /* of a watcher */
	uint64_t timeout_ms;
	bool stalled; /* the guest's bytes wait for the client */
	struct buffer part; /* of an event that runs on in the next frame */
};

/* ---- events as JSON ----------------------------------------------------------------------- */

/* The event at @bytes, of which there are @len; its length, 0: there is more of it to come. */
static size_t event_len(const uint8_t *bytes, size_t len)
{
	struct proto_event e;
	struct proto_stat st = {0};
	size_t need = PROTO_EVENT_HEAD;

	if (len < need)
		return 0;
	memcpy(&e, bytes, sizeof(e));
	need += e.entry ? PROTO_STAT_LEN : 0;
	if (len < need)
		return 0;
	if (e.entry)
		memcpy(&st, bytes + PROTO_EVENT_HEAD, sizeof(st));
	need += (size_t)e.name_len + e.link_len + st.metadata_len;
	return len < need ? 0 : need;
}

static json_t *event_entry(
	const char *path, const char *name, const struct proto_event *e, const uint8_t *at)
{
	cleanup_free char *whole = NULL, *link = NULL;
	struct proto_stat st;
	const char *behind = (const char *)at + PROTO_STAT_LEN + e->name_len;

	memcpy(&st, at, sizeof(st));
	link = strndup(behind, e->link_len);
	if (!link || asprintf(&whole, "%s/%s", path[1] ? path : "", name) < 0)
		abort();
	return envd_entry(whole, &st, link, envd_metadata(behind + e->link_len, st.metadata_len));
}

/* A whole event in @path; NULL: it is of no kind that is told. */
static json_t *event_json(const char *path, const uint8_t *bytes)
{
	static const char *const kinds[] = {
		[PROTO_EVENT_CREATE] = "EVENT_TYPE_CREATE",
		[PROTO_EVENT_WRITE] = "EVENT_TYPE_WRITE",
		[PROTO_EVENT_REMOVE] = "EVENT_TYPE_REMOVE",
		[PROTO_EVENT_RENAME] = "EVENT_TYPE_RENAME",
		[PROTO_EVENT_CHMOD] = "EVENT_TYPE_CHMOD",
	};
	cleanup_free char *name = NULL;
	struct proto_event e;
	const uint8_t *at = bytes + PROTO_EVENT_HEAD;
	json_t *event;

	memcpy(&e, bytes, sizeof(e));
	if (e.kind >= sizeof(kinds) / sizeof(*kinds) || !kinds[e.kind])
		return NULL;
	name = strndup((const char *)at + (e.entry ? PROTO_STAT_LEN : 0), e.name_len);
	if (!name)
		abort();
	/* of the directory itself the name is "." */
	event = json_pack("{s:o,s:s}", "name",
		json_lossy(*name ? name : ".", *name ? strlen(name) : 1), "type", kinds[e.kind]);
	if (!event ||
		(e.entry &&
			json_object_set_new(event, "entry", event_entry(path, name, &e, at)) < 0))
		abort();
	return event;
}

static unsigned event_kind(const uint8_t *bytes)
{
	struct proto_event e;

	memcpy(&e, bytes, sizeof(e));
	return e.kind;
}

/* ---- what requests say -------------------------------------------------------------------- */

static void watch_late(struct envd_call *c)
{
	struct watch_call *x = (struct watch_call *)c;

	if (x->s)
		guest_stream_cancel(x->s);
	envd_fail(c, ENVD_DEADLINE, "%s",
		c->begun ? "the time of the watch is over" : "the sandbox did not answer in time");
	envd_kick(c->w, c->id);
}

static void watch_gone(struct envd_call *c)
{
	struct watch_call *x = (struct watch_call *)c;

	if (!x->s)
		return;
	guest_stream_cancel(x->s);
	envd_kick(c->w, c->id);
}

static void watch_destroy(struct envd_call *c)
{
	buffer_free(&((struct watch_call *)c)->part);
}

/* WATCH the directory that @body names; kept under x->id where there is one. */
static void watch_ask(struct watch_call *x, const struct envd_target *t, const json_t *body,
	const struct guest_stream_ops *ops)
{
	struct envd_call *c = &x->call;
	uint8_t buf[PROTO_PATH_MAX + 256];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	char user[LIMIT_USER + 1];
	const char *path;

	if (envd_user(c, t->user, user) < 0 || envd_string(c, body, "path", &path) < 0)
		return;
	if (!*path) {
		envd_fail(c, ENVD_INVALID, "path: the directory to watch is needed");
		return;
	}
	if (envd_path(c, path, user, x->path) < 0)
		return;
	proto_put_str(&o, PROTO_T_PATH, x->path);
	proto_put_bool(&o, PROTO_T_RECURSIVE, json_is_true(json_object_get(body, "recursive")));
	proto_put_bool(&o, PROTO_T_ENTRIES, json_is_true(json_object_get(body, "includeEntry")));
	if (*x->id)
		proto_put_str(&o, PROTO_T_TAG, x->id);
	envd_call_limit(c, LIMIT_ENVD_CALL_MS, watch_late);
	x->s = envd_request(c, PROTO_WATCH, &o, ops, x);
}

/* ---- WatchDir ----------------------------------------------------------------------------- */

static void stream_message(struct envd_call *c, unsigned flags, json_t *message)
{
	cleanup_free char *text = json_text(message);
	uint8_t head[ENVD_ENVELOPE_HEAD];

	envd_envelope_head(head, flags, (uint32_t)strlen(text));
	envd_write(c, head, sizeof(head));
	envd_write(c, text, strlen(text));
	json_decref(message);
}

static void stream_keepalive(struct envd_call *c)
{
	stream_message(c, 0, json_pack("{s:{}}", "keepalive"));
}

static void stream_started(struct watch_call *x)
{
	struct envd_call *c = &x->call;

	if (c->begun)
		return;
	envd_begin(c, 200, "application/connect+json");
	stream_message(c, 0, json_pack("{s:{}}", "start"));
	envd_keepalive(c, KEEPALIVE_MS, stream_keepalive);
	/* without a limit it ends with its client or with the machine */
	envd_call_limit(c, x->timeout_ms, watch_late);
}

/* false: the stream has ended. */
static bool stream_event(struct watch_call *x, const uint8_t *bytes)
{
	json_t *event;

	if (event_kind(bytes) == PROTO_EVENT_STARTED)
		stream_started(x);
	else if (event_kind(bytes) == PROTO_EVENT_LOST) {
		guest_stream_cancel(x->s);
		envd_fail(&x->call, ENVD_INTERNAL, LOST);
		return false;
	}
	event = event_json(x->path, bytes);
	if (event && x->call.begun)
		stream_message(&x->call, 0, json_pack("{s:o}", "filesystem", event));
	else
		json_decref(event);
	return true;
}

/* Event by event as the client takes them: one that waits, waits in the guest. */
static size_t stream_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct watch_call *x = user;
	struct envd_call *c = &x->call;
	size_t at = 0;

	if (channel != PROTO_OUT)
		return len;
	while (at < len && envd_call_open(c)) {
		size_t n = len - at < PROTO_EVENT_MAX ? len - at : PROTO_EVENT_MAX, one;

		x->stalled = envd_call_full(c);
		if (x->stalled)
			return at;
		buffer_append(&x->part, bytes + at, n);
		at += n;
		while ((one = event_len(x->part.bytes + x->part.head, x->part.len)) > 0) {
			if (!stream_event(x, x->part.bytes + x->part.head))
				return len;
			buffer_consume(&x->part, one);
		}
		if (x->part.len >= PROTO_EVENT_MAX) {
			guest_stream_cancel(x->s);
			envd_fail(c, ENVD_INTERNAL, "%s: the agent's events are broken", x->path);
		}
	}
	return len;
}

static void stream_writable(struct envd_call *c)
{
	struct watch_call *x = (struct watch_call *)c;

	if (!x->s || !x->stalled)
		return;
	x->stalled = false;
	guest_stream_resume(x->s);
	envd_kick(c->w, c->id);
}

/* Only an error ends it from within. */
static void stream_done(void *user, const struct guest_reply *reply)
{
	struct watch_call *x = user;

	x->s = NULL;
	if (envd_call_open(&x->call))
		envd_fail_errno(&x->call, reply->error ? reply->error : EPROTO,
			reply->error ? reply->text : "the watch has ended");
	envd_call_release(&x->call);
}

static void stream_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct guest_stream_ops ops = {.data = stream_data, .done = stream_done};
	struct watch_call *x = (struct watch_call *)c;

	if (envd_timeout_header(c, &x->timeout_ms) < 0)
		return;
	if (x->timeout_ms == UINT64_MAX || x->timeout_ms > LIMIT_TIMEOUT_MS)
		x->timeout_ms = 0;
	watch_ask(x, t, body, &ops);
}

/* ---- watchers ----------------------------------------------------------------------------- */

static void create_done(void *user, const struct guest_reply *reply)
{
	struct watch_call *x = user;

	x->s = NULL;
	if (reply->error)
		envd_fail_errno(&x->call, reply->error, reply->text);
	else
		envd_reply(&x->call, 200, json_pack("{s:s}", "watcherId", x->id));
	envd_call_release(&x->call);
}

static void create_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct guest_stream_ops ops = {.done = create_done};
	struct watch_call *x = (struct watch_call *)c;
	uint32_t r[4];

	if (getrandom(r, sizeof(r), 0) != sizeof(r))
		abort();
	snprintf(x->id, sizeof(x->id), "%08x%08x%08x%08x", r[0], r[1], r[2], r[3]);
	watch_ask(x, t, body, &ops);
}

static void events_done(void *user, const struct guest_reply *reply)
{
	struct watch_call *x = user;
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;
	json_t *events = json_array();
	bool lost = false, good = true;
	int rc = 0;

	x->s = NULL;
	while (!reply->error && good && (rc = proto_next(&in, &f)) == 1) {
		if (f.tag == PROTO_T_PATH)
			good = proto_str(&f, x->path, PROTO_PATH_MAX) == 0;
		if (f.tag != PROTO_T_EVENT)
			continue;
		good = event_len(f.data, f.len) == f.len;
		lost |= good && event_kind(f.data) == PROTO_EVENT_LOST;
		if (good)
			json_array_append_new(events, event_json(x->path, f.data));
	}
	if (reply->error)
		envd_fail_errno(&x->call, reply->error, reply->text);
	else if (rc < 0 || !good)
		envd_fail(&x->call, ENVD_INTERNAL, "the agent's answer is broken");
	else if (lost)
		envd_fail(&x->call, ENVD_INTERNAL, LOST);
	else
		envd_reply(&x->call, 200, json_pack("{s:O}", "events", events));
	json_decref(events);
	envd_call_release(&x->call);
}

static void remove_done(void *user, const struct guest_reply *reply)
{
	struct watch_call *x = user;

	x->s = NULL;
	if (reply->error)
		envd_fail_errno(&x->call, reply->error, reply->text);
	else
		envd_reply(&x->call, 200, json_object());
	envd_call_release(&x->call);
}

static void watcher_ask(struct envd_call *c, const json_t *body, const char *action,
	const struct guest_stream_ops *ops)
{
	struct watch_call *x = (struct watch_call *)c;
	uint8_t buf[512];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	const char *id;

	if (envd_string(c, body, "watcherId", &id) < 0)
		return;
	if (strlen(id) >= sizeof(x->id)) {
		envd_fail(c, ENVD_NOT_FOUND, "no watcher has so long a name");
		return;
	}
	proto_put_str(&o, PROTO_T_TAG, id);
	if (*action)
		proto_put_str(&o, PROTO_T_ACTION, action);
	envd_call_limit(c, LIMIT_ENVD_CALL_MS, watch_late);
	x->s = envd_request(c, PROTO_WATCHED, &o, ops, x);
}

static void events_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct guest_stream_ops ops = {.done = events_done};

	(void)t;
	watcher_ask(c, body, "", &ops);
}

static void remove_start(struct envd_call *c, const struct envd_target *t, const json_t *body)
{
	static const struct guest_stream_ops ops = {.done = remove_done};

	(void)t;
	watcher_ask(c, body, "stop", &ops);
}

#define METHOD(name, kind, fn)                                                                     \
	{                                                                                          \
		.method = "POST", .path = "/filesystem.Filesystem/" name, .style = (kind),         \
		.body = true, .size = sizeof(struct watch_call), .start = (fn),                    \
		.writable = stream_writable, .gone = watch_gone, .destroy = watch_destroy          \
	}

const struct envd_route envd_routes_watch[] = {
	METHOD("WatchDir", ENVD_STREAM, stream_start),
	METHOD("CreateWatcher", ENVD_UNARY, create_start),
	METHOD("GetWatcherEvents", ENVD_UNARY, events_start),
	METHOD("RemoveWatcher", ENVD_UNARY, remove_start),
	{0},
};
