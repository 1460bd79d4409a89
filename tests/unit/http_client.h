/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_TESTS_HTTP_CLIENT_H
#define PARBAKE_TESTS_HTTP_CLIENT_H

/*
 * A client of an HTTP server that runs in a loop of the same thread: whoever waits for something turns the loop, with a
 * deadline.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/sock.h"
#include "common/loop.h"

#pragma GCC diagnostic ignored "-Wunused-function" /* a test that uses a part of it is no fault */

#define PATIENCE_MS 30000

/* Where, and in what: set before the first enters. */
static struct {
	struct loop *loop;
	const char *path;
} serving;

struct client {
	int fd;
	char *got; /* terminated */
	size_t len, size;
	bool closed;
	size_t take; /* bytes it reads of each turn; 0: nothing */
};

/* On the connected @fd. */
static struct client client_on(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return (struct client){.fd = fd, .take = SIZE_MAX};
}

static struct client enter(void)
{
	return client_on(sock_connect(serving.path, NULL));
}

static void leave(struct client *c)
{
	close_fd(&c->fd);
	free(c->got);
	*c = (struct client){.fd = -1};
}

static void read_some(struct client *c)
{
	size_t left = c->take;

	while (!c->closed && left) {
		size_t want = left < 65536 ? left : 65536;
		ssize_t n;

		if (c->len + want + 1 > c->size) {
			c->size = (c->len + want + 1) * 2;
			c->got = realloc(c->got, c->size);
			if (!c->got)
				abort();
		}
		n = recv(c->fd, c->got + c->len, want, 0);
		if (n < 0 && errno == EAGAIN)
			break;
		c->closed = n <= 0;
		if (n > 0) {
			c->len += (size_t)n;
			left -= (size_t)n;
		}
		c->got[c->len] = '\0';
	}
}

/* One round of everybody. */
static void turn(struct client *c)
{
	loop_once(serving.loop, clock_deadline(2), NULL);
	if (c)
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

#endif
