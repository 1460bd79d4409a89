/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's end of the connection against arbitrary bytes: agent/wire.c, stream.c and
 * request.c, with owners of streams that keep, consume, answer or end as the input says. A
 * first byte of 0 begins synchronised; the others say in what pieces the bytes arrive.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/request.h"
#include "agent/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In the place of agent/util.c: a million breaches are not logged. */
struct agent agent = {.root = -1, .random = -1};

void agent_log(const char *fmt, ...)
{
	(void)fmt;
}

void *agent_alloc(size_t len)
{
	void *p = calloc(1, len ? len : 1);

	if (!p)
		abort();
	return p;
}

/* The sum of what came, so that reading all of it is not optimised away. */
static volatile uint32_t sum;
static struct wire *wire;

static void fuzz_data(struct stream *s, unsigned channel, const uint8_t *bytes, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		sum += bytes[i];
	if (bytes[0] & 1)
		stream_consumed(s, channel, len);
	else if (bytes[0] & 2)
		stream_reply_error(s, EIO, "enough");
}

static void fuzz_eof(struct stream *s, unsigned channel)
{
	uint32_t room = stream_room(s, channel);

	if (room > 100)
		room = 100;
	if (room) {
		memset(stream_reserve(s, room), 0, room);
		stream_commit(s, channel, room);
	}
	stream_eof(s, channel);
}

static void fuzz_cancel(struct stream *s)
{
	stream_reply(s, NULL);
}

static void fuzz_signal(struct stream *s, uint32_t sig)
{
	(void)s;
	sum += sig;
	if (sig == 7)
		stream_open(wire, PROTO_PROXY_OPEN, NULL, NULL);
}

static void fuzz_resize(struct stream *s, unsigned rows, unsigned cols)
{
	(void)s;
	sum += rows + cols;
}

static void fuzz_reply(struct stream *s, const uint8_t *body, uint32_t len)
{
	(void)s;
	for (uint32_t i = 0; i < len; i++)
		sum += body[i];
}

static const struct stream_ops fuzz_ops = {
	.data = fuzz_data,
	.eof = fuzz_eof,
	.cancel = fuzz_cancel,
	.signal = fuzz_signal,
	.resize = fuzz_resize,
	.reply = fuzz_reply,
};

static void fuzz_request(struct stream *s, unsigned type, const uint8_t *body, uint32_t len)
{
	const char *what = NULL;
	struct request *r = request_parse(body, len, &what);

	if (!r) {
		wire_breach(stream_wire(s), "%s", what);
		return;
	}
	for (unsigned i = 0; i < r->nargs; i++)
		sum += (uint32_t)strlen(r->args[i]);
	if (type & 1)
		stream_set(s, &fuzz_ops, NULL);
	else
		stream_reply_error(s, ENOSYS, r->path ? r->path : "no");
	request_free(r);
}

static void fuzz_hello(struct proto_hello *h)
{
	h->counter = 1;
}

static void fuzz_reset(void)
{
}

static const struct wire_ops wire_ops = {
	.request = fuzz_request,
	.hello = fuzz_hello,
	.reset = fuzz_reset,
};

/* Bytes come from the host, which reads all that it is sent. */
static void come(int host, const uint8_t *bytes, size_t len)
{
	char sink[65536];

	while (len) {
		ssize_t n = send(host, bytes, len, MSG_NOSIGNAL);
		bool more;

		if (n < 0 && errno != EAGAIN)
			abort();
		bytes += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
		do {
			wire_event(wire, EPOLLIN | EPOLLOUT);
			more = wire_turn(wire);
			while (recv(host, sink, sizeof(sink), 0) > 0)
				more = true;
		} while (more);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t sync[PROTO_HEADER_LEN + PROTO_SYNC_LEN] = {'P', 'B', 'K', '1',
		PROTO_SYNC, 0, 0, 0, 0, 0, 0, 0, PROTO_SYNC_LEN, 0, 0, 0, [32] = 1, [36] = 1};
	size_t piece, at = 1;
	int pair[2];

	if (size < 1)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		abort();
	wire = wire_new(pair[0], &wire_ops);
	if (data[0] % 2 == 0)
		come(pair[1], sync, sizeof(sync));
	piece = data[0] < 2 ? size : data[0];
	while (at < size) {
		size_t len = size - at < piece ? size - at : piece;

		come(pair[1], data + at, len);
		at += len;
	}
	wire_trim(wire);
	wire_free(wire);
	close(pair[0]);
	close(pair[1]);
	return 0;
}
