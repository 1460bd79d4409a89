/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of a connection: found by number in a list (there are at most
 * PROTO_STREAMS_MAX and the proxy's), freed by their reply or with the connection. An owner's
 * callback may end its stream, so nothing here touches a stream after calling one.
 */
#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "agent/wire_private.h"

static const struct stream_ops no_ops;

static struct stream *stream_find(struct wire *w, uint32_t id)
{
	struct stream *s;

	LIST_FOREACH(s, &w->streams, link)
		if (s->id == id)
			break;
	return s;
}

static struct stream *stream_new(struct wire *w, uint32_t id)
{
	struct stream *s = agent_alloc(sizeof(*s));

	*s = (struct stream){.wire = w, .id = id, .ops = &no_ops};
	for (unsigned c = 0; c < PROTO_CHANNELS; c++)
		s->credit[c] = s->window[c] = PROTO_WINDOW;
	LIST_INSERT_HEAD(&w->streams, s, link);
	if (id & 1)
		w->odd++;
	else
		w->even++;
	return s;
}

static void stream_unlink(struct stream *s)
{
	struct wire *w = s->wire;

	LIST_REMOVE(s, link);
	if (s->id & 1)
		w->odd--;
	else
		w->even--;
}

void stream_abort_all(struct wire *w)
{
	struct stream *s;

	while ((s = LIST_FIRST(&w->streams))) {
		stream_unlink(s);
		if (s->ops->abort)
			s->ops->abort(s);
		free(s);
	}
}

void stream_set(struct stream *s, const struct stream_ops *ops, void *user)
{
	s->ops = ops ? ops : &no_ops;
	s->user = user;
}

void *stream_user(const struct stream *s)
{
	return s->user;
}

struct wire *stream_wire(const struct stream *s)
{
	return s->wire;
}

/* ---- sending -------------------------------------------------------------------------- */

uint32_t stream_room(struct stream *s, unsigned channel)
{
	uint32_t room = s->credit[channel];

	if (s->tx_eof[channel])
		return 0;
	if (!room)
		s->starved[channel] = true;
	return room < PROTO_DATA_MAX ? room : PROTO_DATA_MAX;
}

uint8_t *stream_reserve(struct stream *s, uint32_t len)
{
	return wire_room(s->wire, PROTO_HEADER_LEN + len) + PROTO_HEADER_LEN;
}

void stream_commit(struct stream *s, unsigned channel, uint32_t len)
{
	struct wire *w = s->wire;
	struct proto_header h = {.magic = PROTO_MAGIC,
		.type = PROTO_DATA,
		.flags = (uint16_t)channel,
		.stream = s->id,
		.length = len};

	memcpy(w->tx + w->tx_end, &h, sizeof(h));
	w->tx_end += sizeof(h) + len;
	s->credit[channel] -= len;
}

void stream_eof(struct stream *s, unsigned channel)
{
	if (s->tx_eof[channel])
		return;
	s->tx_eof[channel] = true;
	wire_send(s->wire, PROTO_EOF, channel, s->id, NULL, 0);
}

void stream_consumed(struct stream *s, unsigned channel, uint32_t len)
{
	uint32_t body[2] = {channel, len};

	if (!len)
		return;
	s->window[channel] += len;
	if (!s->rx_eof[channel])
		wire_send(s->wire, PROTO_CREDIT, 0, s->id, body, sizeof(body));
}

void stream_reply(struct stream *s, const struct proto_out *body)
{
	wire_send(s->wire, PROTO_REPLY, 0, s->id, body ? body->buf : NULL, body ? body->len : 0);
	stream_unlink(s);
	free(s);
}

void stream_reply_error(struct stream *s, int err, const char *text)
{
	uint8_t value[4 + PROTO_ERROR_MAX], buf[sizeof(value) + 8];
	struct proto_out out = {.buf = buf, .max = sizeof(buf)};
	uint32_t code = (uint32_t)(err < 0 ? -err : err);
	size_t len = strnlen(text, PROTO_ERROR_MAX);

	memcpy(value, &code, 4);
	memcpy(value + 4, text, len);
	proto_put(&out, PROTO_T_ERROR, value, (uint32_t)(4 + len));
	stream_reply(s, &out);
}

struct stream *stream_open(struct wire *w, unsigned type, const struct stream_ops *ops, void *user)
{
	struct stream *s;

	if (!w->synced || w->even >= WIRE_EVEN_MAX)
		return NULL;
	while (w->next_even == 0 || stream_find(w, w->next_even))
		w->next_even += 2;
	s = stream_new(w, w->next_even);
	w->next_even += 2;
	stream_set(s, ops, user);
	wire_send(w, type, 0, s->id, NULL, 0);
	return s;
}

void stream_cancel(struct stream *s)
{
	wire_send(s->wire, PROTO_CANCEL, 0, s->id, NULL, 0);
}

/* ---- receiving ------------------------------------------------------------------------ */

static void stream_data(struct stream *s, unsigned channel, const uint8_t *bytes, uint32_t len)
{
	if (len > PROTO_DATA_MAX)
		wire_breach(s->wire, "DATA of %u bytes", len);
	else if (s->rx_eof[channel])
		wire_breach(s->wire, "DATA after EOF on stream %u, channel %u", s->id, channel);
	else if (len > s->window[channel])
		wire_breach(
			s->wire, "DATA beyond the credit of stream %u, channel %u", s->id, channel);
	else if (len == 0)
		return;
	else {
		s->window[channel] -= len;
		if (s->ops->data)
			s->ops->data(s, channel, bytes, len);
		else
			stream_consumed(s, channel, len);
	}
}

static void stream_credit(struct stream *s, const uint8_t *body, uint32_t len)
{
	uint32_t v[2];

	if (len != sizeof(v)) {
		wire_breach(s->wire, "a CREDIT of %u bytes", len);
		return;
	}
	memcpy(v, body, sizeof(v));
	if (v[0] >= PROTO_CHANNELS || v[1] > PROTO_WINDOW ||
		s->credit[v[0]] + v[1] > PROTO_WINDOW) {
		wire_breach(s->wire, "CREDIT beyond the window of stream %u", s->id);
		return;
	}
	s->credit[v[0]] += v[1];
	if (s->starved[v[0]] && s->credit[v[0]]) {
		s->starved[v[0]] = false;
		if (s->ops->credit)
			s->ops->credit(s, v[0]);
	}
}

static void stream_host_reply(struct stream *s, const uint8_t *body, uint32_t len)
{
	if (s->id & 1) {
		wire_breach(s->wire, "a REPLY on stream %u, which the host opened", s->id);
		return;
	}
	stream_unlink(s);
	if (s->ops->reply)
		s->ops->reply(s, body, len);
	free(s);
}

static void stream_request(struct wire *w, const struct proto_header *h, const uint8_t *body)
{
	struct stream *s;

	if (!(h->stream & 1)) {
		wire_breach(
			w, "a request on stream %u, which is not the host's to open", h->stream);
		return;
	}
	s = stream_new(w, h->stream);
	if (w->odd > PROTO_STREAMS_MAX)
		stream_reply_error(s, EMFILE, "too many streams at once");
	else
		w->ops->request(s, h->type, body, h->length);
}

void stream_frame(struct wire *w, const struct proto_header *h, const uint8_t *body)
{
	struct stream *s = stream_find(w, h->stream);

	if (h->type >= PROTO_EXEC) {
		if (s)
			wire_breach(w, "a request on stream %u, which is open", h->stream);
		else
			stream_request(w, h, body);
		return;
	}
	if (!s) /* a late frame of a stream that has ended */
		return;
	if ((h->type == PROTO_EOF || h->type == PROTO_CANCEL) && h->length != 0) {
		wire_breach(w, "a frame of type %u with a body", h->type);
		return;
	}
	switch (h->type) {
	case PROTO_DATA:
		stream_data(s, h->flags, body, h->length);
		break;
	case PROTO_EOF:
		if (s->rx_eof[h->flags])
			break;
		s->rx_eof[h->flags] = true;
		if (s->ops->eof)
			s->ops->eof(s, h->flags);
		break;
	case PROTO_CREDIT:
		stream_credit(s, body, h->length);
		break;
	case PROTO_CANCEL:
		if (s->ops->cancel)
			s->ops->cancel(s);
		break;
	case PROTO_REPLY:
		stream_host_reply(s, body, h->length);
		break;
	case PROTO_SIGNAL:
	case PROTO_RESIZE:
		if (h->length != 4) {
			wire_breach(w, "a frame of type %u with %u bytes", h->type, h->length);
		} else if (h->type == PROTO_SIGNAL) {
			uint32_t sig;

			memcpy(&sig, body, 4);
			if (s->ops->signal)
				s->ops->signal(s, sig);
		} else {
			uint16_t v[2];

			memcpy(v, body, 4);
			if (s->ops->resize)
				s->ops->resize(s, v[0], v[1]);
		}
		break;
	}
}
