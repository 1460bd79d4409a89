/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection. Input is gathered in one buffer and handled a frame at a time.
 * While unsynchronised everything is dropped up to a SYNC frame; a header or
 * body that breaks a rule ends in wire_breach(), which is back there.
 *
 * Output is one buffer. DATA is put into it only while it is short (WIRE_TX_SOFT), by
 * the senders in turn, so bytes stay in their pipes until the host takes them. What the
 * host's own frames bring about (CREDIT, PONG, replies) is always appended; a host that
 * sends without reading is no longer read from past WIRE_TX_HARD, so the buffer is bounded by
 * that and one reply of each stream.
 *
 * The port of a machine has no end: without a host it reads as 0 bytes and reports HUP.
 * With edge-triggered events that is one event, not a loop of them. A socket (tests) does end.
 */
#include "agent/wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "agent/agent.h"
#include "agent/wire_private.h"

#define WIRE_RX_INITIAL (128u << 10)
#define WIRE_RX_MAX (PROTO_HEADER_LEN + PROTO_BODY_MAX)
#define WIRE_TX_INITIAL (64u << 10)
#define WIRE_TX_SOFT (192u << 10)
#define WIRE_TX_HARD (1u << 20)
#define WIRE_TURN_BYTES (256u << 10) /* read in one turn */
#define WIRE_WRITE_MAX (32u << 10) /* the port takes no more at once */

struct wire *wire_new(int fd, const struct wire_ops *ops)
{
	struct wire *w = agent_alloc(sizeof(*w));

	*w = (struct wire){
		.fd = fd, .ops = ops, .next_even = 2, .readable = true, .writable = true};
	w->rx = agent_alloc(WIRE_RX_INITIAL);
	w->rx_max = WIRE_RX_INITIAL;
	w->tx = agent_alloc(WIRE_TX_INITIAL);
	w->tx_max = WIRE_TX_INITIAL;
	TAILQ_INIT(&w->senders);
	return w;
}

void wire_free(struct wire *w)
{
	stream_abort_all(w);
	free(w->rx);
	free(w->tx);
	free(w);
}

bool wire_closed(const struct wire *w)
{
	return w->closed;
}

unsigned wire_streams(const struct wire *w)
{
	return w->odd + w->even;
}

/* ---- output --------------------------------------------------------------------------- */

uint8_t *wire_room(struct wire *w, size_t len)
{
	if (w->tx_start == w->tx_end)
		w->tx_start = w->tx_end = 0;
	if (w->tx_max - w->tx_end < len && w->tx_start > 0) {
		memmove(w->tx, w->tx + w->tx_start, w->tx_end - w->tx_start);
		w->tx_end -= w->tx_start;
		w->tx_start = 0;
	}
	if (w->tx_max - w->tx_end < len) {
		size_t max = w->tx_max;
		uint8_t *grown;

		while (max - w->tx_end < len)
			max *= 2;
		grown = agent_alloc(max);
		memcpy(grown, w->tx, w->tx_end);
		free(w->tx);
		w->tx = grown;
		w->tx_max = max;
	}
	return w->tx + w->tx_end;
}

void wire_send(
	struct wire *w, unsigned type, unsigned flags, uint32_t id, const void *body, uint32_t len)
{
	struct proto_header h = {.magic = PROTO_MAGIC,
		.type = (uint16_t)type,
		.flags = (uint16_t)flags,
		.stream = id,
		.length = len};
	uint8_t *to = wire_room(w, sizeof(h) + len);

	memcpy(to, &h, sizeof(h));
	if (len)
		memcpy(to + sizeof(h), body, len);
	w->tx_end += sizeof(h) + len;
}

static void wire_flush(struct wire *w)
{
	while (w->writable && w->tx_start < w->tx_end) {
		size_t len = w->tx_end - w->tx_start;
		ssize_t n;

		n = write(w->fd, w->tx + w->tx_start, len < WIRE_WRITE_MAX ? len : WIRE_WRITE_MAX);
		if (n > 0)
			w->tx_start += (size_t)n;
		else if (n < 0 && errno == EINTR)
			continue;
		else
			w->writable = false;
	}
}

void wire_trim(struct wire *w)
{
	if (w->tx_start == w->tx_end && w->tx_max > WIRE_TX_INITIAL) {
		free(w->tx);
		w->tx = agent_alloc(WIRE_TX_INITIAL);
		w->tx_max = WIRE_TX_INITIAL;
		w->tx_start = w->tx_end = 0;
	}
	if (w->rx_end - w->rx_start < PROTO_HEADER_LEN && w->rx_max > WIRE_RX_INITIAL) {
		uint8_t *rx = agent_alloc(WIRE_RX_INITIAL);

		memcpy(rx, w->rx + w->rx_start, w->rx_end - w->rx_start);
		free(w->rx);
		w->rx = rx;
		w->rx_end -= w->rx_start;
		w->rx_start = 0;
		w->rx_max = WIRE_RX_INITIAL;
	}
	/* and what lies around the bytes that are still wanted */
	explicit_bzero(w->rx, w->rx_start);
	explicit_bzero(w->rx + w->rx_end, w->rx_max - w->rx_end);
	explicit_bzero(w->tx, w->tx_start);
	explicit_bzero(w->tx + w->tx_end, w->tx_max - w->tx_end);
}

/* ---- synchronising -------------------------------------------------------------------- */

static void wire_reset(struct wire *w)
{
	w->synced = false;
	stream_abort_all(w);
	w->ops->reset();
	w->tx_start = w->tx_end = 0;
}

void wire_breach(struct wire *w, const char *fmt, ...)
{
	char text[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	agent_log("the host broke the protocol: %s", text);
	/* What is queued stays: it is whole frames, and the last says why there are no more. */
	w->synced = false;
	stream_abort_all(w);
	w->ops->reset();
	wire_send(w, PROTO_FAULT, 0, 0, text, (uint32_t)strlen(text));
}

static void wire_sync(struct wire *w, const uint8_t *body)
{
	struct proto_hello hello = {0};
	struct proto_sync sync;

	memcpy(&sync, body, sizeof(sync));
	wire_reset(w);
	memcpy(hello.nonce, sync.nonce, sizeof(hello.nonce));
	if (sync.version_min <= PROTO_VERSION && PROTO_VERSION <= sync.version_max)
		hello.version = PROTO_VERSION;
	w->ops->hello(&hello);
	wire_send(w, PROTO_HELLO, 0, 0, &hello, sizeof(hello));
	w->synced = hello.version != 0;
}

static bool is_sync(const struct proto_header *h)
{
	return h->magic == PROTO_MAGIC && h->type == PROTO_SYNC && h->flags == 0 &&
		h->stream == 0 && h->length == PROTO_SYNC_LEN;
}

/* Unsynchronised: find a SYNC. False: the input has none (yet). */
static bool wire_search(struct wire *w)
{
	const uint32_t magic = PROTO_MAGIC;
	struct proto_header h;

	for (;;) {
		size_t len = w->rx_end - w->rx_start;
		const uint8_t *at = memmem(w->rx + w->rx_start, len, &magic, sizeof(magic));

		if (!at) { /* the magic may have begun at the very end */
			if (len > sizeof(magic) - 1)
				w->rx_start = w->rx_end - (sizeof(magic) - 1);
			return false;
		}
		w->rx_start = (size_t)(at - w->rx);
		if (w->rx_end - w->rx_start < PROTO_HEADER_LEN)
			return false;
		memcpy(&h, at, sizeof(h));
		if (!is_sync(&h)) {
			w->rx_start++;
			continue;
		}
		if (w->rx_end - w->rx_start < PROTO_HEADER_LEN + PROTO_SYNC_LEN)
			return false;
		w->rx_start += PROTO_HEADER_LEN + PROTO_SYNC_LEN;
		wire_sync(w, at + PROTO_HEADER_LEN);
		return true;
	}
}

/* ---- input ---------------------------------------------------------------------------- */

/* What is wrong with a header, or NULL. */
static const char *header_fault(const struct proto_header *h)
{
	bool data = h->type == PROTO_DATA || h->type == PROTO_EOF;

	if (h->magic != PROTO_MAGIC)
		return "a frame without the magic number";
	if (h->length > PROTO_BODY_MAX)
		return "a frame longer than PROTO_BODY_MAX";
	if (data ? h->flags >= PROTO_CHANNELS : h->flags != 0)
		return "a frame with unknown flags";
	if (h->type == PROTO_SYNC && !is_sync(h))
		return "a broken SYNC";
	if ((h->type < PROTO_DATA) != (h->stream == 0))
		return "a frame on the wrong stream";
	switch (h->type) {
	case PROTO_SYNC:
	case PROTO_PING:
	case PROTO_DATA:
	case PROTO_EOF:
	case PROTO_CREDIT:
	case PROTO_CANCEL:
	case PROTO_REPLY:
	case PROTO_SIGNAL:
	case PROTO_RESIZE:
		return NULL;
	default:
		/* Requests not known are answered, so that newer hosts learn it. */
		if (h->type >= PROTO_EXEC && h->type < PROTO_PROXY_OPEN)
			return NULL;
		return "a frame of unknown type";
	}
}

static void wire_frame(struct wire *w, const struct proto_header *h, const uint8_t *body)
{
	switch (h->type) {
	case PROTO_SYNC:
		wire_sync(w, body);
		break;
	case PROTO_PING:
		if (h->length > 64)
			wire_breach(w, "a PING of %u bytes", h->length);
		else
			wire_send(w, PROTO_PONG, 0, 0, body, h->length);
		break;
	default:
		stream_frame(w, h, body);
	}
}

/* Make room for the rest of a frame of @len bytes (or for some input, where @len is 0). */
static void wire_rx_room(struct wire *w, size_t len)
{
	if (w->rx_start == w->rx_end)
		w->rx_start = w->rx_end = 0;
	if (w->rx_start > 0 && (w->rx_end == w->rx_max || w->rx_max - w->rx_start < len)) {
		memmove(w->rx, w->rx + w->rx_start, w->rx_end - w->rx_start);
		w->rx_end -= w->rx_start;
		w->rx_start = 0;
	}
	if (w->rx_max < len) {
		uint8_t *grown = agent_alloc(WIRE_RX_MAX);

		memcpy(grown, w->rx, w->rx_end);
		free(w->rx);
		w->rx = grown;
		w->rx_max = WIRE_RX_MAX;
	}
}

static void wire_parse(struct wire *w)
{
	struct proto_header h;
	const char *fault;

	while (w->tx_end - w->tx_start < WIRE_TX_HARD) {
		size_t len = w->rx_end - w->rx_start;
		const uint8_t *at = w->rx + w->rx_start;

		if (!w->synced) {
			if (!wire_search(w))
				break;
			continue;
		}
		if (len < PROTO_HEADER_LEN)
			break;
		memcpy(&h, at, sizeof(h));
		fault = header_fault(&h);
		if (fault) {
			wire_breach(w, "%s (type %u, stream %u, length %u)", fault, h.type,
				h.stream, h.length);
			continue;
		}
		if (len < PROTO_HEADER_LEN + h.length) {
			wire_rx_room(w, PROTO_HEADER_LEN + h.length);
			break;
		}
		w->rx_start += PROTO_HEADER_LEN + h.length;
		wire_frame(w, &h, at + PROTO_HEADER_LEN);
	}
}

static void wire_read(struct wire *w)
{
	size_t total = 0;

	while (w->readable && total < WIRE_TURN_BYTES && w->tx_end - w->tx_start < WIRE_TX_HARD) {
		ssize_t n;

		wire_rx_room(w, 0);
		if (w->rx_end < w->rx_max) {
			n = read(w->fd, w->rx + w->rx_end, w->rx_max - w->rx_end);
			if (n > 0) {
				w->rx_end += (size_t)n;
				total += (size_t)n;
			} else if (n < 0 && errno == EINTR) {
				continue;
			} else {
				w->readable = false;
				if (n == 0 && !agent.machine)
					w->closed = true;
			}
		}
		wire_parse(w);
	}
}

void wire_event(struct wire *w, uint32_t events)
{
	if (events & EPOLLHUP) { /* the host has gone; when it comes again there is another event */
		if (w->synced)
			wire_reset(w);
		w->tx_start = w->tx_end = 0;
		if (!agent.machine)
			w->closed = true;
	}
	w->readable = true;
	w->writable = true;
}

/* ---- turns ---------------------------------------------------------------------------- */

void sender_unqueue(struct sender *s)
{
	if (!s->wire)
		return;
	TAILQ_REMOVE(&s->wire->senders, s, link);
	s->wire = NULL;
}

void sender_queue(struct wire *w, struct sender *s)
{
	if (s->wire)
		return;
	TAILQ_INSERT_TAIL(&w->senders, s, link);
	s->wire = w;
}

static bool wire_may_send(const struct wire *w)
{
	return !TAILQ_EMPTY(&w->senders) && w->tx_end - w->tx_start < WIRE_TX_SOFT;
}

bool wire_turn(struct wire *w)
{
	size_t before;

	wire_read(w);
	before = w->tx_end - w->tx_start;
	while (wire_may_send(w) && w->tx_end - w->tx_start < before + WIRE_TX_SOFT) {
		struct sender *s = TAILQ_FIRST(&w->senders);

		sender_unqueue(s);
		/* the sender may be gone after IDLE, never after MORE */
		if (s->fill(s) == SENDER_MORE)
			sender_queue(w, s);
	}
	wire_flush(w);
	return (w->readable && w->tx_end - w->tx_start < WIRE_TX_HARD && !w->closed) ||
		wire_may_send(w);
}
