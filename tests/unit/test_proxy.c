/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bake's proxy, whole connections: an HTTP server in a thread is the network, and the guest
 * is frames by hand or, where it has been built, the real agent with curl behind it.
 */
#include "egress/connection_private.h"
#include "egress/limits.h"
#include "tests/unit/proxy_peer.h"

static int n_notes;
static char last_note[600];

static void on_note(void *user, const char *text)
{
	(void)user;
	n_notes++;
	snprintf(last_note, sizeof(last_note), "%s", text);
}

static unsigned open_now(const struct proxy *p)
{
	unsigned n = 0;

	for (size_t i = 0; i < LIMIT_PROXY_STREAMS; i++)
		n += p->conns[i] != NULL;
	return n;
}

static void test_direct(struct server *web)
{
	char rule[64], name[64], request[512], *a;
	const char *allow[] = {rule, name, "nowhere.invalid", "127.0.0.1:1"};
	struct proxy *p;
	struct guest *g;
	size_t len, big_at;
	int fd, wrong = 0;

	snprintf(rule, sizeof(rule), "127.0.0.1:%u", web->port);
	snprintf(name, sizeof(name), "localhost:%u", web->port);
	g = peer_guest(&fd);
	is_int(proxy_for(g, allow, 4, false, on_note, &p), 0, "a proxy");

	snprintf(request, sizeof(request),
		"GET http://%s/x HTTP/1.1\r\nProxy-Connection: y\r\n\r\n", rule);
	a = ask(g, fd, request);
	has_str(a, "body0", "GET is answered");
	has_str(web->head, "GET /x HTTP/1.1\r\nHost: 127.0.0.1:", "sent on in origin form");
	ok(!strstr(web->head, "Proxy-"), "a request is sent on without the fields of its hop");
	free(a);

	snprintf(request, sizeof(request),
		"POST http://%s/x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET http://evil/ "
		"HTTP/1.1\r\n\r\n",
		rule);
	a = ask(g, fd, request);
	has_str(a, "body5", "a body goes along, and what rides behind it does not");
	free(a);

	snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\n\r\nGET /y HTTP/1.1\r\n\r\n",
		rule);
	a = ask_bytes(g, fd, request, strlen(request), true, NULL);
	has_str(a, "HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK",
		"CONNECT is answered");
	has_str(web->head, "GET /y HTTP/1.1\r\n", "carries bytes as they are");
	free(a);

	snprintf(request, sizeof(request), "GET http://%s/big HTTP/1.1\r\n\r\n", rule);
	a = ask_bytes(g, fd, request, strlen(request), false, &len);
	big_at = 19;
	is_int((int64_t)len, BIG + 19, "more than a window comes through");
	for (size_t i = 0; i < BIG && big_at + i < len; i++)
		wrong += (uint8_t)a[big_at + i] != (uint8_t)(i * 7 + i / 1000);
	is_int(wrong, 0, "byte for byte");
	free(a);

	n_notes = 0;
	a = ask(g, fd, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 403 Forbidden\r\n", "a host that is not allowed: 403");
	has_str(a, "evil.example:443 is not in the recipe's [network] allow", "in a sentence");
	free(a);
	free(ask(g, fd, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n"));
	is_int(n_notes, 1, "noted once");
	has_str(last_note, "evil.example:443", "by name");
	snprintf(request, sizeof(request), "GET http://localhost:%u/ HTTP/1.1\r\n\r\n", web->port);
	a = ask(g, fd, request);
	has_str(a, "HTTP/1.1 403 Forbidden\r\n", "a name that leads to loopback: 403");
	has_str(a, "an address that is loopback", "says why");
	free(a);
	a = ask(g, fd, "GET http://nowhere.invalid/ HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 502 Bad Gateway\r\n", "a name that is none: 502");
	free(a);
	a = ask(g, fd, "GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n");
	has_str(a, "Connection refused", "nobody listens: said so");
	free(a);
	a = ask(g, fd, "what is this?\r\n\r\n");
	has_str(a, "HTTP/1.1 400 Bad Request\r\n", "garbage: 400");
	free(a);
	a = ask_bytes(g, fd, "GET http://", 11, true, NULL);
	has_str(a, "HTTP/1.1 400 Bad Request\r\n", "half a head: 400");
	free(a);
	is_str(a = ask_bytes(g, fd, "", 0, true, NULL), "",
		"a connection without a byte has no answer");
	free(a);
	a = calloc(1, 40000);
	memset(a, 'A', 39999);
	{
		char *b = ask(g, fd, a);

		has_str(b, "HTTP/1.1 431 ", "a head too long: 431");
		free(b);
	}
	free(a);
	is_int(open_now(p), 0, "no connection of the proxy is left open");
	proxy_free(p);
	guest_free(g);
	close(fd);
}

/* A name that leads to loopback: with private_ok alone; a rule beside it that reads like an option is a host. */
static void test_private(struct server *web)
{
	char name[64], request[128], *a;
	const char *allow[] = {name, "private"};
	struct proxy *p;
	struct guest *g;
	int fd;

	snprintf(name, sizeof(name), "localhost:%u", web->port);
	snprintf(request, sizeof(request), "GET http://LOCALHOST.:%u/ HTTP/1.1\r\n\r\n", web->port);
	g = peer_guest(&fd);
	proxy_for(g, allow, 1, true, NULL, &p);
	a = ask(g, fd, request);
	has_str(a, "body0", "a name allowed with its private address is reached");
	free(a);
	proxy_free(p);
	proxy_for(g, allow, 2, false, NULL, &p);
	a = ask(g, fd, request);
	has_str(a, "HTTP/1.1 403 ",
		"a host called \"private\" opens nothing of the host before it");
	has_str(a, "an address that is loopback",
		"the address of a host called \"private\" is refused");
	free(a);
	proxy_free(p);
	guest_free(g);
	close(fd);
}

static void test_upstream(struct server *up)
{
	const char *allow[] = {"a.example", "refuse.example"};
	char url[100], *a;
	struct proxy *p;
	struct guest *g;
	int fd;

	snprintf(url, sizeof(url), "http://u:p@127.0.0.1:%u", up->port);
	setenv("https_proxy", url, 1);
	setenv("http_proxy", url, 1);
	g = peer_guest(&fd);
	is_int(proxy_for(g, allow, 2, false, NULL, &p), 0, "a proxy behind the host's own");
	a = ask_bytes(g, fd, "CONNECT a.example:443 HTTP/1.1\r\n\r\n", 34, true, NULL);
	is_str(a, "HTTP/1.1 200 Connection established\r\n\r\nfirst!",
		"CONNECT through it, with what its server says first");
	has_str(up->head, "CONNECT a.example:443 HTTP/1.1\r\n", "asked as it was");
	has_str(up->head, "\r\nProxy-Authorization: Basic dTpw\r\n",
		"the upstream proxy is asked with our name");
	free(a);
	a = ask(g, fd, "CONNECT refuse.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 502 ", "refused by it: 502");
	has_str(a, "status 407", "a tunnel that the upstream refused has the upstream's status");
	free(a);
	a = ask(g, fd, "GET http://a.example/z HTTP/1.1\r\n\r\n");
	has_str(a, "body0", "http through it");
	has_str(up->head, "GET http://a.example/z HTTP/1.1\r\nHost: a.example\r\n",
		"in absolute form");
	free(a);
	a = ask(g, fd, "GET http://b.example/z HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 403 ", "the recipe still decides");
	free(a);
	proxy_free(p);
	guest_free(g);
	close(fd);
	no_environment();
}

/* As many connections as may be, then one more; and all of them end with the proxy. */
static void test_many(void)
{
	struct proto_header h = {0};
	struct proxy *p;
	struct guest *g;
	struct err err;
	uint8_t *body;
	int fd, replies = 0;

	g = peer_guest(&fd);
	proxy_for(g, NULL, 0, false, NULL, &p);
	for (uint32_t i = 1; i <= LIMIT_PROXY_STREAMS + 1; i++)
		peer_frame(fd, PROTO_PROXY_OPEN, 0, 2 * i, NULL, 0);
	guest_dispatch(g, &err);
	is_int(open_now(p), LIMIT_PROXY_STREAMS, "a proxy's connections are bounded");
	ok(peer_next(fd, &h, &body) && h.type == PROTO_REPLY &&
			h.stream == 2 * (LIMIT_PROXY_STREAMS + 1),
		"a connection more than may be is refused");
	proxy_free(p);
	guest_dispatch(g, &err);
	while (replies < LIMIT_PROXY_STREAMS && peer_next(fd, &h, &body))
		replies += h.type == PROTO_REPLY;
	is_int(replies, LIMIT_PROXY_STREAMS, "stopping the proxy ends them");
	guest_free(g);
	close(fd);
}

/* ---- the real agent --------------------------------------------------------------------- */

static void curl(
	struct guest *g, unsigned port, const char *options, const char *want, const char *what)
{
	char line[512];
	struct guest_exec_spec spec = {
		.shell = line, .timeout_ms = PEER_DEADLINE_MS, .stdin_fd = -1};
	cleanup_guest_result struct guest_result r = {0};
	struct err err = {""};

	snprintf(line, sizeof(line), "curl -sS -i -x http://127.0.0.1:%u %s 2>&1", port, options);
	if (guest_exec(g, &spec, clock_deadline(2 * PEER_DEADLINE_MS), -1, &r, &err) < 0)
		printf("# %s\n", err.text);
	has_str(r.out, want, "%s", what);
}

static void test_agent(struct server *web)
{
	const unsigned port = 20000 + (unsigned)getpid() % 10000;
	char rule[64], url[200];
	const char *allow[] = {rule};
	int64_t deadline;
	struct proxy *p;
	struct guest *g;
	struct err err = {""};
	pid_t pid;

	g = peer_real(&pid);
	if (!g) {
		tap_skip("the agent has not been built");
		return;
	}
	snprintf(rule, sizeof(rule), "127.0.0.1:%u", web->port);
	proxy_for(g, allow, 1, false, NULL, &p);
	is_int(guest_proxy_listen(g, port, clock_deadline(PEER_DEADLINE_MS), -1, &err), 0,
		"the agent listens (%s)", err.text);
	snprintf(url, sizeof(url), "http://%s/x", rule);
	curl(g, port, url, "body0", "curl: GET");
	snprintf(url, sizeof(url), "-p http://%s/x", rule);
	curl(g, port, url, "body0", "curl: CONNECT");
	snprintf(url, sizeof(url), "-d 12345678 http://%s/x", rule);
	curl(g, port, url, "body8", "curl: POST");
	snprintf(url, sizeof(url), "http://%s/big | wc -c", rule);
	curl(g, port, url, "3145747", "curl: 3 MiB and the head");
	curl(g, port, "http://evil.example/", "not in the recipe's", "curl: refused");
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/", web->port ^ 1);
	curl(g, port, url, "not in the recipe's", "curl: another port");
	snprintf(url, sizeof(url), "http://%s/big | head -c 1", rule);
	curl(g, port, url, "H", "curl: given up midway");
	deadline = clock_deadline(PEER_DEADLINE_MS);
	do {
		guest_call(g, PROTO_INFO, NULL, deadline, -1, NULL, NULL, &err);
	} while (open_now(p) && clock_left_ms(deadline) > 0);
	is_int(open_now(p), 0, "no connection of the agent's is left open");
	is_int(guest_proxy_listen(g, 0, clock_deadline(PEER_DEADLINE_MS), -1, &err), 0,
		"the guest's proxy stops");
	curl(g, port, "http://evil.example/", "connect", "curl: nobody there any more");
	proxy_free(p);
	peer_end(g, pid);
}

int main(void)
{
	struct server web, up;

	no_environment();
	server_start(&web, false);
	server_start(&up, true);
	test_direct(&web);
	test_private(&web);
	test_upstream(&up);
	test_many();
	test_agent(&web);
	server_stop(&web);
	server_stop(&up);
	return tap_done();
}
