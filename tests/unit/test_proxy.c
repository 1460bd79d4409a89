/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bake's proxy, whole connections: an HTTP server in a thread is the network, and the guest
 * is frames by hand or, where it has been built, the real agent with curl behind it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "egress/proxy.h"
#include "egress/head.h"
#include "common/limits.h"
#include "tests/unit/peer.h"

static void no_environment(void)
{
	static const char *const names[] = {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY",
		"HTTPS_PROXY", "NO_PROXY", "all_proxy", "ALL_PROXY"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

/* ---- a network -------------------------------------------------------------------------- */

#define BIG (3u << 20)

struct server {
	int fd;
	unsigned port;
	bool upstream; /* plays the host's own proxy */
	pthread_t thread;
	char head[20000]; /* the last request's */
	int bodies; /* bytes of its body */
};

/* Read a head and what body its Content-Length names. */
static bool server_request(struct server *s, int fd)
{
	size_t n = 0, want = 0;
	char *length;

	memset(s->head, 0, sizeof(s->head));
	while (!strstr(s->head, "\r\n\r\n")) {
		if (n == sizeof(s->head) - 1 || recv(fd, s->head + n, 1, 0) != 1)
			return false;
		n++;
	}
	length = strstr(s->head, "Content-Length: ");
	if (length)
		want = strtoul(length + 16, NULL, 10);
	for (s->bodies = 0; (size_t)s->bodies < want; s->bodies++) {
		char c;

		if (recv(fd, &c, 1, 0) != 1)
			return false;
	}
	return true;
}

static void server_answer(struct server *s, int fd)
{
	static uint8_t big[BIG];
	char text[200];

	if (s->upstream && !strncmp(s->head, "CONNECT refuse", 14)) {
		peer_write(fd, "HTTP/1.1 407 No\r\n\r\n", 19);
	} else if (s->upstream && !strncmp(s->head, "CONNECT", 7)) {
		peer_write(fd, "HTTP/1.1 200 Yes\r\nVia: x\r\n\r\nfirst!", 35);
	} else if (strstr(s->head, "/big ")) {
		for (size_t i = 0; i < BIG; i++)
			big[i] = (uint8_t)(i * 7 + i / 1000);
		peer_write(fd, "HTTP/1.1 200 OK\r\n\r\n", 19);
		peer_write(fd, big, BIG);
	} else {
		snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbody%d\n",
			s->bodies);
		peer_write(fd, text, strlen(text));
	}
	shutdown(fd, SHUT_WR);
	while (recv(fd, text, sizeof(text), 0) > 0)
		;
}

static void *server_thread(void *arg)
{
	struct server *s = arg;

	for (;;) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return NULL;
		if (server_request(s, fd))
			server_answer(s, fd);
		close(fd);
	}
}

static void server_start(struct server *s, bool upstream)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(in);

	*s = (struct server){
		.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .upstream = upstream};
	if (bind(s->fd, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(s->fd, 64) < 0 ||
		getsockname(s->fd, (struct sockaddr *)&in, &len) < 0)
		peer_die("the test's server");
	s->port = ntohs(in.sin_port);
	pthread_create(&s->thread, NULL, server_thread, s);
}

static void server_stop(struct server *s)
{
	shutdown(s->fd, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->fd);
}

/* ---- a guest by hand -------------------------------------------------------------------- */

struct client {
	int fd, event;
	const char *request;
	size_t request_len;
	uint32_t stream;
	bool eof; /* send EOF behind the request */
	uint8_t *answer;
	size_t answer_len;
	bool replied;
	pthread_t thread;
};

static void *client_thread(void *arg)
{
	struct client *c = arg;
	size_t sent = 0, credit = PROTO_WINDOW;
	struct proto_header h;
	uint8_t *p;

	peer_frame(c->fd, PROTO_PROXY_OPEN, 0, c->stream, NULL, 0);
	for (;;) {
		while (sent < c->request_len && credit) {
			size_t n = c->request_len - sent;

			n = n < 1000 ? n : 1000;
			n = n < credit ? n : credit;
			peer_frame(c->fd, PROTO_DATA, PROTO_OUT, c->stream, c->request + sent,
				(uint32_t)n);
			sent += n;
			credit -= n;
		}
		if (sent == c->request_len && c->eof) {
			peer_frame(c->fd, PROTO_EOF, PROTO_OUT, c->stream, NULL, 0);
			c->eof = false;
		}
		if (!peer_next(c->fd, &h, &p) || h.type == PROTO_REPLY)
			break;
		if (h.type == PROTO_CREDIT) {
			uint32_t given[2];

			memcpy(given, p, sizeof(given));
			credit += given[1];
		}
		if (h.type == PROTO_DATA) {
			uint32_t back[2] = {PROTO_IN, h.length};

			c->answer = realloc(c->answer, c->answer_len + h.length + 1);
			memcpy(c->answer + c->answer_len, p, h.length);
			c->answer_len += h.length;
			c->answer[c->answer_len] = '\0';
			peer_frame(c->fd, PROTO_CREDIT, 0, c->stream, back, sizeof(back));
		}
	}
	c->replied = h.type == PROTO_REPLY;
	eventfd_write(c->event, 1);
	return NULL;
}

/* One connection from its beginning to its REPLY; what came back, terminated. Caller frees. */
static char *ask_bytes(
	struct guest *g, int fd, const char *request, size_t len, bool eof, size_t *ret_len)
{
	static uint32_t stream;
	static const bool never;
	struct client c = {.fd = fd,
		.event = eventfd(0, EFD_CLOEXEC),
		.request = request,
		.request_len = len,
		.eof = eof,
		.stream = stream += 2};
	struct err err = {""};
	int rc;

	pthread_create(&c.thread, NULL, client_thread, &c);
	rc = guest_wait(g, &never, clock_deadline(PEER_DEADLINE_MS), c.event, &err);
	if (rc != -ECONNABORTED) {
		printf("# %s\n", err.text);
		peer_die("a connection did not end");
	}
	pthread_join(c.thread, NULL);
	close(c.event);
	if (!c.answer)
		c.answer = calloc(1, 1);
	if (ret_len)
		*ret_len = c.answer_len;
	return (char *)c.answer;
}

static char *ask(struct guest *g, int fd, const char *request)
{
	return ask_bytes(g, fd, request, strlen(request), false, NULL);
}

/* A proxy that allows @n texts, as they are, or all whatever they lead to. */
static int proxy_for(struct guest *g, const char *const *allow, size_t n, bool private_ok,
	void (*note)(void *user, const char *text), struct proxy **ret)
{
	struct proxy_rule rules[8];
	struct err err;

	for (size_t i = 0; i < n; i++) {
		if (proxy_rule_parse(allow[i], &rules[i], &err) < 0)
			peer_die(err.text);
		rules[i].private_ok = private_ok || rules[i].literal;
	}
	return proxy_new(g, &(struct proxy_spec){.rules = rules, .n_rules = n, .note = note}, ret, &err);
}

static int n_notes;
static char last_note[600];

static void on_note(void *user, const char *text)
{
	(void)user;
	n_notes++;
	snprintf(last_note, sizeof(last_note), "%s", text);
}

static void test_direct(struct server *web)
{
	char rule[64], name[64], request[512], *a;
	const char *allow[] = {rule, name, "nowhere.invalid", "127.0.0.1:1"};
	struct proxy_stats st;
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
	ok(!strstr(web->head, "Proxy-"), "without fields of this hop");
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
	has_str(a, "HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK", "CONNECT");
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
	is_str(a = ask_bytes(g, fd, "", 0, true, NULL), "", "nothing at all: nothing");
	free(a);
	a = calloc(1, 40000);
	memset(a, 'A', 39999);
	{
		char *b = ask(g, fd, a);

		has_str(b, "HTTP/1.1 431 ", "a head too long: 431");
		free(b);
	}
	free(a);
	proxy_get_stats(p, &st);
	is_int((int64_t)st.connections, 13, "connections are counted");
	is_int((int64_t)st.refused, 3, "and refusals");
	is_int((int64_t)st.failed, 5, "and failures");
	is_int(st.open, 0, "none is left open");
	ok(st.bytes_in > BIG && st.bytes_out > 100, "and bytes");
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
	has_str(a, "an address that is loopback", "its address is what is refused");
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
	has_str(up->head, "\r\nProxy-Authorization: Basic dTpw\r\n", "with our name");
	free(a);
	a = ask(g, fd, "CONNECT refuse.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 502 ", "refused by it: 502");
	has_str(a, "status 407", "with its status");
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

/* ---- names ------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned hanging;
	bool released;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* In place of the host's resolver: what is below slow.example hangs until it is released, inside.example has an
 * address that nobody may reach, both.example one such and a public one. */
int getaddrinfo(
	const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **ret)
{
	static const struct {
		const char *name, *addresses[2];
	} known[] = {{"localhost", {"127.0.0.1"}}, {"inside.example", {"10.0.0.1"}},
		{"both.example", {"169.254.169.254", "203.0.114.9"}}, {"a.example", {"203.0.114.7"}},
		{"refuse.example", {"203.0.114.8"}}, {"fast.example", {"10.0.0.2"}}};
	const char *addresses[2] = {host};
	struct addrinfo **at = ret;

	(void)hints;
	*ret = NULL;
	if (strstr(host, "slow.example")) {
		pthread_mutex_lock(&names.lock);
		names.hanging++;
		pthread_cond_broadcast(&names.changed);
		while (!names.released)
			pthread_cond_wait(&names.changed, &names.lock);
		names.hanging--;
		pthread_cond_broadcast(&names.changed);
		pthread_mutex_unlock(&names.lock);
		return EAI_NONAME;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(host, known[i].name))
			memcpy(addresses, known[i].addresses, sizeof(addresses));
	}
	for (int i = 0; i < 2 && addresses[i]; i++) {
		struct sockaddr_in *in = calloc(1, sizeof(*in));

		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)atoi(port));
		if (inet_pton(AF_INET, addresses[i], &in->sin_addr) != 1) {
			free(in);
			return EAI_NONAME;
		}
		*at = calloc(1, sizeof(**at));
		(*at)->ai_family = AF_INET;
		(*at)->ai_addr = (struct sockaddr *)in;
		(*at)->ai_addrlen = sizeof(*in);
		at = &(*at)->ai_next;
	}
	return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
	while (list) {
		struct addrinfo *next = list->ai_next;

		free(list->ai_addr);
		free(list);
		list = next;
	}
}

/* Until @n lookups hang. */
static bool await_hanging(unsigned n)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PEER_DEADLINE_MS / 1000;
	pthread_mutex_lock(&names.lock);
	while (names.hanging != n && r == 0)
		r = pthread_cond_timedwait(&names.changed, &names.lock, &until);
	pthread_mutex_unlock(&names.lock);
	return r == 0;
}

/* A sandbox of a key, that may reach all that these tests name. */
static struct proxy *sandbox_of(struct guest *g, const char *sandbox, const char *key)
{
	struct proxy_rule rules[4];
	struct proxy_spec spec = {.rules = rules,
		.n_rules = 4,
		.who = {.sandbox = sandbox, .key = key},
		.resolve_here = true};
	struct proxy *p = NULL;
	struct err err;

	proxy_rule_parse("*.slow.example", &rules[0], NULL);
	proxy_rule_parse("fast.example", &rules[1], NULL);
	proxy_rule_parse("inside.example", &rules[2], NULL);
	proxy_rule_parse("both.example", &rules[3], NULL);
	if (proxy_new(g, &spec, &p, &err) < 0)
		peer_die(err.text);
	return p;
}

/* @n connections of @g that ask for names which hang. */
static void ask_slow(struct guest *g, int fd, unsigned n)
{
	static const char head[] = "CONNECT a.slow.example:443 HTTP/1.1\r\n\r\n";
	struct err err;

	for (uint32_t i = 1; i <= n; i++) {
		peer_frame(fd, PROTO_PROXY_OPEN, 0, 0x10000 + 2 * i, NULL, 0);
		peer_frame(fd, PROTO_DATA, PROTO_OUT, 0x10000 + 2 * i, head, sizeof(head) - 1);
		guest_dispatch(g, &err);
	}
}

/* One sandbox, then one key, looks up as many names that hang as it can: others look up theirs. */
static void test_slow_names(void)
{
	enum { SANDBOXES = LIMIT_PROXY_LOOKUPS / LIMIT_PROXY_LOOKUPS_EACH + 4 };
	struct guest *g[SANDBOXES], *other;
	struct proxy *p[SANDBOXES], *q;
	int fd[SANDBOXES], other_fd;
	char id[SANDBOXES][16], *a;

	other = peer_guest(&other_fd);
	for (int i = 0; i < SANDBOXES; i++) {
		snprintf(id[i], sizeof(id[i]), "s%d", i);
		g[i] = peer_guest(&fd[i]);
		p[i] = sandbox_of(g[i], id[i], "greedy");
		ask_slow(g[i], fd[i], 20);
		if (i)
			continue;
		ok(await_hanging(LIMIT_PROXY_LOOKUPS_EACH), "a sandbox looks up its share of names that hang");
		q = sandbox_of(other, "other", "greedy");
		a = ask(other, other_fd, "CONNECT fast.example:443 HTTP/1.1\r\n\r\n");
		has_str(a, "has an address that is private", "another of its key looks up another");
		free(a);
		proxy_free(q);
	}
	ok(await_hanging(LIMIT_PROXY_LOOKUPS / 2), "a key looks up its share");
	q = sandbox_of(other, "other", "modest");
	a = ask(other, other_fd, "CONNECT fast.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "has an address that is private", "another key's sandbox looks up another");
	free(a);
	proxy_free(q);
	for (int i = 0; i < SANDBOXES; i++) {
		proxy_free(p[i]);
		guest_free(g[i]);
		close(fd[i]);
	}
	ok(await_hanging(LIMIT_PROXY_LOOKUPS / 2), "what nobody waits for any more is counted until it ends");
	names.released = true;
	pthread_cond_broadcast(&names.changed);
	ok(await_hanging(0), "then all end");
	names.released = false;
	q = sandbox_of(other, "other", "greedy");
	a = ask(other, other_fd, "CONNECT fast.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "has an address that is private", "and the greedy one may again");
	free(a);
	proxy_free(q);
	guest_free(other);
	close(other_fd);
}

/* With an upstream proxy the names of a sandbox are looked up here, and it is asked for the checked address. */
static void test_upstream_checked(struct server *up)
{
	char url[100], *a;
	struct proxy *p;
	struct guest *g;
	int fd;

	snprintf(url, sizeof(url), "http://127.0.0.1:%u", up->port);
	setenv("https_proxy", url, 1);
	setenv("http_proxy", url, 1);
	g = peer_guest(&fd);
	p = sandbox_of(g, "one", "a");
	memset(up->head, 0, sizeof(up->head));
	a = ask(g, fd, "CONNECT inside.example:443 HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 403 ", "a name that leads inside is refused before the upstream is asked");
	free(a);
	a = ask(g, fd, "GET http://inside.example/ HTTP/1.1\r\n\r\n");
	has_str(a, "HTTP/1.1 403 ", "a plain request for it, too");
	free(a);
	is_str(up->head, "", "the upstream has heard of neither");
	a = ask_bytes(g, fd, "CONNECT both.example:443 HTTP/1.1\r\n\r\n", 40, true, NULL);
	has_str(a, "HTTP/1.1 200 Connection established\r\n\r\nfirst!", "one with a public address is reached");
	has_str(up->head, "CONNECT 203.0.114.9:443 HTTP/1.1\r\n", "by that address");
	free(a);
	a = ask(g, fd, "GET http://both.example/z HTTP/1.1\r\n\r\n");
	has_str(a, "first!", "a plain request goes through a tunnel");
	has_str(up->head, "CONNECT 203.0.114.9:80 HTTP/1.1\r\n", "to that address");
	free(a);
	proxy_free(p);
	guest_free(g);
	close(fd);
	no_environment();
}

/* As many connections as may be, then one more; and all of them end with the proxy. */
static void test_many(void)
{
	struct proxy_stats st;
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
	proxy_get_stats(p, &st);
	is_int(st.open, LIMIT_PROXY_STREAMS, "connections are bounded");
	ok(peer_next(fd, &h, &body) && h.type == PROTO_REPLY &&
			h.stream == 2 * (LIMIT_PROXY_STREAMS + 1),
		"one more is refused");
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
	struct proxy_stats st;
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
	is_int(proxy_listen(p, port, clock_deadline(PEER_DEADLINE_MS), -1, &err), 0,
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
		proxy_get_stats(p, &st);
	} while (st.open && clock_left_ms(deadline) > 0);
	is_int(st.open, 0, "no connection is left");
	is_int(proxy_listen(p, 0, clock_deadline(PEER_DEADLINE_MS), -1, &err), 0, "it stops");
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
	test_upstream_checked(&up);
	test_slow_names();
	test_many();
	test_agent(&web);
	server_stop(&web);
	server_stop(&up);
	return tap_done();
}
