/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_PROXY_PEER_H
#define PARBAKE_TESTS_PROXY_PEER_H

/*
 * What the tests of the proxy's connections share: an HTTP server in a thread, which is the network, a guest
 * whose frames are made by hand, and a proxy between them.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "common/limits.h"
#include "egress/head.h"
#include "egress/proxy.h"
#include "vmm/guest/proxy.h"
#include "tests/unit/peer.h"

#pragma GCC diagnostic ignored "-Wunused-function" /* a test that uses a part of it is no fault */

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
	return guest_proxy_new(
		g, &(struct proxy_spec){.rules = rules, .n_rules = n, .note = note}, ret, &err);
}

#endif
