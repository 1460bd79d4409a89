/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that come on streams: each is checked against its stream's state, then handed to the
 * stream's listener. guest.c has checked the header by then: type, lengths, channel.
 *
 * Data that a listener does not take stays in the channel's queue, within the credit we gave; its
 * EOF and the stream's REPLY wait behind it. A frame for a stream of ours that is not open is a
 * breach of the protocol (the agent, as the stream's server, has ended it itself). A frame for a
 * stream of the agent's that is not open may have been on its way when our REPLY went out.
 */
#include "common/buffer.h"
#include "vmm/guest/guest_private.h"

/* Offer what is queued on a channel, then its EOF. The caller holds the stream. */
static void channel_offer(struct guest_stream *s, enum proto_channel c)
{
	struct guest_rx *rx = &s->rx[c];

	if (s->in_data)
		return;
	if (rx->queue.len) {
		size_t n = rx->queue.len;

		if (s->ops && s->ops->data) {
			s->in_data = true;
			n = s->ops->data(s->user, c, rx->queue.bytes + rx->queue.head, n);
			s->in_data = false;
		}
		/* the callback may have ended the stream, and with it the queue */
		if (n > rx->queue.len)
			n = rx->queue.len;
		buffer_consume(&rx->queue, n);
		rx->owed += (uint32_t)n;
		if (rx->owed >= GUEST_CREDIT_STEP)
			guest_stream_list(s);
	}
	if (rx->eof && !rx->eof_told && !rx->queue.len) {
		rx->eof_told = true;
		if (s->ops && s->ops->eof)
			s->ops->eof(s->user, c);
	}
}

/* Read the REPLY's fields; a broken one is a breach. */
static bool reply_read(struct guest_stream *s, const uint8_t *body, uint32_t len,
	struct guest_reply *ret, char text[static PROTO_ERROR_MAX + 1])
{
	struct proto_in in = {.buf = body, .len = len};
	struct proto_field f;
	int rc;

	*ret = (struct guest_reply){.body = body, .body_len = len, .text = text};
	text[0] = '\0';
	while ((rc = proto_next(&in, &f)) == 1) {
		uint32_t code = 0;

		if (f.tag != PROTO_T_ERROR)
			continue;
		if (f.len >= 4)
			memcpy(&code, f.data, 4);
		f.len -= f.len >= 4 ? 4 : 0;
		f.data += 4;
		if (code < 1 || code > 4095 || proto_str(&f, text, PROTO_ERROR_MAX) < 0) {
			guest_breach(s->g, "REPLY on stream %u with a broken error", s->number);
			return false;
		}
		ret->error = (int)code;
	}
	if (rc < 0)
		guest_breach(s->g, "REPLY on stream %u with a field past its end", s->number);
	for (char *p = text; *p; p++) {
		if ((unsigned char)*p < 0x20 && *p != '\n' && *p != '\t')
			*p = '?';
	}
	return rc == 0;
}

static bool rx_pending(const struct guest_stream *s)
{
	for (int c = 0; c < PROTO_CHANNELS; c++) {
		if (s->rx[c].queue.len)
			return true;
	}
	return false;
}

/* The kept REPLY's turn has come. The caller holds the stream. */
static void reply_deliver(struct guest_stream *s)
{
	char text[PROTO_ERROR_MAX + 1];
	struct guest_reply reply;

	if (!s->replied || s->gone || s->in_data || (rx_pending(s) && s->ops && !s->cancel_wanted))
		return;
	if (reply_read(s, s->reply, s->reply_len, &reply, text))
		guest_stream_end(s, &reply);
}

void guest_stream_resume(struct guest_stream *s)
{
	guest_stream_hold(s);
	for (int c = 0; c < PROTO_CHANNELS && !s->gone; c++)
		channel_offer(s, (enum proto_channel)c);
	reply_deliver(s);
	guest_stream_release(s);
}

/* Which channels the agent sends on, by what was asked. */
static bool channel_allowed(const struct guest_stream *s, unsigned channel)
{
	switch (s->type) {
	case PROTO_EXEC:
	case PROTO_ATTACH:
	case PROTO_CODE:
		return channel == PROTO_OUT || channel == PROTO_ERR || channel == PROTO_RESULT;
	case PROTO_FILE_GET:
	case PROTO_FILE_LIST:
	case PROTO_WATCH:
	case PROTO_PORT:
	case PROTO_PROXY_OPEN:
		return channel == PROTO_OUT;
	default:
		return false;
	}
}

static void data_frame(struct guest_stream *s, uint16_t c, const uint8_t *body, uint32_t len)
{
	struct guest_rx *rx = &s->rx[c];
	size_t used = 0;

	if (!channel_allowed(s, c)) {
		guest_breach(s->g, "DATA on channel %u of stream %u, which has none", c, s->number);
		return;
	}
	if (rx->eof) {
		guest_breach(s->g, "DATA after EOF on channel %u of stream %u", c, s->number);
		return;
	}
	if (len > rx->credit) {
		guest_breach(s->g, "DATA of %u bytes on stream %u, past its credit of %u", len,
			s->number, rx->credit);
		return;
	}
	rx->credit -= len;
	if (!s->ops || !s->ops->data) {
		used = len;
	} else if (!rx->queue.len) {
		s->in_data = true;
		used = s->ops->data(s->user, (enum proto_channel)c, body, len);
		s->in_data = false;
		if (used > len)
			used = len;
		if (!s->ops)
			used = len;
	}
	buffer_append(&rx->queue, body + used, len - used);
	rx->owed += (uint32_t)used;
	if (rx->owed >= GUEST_CREDIT_STEP)
		guest_stream_list(s);
}

static void eof_frame(struct guest_stream *s, uint16_t c)
{
	/* on channel 0 it says that what we send is not wanted any more: a program closed its input */
	if (!channel_allowed(s, c) && c != PROTO_IN)
		guest_breach(s->g, "EOF on channel %u of stream %u, which has none", c, s->number);
	else if (s->rx[c].eof)
		guest_breach(s->g, "EOF twice on channel %u of stream %u", c, s->number);
	else
		s->rx[c].eof = true;
	if (!s->g->dead)
		channel_offer(s, (enum proto_channel)c);
}

static void credit_frame(struct guest_stream *s, const uint8_t *body)
{
	struct guest_tx *tx;
	uint32_t channel, bytes;

	memcpy(&channel, body, 4);
	memcpy(&bytes, body + 4, 4);
	if (channel >= PROTO_CHANNELS) {
		guest_breach(s->g, "CREDIT for channel %u", channel);
		return;
	}
	tx = &s->tx[channel];
	/* what is queued here has spent its credit but has not been sent */
	if (bytes > PROTO_WINDOW - tx->credit - (uint32_t)tx->queue.len) {
		guest_breach(s->g, "CREDIT of %u bytes on stream %u, more than was sent", bytes,
			s->number);
		return;
	}
	tx->credit += bytes;
	if (bytes && tx->blocked && !tx->eof_wanted && s->ops && !s->cancel_wanted) {
		tx->blocked = false;
		if (s->ops->writable)
			s->ops->writable(s->user, (enum proto_channel)channel);
	}
}

static void reply_frame(struct guest_stream *s, const uint8_t *body, uint32_t len)
{
	s->replied = true;
	if (rx_pending(s) && s->ops && !s->cancel_wanted) {
		/* kept; checked now all the same */
		char text[PROTO_ERROR_MAX + 1];
		struct guest_reply reply;

		if (!reply_read(s, body, len, &reply, text))
			return;
	}
	s->reply = malloc(len ? len : 1);
	if (!s->reply)
		abort();
	memcpy(s->reply, body, len);
	s->reply_len = len;
	reply_deliver(s);
}

static void open_frame(struct guest *g, const struct proto_header *h, const uint8_t *body)
{
	struct proto_in in = {.buf = body, .len = h->length};
	const struct guest_stream_ops *ops = NULL;
	struct guest_stream *s;
	struct proto_field f;
	int rc;

	if (h->stream & 1)
		guest_breach(g, "PROXY_OPEN with the odd number %u", h->stream);
	else if (guest_stream_find(g, h->stream))
		guest_breach(g, "PROXY_OPEN on stream %u, which is open", h->stream);
	else if (g->n_theirs >= PROTO_STREAMS_MAX)
		guest_breach(g, "more than %u streams", PROTO_STREAMS_MAX);
	while (!g->dead && (rc = proto_next(&in, &f)) != 0) {
		if (rc < 0)
			guest_breach(g, "PROXY_OPEN with a field past its end");
	}
	if (g->dead)
		return;
	s = guest_stream_new(g, PROTO_PROXY_OPEN);
	s->number = h->stream;
	g->theirs[g->n_theirs++] = s;
	guest_stream_hold(s);
	if (g->on_open)
		ops = g->on_open(g->open_user, s, &s->user);
	if (ops && !s->finishing && !s->gone)
		s->ops = ops;
	else
		guest_stream_reply(s, ECONNREFUSED, "not served");
	guest_stream_release(s);
}

/* CANCEL of an agent's stream: its listener is told, and the REPLY is sent. */
static void cancel_frame(struct guest_stream *s)
{
	const struct guest_reply reply = {.error = ECANCELED, .text = "the agent cancelled it"};
	const struct guest_stream_ops *ops = s->ops;

	guest_stream_drop_tx(s);
	guest_stream_reply(s, ECANCELED, reply.text);
	if (ops)
		ops->done(s->user, &reply);
}

void guest_stream_frame(struct guest *g, const struct proto_header *h, const uint8_t *body)
{
	struct guest_stream *s;

	if (h->type == PROTO_PROXY_OPEN) {
		open_frame(g, h, body);
		return;
	}
	s = guest_stream_find(g, h->stream);
	if (!s) {
		if ((h->stream & 1) || !guest_lately_closed(g, h->stream))
			guest_breach(g, "a frame of type %u on stream %u, which is not open",
				h->type, h->stream);
		return;
	}
	if ((s->number & 1) && (!s->request_end || g->sent < s->request_end)) {
		guest_breach(g, "a frame on stream %u before its request was sent", h->stream);
		return;
	}
	if (s->replied) {
		guest_breach(
			g, "a frame of type %u on stream %u after its REPLY", h->type, h->stream);
		return;
	}
	if (h->type == ((s->number & 1) ? PROTO_CANCEL : PROTO_REPLY)) {
		guest_breach(g, "a frame of type %u on stream %u, which the other side serves",
			h->type, h->stream);
		return;
	}
	if (s->finishing && h->type != PROTO_CANCEL)
		return;
	guest_stream_hold(s);
	if (h->type == PROTO_DATA)
		data_frame(s, h->flags, body, h->length);
	else if (h->type == PROTO_EOF)
		eof_frame(s, h->flags);
	else if (h->type == PROTO_CREDIT)
		credit_frame(s, body);
	else if (h->type == PROTO_CANCEL)
		cancel_frame(s);
	else
		reply_frame(s, body, h->length);
	guest_stream_release(s);
}
