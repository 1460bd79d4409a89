/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the agent channel against peers made by hand. test_guest_hostile.c has those
 * that break the rules, test_guest_agent.c the real agent.
 */
#include <pthread.h>
#include <sys/eventfd.h>

#include "common/limits.h"
#include "tests/unit/peer.h"
#include "tests/unit/seen.h"

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
			{.counter = 7, .version = PROTO_VERSION}};

		memcpy(whole.b.nonce, nonce[1], PROTO_NONCE_LEN);
		peer_write(pair[1], (uint8_t *)&whole + i, 1);
		guest_dispatch(g, NULL);
		if (i < 79 && guest_synced(g, NULL))
			ok(false, "synchronised after %zu bytes", i);
	}
	ok(guest_synced(g, &hello), "our HELLO counts, byte by byte");
	is_int((int64_t)hello.counter, 7, "a HELLO of our nonce is handed over");
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
		0, "a request after a SYNC is answered");
	is_str(err.text, "", "a SYNC that was sent anew does no harm");
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

static const uint8_t zeros[PROTO_DATA_MAX];

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
	is_int((int64_t)guest_stream_send(sa, PROTO_IN, big, 1), 0,
		"a stream sends nothing beyond its window");
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
	is_int((int64_t)a.writables, 1, "the writer is told of new credit");
	is_int((int64_t)guest_stream_room(sa, PROTO_IN), 100000,
		"a stream sends as much as credit was given");
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
	is_int((int64_t)s.bytes, PROTO_WINDOW, "a stream that is resumed gives all of its data");
	ok(s.eofs == 1 && s.done && s.error == 0,
		"a stream that is resumed gives its EOF and its end after its data");

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
	ok(peer_next(fd, &h, &p) && h.type == PROTO_REPLY && h.stream == 2,
		"a cancelled stream ends with our REPLY");
	peer_frame(fd, PROTO_DATA, 1, 2, "late", 4);
	is_int(guest_dispatch(g, &err), 0, "a late frame on it is no breach");
	s = (struct seen){.take = SIZE_MAX};
	peer_frame(fd, PROTO_PROXY_OPEN, 0, 2, NULL, 0);
	is_int(guest_dispatch(g, &err), 0, "the number of an ended stream may be used again");
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
	is_int(n, PROTO_STREAMS_MAX, "as many streams as may be are open");
	is_int(guest_call(g, PROTO_INFO, NULL, clock_deadline(1000), -1, NULL, NULL, &err), -EBUSY,
		"one stream more than may be is refused");
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

	is_int(guest_exec(g, &spec, clock_deadline(PEER_DEADLINE_MS), -1, &r, &err), 0,
		"a command runs in a guest");
	is_str(r.out, "012345678901", "output past the limit is dropped here too");
	ok(r.cut_out && !r.cut_err, "output that was dropped is marked");
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
	has_str(err.text, "running x in the guest",
		"the error of a command past its deadline names the command");
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
	ok(r.context_gone && !r.ename, "an interpreter's death is marked");
	is_str(r.traceback, "gone!", "the result tells how a dead interpreter ended");
	is_str(r.out, "hi\n", "the result has what a dead interpreter had printed");
	is_str(r.results, "{}\n", "the result has what a dead interpreter had shown");
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
		"the result tells what was raised");
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
	has_str(err.text, "channel ended", "the end of an agent's channel is named");
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
	ok(memcmp(a.entropy, b.entropy, sizeof(a.entropy)) != 0,
		"two identities have different entropy");
	ok(!strncmp(a.hostname, "parbake-", 8) && !strncmp(a.hostname + 8, a.machine_id, 8),
		"a host name of the id");
	is_str(b.hostname, "web-1", "a host name that was asked for is sent");
	ok(a.realtime_ns >= now && a.realtime_ns < now + 60000000000LL, "the time");
	is_int(guest_identity_make("Web", &b, &err), -EINVAL,
		"a host name with capitals is refused");
	is_int(guest_identity_make("-web", &b, &err), -EINVAL, "a dash in front");
	is_int(guest_identity_make("", &b, &err), -EINVAL, "an empty host name is refused");
	has_str(err.text, "no host name", "said so");
}

int main(void)
{
	test_sync();
	test_sync_version();
	test_sync_late(false);
	test_sync_late(true);
	test_one_write();
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
