/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_HTTP_PEER_H
#define PARBAKE_TESTS_HTTP_PEER_H

/*
 * A loop, an HTTP server and its clients in one process and thread: what the server's tests share.
 */

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
#include "common/limits.h"
#include "common/sock.h"
#include "common/str.h"
#include "tests/unit/http_client.h"
#include "tests/unit/http_open.h"
#include "tests/unit/tap.h"

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
	unsigned collects, settled, dropped; /* settled: by a body, or without one */
	char part[256];
	size_t to_write, written; /* of a stream; 0: on demand */
} at;

/* ---- the handler ---------------------------------------------------------------------------- */

static void collected(void *user, struct http_request *rq, const char *body, size_t len)
{
	json_t *o = json_pack("{s:s#, s:s}", "body", body, (int)len, "from", (const char *)user);

	at.settled++;
	http_reply(rq, 200, o);
}

static void dropped(void *user)
{
	at.settled += !strcmp(user, "handler");
	at.dropped++;
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

static bool part(void *user, const char *field, const char *filename)
{
	(void)user;
	at.parts++;
	snprintf(at.part + strlen(at.part), sizeof(at.part) - strlen(at.part), "%s%s:%s",
		*at.part ? " " : "", field, filename);
	return true;
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
	} else if (!strcmp(p, "/key")) {
		bool may = http_admit(rq, h);

		http_reply(rq, may ? 200 : 429, json_pack("{s:b}", "admitted", may));
	} else if (!strcmp(p, "/later")) {
		at.waiting = rq;
	} else if (!strcmp(p, "/wait")) {
		at.waiting = rq;
		http_wait(rq);
	} else if (!strcmp(p, "/collect")) {
		static char name[] = "handler";

		at.collects++;
		http_collect(rq, 100, collected, dropped, name);
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

/* ---- the server ------------------------------------------------------------------------------ */

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
	if (fd < 0 || loop_new(&loop, &err) ||
		http_server_new(loop, handler, NULL, &server, &err) ||
		http_server_listen(server, fd, false, &err)) {
		printf("Bail out! %s\n", err.text);
		exit(1);
	}
	serving.loop = loop;
	serving.path = path;
}

static void stop(void)
{
	http_server_free(server);
	loop_free(loop);
	unlink(path);
	free(path);
}

static void forget(struct client *c)
{
	c->len = 0;
	if (c->got)
		c->got[0] = '\0';
}

#define FORM_HEAD                                                                                  \
	"POST /form HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=BOUND\r\n"

static int n_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Each test has a server of its own; main()'s value. */
static int run_tests(void (*const *tests)(void), size_t n)
{
	int before;

	signal(SIGPIPE, SIG_IGN);
	alarm(120);
	if (!mkdtemp(dir))
		return 1;
	before = n_fds();
	for (size_t i = 0; i < n; i++) {
		start();
		tests[i]();
		stop();
	}
	is_int(n_fds(), before, "no descriptor is left open");
	free(at.body);
	rmdir(dir);
	return tap_done();
}

#endif
