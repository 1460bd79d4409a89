/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server, through a socket: any bytes, sent in two pieces, then a hang-up. Whatever they
 * are, no request, connection or descriptor is left, and the server still answers.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "pool/http/http.h"
#include "tests/unit/http_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static struct http_server *server;
static struct sockaddr_un addr;
static socklen_t addr_len = sizeof(addr);
static unsigned takes;

struct asked {
	struct http_request *rq;
	struct loop_timer *again;
};

static int collecting; /* bodies neither handed over nor dropped */

static void dropped(void *user)
{
	(void)user;
	collecting--;
}

static void collected(void *user, struct http_request *rq, const char *body, size_t len)
{
	(void)user;
	collecting--;
	if (strnlen(body, len + 1) > len)
		abort();
	http_reply(rq, 200, json_integer((json_int_t)len));
}

static void again(void *user)
{
	struct asked *a = user;

	a->again = NULL;
	http_upload_resume(a->rq);
}

/* Every other time less than came. */
static size_t data_came(void *user, const char *bytes, size_t len)
{
	struct asked *a = user;

	(void)bytes;
	if (takes++ % 2 || !len)
		return len;
	a->again = loop_defer(loop, again, a);
	return len / 2;
}

static void data_end(void *user)
{
	struct asked *a = user;

	http_reply(a->rq, 200, NULL);
}

/* Every third time not yet. */
static bool part(void *user, const char *field, const char *filename)
{
	struct asked *a = user;

	if (!field || !filename)
		abort();
	if (takes++ % 3)
		return true;
	if (!a->again)
		a->again = loop_defer(loop, again, a);
	return false;
}

static void over(void *user, bool complete)
{
	struct asked *a = user;

	(void)complete;
	loop_timer_cancel(a->again);
	free(a);
}

static void writable(void *user)
{
	(void)user;
}

static void handler(void *user, struct http_request *rq)
{
	static const struct http_upload_ops ops = {.data = data_came, .end = data_end};
	const char *p = http_path(rq);
	struct asked *a;

	(void)user;
	if (strlen(p) > 0 && (p[0] != '/' && strcmp(p, "*")))
		abort();
	switch (p[0] ? p[1] : 0) {
	case 'c':
		collecting++;
		http_collect(rq, 1000, collected, dropped, NULL);
		return;
	case 's':
		http_stream_begin(rq, 200, "text/plain", writable, NULL);
		http_stream_write(rq, p, strlen(p));
		http_stream_end(rq);
		return;
	case 'u':
	case 'f':
		a = calloc(1, sizeof(*a));
		a->rq = rq;
		http_on_end(rq, over, a);
		if (p[1] == 'u')
			http_upload(rq, &ops, a);
		else
			http_upload_form(rq, &ops, part, a);
		return;
	default:
		http_reply_text(rq, 200, "text/plain", http_query(rq, "q") ? "q" : "");
	}
}

static void begin(void)
{
	struct err err = {0};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	addr.sun_family = AF_UNIX;
	/* a name that the kernel makes up */
	if (bind(fd, (struct sockaddr *)&addr, sizeof(sa_family_t)) < 0 || listen(fd, 16) < 0 ||
		getsockname(fd, (struct sockaddr *)&addr, &addr_len) < 0 || loop_new(&loop, &err) ||
		http_server_new(loop, handler, NULL, &server, &err) ||
		http_server_listen(server, fd, false, &err))
		abort();
}

static int enter(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)&addr, addr_len) < 0)
		abort();
	return fd;
}

/* Rounds until @fd has something to read, or nothing has happened for some; all of it is read. */
static ssize_t converse(int fd, unsigned rounds)
{
	char buf[4096];
	ssize_t got = 0;

	for (unsigned i = 0; i < rounds; i++) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		got += n > 0 ? n : 0;
		if (n == 0)
			break;
		loop_once(loop, 0, NULL);
	}
	return got;
}

static void send_all(int fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	for (int tries = 0; len && tries < 1000; tries++) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			return;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
		converse(fd, 2);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char plain[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	int64_t end;
	int fd;

	if (!server)
		begin();
	fd = enter();
	send_all(fd, data, size / 2);
	send_all(fd, data + size / 2, size - size / 2);
	converse(fd, 10);
	close(fd);
	end = clock_deadline(10000);
	while (http_open(server) && clock_now_ns() < end)
		loop_once(loop, clock_deadline(1), NULL);
	if (http_open(server) || collecting)
		abort();
	fd = enter();
	send_all(fd, plain, sizeof(plain) - 1);
	end = clock_deadline(10000);
	while (converse(fd, 1) == 0 && clock_now_ns() < end)
		loop_once(loop, clock_deadline(1), NULL);
	if (clock_now_ns() >= end)
		abort();
	close(fd);
	return 0;
}
