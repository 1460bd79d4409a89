/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the agent channel against peers made by hand: well-behaved ones, slow ones, and
 * hostile ones, one for each rule of agent/proto.h. test_guest_agent.c has the real agent.
 */
#include <pthread.h>
#include <sys/eventfd.h>

#include "common/limits.h"
#include "tests/unit/peer.h"
#include "vmm/guest_internal.h"

/* What a stream's callbacks saw. */
struct seen {
	size_t bytes, take, writables, eofs;
	bool done;
	int error;
	char text[256];
};

static size_t seen_data(void *user, enum proto_channel c, const uint8_t *bytes, size_t len)
{
	struct seen *s = user;
	size_t n = len < s->take ? len : s->take;

	(void)c;
	(void)bytes;
	s->take -= n;
	s->bytes += n;
	return n;
}

static void seen_eof(void *user, enum proto_channel c)
{
	(void)c;
	((struct seen *)user)->eofs++;
}

static void seen_writable(void *user, enum proto_channel c)
{
	(void)c;
	((struct seen *)user)->writables++;
}

static void seen_done(void *user, const struct guest_reply *reply)
{
	struct seen *s = user;

	if (s->done)
		s->error = -1; /* twice */
	s->done = true;
	s->error = reply->error;
	snprintf(s->text, sizeof(s->text), "%s", reply->text ? reply->text : "");
}

static const struct guest_stream_ops seen_ops = {.data = seen_data, .eof = seen_eof,
	.writable = seen_writable, .done = seen_done};

static const struct guest_stream_ops *seen_open(void *user, struct guest_stream *s, void **ret)
{
	(void)s;
	*ret = user;
	return &seen_ops;
}

/* ---- synchronising ---------------------------------------------------------------------- */

static void test_sync(void)
{
	struct proto_header h;
	struct proto_hello hello;
	uint8_t *body, nonce[2][PROTO_NONCE_LEN];
	uint8_t junk[300];
	struct guest *g;
	int pair[2];

	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	guest_new(pair[0], &g, NULL);
	memset(junk, 'P', sizeof(junk));
	for (int i = 0; i < 2; i++) {
		guest_sync_send(g);
		guest_dispatch(g, NULL);
		ok(peer_next(pair[1], &h, &body) && h.type == PROTO_SYNC && h.stream == 0,
			"SYNC %d goes out", i);
		memcpy(nonce[i], body, PROTO_NONCE_LEN);
	}
	ok(memcmp(nonce[0], nonce[1], PROTO_NONCE_LEN) != 0, "each with a nonce of its own");
	peer_write(pair[1], junk, sizeof(junk));
	peer_frame(pair[1], PROTO_REPLY, 0, 77, "left over", 9);
	peer_hello(pair[1], nonce[0], 1, PROTO_VERSION);
	is_int(guest_dispatch(g, NULL), 0, "what comes before our HELLO is dropped");
	ok(!guest_synced(g, NULL), "the HELLO of an older nonce does not count");
	for (size_t i = 0; i < 16 + 64; i++) {
		struct {
			struct proto_header h;
			struct proto_hello b;
		} whole = {{PROTO_MAGIC, PROTO_HELLO, 0, 0, PROTO_HELLO_LEN},
			{.counter = 7, .version = 1}};

		memcpy(whole.b.nonce, nonce[1], PROTO_NONCE_LEN);
		peer_write(pair[1], (uint8_t *)&whole + i, 1);
		guest_dispatch(g, NULL);
		if (i < 79 && guest_synced(g, NULL))
			ok(false, "synchronised after %zu bytes", i);
	}
	ok(guest_synced(g, &hello), "our HELLO counts, byte by byte");
	is_int((int64_t)hello.counter, 7, "and is handed over");
	guest_free(g);
	close(pair[1]);
}

static void test_sync_version(void)
{
	struct proto_header h;
	struct guest *g;
	struct err err = {""};
	uint8_t *body;
	int pair[2];

	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	guest_new(pair[0], &g, NULL);
	guest_sync_send(g);
	guest_dispatch(g, NULL);
	peer_next(pair[1], &h, &body);
	peer_hello(pair[1], body, 1, 0);
	is_int(guest_dispatch(g, &err), -EPROTO, "no version in common: -EPROTO");
	has_str(err.text, "no version", "said so");
	guest_free(g);
	close(pair[1]);
}

/* A port that opens late: the first SYNC is kept but answered late, or is lost. */
static void *late_peer(void *arg)
{
	int fd = *(int *)arg;
	bool lose = ((int *)arg)[1];
	struct proto_header h;
	uint8_t nonce[PROTO_NONCE_LEN], *body;

	peer_next(fd, &h, &body);
	memcpy(nonce, body, sizeof(nonce));
	peer_next(fd, &h, &body); /* comes only after 500 ms without an answer */
	if (h.type != PROTO_SYNC)
		return NULL;
	if (!lose)
		peer_hello(fd, nonce, 1, PROTO_VERSION);
	peer_hello(fd, body, 2, PROTO_VERSION);
	if (!peer_next(fd, &h, &body) || h.type != PROTO_SYNCFS)
		return NULL;
	peer_frame(fd, PROTO_REPLY, 0, h.stream, NULL, 0);
	return NULL;
}

static void test_sync_late(bool lose)
{
	int arg[2] = {0, lose}, pair[2];
	struct guest *g;
	struct err err = {""};
	pthread_t t;

	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	guest_new(pair[0], &g, NULL);
	arg[0] = pair[1];
	pthread_create(&t, NULL, late_peer, arg);
	is_int(guest_sync(g, clock_deadline(PEER_DEADLINE_MS), -1, NULL, &err), 0,
		"a SYNC that is %s is sent anew", lose ? "lost" : "answered late");
	is_int(guest_call(g, PROTO_SYNCFS, NULL, clock_deadline(PEER_DEADLINE_MS), -1, NULL, NULL,
		       &err),
		0, "and a request after it is answered");
	is_str(err.text, "", "nothing went wrong");
	pthread_join(t, NULL);
	guest_free(g);
	close(pair[1]);
}

/* On a SEQPACKET pair each record is one write. */
static void test_one_write(void)
{
	struct seen a = {0}, b = {0};
	struct guest_identity id;
	uint8_t buf[512], record[2048];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	struct guest *g;
	struct err err;
	int pair[2];
	ssize_t n;

	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	guest_new(pair[0], &g, &err);
	is_int(guest_identity_make(NULL, &id, &err), 0, "an identity is made");
	guest_identity_body(&id, &o);
	guest_sync_send(g);
	ok(guest_request(g, PROTO_IDENTITY, o.buf, o.len, &seen_ops, &a) &&
			guest_request(g, PROTO_INFO, NULL, 0, &seen_ops, &b),
		"requests are taken before HELLO");
	guest_dispatch(g, NULL);
	n = recv(pair[1], record, sizeof(record), MSG_DONTWAIT);
	is_int(n, 16 + 24 + 16 + o.len + 16, "SYNC and two requests leave in one write");
	guest_sync_send(g);
	ok(a.done && b.done && a.error == ECONNRESET, "a SYNC ends streams");
	guest_free(g);
	close(pair[1]);
}

/* ---- hostile peers ---------------------------------------------------------------------- */

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
		{PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros}, {PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros}, \
			{PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros},                                 \
		{                                                                                  \
			PROTO_DATA, 1, 1, PROTO_DATA_MAX, zeros                                    \
		}                                                                                  \
	}

static const struct breach breaches[] = {
	{.name = "magic", .type = PROTO_DATA, .magic = 0x12345678, .says = "magic"},
	{.name = "length", .type = PROTO_REPLY, .stream = 1, .len = PROTO_BODY_MAX + 1,
		.says = "at most"},
	{.name = "length of 4 GiB", .type = PROTO_REPLY, .stream = 1, .len = UINT32_MAX,
		.says = "at most"},
	{.name = "DATA too long", .type = PROTO_DATA, .flags = 1, .stream = 1,
		.len = PROTO_DATA_MAX + 1, .says = "DATA of 65537 bytes"},
	{.name = "type 0", .type = 0, .stream = 1, .says = "type 0"},
	{.name = "a type of the host", .type = PROTO_SYNC, .says = "type 1"},
	{.name = "a request of the host", .type = PROTO_EXEC, .stream = 1, .says = "type 32"},
	{.name = "SIGNAL", .type = PROTO_SIGNAL, .stream = 1, .len = 4, .says = "type 21"},
	{.name = "PONG", .type = PROTO_PONG, .says = "type 4,"},
	{.name = "HELLO unasked", .type = PROTO_HELLO, .len = PROTO_HELLO_LEN, .body = zeros,
		.says = "HELLO without a SYNC"},
	{.name = "HELLO too short", .type = PROTO_HELLO, .len = 8, .says = "HELLO of 8"},
	{.name = "HELLO on a stream", .type = PROTO_HELLO, .stream = 1, .len = PROTO_HELLO_LEN,
		.says = "HELLO on stream"},
	{.name = "FAULT", .type = PROTO_FAULT, .len = 9, .body = "no\033memory",
		.says = "gave up: no?memory"},
	{.name = "DATA on stream 0", .type = PROTO_DATA, .says = "DATA on stream 0"},
	{.name = "channel", .type = PROTO_DATA, .flags = 4, .stream = 1, .says = "flags 4"},
	{.name = "flags of REPLY", .type = PROTO_REPLY, .flags = 1, .stream = 1, .says = "flags 1"},
	{.name = "DATA on stdin", .type = PROTO_DATA, .flags = 0, .stream = 1, .len = 1,
		.body = zeros, .says = "channel 0"},
	{.name = "DATA on results of EXEC", .type = PROTO_DATA, .flags = 3, .stream = 1, .len = 1,
		.body = zeros, .says = "channel 3"},
	{.name = "an unknown stream", .type = PROTO_DATA, .flags = 1, .stream = 9, .says = "not open"},
	{.name = "an unknown even stream", .type = PROTO_EOF, .flags = 1, .stream = 8,
		.says = "not open"},
	{.name = "REPLY to nothing", .type = PROTO_REPLY, .stream = 3, .says = "not open"},
	{.name = "REPLY twice", .type = PROTO_REPLY, .stream = 1, .says = "not open",
		.before = {{PROTO_REPLY, 0, 1, 0, NULL}}},
	{.name = "DATA after REPLY", .type = PROTO_DATA, .flags = 1, .stream = 1,
		.says = "not open", .before = {{PROTO_REPLY, 0, 1, 0, NULL}}},
	{.name = "DATA after a REPLY that waits", .type = PROTO_DATA, .flags = 1, .stream = 1,
		.says = "after its REPLY",
		.before = {{PROTO_DATA, 1, 1, 9, zeros}, {PROTO_REPLY, 0, 1, 0, NULL}}},
	{.name = "past the credit", .type = PROTO_DATA, .flags = 1, .stream = 1, .len = 1,
		.body = zeros, .says = "past its credit", .before = WINDOW_FULL},
	{.name = "DATA after EOF", .type = PROTO_DATA, .flags = 2, .stream = 1, .len = 1,
		.body = zeros, .says = "after EOF", .before = {{PROTO_EOF, 2, 1, 0, NULL}}},
	{.name = "EOF twice", .type = PROTO_EOF, .flags = 2, .stream = 1, .says = "EOF twice",
		.before = {{PROTO_EOF, 2, 1, 0, NULL}}},
	{.name = "EOF with a body", .type = PROTO_EOF, .flags = 2, .stream = 1, .len = 1,
		.says = "EOF of 1"},
	{.name = "CREDIT too short", .type = PROTO_CREDIT, .stream = 1, .len = 4,
		.says = "CREDIT of 4"},
	{.name = "CREDIT never spent", .type = PROTO_CREDIT, .stream = 1, .len = 8,
		.body = credit_one, .says = "more than was sent"},
	{.name = "CREDIT for channel 9", .type = PROTO_CREDIT, .stream = 1, .len = 8,
		.body = credit_channel, .says = "channel 9"},
	{.name = "CANCEL of ours", .type = PROTO_CANCEL, .stream = 1, .says = "other side serves"},
	{.name = "PROXY_OPEN, odd", .type = PROTO_PROXY_OPEN, .stream = 3, .says = "odd"},
	{.name = "PROXY_OPEN twice", .type = PROTO_PROXY_OPEN, .stream = 2, .says = "is open",
		.before = {{PROTO_PROXY_OPEN, 0, 2, 0, NULL}}},
	{.name = "PROXY_OPEN broken", .type = PROTO_PROXY_OPEN, .stream = 2, .len = 8,
		.body = bad_field, .says = "past its end"},
	{.name = "REPLY to its own", .type = PROTO_REPLY, .stream = 2, .says = "other side serves",
		.before = {{PROTO_PROXY_OPEN, 0, 2, 0, NULL}}},
	{.name = "REPLY with a broken field", .type = PROTO_REPLY, .stream = 1, .len = 8,
		.body = bad_field, .says = "past its end"},
	{.name = "REPLY half a field", .type = PROTO_REPLY, .stream = 1, .len = 7,
		.body = bad_field, .says = "past its end"},
	{.name = "an error without a number", .type = PROTO_REPLY, .stream = 1, .len = 12,
		.body = bad_error, .says = "broken error"},
	{.name = "an error too short", .type = PROTO_REPLY, .stream = 1, .len = 10,
		.body = short_error, .says = "broken error"},
	{.name = "a NUL in an error", .type = PROTO_REPLY, .stream = 1, .len = 14,
		.body = nul_error, .says = "broken error"},
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
	ok(!guest_request(g, PROTO_INFO, NULL, 0, &seen_ops, &s), "%s: no request any more", b->name);
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

/* ---- credit ----------------------------------------------------------------------------- */

static void test_send(void)
{
	static uint8_t big[2 * PROTO_WINDOW];
	uint32_t body[2] = {0, 100000};
	struct seen a = {0}, b = {0};
	struct guest_stream *sa, *sb;
	struct proto_header h;
	struct err err = {""};
	struct guest *g;
	uint8_t *p;
	int fd, turns = 0;
	uint32_t last = 0;

	g = peer_guest(&fd);
	sa = guest_request(g, PROTO_FILE_PUT, NULL, 0, &seen_ops, &a);
	sb = guest_request(g, PROTO_FILE_PUT, NULL, 0, &seen_ops, &b);
	is_int((int64_t)guest_stream_send(sa, PROTO_IN, big, sizeof(big)), PROTO_WINDOW,
		"a window is taken and no more");
	is_int((int64_t)guest_stream_send(sa, PROTO_IN, big, 1), 0, "then nothing");
	guest_stream_send(sb, PROTO_IN, big, sizeof(big));
	guest_stream_eof(sb, PROTO_IN);
	is_int((int64_t)guest_stream_room(sb, PROTO_IN), 0, "no room after EOF");
	for (int i = 0; i < 11; i++) {
		guest_dispatch(g, &err);
		if (!peer_next(fd, &h, &p))
			break;
		if (h.type != PROTO_DATA)
			continue;
		turns += h.stream != last;
		last = h.stream;
	}
	is_int(turns, 8, "two streams take turns, frame by frame");
	is_int(h.type, PROTO_EOF, "EOF comes behind the data");
	peer_frame(fd, PROTO_CREDIT, 0, 1, body, sizeof(body));
	is_int(guest_dispatch(g, &err), 0, "credit is taken");
	is_int((int64_t)a.writables, 1, "and told");
	is_int((int64_t)guest_stream_room(sa, PROTO_IN), 100000, "as much as was given");
	is_int((int64_t)b.writables, 0, "to the right stream");
	guest_free(g);
	ok(a.done && b.done, "guest_free() ends streams");
	close(fd);
}

static void test_receive(void)
{
	struct seen s = {.take = 1000};
	struct proto_header h = {0};
	struct guest_stream *st;
	struct err err = {""};
	struct guest *g;
	uint32_t given[2] = {0};
	uint8_t *p;
	int fd;

	g = peer_guest(&fd);
	st = guest_request(g, PROTO_FILE_GET, NULL, 0, &seen_ops, &s);
	guest_dispatch(g, NULL);
	peer_next(fd, &h, &p);
	for (int i = 0; i < 4; i++) {
		peer_frame(fd, PROTO_DATA, 1, 1, zeros, PROTO_DATA_MAX);
		guest_dispatch(g, &err);
	}
	peer_frame(fd, PROTO_EOF, 1, 1, NULL, 0);
	peer_frame(fd, PROTO_REPLY, 0, 1, NULL, 0);
	is_int(guest_dispatch(g, &err), 0, "a window full of data");
	is_int((int64_t)s.bytes, 1000, "a slow reader gets what it takes");
	ok(!s.eofs && !s.done, "EOF and REPLY wait behind the data");
	s.take = 5000;
	guest_stream_resume(st);
	is_int((int64_t)s.bytes, 6000, "resume offers the rest");
	s.take = SIZE_MAX;
	guest_stream_resume(st);
	is_int((int64_t)s.bytes, PROTO_WINDOW, "all of it");
	ok(s.eofs == 1 && s.done && s.error == 0, "then EOF and the end");

	s = (struct seen){.take = SIZE_MAX};
	guest_request(g, PROTO_FILE_GET, NULL, 0, &seen_ops, &s);
	guest_dispatch(g, NULL);
	peer_next(fd, &h, &p);
	peer_frame(fd, PROTO_DATA, 1, h.stream, zeros, PROTO_DATA_MAX);
	guest_dispatch(g, NULL);
	if (peer_next(fd, &h, &p))
		memcpy(given, p, sizeof(given));
	ok(h.type == PROTO_CREDIT && given[0] == 1 && given[1] == PROTO_DATA_MAX,
		"what is consumed is given back as credit");
	guest_free(g);
	close(fd);
}

static void test_their_streams(void)
{
	struct seen s = {.take = SIZE_MAX};
	struct proto_header h = {0};
	struct err err = {""};
	struct guest *g;
	uint8_t *p;
	int fd;

	g = peer_guest(&fd);
	guest_on_open(g, seen_open, &s);
	peer_frame(fd, PROTO_PROXY_OPEN, 0, 2, NULL, 0);
	peer_frame(fd, PROTO_DATA, 1, 2, "hello", 5);
	peer_frame(fd, PROTO_CANCEL, 0, 2, NULL, 0);
	is_int(guest_dispatch(g, &err), 0, "a stream of the agent's");
	is_int((int64_t)s.bytes, 5, "carries data");
	ok(s.done && s.error == ECANCELED, "CANCEL ends it");
	ok(peer_next(fd, &h, &p) && h.type == PROTO_REPLY && h.stream == 2, "with our REPLY");
	peer_frame(fd, PROTO_DATA, 1, 2, "late", 4);
	is_int(guest_dispatch(g, &err), 0, "a late frame on it is no breach");
	s = (struct seen){.take = SIZE_MAX};
	peer_frame(fd, PROTO_PROXY_OPEN, 0, 2, NULL, 0);
	is_int(guest_dispatch(g, &err), 0, "its number may be used again");
	guest_on_open(g, NULL, NULL);
	peer_frame(fd, PROTO_PROXY_OPEN, 0, 4, NULL, 0);
	guest_dispatch(g, &err);
	ok(peer_next(fd, &h, &p) && h.type == PROTO_REPLY && h.stream == 4 && h.length > 8,
		"unserved, it is refused");
	guest_free(g);
	close(fd);
}

static void test_many(void)
{
	struct seen s[PROTO_STREAMS_MAX + 1] = {0};
	struct err err = {""};
	struct guest *g;
	int fd, n = 0;

	g = peer_guest(&fd);
	while (n <= (int)PROTO_STREAMS_MAX &&
		guest_request(g, PROTO_INFO, NULL, 0, &seen_ops, &s[n]))
		n++;
	is_int(n, PROTO_STREAMS_MAX, "as many streams as may be");
	is_int(guest_call(g, PROTO_INFO, NULL, clock_deadline(1000), -1, NULL, NULL, &err), -EBUSY,
		"one more is refused");
	guest_free(g);
	close(fd);
}

/* ---- calls that wait -------------------------------------------------------------------- */

struct script {
	int fd;
	void (*run)(int fd);
};

static void *script_thread(void *arg)
{
	struct script *s = arg;

	peer_sync(s->fd);
	s->run(s->fd);
	return NULL;
}

static struct guest *script_start(struct script *s, pthread_t *t, void (*run)(int fd))
{
	struct guest *g;
	struct err err;
	int pair[2];

	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	guest_new(pair[0], &g, NULL);
	*s = (struct script){pair[1], run};
	pthread_create(t, NULL, script_thread, s);
	if (guest_sync(g, clock_deadline(PEER_DEADLINE_MS), -1, NULL, &err) < 0)
		peer_die(err.text);
	return g;
}

static void script_end(struct script *s, pthread_t t, struct guest *g)
{
	guest_free(g);
	pthread_join(t, NULL);
	close(s->fd);
}

/* Serves one EXEC, ignoring its limits. */
static void liar(int fd)
{
	struct proto_header h;
	uint8_t *p, buf[64];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};
	uint32_t stream;

	peer_next(fd, &h, &p);
	stream = h.stream;
	peer_frame(fd, PROTO_DATA, 1, stream, "0123456789", 10);
	peer_frame(fd, PROTO_DATA, 1, stream, "0123456789", 10);
	peer_frame(fd, PROTO_DATA, 2, stream, "err", 3);
	proto_put_u32(&o, PROTO_T_EXIT_CODE, 3);
	peer_frame(fd, PROTO_REPLY, 0, stream, buf, o.len);
}

static void test_limits(void)
{
	struct guest_exec_spec spec = {.shell = "x", .stdin_fd = -1, .limit_out = 12};
	struct guest_result r;
	struct script s;
	struct err err = {""};
	pthread_t t;
	struct guest *g = script_start(&s, &t, liar);

	is_int(guest_exec(g, &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err), 0, "exec");
	is_str(r.out, "012345678901", "output past the limit is dropped here too");
	ok(r.cut_out && !r.cut_err, "and marked");
	is_str(r.err, "err", "standard error apart");
	is_int(r.exit_code, 3, "exit code");
	guest_result_free(&r);
	script_end(&s, t, g);
}

/* Takes a request and says nothing until CANCEL. */
static void mute(int fd)
{
	struct proto_header h;
	uint8_t *p;

	while (peer_next(fd, &h, &p)) {
		if (h.type != PROTO_CANCEL)
			continue;
		peer_frame(fd, PROTO_REPLY, 0, h.stream, NULL, 0);
		return;
	}
}

static void test_deadline(void)
{
	struct guest_exec_spec spec = {.shell = "x", .stdin_fd = -1};
	struct guest_result r;
	struct script s;
	struct err err = {""};
	pthread_t t;
	struct guest *g = script_start(&s, &t, mute);
	int event = eventfd(1, EFD_CLOEXEC);

	is_int(guest_exec(g, &spec, clock_deadline(50), -1, &r, &err), -ETIMEDOUT,
		"an exec past the deadline is cancelled");
	has_str(err.text, "running x in the guest", "and says what it was");
	is_int(guest_exec(g, &spec, clock_deadline(PEER_DEADLINE_MS), event, &r, &err),
		-ECONNABORTED, "a machine that ends is noticed");
	close(event);
	script_end(&s, t, g);
}

/* Serves one CODE as an agent whose interpreter prints, shows a result, and dies. */
static void gone(int fd)
{
	static const uint8_t error[] = {104, 0, 0, 0, 'g', 'o', 'n', 'e', '!'};
	struct proto_header h;
	uint8_t *p, buf[64];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	peer_next(fd, &h, &p);
	peer_frame(fd, PROTO_DATA, PROTO_OUT, h.stream, "hi\n", 3);
	peer_frame(fd, PROTO_DATA, PROTO_RESULT, h.stream, "{}\n", 3);
	proto_put(&o, PROTO_T_ERROR, error, sizeof(error));
	proto_put_bool(&o, PROTO_T_CONTEXT_GONE, 1);
	peer_frame(fd, PROTO_REPLY, 0, h.stream, buf, o.len);
}

static void raised(int fd)
{
	struct proto_header h;
	uint8_t *p, buf[128];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	peer_next(fd, &h, &p);
	proto_put_u32(&o, PROTO_T_EXECUTION, 5);
	proto_put_str(&o, PROTO_T_ENAME, "ValueError");
	proto_put_str(&o, PROTO_T_EVALUE, "x");
	proto_put_str(&o, PROTO_T_TRACEBACK, "line 1");
	peer_frame(fd, PROTO_REPLY, 0, h.stream, buf, o.len);
}

static void test_code(void)
{
	struct guest_exec_spec spec = {.stdin_fd = -1};
	struct guest_result r;
	struct script s;
	struct err err = {""};
	pthread_t t;
	struct guest *g = script_start(&s, &t, gone);
	char name[100];

	is_int(guest_code(g, NULL, "x", &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err), 0,
		"code whose interpreter dies has run");
	ok(r.context_gone && !r.ename, "and is marked");
	is_str(r.traceback, "gone!", "with how it ended");
	is_str(r.out, "hi\n", "and what it had printed");
	is_str(r.results, "{}\n", "and shown");
	guest_result_free(&r);
	script_end(&s, t, g);
	g = script_start(&s, &t, raised);
	memset(name, 'n', sizeof(name));
	name[99] = '\0';
	is_int(guest_code(g, name, "x", &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err),
		-EINVAL, "a context's name too long is refused here");
	is_int(guest_code(g, "n", "x", &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err), 0,
		"code that raises has run");
	ok(r.execution == 5 && !strcmp(r.ename, "ValueError") && !strcmp(r.evalue, "x") &&
			!strcmp(r.traceback, "line 1") && !r.context_gone,
		"and tells what");
	guest_result_free(&r);
	script_end(&s, t, g);
}

static void vanish(int fd)
{
	struct proto_header h;
	uint8_t *p;

	peer_next(fd, &h, &p);
	shutdown(fd, SHUT_RDWR);
}

static void no_status(int fd)
{
	struct proto_header h;
	uint8_t *p;

	peer_next(fd, &h, &p);
	peer_frame(fd, PROTO_REPLY, 0, h.stream, NULL, 0);
}

static void test_ends(void)
{
	struct guest_exec_spec spec = {.shell = "x", .stdin_fd = -1};
	struct guest_result r;
	struct guest_info info;
	struct script s;
	struct err err = {""};
	pthread_t t;
	struct guest *g = script_start(&s, &t, vanish);

	is_int(guest_exec(g, &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err), -ECONNRESET,
		"an agent that vanishes");
	has_str(err.text, "channel ended", "is named");
	script_end(&s, t, g);
	g = script_start(&s, &t, no_status);
	is_int(guest_exec(g, &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err), -EPROTO,
		"a REPLY without an exit status is no success");
	script_end(&s, t, g);
	g = script_start(&s, &t, no_status);
	is_int(guest_info(g, clock_deadline(PEER_DEADLINE_MS), -1, &info, &err), -EPROTO,
		"INFO without its fields is none");
	script_end(&s, t, g);
}

static void test_identity(void)
{
	struct guest_identity a, b;
	struct err err = {""};
	int64_t now = clock_realtime_ns();

	guest_identity_make(NULL, &a, &err);
	guest_identity_make("web-1", &b, &err);
	ok(strcmp(a.machine_id, b.machine_id) != 0 && strlen(a.machine_id) == 32, "machine ids");
	ok(memcmp(a.entropy, b.entropy, sizeof(a.entropy)) != 0, "entropy");
	ok(!strncmp(a.hostname, "parbake-", 8) && !strncmp(a.hostname + 8, a.machine_id, 8),
		"a host name of the id");
	is_str(b.hostname, "web-1", "or the one asked for");
	ok(a.realtime_ns >= now && a.realtime_ns < now + 60000000000LL, "the time");
	is_int(guest_identity_make("Web", &b, &err), -EINVAL, "capitals");
	is_int(guest_identity_make("-web", &b, &err), -EINVAL, "a dash in front");
	is_int(guest_identity_make("", &b, &err), -EINVAL, "nothing");
	has_str(err.text, "no host name", "said so");
}

int main(void)
{
	test_sync();
	test_sync_version();
	test_sync_late(false);
	test_sync_late(true);
	test_one_write();
	for (size_t i = 0; i < sizeof(breaches) / sizeof(breaches[0]); i++)
		test_breach(&breaches[i]);
	test_early_reply();
	test_flood();
	test_flood_data();
	test_send();
	test_receive();
	test_their_streams();
	test_many();
	test_limits();
	test_deadline();
	test_code();
	test_ends();
	test_identity();
	return tap_done();
}
