/* SPDX-License-Identifier: Apache-2.0 */
/* The server's clients: those that hang up, wherever their request is, and how many connections each may have. */
#include <arpa/inet.h>

#include "tests/unit/http_peer.h"
#include "pool/http/limits.h"

static struct sockaddr_in where;

static void listen_tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(where);

	where = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(fd, (struct sockaddr *)&where, len) < 0 || listen(fd, 512) < 0 ||
		getsockname(fd, (struct sockaddr *)&where, &len) < 0 ||
		http_server_listen(server, fd, true, NULL) < 0)
		ok(false, "the server listens by TCP");
}

/* From 127.0.0.@host. */
static struct client enter_from(unsigned host)
{
	struct sockaddr_in from = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
		connect(fd, (struct sockaddr *)&where, sizeof(where)) < 0)
		ok(false, "connect from 127.0.0.%u", host);
	return client_on(fd);
}

#define POST(path) "POST " path " HTTP/1.1\r\nHost: x\r\n"

/* Whatever a request waits for: its client's end is the connection's. */
static void test_hangups(void)
{
	static const struct {
		const char *what, *text;
		size_t take; /* of an upload */
	} t[] = {
		{"half of a head", "POST /collect HTTP/1.1\r\nHos", 0},
		{"a head, and none of its body", POST("/collect") "Content-Length: 50\r\n\r\n", 0},
		{"a part of a body", POST("/collect") "Content-Length: 50\r\n\r\nabc", 0},
		{"a part of a body that nobody wants",
			POST("/text") "Content-Length: 50\r\n\r\nabc", 0},
		{"a part of a body that is refused",
			POST("/collect") "Content-Length: 500\r\n\r\nabc", 0},
		{"a part of a chunk", POST("/collect") "Transfer-Encoding: chunked\r\n\r\n9\r\nabc",
			0},
		{"a chunk, and not the last",
			POST("/collect") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 0},
		{"a part of an upload", POST("/upload") "Content-Length: 50\r\n\r\nabc", SIZE_MAX},
		{"a part of an upload that is not taken",
			POST("/upload") "Content-Length: 900000\r\n\r\nabcdef", 3},
		{"a part of a form",
			FORM_HEAD
			"Content-Length: 900\r\n\r\n--BOUND\r\nContent-Disposition: form-data; "
			"name=\"f\"; filename=\"x\"\r\n\r\nbytesbytesbytes",
			SIZE_MAX},
		{"a request that waits for its answer", "GET /later HTTP/1.1\r\nHost: x\r\n\r\n",
			0},
		{"a whole body that waits for its answer",
			POST("/later") "Content-Length: 3\r\n\r\nabc", 0},
		{"a silent stream", "GET /stream/told HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	};

	listen_tcp();
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		for (int tcp = 0; tcp < 2; tcp++) {
			struct client c = tcp ? enter_from(1) : enter();

			at.waiting = NULL;
			at.taken = 0;
			at.take = t[i].take;
			say(&c, t[i].text);
			for (int n = 0; n < 5; n++)
				turn(&c);
			leave(&c);
			ok(until(NULL, server->n_conns == 0),
				"%s: the connection ends with its client (%s)", t[i].what,
				tcp ? "TCP" : "unix");
			is_int(http_server_awaited(server), 0, "nobody waits for it");
			if (at.waiting)
				http_reply_text(at.waiting, 200, "text/plain", "nobody");
			ok(until(NULL, http_open(server) == 0),
				"nothing of a request is left whose client hung up");
		}
	}
	is_int((int64_t)server->bodies, 0, "no body is kept");
}

/* Who says that he sends no more, with all of his request said, gets his answer where that is there. */
static void test_half_closed(void)
{
	struct client c;

	listen_tcp();
	c = enter_from(1);
	say(&c, POST("/collect") "Content-Length: 3\r\n\r\nabc");
	shutdown(c.fd, SHUT_WR);
	ok(until(&c, says(&c, "\"abc\"")),
		"what was sent before the end of a client's stream is answered");
	leave(&c);
	ok(until(NULL, server->n_conns == 0),
		"a connection ends after the end of its client's stream");
}

/* Thousands that say a part and go: the next is answered at once, and none is left. */
static void test_flood(void)
{
	struct client c;

	listen_tcp();
	for (int i = 0; i < 1500; i++) {
		c = enter_from(1);
		say(&c, POST("/collect") "Content-Length: 50\r\n\r\nabc");
		leave(&c);
	}
	c = enter_from(1);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "after 1500 that hung up the next is answered");
	ok(until(NULL, server->n_conns == 1),
		"a client that is answered is the only one that is left");
	leave(&c);
}

/* One address takes all that it can: others are answered, and so is the next from there. */
static void test_address_share(void)
{
	struct client many[80], c;

	listen_tcp();
	server->max_conns = 64;
	for (int i = 0; i < 80; i++) {
		many[i] = enter_from(1);
		say(&many[i], i % 2 ? POST("/collect") "Content-Length: 50\r\n\r\nabc" : "GET /n");
	}
	for (unsigned host = 1; host <= 3; host++) {
		c = enter_from(host);
		say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
		ok(until(&c, says(&c, "\"now\"")), "a client of address %u is answered", host);
		leave(&c);
	}
	c = enter();
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "a user of this host, too");
	leave(&c);
	ok(server->n_conns <= 32, "the address has its share (%u)", server->n_conns);
	for (int i = 0; i < 80; i++)
		leave(&many[i]);
	ok(until(NULL, server->n_conns == 0), "all clients of an address have left");
}

/* Those that have not said who they are, of many addresses, leave room for those that have. */
static void test_unknown(void)
{
	struct client many[90], known, c;

	listen_tcp();
	server->max_conns = 64;
	known = enter_from(200);
	say(&known, "GET /key HTTP/1.1\r\nHost: x\r\nX-Test: mine\r\n\r\n");
	ok(until(&known, says(&known, "true")), "a client with a key");
	for (unsigned i = 0; i < 90; i++) {
		many[i] = enter_from(2 + i);
		say(&many[i], "GET /n");
	}
	ok(until(NULL, server->n_unknown <= 33),
		"half of all are the most that may be unknown (%u)", server->n_unknown);
	forget(&known);
	say(&known, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&known, says(&known, "\"now\"")),
		"a client who has shown a key keeps his connection");
	c = enter_from(201);
	say(&c, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
	ok(until(&c, says(&c, "\"now\"")), "other clients are answered beside those without a key");
	leave(&c);
	leave(&known);
	for (int i = 0; i < 90; i++)
		leave(&many[i]);
	ok(until(NULL, server->n_conns == 0 && server->n_unknown == 0),
		"all clients without a key have left");
}

/* One key takes all that it can, from many addresses: another's is admitted. */
static void test_key_share(void)
{
	static const char greedy[] = "GET /key HTTP/1.1\r\nHost: x\r\nX-Test: greedy\r\n\r\n";
	struct client many[60], c;
	int refused = 0;

	listen_tcp();
	server->max_conns = 64;
	for (int i = 0; i < 60; i++) {
		many[i] = enter_from(1 + (unsigned)i);
		say(&many[i], greedy);
		until(&many[i], many[i].closed || says(&many[i], "admitted"));
		/* it has no idle ones to give: they wait for an answer */
		if (says(&many[i], "true"))
			say(&many[i], "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
		else
			refused++;
	}
	ok(refused > 20, "a key has its share (%d were refused)", refused);
	c = enter_from(70);
	say(&c, "GET /key HTTP/1.1\r\nHost: x\r\nX-Test: modest\r\n\r\n");
	ok(until(&c, says(&c, "true")), "a client with another key is admitted");
	leave(&c);
	for (int i = 0; i < 60; i++)
		leave(&many[i]);
	ok(until(NULL, server->n_conns == 0), "all clients with keys have left");
	c = enter_from(1);
	say(&c, greedy);
	ok(until(&c, says(&c, "true")), "a key is admitted again when its clients have left");
	leave(&c);
}

/* One address takes all of what bodies may have that it can: another's is read. */
static void test_body_share(void)
{
	struct client many[8], c;

	listen_tcp();
	server->max_conns = 64;
	server->max_bodies = 8 * KIB;
	for (int i = 0; i < 8; i++) {
		many[i] = enter_from(1);
		say(&many[i], POST("/collect") "Content-Length: 50\r\n\r\nabc");
		for (int n = 0; n < 3; n++)
			turn(&many[i]);
	}
	ok(server->bodies <= 4 * KIB, "the bodies of one address may take its share (%zu)",
		server->bodies);
	c = enter_from(2);
	say(&c, POST("/collect") "Content-Length: 3\r\n\r\nabc");
	ok(until(&c, says(&c, "\"abc\"")), "the body of another address is read");
	leave(&c);
	for (int i = 0; i < 8; i++)
		leave(&many[i]);
	ok(until(NULL, server->n_conns == 0), "all clients with bodies have left");
}

/* What has not come whole has not begun, and keeps no daemon from ending. */
static void test_quiesce_partial(void)
{
	struct client c[4];

	listen_tcp();
	for (int i = 0; i < 4; i++) {
		c[i] = enter_from(1);
		say(&c[i],
			i == 0           ? "GET /n"
				: i == 1 ? POST("/collect") "Content-Length: 50\r\n\r\nabc"
				: i == 2 ? POST("/text") "Content-Length: 50\r\n\r\nabc"
					 : "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	ok(until(&c[3], at.waiting && server->n_conns == 4), "four connections");
	http_server_quiesce(server);
	is_int(http_server_awaited(server), 1, "the one that is whole is waited for");
	http_reply_text(at.waiting, 200, "text/plain", "bye");
	ok(until(&c[3], says(&c[3], "bye")),
		"a whole request is answered by a server that quiesces");
	ok(until(NULL, server->n_conns == 0), "all requests of a server that quiesces end");
	for (int i = 0; i < 4; i++)
		leave(&c[i]);
}

int main(void)
{
	static void (*const tests[])(void) = {test_hangups, test_half_closed, test_flood,
		test_address_share, test_unknown, test_key_share, test_body_share,
		test_quiesce_partial};

	return run_tests(tests, sizeof(tests) / sizeof(*tests));
}
