/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's HTTP server: a loop, a server and its clients in one process and thread. */
#include "pool/http.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/sock.h"
#include "pool/http_impl.h"
#include "tests/unit/tap.h"

#define PATIENCE_MS 10000

static struct loop *loop;
static struct http_server *server;
static char dir[] = "/tmp/parbake-http-XXXXXX";
static char *path;

/* What the handler keeps of the request at hand. */
static struct {
	struct http_request *rq, *waiting;
	char seen[1024]; /* method, path, header, query */
	char *body;
	size_t body_len, take, taken; /* data() takes this much until it is raised */
	unsigned chunks, ended, ends, completes, rooms, parts;
	char part[256];
	size_t to_write, written; /* of a stream; 0: on demand */
} at;

/* ---- the handler ---------------------------------------------------------------------------- */

static void collected(void *user, struct http_request *rq, const char *body, size_t len)
{
	json_t *o = json_pack("{s:s#, s:s}", "body", body, (int)len, "from", (const char *)user);

	http_reply(rq, 200, o);
}

static size_t data(void *user, const char *bytes, size_t len)
{
	size_t n = len < at.take - at.taken ? len : at.take - at.taken;

	(void)user;
	at.chunks++;
	at.body = realloc(at.body, at.body_len + n + 1);
	memcpy(at.body + at.body_len, bytes, n);
	at.body_len += n;
	at.body[at.body_len] = '\0';
	at.taken += n;
	return n;
}

static void upload_end(void *user)
{
	(void)user;
	at.ended++;
	http_reply(at.rq, 200, json_pack("{s:i}", "bytes", (int)at.body_len));
}

static const struct http_upload_ops ops = {.data = data, .end = upload_end};

static void part(void *user, const char *field, const char *filename)
{
	(void)user;
	at.parts++;
	snprintf(at.part, sizeof(at.part), "%s:%s", field, filename);
}

static void over(void *user, bool complete)
{
	(void)user;
	at.ends++;
	at.completes += complete;
	at.rq = NULL;
}

static char pattern(size_t i)
{
	return (char)('a' + i % 23);
}

/* As much of the stream as is taken. */
static void write_more(void *user)
{
	char block[5000];

	(void)user;
	at.rooms++;
	while (at.written < at.to_write) {
		size_t n = at.to_write - at.written, took;

		if (n > sizeof(block))
			n = sizeof(block);
		for (size_t i = 0; i < n; i++)
			block[i] = pattern(at.written + i);
		took = http_stream_write(at.rq, block, n);
		at.written += took;
		if (took < n)
			return;
	}
	http_stream_end(at.rq);
}

static void handler(void *user, struct http_request *rq)
{
	const char *p = http_path(rq), *h = http_header(rq, "X-Test"), *q = http_query(rq, "q");

	(void)user;
	snprintf(at.seen, sizeof(at.seen), "%s %s %s %s %s %d", http_method(rq), p, h ? h : "-",
		q ? q : "-", http_from_tcp(rq) ? "tcp" : "unix", (int)http_peer_uid(rq));
	at.rq = rq;
	if (!strcmp(p, "/now")) {
		http_add_header(rq, "X-More", "yes");
		http_reply(rq, 200, json_pack("{s:s}", "now", "yes"));
	} else if (!strcmp(p, "/none")) {
		http_reply(rq, 204, NULL);
	} else if (!strcmp(p, "/text")) {
		http_reply_text(rq, 418, "text/plain", "short and stout\n");
	} else if (!strcmp(p, "/later")) {
		at.waiting = rq;
	} else if (!strcmp(p, "/collect")) {
		http_collect(rq, 100, collected, "handler");
	} else if (!strcmp(p, "/upload")) {
		http_on_end(rq, over, NULL);
		http_upload(rq, &ops, NULL);
	} else if (!strcmp(p, "/form")) {
		http_on_end(rq, over, NULL);
		http_upload_form(rq, &ops, part, NULL);
	} else if (!strncmp(p, "/stream", 7)) {
		if (!strcmp(p, "/stream/told"))
			http_on_end(rq, over, NULL);
		http_stream_begin(rq, 200, "application/octet-stream", write_more, NULL);
		if (at.to_write)
			write_more(NULL);
	} else {
		http_reply(rq, 404, json_pack("{s:i, s:s}", "code", 404, "message", "none"));
	}
}

/* ---- clients -------------------------------------------------------------------------------- */

struct client {
	int fd;
	char *got;
	size_t len, size;
	bool closed, deaf; /* deaf: reads nothing */
};

static void start(void)
{
	struct err err = {0};
	int fd;

	free(at.body);
	memset(&at, 0, sizeof(at));
	at.take = SIZE_MAX;
	path = str_printf("%s/sock", dir);
	unlink(path);
	fd = sock_listen(path, &err);
	if (fd < 0 || loop_new(&loop, &err) || http_server_new(loop, handler, NULL, &server, &err) ||
		http_server_listen(server, fd, false, &err)) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
}

static void stop(void)
{
	http_server_free(server);
	loop_free(loop);
	unlink(path);
	free(path);
}

static struct client enter(void)
{
	struct client c = {.fd = sock_connect(path, NULL)};

	fcntl(c.fd, F_SETFL, O_NONBLOCK);
	return c;
}

static void leave(struct client *c)
{
	close_fd(&c->fd);
	free(c->got);
	*c = (struct client){.fd = -1};
}

static void read_some(struct client *c)
{
	while (!c->closed && !c->deaf) {
		ssize_t n;

		if (c->len + 65536 > c->size)
			c->got = realloc(c->got, (c->size = c->size * 2 + 65537) + 1);
		n = recv(c->fd, c->got + c->len, 65536, 0);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0)
			c->closed = true;
		else
			c->len += (size_t)n;
		c->got[c->len] = '\0';
	}
}

/* One round of everybody. */
static void turn(struct client *c)
{
	struct pollfd p = {.fd = c ? c->fd : -1, .events = POLLIN};

	loop_once(loop, clock_deadline(2), NULL);
	if (c && poll(&p, 1, 0) > 0)
		read_some(c);
}

/* Until @cond, or too long. */
#define until(c, cond)                                                                             \
	({                                                                                         \
		int64_t end_ = clock_deadline(PATIENCE_MS);                                        \
		while (!(cond) && clock_now_ns() < end_)                                           \
			turn(c);                                                                   \
		(cond);                                                                            \
	})

static bool says(const struct client *c, const char *text)
{
	return c->got && memmem(c->got, c->len, text, strlen(text));
}

static void say_n(struct client *c, const char *bytes, size_t len)
{
	int64_t end = clock_deadline(PATIENCE_MS);

	while (len && clock_now_ns() < end) {
		ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			return;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
		turn(c);
	}
}

static void say(struct client *c, const char *text)
{
	say_n(c, text, strlen(text));
}

static void forget(struct client *c)
{
	c->len = 0;
	if (c->got)
		c->got[0] = '\0';
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_plain(void)
{
	struct client c = enter();
	char want[128];

	say(&c, "GET /now?q=a%20b%2Bc+d&r HTTP/1.1\r\nHost: x\r\nX-Test: seen\r\n\r\n");
	ok(until(&c, says(&c, "{\"now\":\"yes\"}")), "an answer");
	has_str(c.got, "HTTP/1.1 200", "its status");
	has_str(c.got, "Content-Type: application/json", "its type");
	has_str(c.got, "X-More: yes", "its header");
	snprintf(want, sizeof(want), "GET /now seen a b+c d unix %d", (int)geteuid());
	is_str(at.seen, want, "the handler sees the request");
	forget(&c);
	say(&c, "GET /text HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "short and stout")), "another on the same connection");
	has_str(c.got, "418", "with its status");
	forget(&c);
	say(&c, "HEAD /text HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, " 204 ")), "HEAD, and one behind it");
	ok(!says(&c, "stout") && says(&c, "Content-Length: 16"), "a HEAD has no body but its length");
	forget(&c);
	say(&c, "GET /a%2fb%c3%a4 HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "404")), "no such route");
	has_str(at.seen, "GET /a/b\xc3\xa4 ", "the path is decoded");
	is_int(http_server_open(server), 0, "no request is open");
	leave(&c);
}

static void test_later(void)
{
	struct client c = enter();
	struct http_request *first;

	/* three at once: one after the other, in their order */
	say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /later HTTP/1.1\r\nHost: x\r\n\r\n"
		"GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.waiting), "the first is asked");
	first = at.waiting;
	for (int i = 0; i < 5; i++)
		turn(&c);
	ok(at.waiting == first && http_server_open(server) == 1 && c.len == 0,
		"a pipelined one waits for it");
	at.waiting = NULL;
	http_reply_text(first, 200, "text/plain", "one");
	ok(until(&c, at.waiting), "and has its turn then");
	has_str(c.got, "one", "the first is answered");
	http_reply_text(at.waiting, 200, "text/plain", "two");
	ok(until(&c, says(&c, "\"now\"")), "then the third");
	ok(strstr(c.got, "two") > strstr(c.got, "one") && strstr(c.got, "\"now\"") > strstr(c.got, "two"),
		"in order");
	leave(&c);

	/* its client goes: nobody asked to be told, so it stays until it is answered */
	c = enter();
	at.waiting = NULL;
	say(&c, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.waiting), "one waits");
	leave(&c);
	for (int i = 0; i < 5; i++)
		turn(NULL);
	ok(http_server_open(server) == 1 && !strcmp(http_path(at.waiting), "/later"),
		"its request stays without its client");
	http_reply_text(at.waiting, 200, "text/plain", "nobody");
	ok(until(NULL, http_server_open(server) == 0), "until it is answered");
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
	is_int(http_server_open(server), 1, "stays when the client is gone");
	ok(!http_header(at.waiting, "Host"), "its headers are gone");
	http_stream_begin(at.waiting, 200, "text/plain", write_more, NULL);
	at.rq = at.waiting;
	at.to_write = 3 * LIMIT_HTTP_BUFFER;
	write_more(NULL);
	is_int(at.written, 3 * LIMIT_HTTP_BUFFER, "its stream takes all");
	is_int(http_server_open(server), 0, "and it ends with it");
	at.to_write = at.written = 0;
}

static void test_collect(void)
{
	struct client c = enter();

	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe");
	say(&c, "llo");
	ok(until(&c, says(&c, "\"body\":\"hello\"")), "a body is collected");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n");
	ok(until(&c, says(&c, "\"body\":\"abcdefg\"")), "so is one in chunks");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"body\":\"\"")), "so is none");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n");
	for (int i = 0; i < 101; i++)
		say(&c, "x");
	ok(until(&c, says(&c, "\"message\"")), "one that is too long is refused");
	has_str(c.got, " 413 ", "with 413");
	has_str(c.got, "100 bytes at most", "and says how long it may be");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n");
	say(&c, "0123456789012345678901234567890123456789012345678901234567890123\r\n40\r\n");
	say(&c, "0123456789012345678901234567890123456789012345678901234567890123\r\n0\r\n\r\n");
	ok(until(&c, says(&c, " 413 ")), "one in chunks, too");
	forget(&c);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "and the connection goes on");
	leave(&c);

	c = enter();
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
	ok(until(&c, says(&c, "100 Continue")), "a client that asks is told to go on");
	ok(!says(&c, "200"), "before its answer");
	say(&c, "12345");
	ok(until(&c, says(&c, "\"body\":\"12345\"")), "and answered");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 500\r\n\r\n");
	ok(until(&c, says(&c, " 413 ")), "one that would send too much is told so instead");
	ok(!says(&c, "100 Continue"), "and not to go on");
	leave(&c);

	/* an unwanted body without end */
	c = enter();
	say(&c, "POST /now HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 5000 && !c.closed; i++)
		say(&c, "200\r\n"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n");
	ok(until(&c, c.closed), "a body that nobody wants and that does not end ends the connection");
	leave(&c);
	ok(until(NULL, http_server_open(server) == 0), "and its request");
}

static void test_upload(void)
{
	size_t total = 3 * MIB, sent = 0;
	struct client c = enter();
	char *bytes = malloc(total), want[64];

	for (size_t i = 0; i < total; i++)
		bytes[i] = pattern(i);
	at.take = 100000;
	at.taken = at.body_len = at.ended = at.ends = at.completes = 0;
	snprintf(want, sizeof(want), "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
		total);
	say(&c, want);
	/* until the socket is full and nothing moves any more */
	for (int still = 0; still < 50;) {
		ssize_t n = send(c.fd, bytes + sent, total - sent, MSG_NOSIGNAL);

		sent += n > 0 ? (size_t)n : 0;
		still = n > 0 ? 0 : still + 1;
		turn(&c);
	}
	is_int(at.body_len, 100000, "no more is read than is taken");
	ok(sent < total / 2, "so the client waits");
	for (unsigned before = at.chunks, i = 0; i < 20; i++) {
		turn(&c);
		if (i == 19)
			is_int(at.chunks, before, "nobody is asked meanwhile");
	}
	at.take = SIZE_MAX;
	http_upload_resume(at.rq);
	say_n(&c, bytes + sent, total - sent);
	ok(until(&c, says(&c, "{\"bytes\":3145728}")), "all of it comes");
	ok(at.body_len == total && !memcmp(at.body, bytes, total), "every byte as sent");
	ok(at.ended == 1 && at.ends == 1 && at.completes == 1, "end() and on_end() once each");
	leave(&c);

	/* chunked, a little at a time */
	c = enter();
	at.take = at.taken = at.body_len = at.ended = at.ends = 0;
	say(&c, "PUT /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		"a\r\n0123456789\r\n6\r\nabcdef\r\n0\r\n\r\n");
	for (int i = 0; i < 2000 && !at.ended; i++) {
		if (at.rq && at.taken == at.take) {
			at.take++;
			http_upload_resume(at.rq);
		}
		turn(&c);
	}
	ok(until(&c, says(&c, "{\"bytes\":16}")), "in chunks, byte by byte");
	is_str(at.body, "0123456789abcdef", "in order");
	leave(&c);

	/* the client goes in the middle */
	c = enter();
	at.take = SIZE_MAX;
	at.taken = at.body_len = at.ended = at.ends = at.completes = 0;
	say(&c, "PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome");
	ok(until(&c, at.body_len == 4), "some of it comes");
	leave(&c);
	ok(until(NULL, at.ends == 1), "then on_end()");
	ok(at.ended == 0 && at.completes == 0, "and no end()");
	free(bytes);
}

#define FORM_HEAD "POST /form HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=BOUND\r\n"

static void form(struct client *c, const char *body)
{
	char head[256];

	at.parts = at.ended = at.ends = at.completes = 0;
	at.taken = at.body_len = 0;
	snprintf(head, sizeof(head), FORM_HEAD "Content-Length: %zu\r\n\r\n", strlen(body));
	say(c, head);
	say(c, body);
}

static void test_form(void)
{
	struct client c = enter();
	char *big;
	size_t n;

	form(&c, "--BOUND\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\nnot a file\r\n"
		 "--BOUND\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a b.txt\"\r\n"
		 "Content-Type: text/plain\r\n\r\nline\r\n--BOUN\r\nline\r\n"
		 "--BOUND\r\nContent-Disposition: form-data; name=\"file\"; filename=\"second\"\r\n\r\n"
		 "not this\r\n--BOUND--\r\n");
	ok(until(&c, says(&c, "{\"bytes\":18}")), "a form's file");
	is_str(at.body, "line\r\n--BOUN\r\nline", "without its framing");
	is_str(at.part, "file:/a b.txt", "its field and name");
	ok(at.parts == 1 && at.ended == 1, "the first file alone");
	forget(&c);
	form(&c, "--BOUND\r\nContent-Disposition: form-data; name=\"f\"; filename=\"empty\"\r\n\r\n\r\n"
		 "--BOUND\r\nContent-Disposition: form-data; name=\"g\"; filename=\"x\"\r\n\r\nno\r\n--BOUND--\r\n");
	ok(until(&c, says(&c, "{\"bytes\":0}")), "an empty file");
	is_str(at.part, "f:empty", "is a file");
	forget(&c);
	form(&c, "--BOUND\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nx\r\n--BOUND--\r\n");
	ok(until(&c, says(&c, "no part with a file name")), "a form without a file is refused");
	has_str(c.got, " 400 ", "with 400");
	ok(at.ended == 0 && until(&c, at.ends == 1), "and is not passed on");
	forget(&c);
	form(&c, "--BOUND\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\ncut");
	ok(until(&c, says(&c, "middle of a part")), "so is one that is cut");
	forget(&c);
	form(&c, "there is no boundary in this, whatever its length may be, not at all");
	ok(until(&c, says(&c, " 400 ")), "so is none");
	ok(at.ended == 0, "nothing of it is passed on");
	forget(&c);
	say(&c, "POST /form HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi");
	ok(until(&c, says(&c, "must be multipart/form-data")), "so is another type");
	leave(&c);

	/* more than is taken at once */
	n = 200000;
	big = calloc(1, n + 300);
	strcpy(big, "--BOUND\r\nContent-Disposition: form-data; name=\"f\"; filename=\"big\"\r\n\r\n");
	for (size_t i = 0, start = strlen(big); i < n; i++)
		big[start + i] = pattern(i);
	strcat(big, "\r\n--BOUND--\r\n");
	c = enter();
	at.take = 0;
	form(&c, big);
	ok(until(&c, at.parts == 1 && at.chunks), "a big one");
	for (int i = 0; i < 3000 && !at.ended; i++) {
		if (at.rq && at.taken == at.take) {
			at.take += 777;
			http_upload_resume(at.rq);
		}
		turn(&c);
	}
	ok(until(&c, says(&c, "{\"bytes\":200000}")), "comes as it is taken");
	n = 0;
	while (n < at.body_len && at.body[n] == pattern(n))
		n++;
	is_int(n, 200000, "byte for byte");
	at.take = SIZE_MAX;
	free(big);
	leave(&c);
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
	ok(until(&c, says(&c, "abc\r\n")), "and sent at once");
	is_int(http_stream_write(at.rq, "defg", 4), 4, "more");
	ok(until(&c, says(&c, "defg\r\n")), "and more");
	http_stream_end(at.rq);
	ok(until(&c, says(&c, "0\r\n\r\n")), "its end");
	is_int(unchunk(&c), 7, "all of it");
	forget(&c);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "and the connection goes on");
	forget(&c);

	/* aborted: no last chunk */
	say(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, says(&c, "\r\n\r\n"));
	http_stream_write(at.rq, "abc", 3);
	http_stream_abort(at.rq);
	ok(until(&c, c.closed), "one that is aborted closes the connection");
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
	c.deaf = true;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	for (size_t before = SIZE_MAX, still = 0; still < 50; before = at.written) {
		turn(&c);
		still = at.written == before ? still + 1 : 0;
	}
	ok(at.written < 2 * MIB, "a client that does not read stops the writer");
	is_int(http_stream_room(at.rq), 0, "its buffer is full");
	ok(at.rq->ring_size <= LIMIT_HTTP_BUFFER, "and no larger than it may be");
	c.deaf = false;
	at.ends = at.completes = 0;
	ok(until(&c, at.completes == 1), "when it reads, all comes");
	ok(until(&c, unchunk(&c) >= 0), "to the end");
	is_int(unchunk(&c), (int64_t)total, "every byte as written");
	ok(at.rooms > 3, "the writer is told of room");
	leave(&c);

	/* gone in the middle, while the writer waits */
	c = enter();
	at.written = at.ends = at.completes = 0;
	c.deaf = true;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, at.rq && http_stream_room(at.rq) == 0);
	leave(&c);
	ok(until(NULL, at.ends == 1), "one that goes in the middle is noticed");
	is_int(at.completes, 0, "as such");

	/* gone while there is nothing to say */
	c = enter();
	at.to_write = at.ends = 0;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, says(&c, "\r\n\r\n"));
	leave(&c);
	ok(until(NULL, at.ends == 1), "also while the stream is silent");

	/* gone, and the writer did not ask to be told: it goes on into nothing */
	c = enter();
	at.to_write = total;
	at.written = 0;
	c.deaf = true;
	say(&c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, at.rq && http_stream_room(at.rq) == 0);
	leave(&c);
	ok(until(NULL, at.written == total), "a writer that does not care writes on");
	ok(until(NULL, http_server_open(server) == 0), "to its end");
	at.to_write = 0;
}

static void refused(const char *what, const char *text, size_t len, const char *status)
{
	struct client c = enter();

	at.seen[0] = '\0';
	say_n(&c, text, len);
	ok(until(&c, c.closed || (status && says(&c, status))), "%s", what);
	ok(!status || says(&c, status), "… with %s", status ? status : "nothing");
	ok(!at.seen[0], "… and never seen by the handler");
	leave(&c);
}

static void test_hostile(void)
{
	struct client c;
	char *long_text = malloc(70000), *text;

#define REFUSED(what, text, status) refused(what, text, sizeof(text) - 1, status)
	REFUSED("garbage", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n\r\n\r\n", NULL);
	REFUSED("no HTTP", "GET /now\r\n\r\n\r\n", NULL);
	REFUSED("a NUL in the path", "GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", " 400 ");
	REFUSED("a NUL in the query", "GET /a?b=%00 HTTP/1.1\r\nHost: x\r\n\r\n", " 400 ");
	REFUSED("a broken %", "GET /a%4 HTTP/1.1\r\nHost: x\r\n\r\n", " 400 ");
	REFUSED("no path", "GET http://x/now HTTP/1.1\r\nHost: x\r\n\r\n", " 400 ");
	REFUSED("a length that is none", "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\n", " 400 ");
	REFUSED("a negative length", "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", " 400 ");
	REFUSED("too long a length",
		"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", " 413 ");
	memset(long_text, 'x', 69999);
	long_text[69999] = '\0';
	text = str_printf("GET /now HTTP/1.1\r\nHost: x\r\nX-Long: %.40000s\r\n\r\n", long_text);
	refused("headers that are too long", text, strlen(text), " 431 ");
	free(text);
	text = str_printf("GET /now HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", long_text);
	refused("headers that are much too long", text, strlen(text), " 431 ");
	free(text);
	text = str_printf("GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", long_text);
	refused("a path that is too long", text, strlen(text), " 414 ");
	free(text);
	c = enter();
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
	ok(until(&c, says(&c, " 400 ") || c.closed), "chunks that are none");
	leave(&c);
	c = enter();
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n");
	ok(until(&c, says(&c, " 413 ") || c.closed), "a chunk that is too long");
	leave(&c);
	ok(until(NULL, http_server_open(server) == 0), "none of them is left");
	c = enter();
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "others are answered all the same");
	leave(&c);
	free(long_text);
}

/* Too slow: cut by its deadline, whatever drips. */
static void test_slow(void)
{
	struct client c = enter(), waits = enter();
	int64_t end;

	http_server_patience(server, 200000000, 200000000);
	leave(&c);
	c = enter(); /* its deadline is of the new patience */
	at.waiting = NULL;
	say(&waits, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	say(&c, "GET /now HTTP/1.1\r\n");
	end = clock_deadline(PATIENCE_MS);
	while (!c.closed && clock_now_ns() < end) {
		(void)!send(c.fd, "X-A: b\r\n", 8, MSG_NOSIGNAL);
		turn(&c);
	}
	ok(c.closed, "a client that drips headers is cut");
	leave(&c);
	c = enter();
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc");
	ok(until(&c, c.closed), "so is one whose body does not come");
	leave(&c);
	c = enter();
	ok(until(&c, c.closed), "and one that says nothing");
	leave(&c);
	ok(at.waiting && !waits.closed, "one that waits for its answer is not");
	http_reply_text(at.waiting, 200, "text/plain", "at last");
	ok(until(&waits, says(&waits, "at last")), "and is answered");
	leave(&waits);
	/* one who reads nothing of a stream */
	c = enter();
	at.to_write = 8 * MIB;
	at.written = at.ends = at.completes = 0;
	c.deaf = true;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.ends == 1), "one that reads nothing of its stream is cut");
	is_int(at.completes, 0, "as such");
	leave(&c);
	at.to_write = 0;
}

static void test_tcp(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};

	ok(bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 5) == 0 &&
			getsockname(fd, (struct sockaddr *)&a, &len) == 0 &&
			http_server_listen(server, fd, true, NULL) == 0,
		"a second listener");
	ok(connect(c.fd, (struct sockaddr *)&a, len) == 0, "a client of it");
	fcntl(c.fd, F_SETFL, O_NONBLOCK);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "is answered");
	is_str(at.seen, "GET /now - - tcp -1", "and known to come by TCP");
	at.ends = at.to_write = 0;
	forget(&c);
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	until(&c, says(&c, "\r\n\r\n"));
	leave(&c);
	ok(until(NULL, at.ends == 1), "its hang-up ends a silent stream");
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
	is_int(http_server_open(server), 1, "a request is open");
	http_reply_text(at.waiting, 200, "text/plain", "bye");
	ok(until(&c, c.closed), "its connection is closed");
	has_str(c.got, "bye", "after its answer");
	is_int(http_server_open(server), 0, "none is open");
	leave(&idle);
	leave(&c);
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
	ok(until(NULL, http_server_open(server) == 5), "five are open");
	http_server_free(server);
	server = NULL;
	ok(at.ends == 3 && at.completes == 0, "freed, those that asked are told");
	for (int i = 0; i < 6; i++) {
		read_some(&c[i]);
		ok(c[i].closed, "its connection is closed");
		leave(&c[i]);
	}
}

static int n_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(void)
{
	static void (*const tests[])(void) = {test_plain, test_later, test_orphan, test_collect,
		test_upload, test_form, test_stream, test_slow_reader, test_hostile, test_slow,
		test_tcp, test_quiesce, test_free};
	int before;

	signal(SIGPIPE, SIG_IGN);
	alarm(120);
	if (!mkdtemp(dir))
		return 1;
	before = n_fds();
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		start();
		tests[i]();
		stop();
	}
	is_int(n_fds(), before, "no descriptor is left open");
	free(at.body);
	rmdir(dir);
	return tap_done();
}
