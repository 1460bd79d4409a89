/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's HTTP server: answers, streams, its end. */
#include "pool/http/http.h"

#include "tests/unit/http_peer.h"
#include "pool/http/limits.h"

static void test_plain(void)
{
	struct client c = enter();
	char want[128];

	say(&c, "GET /now?q=a%20b%2Bc+d&r HTTP/1.1\r\nHost: x\r\nX-Test: seen\r\n\r\n");
	ok(until(&c, says(&c, "{\"now\":\"yes\"}")), "an answer");
	has_str(c.got, "HTTP/1.1 200", "an answer has its status");
	has_str(c.got, "Content-Type: application/json", "an answer has its content type");
	has_str(c.got, "X-More: yes", "an answer has the header that the handler set");
	snprintf(want, sizeof(want), "GET /now seen a b+c d unix %d", (int)geteuid());
	is_str(at.seen, want, "the handler sees the request");
	forget(&c);
	say(&c, "GET /text HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "short and stout")),
		"a second request on the same connection is answered");
	has_str(c.got, "418", "the second answer has a status of its own");
	forget(&c);
	say(&c, "HEAD /text HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, " 204 ")), "HEAD, and one behind it");
	ok(!says(&c, "stout") && says(&c, "Content-Length: 16"),
		"a HEAD has no body but its length");
	forget(&c);
	say(&c, "GET /a%2fb%c3%a4 HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "404")), "no such route");
	has_str(at.seen, "GET /a/b\xc3\xa4 ", "the path is decoded");
	is_int(http_open(server), 0, "no request is open");
	leave(&c);
}

static void test_later(void)
{
	struct client c = enter();
	struct http_request *first;

	/* three at once: one after the other, in their order */
	say(&c,
		"GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /later HTTP/1.1\r\nHost: x\r\n\r\n"
		"GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.waiting), "the first is asked");
	first = at.waiting;
	for (int i = 0; i < 5; i++)
		turn(&c);
	ok(at.waiting == first && http_open(server) == 1 && c.len == 0,
		"a pipelined one waits for it");
	at.waiting = NULL;
	http_reply_text(first, 200, "text/plain", "one");
	ok(until(&c, at.waiting), "a pipelined request has its turn after the one before it");
	has_str(c.got, "one", "the first is answered");
	http_reply_text(at.waiting, 200, "text/plain", "two");
	ok(until(&c, says(&c, "\"now\"")),
		"the third of three pipelined requests has its turn last");
	ok(strstr(c.got, "two") > strstr(c.got, "one") &&
			strstr(c.got, "\"now\"") > strstr(c.got, "two"),
		"in order");
	leave(&c);

	/* its client goes: nobody asked to be told, so it stays until it is answered */
	c = enter();
	at.waiting = NULL;
	say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.waiting), "a request that waits is open");
	leave(&c);
	for (int i = 0; i < 5; i++)
		turn(NULL);
	ok(http_open(server) == 1 && !strcmp(http_path(at.waiting), "/later"),
		"a request stays after its client has gone");
	http_reply_text(at.waiting, 200, "text/plain", "nobody");
	ok(until(NULL, http_open(server) == 0), "until it is answered");
}

/* A client that dies within a body nobody asked for, while the handler is at work. */
static void test_orphan(void)
{
	struct client c = enter();

	at.waiting = NULL;
	say(&c, "DELETE /later HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
	ok(until(&c, at.waiting), "a request whose body is still coming");
	leave(&c);
	for (int i = 0; i < 5; i++)
		turn(NULL);
	is_int(http_open(server), 1, "stays when the client is gone");
	ok(!http_header(at.waiting, "Host"),
		"the headers of a request whose client has gone are gone");
	http_stream_begin(at.waiting, 200, "text/plain", write_more, NULL);
	at.rq = at.waiting;
	at.to_write = 3 * LIMIT_HTTP_BUFFER;
	write_more(NULL);
	is_int(at.written, 3 * LIMIT_HTTP_BUFFER,
		"a stream without a client takes all that is written");
	is_int(http_open(server), 0, "a request without a client ends with its answer");
	at.to_write = at.written = 0;
}

/* The bytes of a chunked answer in @c, compared with pattern(); -1: not whole. */
static ssize_t unchunk(const struct client *c)
{
	const char *p = c->got ? strstr(c->got, "\r\n\r\n") : NULL;
	size_t n = 0;

	if (!p)
		return -1;
	for (p += 4;;) {
		char *rest;
		size_t len;

		if (p >= c->got + c->len)
			return -1;
		len = strtoul(p, &rest, 16);
		p = rest + 2;
		if (!len)
			return (ssize_t)n;
		if (p + len + 2 > c->got + c->len)
			return -1;
		for (size_t i = 0; i < len; i++)
			if (p[i] != pattern(n + i))
				return -2;
		n += len;
		p += len + 2;
	}
}

static void test_stream(void)
{
	struct client c = enter();

	at.to_write = at.written = 0;
	say(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\r\n\r\n")), "a stream begins before it has bytes");
	has_str(c.got, "chunked", "in chunks");
	is_int(http_stream_write(at.rq, "abc", 3), 3, "some are written");
	ok(until(&c, says(&c, "abc\r\n")), "the first bytes of a stream are sent at once");
	is_int(http_stream_write(at.rq, "defg", 4), 4, "more bytes of a stream are written");
	ok(until(&c, says(&c, "defg\r\n")), "further bytes of a stream are written");
	http_stream_end(at.rq);
	ok(until(&c, says(&c, "0\r\n\r\n")), "a stream ends");
	is_int(unchunk(&c), 7, "a client gets all of a stream");
	forget(&c);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "a connection goes on after a stream");
	forget(&c);

	/* aborted: no last chunk */
	say(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, says(&c, "\r\n\r\n"));
	http_stream_write(at.rq, "abc", 3);
	http_stream_abort(at.rq);
	ok(until(&c, c.closed), "a stream that is aborted closes the connection");
	ok(says(&c, "abc") && !says(&c, "\r\n0\r\n"), "after what was written, without its end");
	leave(&c);

	/* a HEAD of it */
	c = enter();
	at.to_write = 3 * LIMIT_HTTP_BUFFER;
	at.written = 0;
	say(&c, "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "a HEAD has no stream");
	is_int(at.written, 3 * LIMIT_HTTP_BUFFER, "though it is written");
	leave(&c);
}

static void test_slow_reader(void)
{
	struct client c = enter();
	size_t total = 8 * MIB;

	at.to_write = total;
	at.written = at.rooms = 0;
	c.take = 0;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	for (size_t before = SIZE_MAX, still = 0; still < 50; before = at.written) {
		turn(&c);
		still = at.written == before ? still + 1 : 0;
	}
	ok(at.written < 2 * MIB, "a client that does not read stops the writer");
	is_int(http_stream_room(at.rq), 0,
		"the buffer of a stream whose client does not read is full");
	ok(at.rq->ring_size <= LIMIT_HTTP_BUFFER,
		"the buffer of a stream is no larger than it may be");
	c.take = SIZE_MAX;
	at.ends = at.completes = 0;
	ok(until(&c, at.completes == 1), "when it reads, all comes");
	ok(until(&c, unchunk(&c) >= 0), "to the end");
	is_int(unchunk(&c), (int64_t)total, "every byte as written");
	ok(at.rooms > 3, "the writer is told of room");
	leave(&c);

	/* gone in the middle, while the writer waits */
	c = enter();
	at.written = at.ends = at.completes = 0;
	c.take = 0;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, at.rq && http_stream_room(at.rq) == 0);
	leave(&c);
	ok(until(NULL, at.ends == 1), "a client that goes in the middle of a stream is noticed");
	is_int(at.completes, 0, "a stream whose client went is over, and not complete");

	/* gone while there is nothing to say */
	c = enter();
	at.to_write = at.ends = 0;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, says(&c, "\r\n\r\n"));
	leave(&c);
	ok(until(NULL, at.ends == 1), "a client that goes is noticed while its stream is silent");

	/* gone, and the writer did not ask to be told: it goes on into nothing */
	c = enter();
	at.to_write = total;
	at.written = 0;
	c.take = 0;
	say(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, at.rq && http_stream_room(at.rq) == 0);
	leave(&c);
	ok(until(NULL, at.written == total), "a writer that does not care writes on");
	ok(until(NULL, http_open(server) == 0), "to its end");
	at.to_write = 0;
}

static void test_tcp(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct client c;

	ok(bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 5) == 0 &&
			getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
			http_server_listen(server, fd, true, NULL) == 0,
		"a second listener");
	ok(connect(near, (struct sockaddr *)&a, len) == 0, "a client of it");
	c = client_on(near);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "a client of a second listener is answered");
	is_str(at.seen, "GET /now - - tcp -1", "a request by TCP is known to come by TCP");
	at.ends = at.to_write = 0;
	forget(&c);
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, says(&c, "\r\n\r\n"));
	leave(&c);
	ok(until(NULL, at.ends == 1), "a client that hangs up ends a silent stream");
}

/* Connections by TCP may be all that there may be of them: the unix socket still answers. */
static void test_reserve(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct client c[17], own;

	server->max_conns = 16;
	ok(bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 32) == 0 &&
			getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
			http_server_listen(server, fd, true, NULL) == 0,
		"sixteen connections, a listener by TCP");
	for (int i = 0; i < 17; i++) {
		int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (connect(near, (struct sockaddr *)&a, len) < 0)
			ok(false, "sixteen clients connect");
		c[i] = client_on(near);
		say(&c[i], "GET /n");
	}
	ok(until(NULL, server->full), "a server with as many connections as it may have is full");
	is_int(server->n_conns, 15, "a place is left for the unix socket");
	own = enter();
	say(&own, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&own, says(&own, "\"now\"")), "for the unix socket");
	leave(&own);
	ok(until(NULL, server->n_conns == 15), "which TCP does not get when it is free");
	say(&c[15], "ow HTTP/1.1\r\nHost: x\r\n\r\n");
	leave(&c[0]);
	ok(until(&c[15], says(&c[15], "\"now\"")),
		"a client that waits is served when another leaves");
	for (int i = 1; i < 17; i++)
		leave(&c[i]);
	ok(until(NULL, server->n_conns == 0 && !server->full), "all clients have left");
}

/* What a proxy in front might read in another way than we do: nothing behind it is taken for a request. */
static void test_smuggled(void)
{
	static const struct {
		const char *text;
		size_t len;
	} heads[] = {
#define HEAD(text) {text, sizeof(text) - 1}
		HEAD("Content-Length: 5\r\nContent-Length: 0\r\n"),
		HEAD("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
		HEAD("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
		HEAD("Transfer-Encoding: xchunked\r\n"),
		HEAD("Transfer-Encoding: gzip, chunked\r\n"),
		HEAD("Content-Length : 5\r\n"),
		HEAD("Transfer-Encoding : chunked\r\n"),
		HEAD("X-A b: c\r\n"),
		HEAD("Host: y\r\n"),
		HEAD("X-A: b\rX-B: c\r\n"),
		HEAD("X-A: b\nX-B: c\r\n"),
		HEAD("X-A: b\rContent-Length: 5\r\n"),
		HEAD("X-A: b\0c\r\n"),
		HEAD("X-A: b\0\0c\r\n"),
		HEAD("X-A: \033[2Jb\r\n"),
		HEAD("X-A: b\177\r\n"),
		HEAD("X-A: b\r\n folded\r\n"),
		HEAD("Content-Length: 18446744073709551615\r\n"),
		HEAD("Content-Length: 9223372036854775808\r\n"),
		HEAD("Content-Length: +5\r\n"),
#undef HEAD
	};

	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		struct client c = enter();

		strcpy(at.seen, "nobody");
		say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\n");
		say_n(&c, heads[i].text, heads[i].len);
		say(&c, "\r\n0\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n");
		ok(until(&c, c.closed), "%.*s: the connection ends",
			(int)strcspn(heads[i].text, "\r\n\033"), heads[i].text);
		ok(says(&c, "HTTP/1.1 400") && !says(&c, "\"now\""), "refused, once");
		is_str(at.seen, "nobody", "no handler sees any of it");
		leave(&c);
	}
	ok(until(NULL, http_open(server) == 0), "no request is open");
}

/* Few descriptors: most of them are not the connections'. */
static void test_few_descriptors(void)
{
	struct http_server *s = NULL;
	struct rlimit files, few;

	getrlimit(RLIMIT_NOFILE, &files);
	few = files;
	few.rlim_cur = 200;
	setrlimit(RLIMIT_NOFILE, &few);
	is_int(http_server_new(loop, handler, NULL, &s, NULL), 0, "a server with 200 descriptors");
	setrlimit(RLIMIT_NOFILE, &files);
	is_int(s->max_conns, 50, "takes fifty connections");
	http_server_free(s);
}

/* Bodies that are being read, together. */
static void test_bodies(void)
{
	struct client c[3];

	server->max_conns = 8;
	server->max_bodies = 4 * 1024;
	for (int i = 0; i < 3; i++) {
		c[i] = enter();
		say(&c[i], "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
		if (i < 2)
			ok(until(&c[i], server->bodies == (size_t)(i + 1) * 1024),
				"a body that fits into the bound on all bodies is read");
	}
	say(&c[2], "cde");
	ok(until(&c[2], says(&c[2], "503")), "a body beyond the bound on all bodies is refused");
	say(&c[0], "cde");
	ok(until(&c[0], says(&c[0], "abcde")), "others are not");
	is_int(server->bodies, 1024, "bodies that were collected are let go");
	leave(&c[1]);
	ok(until(NULL, server->bodies == 0), "bodies of clients that hang up are let go");
	forget(&c[2]);
	say(&c[2], "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok");
	ok(until(&c[2], says(&c[2], "\"ok\"")), "there is room for a body when others were let go");
	leave(&c[0]);
	leave(&c[2]);
}

static void test_quiesce(void)
{
	struct client idle = enter(), c = enter();

	at.waiting = NULL;
	say(&idle, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&idle, says(&idle, "\"now\""));
	say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, at.waiting);
	http_server_quiesce(server);
	ok(until(&idle, idle.closed), "an idle connection is closed");
	ok(sock_connect(path, NULL) < 0, "no more are taken");
	is_int(http_open(server), 1, "a request is open");
	http_reply_text(at.waiting, 200, "text/plain", "bye");
	ok(until(&c, c.closed),
		"the connection of a request is closed when a quiescing server has answered");
	has_str(c.got, "bye", "after its answer");
	is_int(http_open(server), 0, "no request is open when a quiescing server has answered");
	leave(&idle);
	leave(&c);
}

/* As many connections as there may be: more wait for one to leave. */
static void test_full(void)
{
	struct client c[4];
	struct rlimit files, few;

	server->max_conns = 3;
	for (int i = 0; i < 4; i++) {
		c[i] = enter();
		say(&c[i], "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	for (int i = 0; i < 3; i++)
		ok(until(&c[i], says(&c[i], "\"now\"")),
			"a client of a server with three places is answered");
	for (int i = 0; i < 10; i++)
		turn(&c[3]);
	is_int(c[3].len, 0, "a fourth client of a server with three places waits");
	leave(&c[1]);
	ok(until(&c[3], says(&c[3], "\"now\"")), "until another leaves");
	leave(&c[3]);

	/* no descriptor for it: it waits likewise */
	ok(until(NULL, server->n_conns == 2), "two are left");
	c[1] = enter();
	getrlimit(RLIMIT_NOFILE, &files);
	few = files;
	few.rlim_cur = (rlim_t)dup(0);
	close((int)few.rlim_cur);
	setrlimit(RLIMIT_NOFILE, &few);
	say(&c[1], "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c[1], server->breath), "a server without descriptors accepts no connection");
	setrlimit(RLIMIT_NOFILE, &files);
	ok(until(&c[1], says(&c[1], "\"now\"")), "until there are some");
	for (int i = 0; i < 3; i++)
		leave(&c[i]);
}

/* Freed with requests in every state. */
static void test_free(void)
{
	static const char *const open_requests[] = {"GET /later HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
		"PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
		FORM_HEAD "Content-Length: 900\r\n\r\n--BOUND\r\nContent-Disposition: form-data; "
			  "name=\"f\"; filename=\"x\"\r\n\r\nbytesbytesbytesbytesbytes",
		"GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n", "GET /now"};
	struct client c[6];

	at.take = at.ends = at.completes = at.to_write = 0;
	for (int i = 0; i < 6; i++) {
		c[i] = enter();
		say(&c[i], open_requests[i]);
	}
	ok(until(NULL, http_open(server) == 5), "five are open");
	http_server_free(server);
	server = NULL;
	ok(at.ends == 3 && at.completes == 0, "freed, those that asked are told");
	for (int i = 0; i < 6; i++) {
		read_some(&c[i]);
		ok(c[i].closed, "a server that is freed closes the connection");
		leave(&c[i]);
	}
}

int main(void)
{
	static void (*const tests[])(void) = {test_plain, test_later, test_orphan, test_stream,
		test_slow_reader, test_tcp, test_reserve, test_smuggled, test_bodies,
		test_few_descriptors, test_full, test_quiesce, test_free};

	return run_tests(tests, sizeof(tests) / sizeof(*tests));
}
