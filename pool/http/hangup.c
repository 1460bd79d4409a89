/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that hang up.
 *
 * MHD does not look at a connection that we have suspended, and on a connection whose request body
 * is not whole it does not take the end of the stream for a hang-up. So each connection is watched
 * here for its client's end, which is noticed once. What the client sent before its end is still
 * read: a client may say that it sends no more (shutdown(2)) while what it sent is on its way. A
 * request that can never become whole is cut as soon as MHD has read all that there is. A request
 * that waits for its answer, or a stream, ends: nobody is there to read the answer.
 */
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "pool/http/http_private.h"

#define MHD_HOLDS (64 * KIB) /* at most, of what the client of a suspended connection has sent */

static void settle(struct http_conn *c)
{
	struct http_request *rq = c->rq;
	int pending = 0;

	if (c->cut || (rq && rq->gone))
		return;
	if (rq && (rq->whole || rq->waits)) {
		if (rq->suspended || (rq->answer == HTTP_STREAM && strcmp(rq->method, "HEAD"))) {
			rq->gone = true;
			http_resume(rq);
		}
		return;
	}
	if (ioctl(c->fd, FIONREAD, &pending) < 0)
		pending = 0;
	if (!pending && !(rq && rq->suspended)) {
		http_conn_cut(c);
	} else if (rq && rq->suspended && rq->length != UINT64_MAX && rq->received <= rq->length &&
		rq->length - rq->received > (uint64_t)pending + MHD_HOLDS) {
		rq->gone = true; /* whatever is taken of it, it is cut short */
		http_resume(rq);
	}
}

static void hung_up(void *user, short revents)
{
	struct http_conn *c = user;

	(void)revents;
	http_hangup_forget(c);
	c->hung = true;
	c->s->n_hung++;
	/* MHD reads what is there first */
	http_kick(c->s);
}

void http_hangup_watch(struct http_conn *c)
{
	c->watch = loop_add(c->s->loop, c->fd, POLLRDHUP, hung_up, c, NULL);
}

void http_hangup_forget(struct http_conn *c)
{
	loop_remove(c->watch);
	c->watch = NULL;
}

void http_hangup_settle(struct http_server *s)
{
	struct http_conn *c;

	if (!s->n_hung)
		return;
	LIST_FOREACH(c, &s->conns, link) {
		if (c->hung)
			settle(c);
	}
}
