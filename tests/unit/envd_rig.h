/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_WIRE_RIG_H
#define PARBAKE_TESTS_WIRE_RIG_H

/*
 * The wire as it is in the daemon, in one process and thread: a loop, the HTTP server on a unix
 * socket, the real agent behind a socketpair as the one sandbox "sb", and clients. It waits for
 * events with a deadline.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "common/sock.h"
#include "pool/envd/envd.h"
#include "pool/envd/text.h"
#include "tests/unit/http_client.h"
#include "tests/unit/http_open.h"
#include "tests/unit/peer.h"

static struct {
	struct loop *loop;
	struct http_server *server;
	struct envd *wire;
	struct guest *guest;
	struct loop_watch *watch;
	pid_t agent;
	char dir[64], path[96];
	struct envd_target target; /* what find() tells; guest apart */
	bool gone, paused, broken;
} rig;

static void rig_watch(void)
{
	loop_set(rig.watch, guest_events(rig.guest));
}

static void rig_guest(void *user, short revents)
{
	(void)user;
	(void)revents;
	if (guest_dispatch(rig.guest, NULL) < 0) {
		loop_remove(rig.watch);
		rig.watch = NULL;
		return;
	}
	rig_watch();
}

static bool rig_find(void *user, const char *id, struct envd_target *ret)
{
	(void)user;
	if (rig.gone || strcmp(id, "sb") != 0)
		return false;
	*ret = rig.target;
	ret->state = rig.paused ? "paused" : "running";
	ret->guest = rig.paused || rig.broken ? NULL : rig.guest;
	return true;
}

static void rig_kick(void *user, const char *id)
{
	(void)user;
	(void)id;
	if (rig.watch)
		rig_watch();
}

static void rig_handle(void *user, struct http_request *rq)
{
	(void)user;
	if (!envd_handle(
		    rig.wire, "sb", rq, http_path(rq), http_header(rq, "E2b-Sandbox-Id") != NULL))
		http_reply(rq, 404, json_pack("{s:s}", "message", "no route"));
}

/* False where the agent has not been built. */
static bool rig_start(void)
{
	static const struct envd_ops ops = {.find = rig_find, .kick = rig_kick};
	struct err err = {""};
	int fd;

	rig.guest = peer_real(&rig.agent);
	if (!rig.guest)
		return false;
	strcpy(rig.dir, "/tmp/parbake-wire-XXXXXX");
	if (!mkdtemp(rig.dir))
		peer_die(rig.dir);
	snprintf(rig.path, sizeof(rig.path), "%s/sock", rig.dir);
	fd = sock_listen(rig.path, &err);
	if (fd < 0 || loop_new(&rig.loop, &err) < 0 ||
		http_server_new(rig.loop, rig_handle, NULL, &rig.server, &err) < 0 ||
		http_server_listen(rig.server, fd, false, &err) < 0)
		peer_die(err.text);
	rig.wire = envd_new(rig.loop, &ops, NULL);
	rig.watch = loop_add(
		rig.loop, guest_fd(rig.guest), guest_events(rig.guest), rig_guest, NULL, &err);
	serving.loop = rig.loop;
	serving.path = rig.path;
	return true;
}

/* The sandbox's channel begins anew, as after a pause or under another daemon; its agent is the same. */
__attribute__((unused)) static void rig_reconnect(void)
{
	struct err err = {""};
	int fd = fcntl(guest_fd(rig.guest), F_DUPFD_CLOEXEC, 3);

	loop_remove(rig.watch);
	guest_free(rig.guest);
	if (guest_new(fd, &rig.guest, &err) < 0 ||
		guest_sync(rig.guest, clock_deadline(PEER_DEADLINE_MS), -1, NULL, &err) < 0)
		peer_die(err.text);
	rig.watch = loop_add(
		rig.loop, guest_fd(rig.guest), guest_events(rig.guest), rig_guest, NULL, &err);
}

static void rig_stop(void)
{
	http_server_free(rig.server);
	loop_remove(rig.watch);
	rig.watch = NULL;
	envd_free(rig.wire);
	loop_free(rig.loop);
	peer_end(
		rig.guest, rig.agent); /* last: as in the daemon, where machines outlive the rest */
	unlink(rig.path);
	rmdir(rig.dir);
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Ask without waiting for the answer. @headers: lines, each with its end. */
static struct client ask(
	const char *method, const char *path, const char *headers, const void *body, size_t len)
{
	struct client c = enter();
	cleanup_free char *head = NULL;

	if (asprintf(&head,
		    "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
		    "%zu\r\n%s\r\n",
		    method, path, len, headers) < 0)
		abort();
	say(&c, head);
	say_n(&c, body, len);
	return c;
}

struct answer {
	int status;
	char *body; /* terminated; its chunks put together */
	size_t len;
	bool whole; /* its end came */
};

static void answer_free(struct answer *a)
{
	free(a->body);
	*a = (struct answer){0};
}

/* What @c got so far. */
static struct answer answer_of(const struct client *c)
{
	struct answer a = {.body = calloc(1, c->len + 1)};
	const char *p = c->got ? strstr(c->got, "\r\n\r\n") : NULL, *end = c->got + c->len;
	const char *length = c->got ? strcasestr(c->got, "Content-Length: ") : NULL;

	if (!a.body)
		abort();
	if (!p)
		return a;
	a.status = atoi(c->got + 9);
	p += 4;
	if (length && length < p) {
		a.len = (size_t)(end - p);
		memcpy(a.body, p, a.len);
		a.whole = a.len == strtoul(length + 16, NULL, 10);
		return a;
	}
	while (p < end) {
		char *after;
		size_t n = strtoul(p, &after, 16);

		if (after == p || end - after < 2)
			break;
		p = after + 2;
		if (!n) {
			a.whole = true;
			break;
		}
		if ((size_t)(end - p) < n)
			n = (size_t)(end - p);
		memcpy(a.body + a.len, p, n);
		a.len += n;
		p += n + 2;
	}
	return a;
}

/* Wait for the end of the answer. */
static struct answer finish(struct client *c)
{
	struct answer a;

	if (!until(c, c->closed))
		printf("# no end of the answer came\n");
	a = answer_of(c);
	leave(c);
	return a;
}

static struct answer call(
	const char *method, const char *path, const char *headers, const char *body)
{
	struct client c = ask(method, path, headers, body, strlen(body));

	return finish(&c);
}

#define JSON "Content-Type: application/json\r\n"
#define CONNECT "Content-Type: application/connect+json\r\n"

static struct answer post(const char *path, const char *body)
{
	return call("POST", path, JSON, body);
}

static struct client ask_json(const char *path, const char *body)
{
	return ask("POST", path, JSON, body, strlen(body));
}

static struct client ask_stream(const char *path, const char *headers, const char *body)
{
	size_t n = strlen(body);
	char *whole = malloc(ENVD_ENVELOPE_HEAD + n);
	struct client c;

	if (!whole)
		abort();
	envd_envelope_head((uint8_t *)whole, 0, (uint32_t)n);
	memcpy(whole + ENVD_ENVELOPE_HEAD, body, n);
	c = ask("POST", path, headers, whole, ENVD_ENVELOPE_HEAD + n);
	free(whole);
	return c;
}

/* The number of the command that @c's stream began with. */
__attribute__((unused)) static unsigned pid_of(struct client *c)
{
	const char *at;

	if (!until(c, says(c, "\"pid\":")))
		return 0;
	at = memmem(c->got, c->len, "\"pid\":", 6);
	return (unsigned)atoi(at + 6);
}

/* A request of process.Process that names the command @pid; its status. */
__attribute__((unused)) static int with_pid(const char *method, unsigned pid, const char *more)
{
	char path[100];
	cleanup_free char *body = NULL;
	struct answer a;
	int status;

	snprintf(path, sizeof(path), "/process.Process/%s", method);
	if (asprintf(&body, "{\"process\":{\"pid\":%u}%s}", pid, more) < 0)
		abort();
	a = post(path, body);
	status = a.status;
	if (status != 200)
		printf("# %s: %s\n", method, a.body);
	answer_free(&a);
	return status;
}

/* The messages of a stream of envelopes, one a line; the last one's flags in *@ret_flags. */
static char *messages(const struct answer *a, unsigned *ret_flags)
{
	struct buffer b = {0};
	const uint8_t *p = (const uint8_t *)a->body;

	*ret_flags = 99;
	for (size_t at = 0; at + ENVD_ENVELOPE_HEAD <= a->len;) {
		size_t n = (size_t)p[at + 1] << 24 | (size_t)p[at + 2] << 16 |
			(size_t)p[at + 3] << 8 | p[at + 4];

		*ret_flags = p[at];
		at += ENVD_ENVELOPE_HEAD;
		if (n > a->len - at)
			break;
		buffer_append(&b, p + at, n);
		buffer_append(&b, "\n", 1);
		at += n;
	}
	buffer_append(&b, "", 1);
	return (char *)b.bytes;
}

/* What events carry, put together: of {"event":{"data":{@key: …}}} or {"type": @key, "data": …}. */
static struct buffer carried(const char *lines, const char *key)
{
	struct buffer b = {0};

	for (const char *line = lines; *line;) {
		const char *end = strchrnul(line, '\n');
		json_t *v = json_loadb(line, (size_t)(end - line), 0, NULL), *d;
		const char *type = json_string_value(json_object_get(v, "type"));
		uint8_t *bytes;
		size_t len;

		d = json_object_get(json_object_get(json_object_get(v, "event"), "data"), key);
		if (type && !strcmp(type, key))
			d = json_object_get(v, "data");
		if (d &&
			envd_base64_decode(
				json_string_value(d), json_string_length(d), &bytes, &len)) {
			buffer_append(&b, bytes, len);
			free(bytes);
		}
		json_decref(v);
		line = *end ? end + 1 : end;
	}
	return b;
}

#endif
