/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request's life: its head and its body go to the server as there is credit for them; the
 * server's head is gathered until it is whole, and then its body goes to the client as there is
 * room for it. Whichever side ends first ends the other. After an upgrade the relay has the
 * client's socket, and bytes go both ways as they come.
 *
 * A request ends in one of three ways: the answer has been read to its end; the client has gone
 * (over()); the guest's stream is done. The relay is freed when both the request and the stream are
 * over.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/json.h"
#include "common/str.h"
#include "pool/relay/relay_private.h"
#include "pool/http/limits.h"
#include "pool/relay/limits.h"

#define PIECE (16 * KIB) /* read from an upgraded client at once */

struct relay {
	struct relays *all;
	LIST_ENTRY(relay) link;
	char id[LIMIT_NAME_SIZE];
	unsigned port;
	struct http_request *rq; /* NULL: it is over */
	struct guest_stream *stream; /* NULL: likewise */
	bool chunked, upgrade, is_head; /* the request's */

	struct buffer out; /* to the server, before anything else */
	bool sent_all; /* of the request, but for what waits in out */

	struct buffer head; /* of the server's answer, as far as it has come */
	bool begun, finished; /* the answer to the client */
	enum relay_framing framing;
	uint64_t left; /* RELAY_LENGTH */
	struct relay_chunks chunks;

	/* after an upgrade */
	bool upgraded;
	int fd; /* HTTP's; -1: not there yet, or let go of */
	struct loop_watch *watch;
	struct buffer back; /* to the client */
	bool client_eof, server_eof;
};

struct relays *relays_new(struct loop *l, const struct relay_ops *ops, void *user)
{
	struct relays *all = calloc(1, sizeof(*all));

	if (!all)
		abort();
	*all = (struct relays){.loop = l, .ops = ops, .user = user};
	return all;
}

static void relay_free(struct relay *r)
{
	LIST_REMOVE(r, link);
	loop_remove(r->watch);
	buffer_free(&r->out);
	buffer_free(&r->head);
	buffer_free(&r->back);
	free(r);
}

void relays_free(struct relays *all)
{
	if (!all)
		return;
	/* guests that are still there have streams of these: they end with their guests, untold */
	while (!LIST_EMPTY(&all->open))
		relay_free(LIST_FIRST(&all->open));
	free(all);
}

static void maybe_free(struct relay *r)
{
	if (!r->rq && !r->stream)
		relay_free(r);
}

static void kick(struct relay *r)
{
	r->all->ops->kick(r->all->user, r->id);
}

/* ---- what is not there ------------------------------------------------------------------------ */

static void fail(struct relay *r, unsigned status, const char *message)
{
	json_t *body = json_pack("{s:s, s:s, s:i, s:i}", "sandboxId", r->id, "message", message,
		"port", (int)r->port, "code", (int)status);

	r->begun = r->finished = true;
	http_reply(r->rq, status, body);
}

/* The server's side is over. Before its head came: why; in its midst: the answer is cut. */
static void server_gone(struct relay *r, int error)
{
	if (!r->rq || r->finished)
		return;
	if (r->begun) {
		r->finished = true;
		http_stream_abort(r->rq);
	} else if (error == ECONNREFUSED) {
		fail(r, 502, "The sandbox is running but port is not open");
	} else if (error == ECONNRESET || error == ESHUTDOWN) {
		fail(r, 502, "The sandbox was not found");
	} else {
		fail(r, 502, "the server in the sandbox gave no answer");
	}
}

/* ---- to the server ----------------------------------------------------------------------------- */

/* What waits goes. True: nothing waits any more. */
static bool flush(struct relay *r)
{
	size_t n;

	if (!r->stream)
		return false;
	n = guest_stream_send(r->stream, PROTO_IN, buffer_text(&r->out), r->out.len);
	buffer_consume(&r->out, n);
	kick(r);
	return !r->out.len;
}

static size_t body_data(void *user, const char *bytes, size_t len)
{
	struct relay *r = user;
	char size[24];

	if (!r->stream) /* nobody reads it any more */
		return len;
	if (!flush(r)) /* writable() comes */
		return 0;
	if (!r->chunked) {
		len = guest_stream_send(r->stream, PROTO_IN, bytes, len);
		kick(r);
		return len;
	}
	/* one chunk, of which what has no credit waits: no more than HTTP's own buffer */
	buffer_append(&r->out, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", len));
	buffer_append(&r->out, bytes, len);
	buffer_append(&r->out, "\r\n", 2);
	flush(r);
	return len;
}

static void body_end(void *user)
{
	struct relay *r = user;

	r->sent_all = true;
	if (!r->stream)
		return;
	if (r->chunked)
		buffer_append(&r->out, "0\r\n\r\n", 5);
	flush(r);
}

static const struct http_upload_ops body_ops = {.data = body_data, .end = body_end};

/* ---- after an upgrade --------------------------------------------------------------------------- */

static void pump(struct relay *r);

static void let_go(struct relay *r)
{
	loop_remove(steal_ptr(&r->watch));
	r->fd = -1;
}

/* The client's end: the connection is HTTP's to close. */
static void end_upgraded(struct relay *r)
{
	if (r->fd < 0)
		return;
	let_go(r);
	http_upgrade_close(r->rq);
}

static void client_ready(void *user, short revents)
{
	(void)revents;
	pump(user);
}

/* Bytes of the client's to the server, as there is credit. */
static void pump_in(struct relay *r)
{
	char buf[PIECE];

	while (r->stream && !r->client_eof && flush(r)) {
		size_t room = guest_stream_room(r->stream, PROTO_IN);
		ssize_t n;

		if (!room)
			break;
		n = recv(r->fd, buf, room < sizeof(buf) ? room : sizeof(buf), MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			r->client_eof = true;
			guest_stream_eof(r->stream, PROTO_IN);
			kick(r);
		} else {
			buffer_append(&r->out, buf, (size_t)n);
		}
	}
}

static void pump_back(struct relay *r)
{
	while (r->back.len) {
		ssize_t n = send(
			r->fd, buffer_text(&r->back), r->back.len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			r->client_eof = true;
			buffer_consume(&r->back, r->back.len);
			if (r->stream)
				guest_stream_cancel(r->stream);
			return;
		}
		buffer_consume(&r->back, (size_t)n);
	}
	if (r->stream && !r->server_eof)
		guest_stream_resume(r->stream);
}

static void pump(struct relay *r)
{
	short want = 0;

	if (r->fd < 0)
		return;
	pump_in(r);
	pump_back(r);
	if (!r->back.len && (!r->stream || r->server_eof || r->client_eof)) {
		if (r->stream)
			guest_stream_cancel(r->stream);
		end_upgraded(r);
		return;
	}
	if (r->back.len)
		want |= POLLOUT;
	if (!r->client_eof && r->stream && !r->out.len && guest_stream_room(r->stream, PROTO_IN))
		want |= POLLIN;
	loop_set(r->watch, want);
}

static void upgraded(void *user, int fd, const char *bytes, size_t len)
{
	struct relay *r = user;

	r->fd = fd;
	buffer_append(&r->out, bytes, len);
	r->watch = loop_add(r->all->loop, fd, POLLIN, client_ready, r, NULL);
	if (!r->watch) {
		if (r->stream)
			guest_stream_cancel(r->stream);
		end_upgraded(r);
		return;
	}
	pump(r);
}

/* The server stops. */
static void upgrade_cut(void *user)
{
	let_go(user);
}

static const struct http_upgrade_ops upgrade_ops = {.begin = upgraded, .cut = upgrade_cut};

/* ---- from the server ------------------------------------------------------------------------------ */

static void room_again(void *user)
{
	struct relay *r = user;

	if (r->stream)
		guest_stream_resume(r->stream);
}

static void finish(struct relay *r)
{
	r->finished = true;
	if (r->begun)
		http_stream_end(r->rq);
	if (r->stream)
		guest_stream_cancel(r->stream);
	kick(r);
}

static void begin(struct relay *r, const struct relay_head *h)
{
	r->framing = h->framing;
	r->left = h->length;
	for (size_t i = 0; i < h->n_headers; i++)
		http_add_header(r->rq, h->headers[i].name, h->headers[i].value);
	if (h->status == 101) {
		r->upgraded = r->begun = r->finished = true;
		http_add_header(r->rq, "Upgrade", http_header(r->rq, "Upgrade"));
		http_upgrade(r->rq, &upgrade_ops, r);
		return;
	}
	if (h->length != UINT64_MAX)
		http_stream_length(r->rq, h->length);
	else if (h->framing == RELAY_NO_BODY)
		http_stream_length(r->rq, 0);
	r->begun = true;
	http_stream_begin(r->rq, h->status, NULL, room_again, r);
	if (h->framing == RELAY_NO_BODY || (h->framing == RELAY_LENGTH && !h->length))
		finish(r);
}

/* The head, as far as it has come. Returns how much of @bytes is done with. */
static size_t head_came(struct relay *r, const char *bytes, size_t len)
{
	size_t before = r->head.len, whole;
	struct relay_head h;
	const char *why;

	buffer_append(&r->head, bytes, len);
	whole = relay_head_length(buffer_text(&r->head), r->head.len);
	if (!whole && r->head.len <= LIMIT_RELAY_HEAD)
		return len;
	why = whole && whole <= LIMIT_RELAY_HEAD
		? relay_head_parse(buffer_text(&r->head), whole, r->is_head, &h)
		: "its head is too long";
	if (!why && h.status == 101 && !r->upgrade)
		why = "it goes over to another protocol, which nobody asked for";
	if (why) {
		cleanup_free char *text = str_printf("the server in the sandbox: %s", why);

		fail(r, 502, text);
		guest_stream_cancel(r->stream);
		return len;
	}
	if (h.status >= 200 || h.status == 101)
		begin(r, &h);
	buffer_free(&r->head); /* 1xx: another follows */
	return whole - before;
}

/* Some of the body. Returns how much is done with: less where the client has no room. */
static size_t body_came(struct relay *r, const char *bytes, size_t len)
{
	size_t done = 0;

	while (done < len && !r->finished) {
		const char *data = bytes + done;
		size_t n = len - done, took;
		struct relay_chunks before = r->chunks;
		ssize_t used = (ssize_t)n;

		if (r->framing == RELAY_CHUNKED)
			used = relay_chunks_read(&r->chunks, bytes + done, len - done, &data, &n);
		else if (r->framing == RELAY_LENGTH && n > r->left)
			used = (ssize_t)(n = (size_t)r->left);
		if (used < 0) {
			server_gone(r, EPROTO);
			guest_stream_cancel(r->stream);
			return len;
		}
		took = n ? http_stream_write(r->rq, data, n) : 0;
		if (took < n) { /* the rest is offered again */
			if (r->framing == RELAY_CHUNKED && !took) {
				r->chunks = before;
				return done;
			}
			if (r->framing == RELAY_CHUNKED) {
				r->chunks.state = CHUNK_DATA;
				r->chunks.left += n - took;
			}
			r->left -= took;
			return done + (size_t)(data - (bytes + done)) + took;
		}
		if (r->framing == RELAY_LENGTH)
			r->left -= n;
		done += (size_t)used;
		if ((r->framing == RELAY_LENGTH && !r->left) || r->chunks.state == CHUNKS_OVER)
			finish(r);
	}
	return r->finished ? len : done;
}

static size_t data_came(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct relay *r = user;
	size_t done = 0;

	if (channel != PROTO_OUT || !r->rq)
		return len;
	if (!r->begun)
		done = head_came(r, (const char *)bytes, len);
	if (r->upgraded) {
		size_t room = r->back.len < LIMIT_HTTP_BUFFER ? LIMIT_HTTP_BUFFER - r->back.len : 0;
		size_t n = len - done < room ? len - done : room;

		buffer_append(&r->back, bytes + done, n);
		if (r->watch)
			loop_set(r->watch, POLLIN | POLLOUT);
		return done + n;
	}
	if (r->finished)
		return len;
	if (!r->begun)
		return done;
	return done + body_came(r, (const char *)bytes + done, len - done);
}

static void eof_came(void *user, enum proto_channel channel)
{
	struct relay *r = user;

	if (channel != PROTO_OUT || !r->rq)
		return;
	r->server_eof = true;
	if (r->upgraded) {
		if (r->watch)
			loop_set(r->watch, POLLIN | POLLOUT);
	} else if (r->begun && !r->finished && r->framing == RELAY_UNTIL_EOF) {
		finish(r);
	} else if (!r->finished) {
		server_gone(r, EPIPE);
		guest_stream_cancel(r->stream);
	}
}

static void writable(void *user, enum proto_channel channel)
{
	struct relay *r = user;

	(void)channel;
	if (r->upgraded) {
		pump(r);
	} else if (flush(r) && r->rq && !r->sent_all) {
		http_upload_resume(r->rq);
	}
}

static void stream_done(void *user, const struct guest_reply *reply)
{
	struct relay *r = user;

	r->stream = NULL;
	if (r->upgraded) {
		r->server_eof = true;
		pump(r);
	}
	server_gone(r, reply->error);
	maybe_free(r);
}

static const struct guest_stream_ops stream_ops = {
	.data = data_came, .eof = eof_came, .writable = writable, .done = stream_done};

/* ---- the request -------------------------------------------------------------------------------- */

static void over(void *user, bool complete)
{
	struct relay *r = user;

	(void)complete;
	let_go(r);
	r->rq = NULL;
	if (r->stream) {
		guest_stream_cancel(r->stream);
		kick(r);
	}
	maybe_free(r);
}

static unsigned count(const struct relays *all, const char *id)
{
	const struct relay *r;
	unsigned n = 0;

	LIST_FOREACH(r, &all->open, link)
		n += !strcmp(r->id, id);
	return n;
}

static struct relay *relay_new(
	struct relays *all, struct http_request *rq, const struct relay_target *to)
{
	struct relay *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	*r = (struct relay){.all = all, .rq = rq, .port = to->port, .fd = -1};
	snprintf(r->id, sizeof(r->id), "%s", to->id);
	LIST_INSERT_HEAD(&all->open, r, link);
	r->upgrade = relay_upgrades(rq);
	r->chunked = http_body_length(rq) == UINT64_MAX;
	r->is_head = !strcmp(http_method(rq), "HEAD");
	http_on_end(rq, over, r);
	return r;
}

void relay_request(struct relays *all, struct http_request *rq, const struct relay_target *to)
{
	bool full = count(all, to->id) >= LIMIT_RELAY_SANDBOX;
	struct relay *r = relay_new(all, rq, to);
	uint8_t buf[16];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	if (!to->guest) {
		fail(r, 502, "The sandbox was not found");
		return;
	}
	proto_put_u32(&o, PROTO_T_PORT, to->port);
	if (!full)
		r->stream = guest_request(to->guest, PROTO_PORT, buf, o.len, &stream_ops, r);
	if (!r->stream) {
		fail(r, 429, "The sandbox has too many concurrent incoming connections");
		return;
	}
	relay_head_write(all, rq, to, r->upgrade, &r->out);
	http_upload(rq, &body_ops, r);
	flush(r);
}
