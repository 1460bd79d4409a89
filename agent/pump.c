/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and sinks. Their watches are one-shot, so that a descriptor that is
 * ready (or whose other end has gone, which epoll reports always) but may not be read for
 * want of credit costs nothing: a source is either armed, or queued as a sender,
 * or waits for credit.
 */
#include "agent/pump.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "agent/main.h"

#define PUMP_DRAIN_MAX (1u << 20) /* read after the end, from a writer that goes on */

static uint8_t pump_scratch[PROTO_DATA_MAX];

void pump_wipe(void)
{
	explicit_bzero(pump_scratch, sizeof(pump_scratch));
}

static void source_end(struct source *s)
{
	source_close(s);
	if (s->stream)
		stream_eof(s->stream, s->channel);
	if (s->on_done)
		s->on_done(s->user);
}

/* One read. 0: the end; -EAGAIN: nothing now; -ENOBUFS: no credit. */
static ssize_t source_read(struct source *s)
{
	uint32_t len = sizeof(pump_scratch);
	uint8_t *to = pump_scratch;
	bool pass = s->stream && s->total < s->limit;
	ssize_t n;

	if (pass) {
		len = stream_room(s->stream, s->channel);
		if (!len)
			return -ENOBUFS;
		if (len > s->limit - s->total)
			len = (uint32_t)(s->limit - s->total);
		to = stream_reserve(s->stream, len);
	}
	do {
		n = read(s->fd, to, len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : 0; /* EIO: a terminal's end; ECONNRESET */
	if (n == 0)
		return 0;
	s->total += (uint64_t)n;
	if (pass)
		stream_commit(s->stream, s->channel, (uint32_t)n);
	else
		s->cut = true;
	if (s->draining)
		s->drained += (uint64_t)n;
	return n;
}

/* Nothing to read now: its watch says when there is. */
static enum sender_state source_arm(struct source *s)
{
	if (!s->armed)
		watch_set(s->watch, EPOLLIN | EPOLLONESHOT);
	s->armed = true;
	return SENDER_IDLE;
}

static enum sender_state source_fill(struct sender *sender)
{
	struct source *s = (struct source *)sender;
	ssize_t n = source_read(s);

	if (n == -ENOBUFS)
		return SENDER_IDLE;
	if (n == 0 || (n == -EAGAIN && s->draining && !s->terminal) ||
		s->drained > PUMP_DRAIN_MAX) {
		source_end(s);
		return SENDER_IDLE;
	}
	if (s->on_empty && (n == -EAGAIN || s->emptied > PUMP_DRAIN_MAX)) {
		void (*fn)(void *user) = s->on_empty;

		s->on_empty = NULL;
		source_arm(s);
		fn(s->user);
		return SENDER_IDLE;
	}
	if (n == -EAGAIN)
		return source_arm(s);
	if (s->on_empty)
		s->emptied += (uint64_t)n;
	return SENDER_MORE;
}

static void source_ready(void *user, uint32_t events)
{
	struct source *s = user;

	(void)events;
	s->armed = false;
	sender_queue(agent_wire, &s->sender);
}

void source_start(struct source *s, int fd, struct stream *stream, unsigned channel,
	void (*on_done)(void *user), void *user)
{
	*s = (struct source){.sender.fill = source_fill,
		.stream = stream,
		.channel = channel,
		.fd = fd,
		.limit = UINT64_MAX,
		.on_done = on_done,
		.user = user};
	s->watch = watch_add(fd, EPOLLIN | EPOLLONESHOT, source_ready, s);
	s->armed = s->watch != NULL;
	if (!s->armed) /* then it is read when its turn comes, and ends */
		sender_queue(agent_wire, &s->sender);
}

void source_attach(struct source *s, struct stream *stream, unsigned channel, uint64_t limit)
{
	s->stream = stream;
	s->channel = channel;
	s->limit = limit;
	s->total = s->drained = 0;
	s->cut = s->draining = false;
	s->on_empty = NULL;
	if (!s->done && !s->armed)
		sender_queue(agent_wire, &s->sender);
}

void source_drain(struct source *s)
{
	if (s->done || s->draining)
		return;
	s->draining = true;
	sender_queue(agent_wire, &s->sender);
}

void source_empty(struct source *s, void (*on_empty)(void *user))
{
	s->on_empty = on_empty;
	s->emptied = 0;
	sender_queue(agent_wire, &s->sender);
}

void source_credit(struct source *s)
{
	if (!s->done)
		sender_queue(agent_wire, &s->sender);
}

void source_finish(struct source *s)
{
	if (s->done)
		return;
	s->draining = true;
	s->limit = 0;
	while (s->drained <= PUMP_DRAIN_MAX && source_read(s) > 0)
		continue;
	source_close(s);
	if (s->stream)
		stream_eof(s->stream, s->channel);
}

void source_close(struct source *s)
{
	if (s->done)
		return;
	s->done = true;
	sender_unqueue(&s->sender);
	watch_remove(s->watch);
	s->watch = NULL;
	close_fd(&s->fd);
}

/* ---- sinks ---------------------------------------------------------------------------- */

void sink_close(struct sink *s)
{
	if (s->done)
		return;
	s->done = true;
	watch_remove(s->watch);
	s->watch = NULL;
	free(s->buf);
	s->buf = NULL;
	s->start = s->end = 0;
	close_fd(&s->fd);
}

static void sink_credit(struct sink *s, uint32_t len)
{
	uint32_t orphans = s->orphans < len ? s->orphans : len;

	s->orphans -= orphans;
	len -= orphans;
	if (s->stream && len)
		stream_consumed(s->stream, s->channel, len);
}

static void sink_end(struct sink *s)
{
	int fd = s->fd;

	if (!s->broken && s->how == SINK_SHUTDOWN)
		shutdown(fd, SHUT_WR);
	if (!s->broken && s->how == SINK_TERMINAL && write(fd, "\004\004", s->inside ? 2 : 1) < 0)
		s->broken = true;
	sink_close(s);
	if (s->on_done)
		s->on_done(s->user);
}

/* Write what fits: how many bytes, or -1 where the other end has gone. */
static ssize_t sink_write(struct sink *s, const uint8_t *bytes, uint32_t len)
{
	uint32_t sent = 0;

	while (sent < len) {
		ssize_t n = write(s->fd, bytes + sent, len - sent);

		if (n > 0)
			sent += (uint32_t)n;
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0 && errno == EAGAIN)
			break;
		else
			return -1;
	}
	return sent;
}

/* The reader has gone: whatever the host still sends is taken and dropped. */
static void sink_break(struct sink *s)
{
	uint32_t left = s->end - s->start;

	s->broken = true;
	s->start = s->end = 0;
	sink_credit(s, left);
	sink_end(s);
}

static void sink_ready(void *user, uint32_t events)
{
	struct sink *s = user;
	ssize_t n;

	(void)events;
	n = sink_write(s, s->buf + s->start, s->end - s->start);
	if (n < 0) {
		sink_break(s);
		return;
	}
	s->start += (uint32_t)n;
	sink_credit(s, (uint32_t)n);
	if (s->start < s->end) {
		watch_set(s->watch, EPOLLOUT | EPOLLONESHOT);
		return;
	}
	free(s->buf);
	s->buf = NULL;
	s->start = s->end = 0;
	if (s->eof)
		sink_end(s);
}

void sink_start(struct sink *s, int fd, enum sink_end how, struct stream *stream, unsigned channel,
	void (*on_done)(void *user), void *user)
{
	*s = (struct sink){.stream = stream,
		.channel = channel,
		.fd = fd,
		.how = how,
		.on_done = on_done,
		.user = user};
}

void sink_attach(struct sink *s, struct stream *stream)
{
	s->stream = stream;
	s->orphans = s->end - s->start;
}

void sink_data(struct sink *s, const uint8_t *bytes, uint32_t len)
{
	ssize_t n = 0;

	if (s->done || s->eof) {
		sink_credit(s, len);
		return;
	}
	s->inside = bytes[len - 1] != '\n';
	if (s->start == s->end && !s->held) {
		n = sink_write(s, bytes, len);
		if (n < 0) {
			sink_credit(s, len);
			sink_break(s);
			return;
		}
		sink_credit(s, (uint32_t)n);
		if ((uint32_t)n == len)
			return;
	}
	if (!s->buf) {
		s->buf = agent_alloc(SINK_MAX);
		s->start = s->end = 0;
	}
	len -= (uint32_t)n;
	/* the windows bound what is in here */
	if (s->start > 0 && SINK_MAX - s->end < len) {
		memmove(s->buf, s->buf + s->start, s->end - s->start);
		s->end -= s->start;
		s->start = 0;
	}
	memcpy(s->buf + s->end, bytes + n, len);
	s->end += len;
	if (s->held)
		return;
	if (s->watch)
		watch_set(s->watch, EPOLLOUT | EPOLLONESHOT);
	else
		s->watch = watch_add(s->fd, EPOLLOUT | EPOLLONESHOT, sink_ready, s);
}

void sink_eof(struct sink *s)
{
	if (s->done || s->eof)
		return;
	s->eof = true;
	if (s->start == s->end && !s->held)
		sink_end(s);
}

void sink_release(struct sink *s)
{
	s->held = false;
	if (s->done)
		return;
	s->watch = watch_add(s->fd, 0, sink_ready, s);
	sink_ready(s, 0);
}
