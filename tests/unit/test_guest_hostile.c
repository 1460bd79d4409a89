/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents that break the rules of agent/proto.h, one for each rule: the guest is dead at once, for a
 * reason that is named, and its streams are told. And agents that never read.
 */
#include "tests/unit/peer.h"
#include "tests/unit/seen.h"
#include "vmm/guest/guest_private.h"

struct breach {
	const char *name;
	unsigned type, flags;
	uint32_t stream, len; /* 1: the EXEC stream, 2: one the agent opened */
	const void *body;
	uint32_t magic;
	const char *says;
	const struct {
		unsigned type, flags;
		uint32_t stream, len;
		const void *body;
	} before[4];
};

static const uint8_t zeros[PROTO_DATA_MAX + 1];
static const uint32_t credit_one[2] = {0, 1}, credit_channel[2] = {9, 1};
static const uint8_t bad_field[8] = {1, 0, 0, 0, 9, 0, 0, 0};
static const uint8_t bad_error[12] = {64, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0};
static const uint8_t short_error[10] = {64, 0, 0, 0, 2, 0, 0, 0, 1, 0};
static const uint8_t nul_error[14] = {64, 0, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0, 'x', 0};

#define WINDOW_FULL                                                                                \
	{                                                                                          \
		{PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros},                                         \
			{PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros},                                 \
			{PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros},                                 \
		{                                                                                  \
			PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros                                    \
		}                                                                                  \
	}

static const struct breach breaches[] = {
	{.name = "magic", .type = PROTO_DATA, .magic = 0x12345678, .says = "magic"},
	{.name = "length",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = PROTO_BODY_MAX + 1,
		.says = "at most"},
	{.name = "length of 4 GiB",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = UINT32_MAX,
		.says = "at most"},
	{.name = "DATA too long",
		.type = PROTO_DATA,
		.flags = 1,
		.stream = 1,
		.len = PROTO_DATA_MAX + 1,
		.says = "DATA of 65537 bytes"},
	{.name = "type 0", .type = 0, .stream = 1, .says = "type 0"},
	{.name = "a type of the host", .type = PROTO_SYNC, .says = "type 1"},
	{.name = "a request of the host", .type = PROTO_EXEC, .stream = 1, .says = "type 32"},
	{.name = "SIGNAL", .type = PROTO_SIGNAL, .stream = 1, .len = 4, .says = "type 21"},
	{.name = "PONG", .type = PROTO_PONG, .says = "type 4,"},
	{.name = "HELLO unasked",
		.type = PROTO_HELLO,
		.len = PROTO_HELLO_LEN,
		.body = zeros,
		.says = "HELLO without a SYNC"},
	{.name = "HELLO too short", .type = PROTO_HELLO, .len = 8, .says = "HELLO of 8"},
	{.name = "HELLO on a stream",
		.type = PROTO_HELLO,
		.stream = 1,
		.len = PROTO_HELLO_LEN,
		.says = "HELLO on stream"},
	{.name = "FAULT",
		.type = PROTO_FAULT,
		.len = 9,
		.body = "no\033memory",
		.says = "gave up: no?memory"},
	{.name = "DATA on stream 0", .type = PROTO_DATA, .says = "DATA on stream 0"},
	{.name = "channel", .type = PROTO_DATA, .flags = 4, .stream = 1, .says = "flags 4"},
	{.name = "flags of REPLY", .type = PROTO_REPLY, .flags = 1, .stream = 1, .says = "flags 1"},
	{.name = "DATA on stdin",
		.type = PROTO_DATA,
		.flags = 0,
		.stream = 1,
		.len = 1,
		.body = zeros,
		.says = "channel 0"},
	{.name = "an unknown stream",
		.type = PROTO_DATA,
		.flags = 1,
		.stream = 9,
		.says = "not open"},
	{.name = "an unknown even stream",
		.type = PROTO_EOF,
		.flags = 1,
		.stream = 8,
		.says = "not open"},
	{.name = "REPLY to nothing", .type = PROTO_REPLY, .stream = 3, .says = "not open"},
	{.name = "REPLY twice",
		.type = PROTO_REPLY,
		.stream = 1,
		.says = "not open",
		.before = {{PROTO_REPLY, 0, 1, 0, NULL}}},
	{.name = "DATA after REPLY",
		.type = PROTO_DATA,
		.flags = 1,
		.stream = 1,
		.says = "not open",
		.before = {{PROTO_REPLY, 0, 1, 0, NULL}}},
	{.name = "DATA after a REPLY that waits",
		.type = PROTO_DATA,
		.flags = 1,
		.stream = 1,
		.says = "after its REPLY",
		.before = {{PROTO_DATA, 1, 1, 9, zeros}, {PROTO_REPLY, 0, 1, 0, NULL}}},
	{.name = "past the credit",
		.type = PROTO_DATA,
		.flags = 1,
		.stream = 1,
		.len = 1,
		.body = zeros,
		.says = "past its credit",
		.before = WINDOW_FULL},
	{.name = "DATA after EOF",
		.type = PROTO_DATA,
		.flags = 2,
		.stream = 1,
		.len = 1,
		.body = zeros,
		.says = "after EOF",
		.before = {{PROTO_EOF, 2, 1, 0, NULL}}},
	{.name = "EOF twice",
		.type = PROTO_EOF,
		.flags = 2,
		.stream = 1,
		.says = "EOF twice",
		.before = {{PROTO_EOF, 2, 1, 0, NULL}}},
	{.name = "EOF with a body",
		.type = PROTO_EOF,
		.flags = 2,
		.stream = 1,
		.len = 1,
		.says = "EOF of 1"},
	{.name = "CREDIT too short",
		.type = PROTO_CREDIT,
		.stream = 1,
		.len = 4,
		.says = "CREDIT of 4"},
	{.name = "CREDIT never spent",
		.type = PROTO_CREDIT,
		.stream = 1,
		.len = 8,
		.body = credit_one,
		.says = "more than was sent"},
	{.name = "CREDIT for channel 9",
		.type = PROTO_CREDIT,
		.stream = 1,
		.len = 8,
		.body = credit_channel,
		.says = "channel 9"},
	{.name = "CANCEL of ours", .type = PROTO_CANCEL, .stream = 1, .says = "other side serves"},
	{.name = "PROXY_OPEN, odd", .type = PROTO_PROXY_OPEN, .stream = 3, .says = "odd"},
	{.name = "PROXY_OPEN twice",
		.type = PROTO_PROXY_OPEN,
		.stream = 2,
		.says = "is open",
		.before = {{PROTO_PROXY_OPEN, 0, 2, 0, NULL}}},
	{.name = "PROXY_OPEN broken",
		.type = PROTO_PROXY_OPEN,
		.stream = 2,
		.len = 8,
		.body = bad_field,
		.says = "past its end"},
	{.name = "REPLY to its own",
		.type = PROTO_REPLY,
		.stream = 2,
		.says = "other side serves",
		.before = {{PROTO_PROXY_OPEN, 0, 2, 0, NULL}}},
	{.name = "REPLY with a broken field",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = 8,
		.body = bad_field,
		.says = "past its end"},
	{.name = "REPLY half a field",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = 7,
		.body = bad_field,
		.says = "past its end"},
	{.name = "an error without a number",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = 12,
		.body = bad_error,
		.says = "broken error"},
	{.name = "an error too short",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = 10,
		.body = short_error,
		.says = "broken error"},
	{.name = "a NUL in an error",
		.type = PROTO_REPLY,
		.stream = 1,
		.len = 14,
		.body = nul_error,
		.says = "broken error"},
};

static void test_breach(const struct breach *b)
{
	struct proto_header h = {b->magic ? b->magic : PROTO_MAGIC, (uint16_t)b->type,
		(uint16_t)b->flags, b->stream, b->len};
	struct seen s = {0}, theirs = {0};
	struct err err = {""};
	struct guest *g;
	bool told;
	int fd;

	g = peer_guest(&fd);
	guest_on_open(g, seen_open, &theirs);
	guest_request(g, PROTO_EXEC, NULL, 0, &seen_ops, &s);
	guest_dispatch(g, NULL);
	for (int i = 0; i < 4 && b->before[i].type; i++) {
		peer_frame(fd, b->before[i].type, b->before[i].flags, b->before[i].stream,
			b->before[i].body, b->before[i].len);
		if (guest_dispatch(g, &err) < 0)
			ok(false, "%s: dead too early: %s", b->name, err.text);
	}
	told = s.done;
	peer_write(fd, &h, sizeof(h));
	if (b->body)
		peer_write(fd, b->body, b->len);
	is_int(guest_dispatch(g, &err), -EPROTO, "%s: the guest is dead", b->name);
	has_str(err.text, b->says, "%s: named", b->name);
	ok(told || (s.done && s.error == ECONNRESET), "%s: the stream is told", b->name);
	is_int(guest_dispatch(g, NULL), -EPROTO, "%s: for ever", b->name);
	ok(!guest_request(g, PROTO_INFO, NULL, 0, &seen_ops, &s), "%s: no request any more",
		b->name);
	guest_free(g);
	close(fd);
}

/* A frame on a stream whose request has not left: nobody can know of it. */
static void test_early_reply(void)
{
	struct seen s = {0};
	struct err err = {""};
	struct guest *g;
	int fd;

	g = peer_guest(&fd);
	guest_request(g, PROTO_INFO, NULL, 0, &seen_ops, &s);
	/* as guest_dispatch() sends first, fill the socket so that it cannot */
	for (;;) {
		static const uint8_t fill[4096];

		if (send(guest_fd(g), fill, sizeof(fill), MSG_DONTWAIT) < 0)
			break;
	}
	peer_frame(fd, PROTO_REPLY, 0, 1, NULL, 0);
	is_int(guest_dispatch(g, &err), -EPROTO, "REPLY before the request was sent: dead");
	has_str(err.text, "before its request", "named");
	guest_free(g);
	close(fd);
}

/* An agent that opens streams and never reads. */
static void test_flood(void)
{
	struct err err = {""};
	struct guest *g;
	int fd, rc = 0;
	unsigned n;

	g = peer_guest(&fd);
	/* nobody serves: each is refused; but once the pipe is full, the REPLYs cannot leave */
	for (n = 0; n < 200000 && rc == 0; n++) {
		peer_frame(fd, PROTO_PROXY_OPEN, 0, 2 * n + 2, NULL, 0);
		rc = guest_dispatch(g, &err);
		if (g->out.len > 2 * GUEST_OUT_HIGH)
			break;
	}
	is_int(rc, -EPROTO, "opening without reading ends (after %u)", n);
	has_str(err.text, "more than 128 streams", "named");
	guest_free(g);
	close(fd);
}

/* Reading and consuming gives credit; the frames that say so must not pile up either. */
static void test_flood_data(void)
{
	struct seen s = {.take = SIZE_MAX};
	struct err err = {""};
	struct guest *g;
	int fd, rc = 0;
	unsigned n;

	g = peer_guest(&fd);
	guest_request(g, PROTO_EXEC, NULL, 0, &seen_ops, &s);
	guest_dispatch(g, NULL);
	for (n = 0; n < 100000 && rc == 0; n++) {
		peer_frame(fd, PROTO_DATA, 1, 1, zeros, PROTO_DATA_MAX);
		rc = guest_dispatch(g, &err);
		if (g->out.len > 2 * GUEST_OUT_HIGH)
			break;
	}
	is_int(rc, -EPROTO, "sending for ever without reading ends (after %u)", n);
	has_str(err.text, "past its credit", "named");
	guest_free(g);
	close(fd);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(breaches) / sizeof(breaches[0]); i++)
		test_breach(&breaches[i]);
	test_early_reply();
	test_flood();
	test_flood_data();
	return tap_done();
}
