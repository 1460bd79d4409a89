/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from an agent. The first byte says how they come: bit 0, synchronised or not; the others,
 * how many bytes at a time and how slowly data is consumed. The HELLO is answered for the input, as
 * it cannot know the nonce.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include "vmm/guest/guest.h"

struct reader {
	size_t take;
	struct guest *g;
	int done;
};

static size_t on_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	struct reader *r = user;
	uint8_t sum = 0;

	(void)channel;
	for (size_t i = 0; i < len; i++)
		sum ^= bytes[i];
	return (sum & 1) || len < r->take ? len : r->take;
}

static void on_done(void *user, const struct guest_reply *reply)
{
	struct reader *r = user;
	struct proto_in in = {.buf = reply->body, .len = reply->body_len};
	struct proto_field f;

	while (proto_next(&in, &f) == 1)
		;
	r->done++;
}

static const struct guest_stream_ops ops = {.data = on_data, .done = on_done};

static const struct guest_stream_ops *on_open(void *user, struct guest_stream *s, void **ret_user)
{
	*ret_user = user;
	guest_stream_send(s, PROTO_IN, "hello", 5);
	return &ops;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum proto_type types[] = {PROTO_EXEC, PROTO_CODE, PROTO_FILE_GET, PROTO_INFO};
	struct {
		struct proto_header h;
		struct proto_sync body;
	} sync;
	struct {
		struct proto_header h;
		struct proto_hello body;
	} hello = {{PROTO_MAGIC, PROTO_HELLO, 0, 0, PROTO_HELLO_LEN}, {.version = PROTO_VERSION}};
	struct reader r = {0};
	uint8_t drain[65536];
	size_t step, pos = 1;
	struct guest *g;
	int pair[2];

	if (size < 1 ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	if (guest_new(pair[0], &g, NULL) < 0)
		abort();
	r.g = g;
	r.take = data[0] & 0x0e;
	step = data[0] >> 4 ? (size_t)(data[0] >> 4) * 7 : 4096;
	guest_on_open(g, on_open, &r);
	guest_sync_send(g);
	guest_dispatch(g, NULL);
	if (recv(pair[1], &sync, sizeof(sync), 0) != sizeof(sync))
		abort();
	if (data[0] & 1) {
		memcpy(hello.body.nonce, sync.body.nonce, PROTO_NONCE_LEN);
		if (send(pair[1], &hello, sizeof(hello), 0) != sizeof(hello))
			abort();
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		guest_request(g, types[i], NULL, 0, &ops, &r);
	while (guest_dispatch(g, NULL) == 0 && pos < size) {
		size_t n = size - pos < step ? size - pos : step;
		ssize_t sent = send(pair[1], data + pos, n, MSG_NOSIGNAL);

		if (sent > 0)
			pos += (size_t)sent;
		while (recv(pair[1], drain, sizeof(drain), 0) > 0)
			;
	}
	guest_free(g);
	if (r.done < 4)
		abort(); /* every stream is told of its end */
	close(pair[1]);
	return 0;
}
