/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's HTTP server: bodies, collected and passed on; clients that mean harm, or are slow. */
#include "pool/http/http.h"

#include "common/str.h"
#include "tests/unit/http_peer.h"

static void test_collect(void)
{
	struct client c = enter();

	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhe");
	say(&c, "llo");
	ok(until(&c, says(&c, "\"body\":\"hello\"")), "a body is collected");
	forget(&c);
	say(&c,
		"POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n");
	ok(until(&c, says(&c, "\"body\":\"abcdefg\"")), "a body in chunks is collected");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"body\":\"\"")), "a request without a body has an empty one");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n");
	for (int i = 0; i < 101; i++)
		say(&c, "x");
	ok(until(&c, says(&c, "\"message\"")), "a body that is too long is refused");
	has_str(c.got, " 413 ", "a body that is too long is answered with 413");
	has_str(c.got, "100 bytes at most", "the error says how long a body may be");
	forget(&c);
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n");
	say(&c, "0123456789012345678901234567890123456789012345678901234567890123\r\n40\r\n");
	say(&c, "0123456789012345678901234567890123456789012345678901234567890123\r\n0\r\n\r\n");
	ok(until(&c, says(&c, " 413 ")), "a body in chunks that is too long is refused");
	forget(&c);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "a connection goes on after a body that was refused");
	leave(&c);

	c = enter();
	say(&c,
		"POST /collect HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
		"5\r\n\r\n");
	ok(until(&c, says(&c, "100 Continue")), "a client that asks is told to go on");
	ok(!says(&c, "200"), "before its answer");
	say(&c, "12345");
	ok(until(&c, says(&c, "\"body\":\"12345\"")),
		"a request whose body was discarded is answered");
	forget(&c);
	say(&c,
		"POST /collect HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
		"500\r\n\r\n");
	ok(until(&c, says(&c, " 413 ")),
		"a client that asks first and would send too much is refused");
	ok(!says(&c, "100 Continue"), "a client that would send too much is not told to go on");
	leave(&c);
	c = enter();
	say(&c, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nhalf");
	ok(until(&c, http_open(server) == 1),
		"a request whose client goes away in the midst of its body is open");
	leave(&c);
	ok(until(NULL, http_open(server) == 0), "a request whose client went away is over");
	is_int(at.dropped, 4, "those that did not come whole are dropped");
	is_int(at.settled, at.collects, "each is handed over or dropped, once");

	/* an unwanted body without end */
	c = enter();
	say(&c, "POST /now HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 5000 && !c.closed; i++)
		say(&c,
			"200\r\n"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n");
	ok(until(&c, c.closed),
		"a body that nobody wants and that does not end ends the connection");
	leave(&c);
	ok(until(NULL, http_open(server) == 0),
		"a request whose unwanted body does not end is over");
}

/* The choice that a handler makes later. */
static void choose(bool collects)
{
	static char name[] = "handler";

	if (collects) {
		at.collects++;
		http_collect(at.waiting, 100, collected, dropped, name);
	} else {
		http_reply_text(at.waiting, 200, "text/plain", "woken");
	}
	http_go_on(steal_ptr(&at.waiting));
}

static void test_wait(void)
{
	struct client c = enter();

	at.waiting = NULL;
	say(&c, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
	ok(until(&c, at.waiting != NULL), "a request waits for its handler's choice");
	choose(true);
	ok(until(&c, says(&c, "\"body\":\"hello\"")), "a body is read once its handler has chosen");
	forget(&c);
	say(&c, "POST /wait HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	ok(until(&c, at.waiting != NULL), "a request in chunks of which none has come waits");
	choose(true);
	say(&c, "3\r\nabc\r\n0\r\n\r\n");
	ok(until(&c, says(&c, "\"body\":\"abc\"")), "a body in chunks is read as it comes");
	forget(&c);
	say(&c, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.waiting != NULL), "a request without a body waits for its handler");
	choose(false);
	ok(until(&c, says(&c, "woken")), "a request that waited for its handler is answered");
	forget(&c);
	say(&c,
		"POST /wait HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
		"500\r\n\r\n");
	ok(until(&c, at.waiting != NULL), "a client that asks before it sends too much waits");
	choose(true);
	ok(until(&c, says(&c, " 413 ")), "a client that would send too much is told 413");
	ok(!says(&c, "100 Continue"), "a client that would send too much is answered instead");
	leave(&c);

	c = enter();
	say(&c, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nhalf");
	ok(until(&c, at.waiting != NULL), "a request that waits and whose client goes is open");
	leave(&c);
	choose(false);
	ok(until(NULL, http_open(server) == 0),
		"a request whose client left is over when it has been answered");
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
	snprintf(want, sizeof(want),
		"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", total);
	say(&c, want);
	/* until the socket is full and nothing moves any more */
	for (int still = 0; still < 50;) {
		ssize_t n = send(c.fd, bytes + sent, total - sent, MSG_NOSIGNAL);

		sent += n > 0 ? (size_t)n : 0;
		still = n > 0 ? 0 : still + 1;
		turn(&c);
	}
	is_int(at.body_len, 100000, "no more is read than is taken");
	ok(sent < total / 2, "a client waits while its upload is not taken");
	for (unsigned before = at.chunks, i = 0; i < 20; i++) {
		turn(&c);
		if (i == 19)
			is_int(at.chunks, before, "nobody is asked meanwhile");
	}
	at.take = SIZE_MAX;
	http_upload_resume(at.rq);
	say_n(&c, bytes + sent, total - sent);
	ok(until(&c, says(&c, "{\"bytes\":3145728}")), "an upload comes whole once it is taken");
	ok(at.body_len == total && !memcmp(at.body, bytes, total), "every byte as sent");
	ok(at.ended == 1 && at.ends == 1 && at.completes == 1, "end() and on_end() once each");
	leave(&c);

	/* chunked, a little at a time */
	c = enter();
	at.take = at.taken = at.body_len = at.ended = at.ends = 0;
	say(&c,
		"PUT /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
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
	ok(until(NULL, at.ends == 1), "on_end() is called where an upload is cut");
	ok(at.ended == 0 && at.completes == 0, "end() is not called where an upload is cut");
	free(bytes);
}

static void form(struct client *c, const char *body)
{
	char head[256];

	at.parts = at.ended = at.ends = at.completes = 0;
	at.part[0] = 0;
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

	form(&c,
		"--BOUND\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\nnot a file\r\n"
		"--BOUND\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/a "
		"b.txt\"\r\n"
		"Content-Type: text/plain\r\n\r\nline\r\n--BOUN\r\nline\r\n"
		"--BOUND\r\nContent-Disposition: form-data; name=\"file\"; "
		"filename=\"second\"\r\n\r\n"
		"not this\r\n--BOUND--\r\n");
	ok(until(&c, says(&c, "{\"bytes\":26}")), "a form's files");
	is_str(at.body, "line\r\n--BOUN\r\nlinenot this",
		"the files of a form come without their framing");
	is_str(at.part, "file:/a b.txt file:second",
		"the fields and names of a form come in their order");
	ok(at.parts == 2 && at.ended == 1,
		"the handler gets all files of a form, and nothing else");
	forget(&c);
	form(&c,
		"--BOUND\r\nContent-Disposition: form-data; name=\"f\"; "
		"filename=\"empty\"\r\n\r\n\r\n"
		"--BOUND\r\nContent-Disposition: form-data; name=\"g\"; "
		"filename=\"x\"\r\n\r\nno\r\n--BOUND--\r\n");
	ok(until(&c, says(&c, "{\"bytes\":2}")), "an empty file before another");
	is_str(at.part, "f:empty g:x", "an empty file of a form is a file");
	forget(&c);
	form(&c, "--BOUND\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nx\r\n--BOUND--\r\n");
	ok(until(&c, says(&c, "no part with a file name")), "a form without a file is refused");
	has_str(c.got, " 400 ", "a form without a file is answered with 400");
	ok(at.ended == 0 && until(&c, at.ends == 1), "a form without a file is not passed on");
	forget(&c);
	form(&c,
		"--BOUND\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\ncut");
	ok(until(&c, says(&c, "middle of a part")), "a form that is cut is refused");
	forget(&c);
	form(&c, "there is no boundary in this, whatever its length may be, not at all");
	ok(until(&c, says(&c, " 400 ")), "a form that is empty is refused");
	ok(at.ended == 0, "nothing of a form that was refused is passed on");
	forget(&c);
	say(&c,
		"POST /form HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: "
		"2\r\n\r\nhi");
	ok(until(&c, says(&c, "must be multipart/form-data")),
		"a body of another type than a form is refused");
	leave(&c);

	/* more than is taken at once */
	n = 200000;
	big = calloc(1, n + 300);
	strcpy(big,
		"--BOUND\r\nContent-Disposition: form-data; name=\"f\"; filename=\"big\"\r\n\r\n");
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
	REFUSED("a length that is none",
		"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\n", " 400 ");
	REFUSED("a negative length",
		"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", " 400 ");
	REFUSED("too long a length",
		"POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
		" 413 ");
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
	say(&c,
		"POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
		"chunked\r\n\r\nfffffffffffffffffff\r\n");
	ok(until(&c, says(&c, " 413 ") || c.closed), "a chunk that is too long");
	leave(&c);
	ok(until(NULL, http_open(server) == 0), "no request with a broken body is left");
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

	server->idle_ns = 200000000;
	server->stall_ns = 200000000;
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
	ok(until(&c, c.closed), "a client whose body does not come is cut");
	leave(&c);
	c = enter();
	ok(until(&c, c.closed), "a client that says nothing is cut");
	leave(&c);
	ok(at.waiting && !waits.closed, "a client that waits for its answer is not cut");
	http_reply_text(at.waiting, 200, "text/plain", "at last");
	ok(until(&waits, says(&waits, "at last")), "a client that waited is answered");
	leave(&waits);
	/* one who reads nothing of a stream */
	c = enter();
	at.to_write = 8 * MIB;
	at.written = at.ends = at.completes = 0;
	c.take = 0;
	say(&c, "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, at.ends == 1), "a client that reads nothing of its stream is cut");
	is_int(at.completes, 0, "the stream of a client that was cut is over");
	leave(&c);
	at.to_write = 0;
}

int main(void)
{
	static void (*const tests[])(void) = {
		test_collect, test_wait, test_upload, test_form, test_hostile, test_slow};

	return run_tests(tests, sizeof(tests) / sizeof(*tests));
}
