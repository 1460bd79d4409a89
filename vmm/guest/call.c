/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait: each carries one request from its beginning to its REPLY, in guest_wait()'s
 * loop.
 *
 * The state of a call lives on the stack of the function that waits. So when waiting fails (a
 * deadline, the machine's end) the stream is abandoned before the function returns: CANCEL goes
 * out, and nothing points to the state any more.
 */
#include "vmm/guest/guest_private.h"

#include <poll.h>

#include "common/clock.h"

#define CANCEL_WAIT_MS 1000 /* a cancelled request that has not ended by then is left alone */

int guest_reply_error(const char *what, int error, const char *text, struct err *err)
{
	if (text && *text)
		return err_set(err, error, "%s: %s", what, text);
	return err_sys(err, error, "%s", what);
}

int guest_check_text(const char *what, const char *text, size_t max, struct err *err)
{
	if (!text || strnlen(text, max + 1) <= max)
		return 0;
	return err_set(err, EINVAL, "%s is longer than %zu bytes: %.80s…", what, max, text);
}

int guest_wait_stream(struct guest *g, struct guest_stream *s, const bool *done, int64_t deadline,
	int also_fd, struct err *err)
{
	int rc = guest_wait(g, done, deadline, also_fd, err);

	if (rc < 0 && rc != -EDEADLK && !*done && !g->dead) {
		/* the agent kills the work: give it a moment, so that it is gone when we return */
		if (rc == -ETIMEDOUT) {
			guest_stream_cancel(s);
			guest_wait(g, done, clock_deadline(CANCEL_WAIT_MS), also_fd, NULL);
		}
		if (!*done && !g->dead) {
			guest_stream_abandon(s);
			guest_flush(g);
		}
	} else if (rc == -EDEADLK && !g->dead) {
		guest_stream_abandon(s);
	}
	return rc;
}

/* ---- reading a descriptor into a stream ------------------------------------------------- */

static void pump_want(struct guest_pump *p)
{
	if (p->watch)
		guest_watch_set(p->watch, guest_stream_room(p->s, PROTO_IN) ? POLLIN : 0);
}

static void pump_ready(void *user, short revents)
{
	struct guest_pump *p = user;
	size_t room = guest_stream_room(p->s, PROTO_IN);
	ssize_t n;

	if (!room) {
		pump_want(p);
		return;
	}
	if (revents & POLLNVAL) {
		n = -1;
		errno = EBADF;
	} else {
		n = read(p->fd, p->buf, room < PROTO_DATA_MAX ? room : PROTO_DATA_MAX);
	}
	if (n > 0) {
		guest_stream_send(p->s, PROTO_IN, p->buf, (size_t)n);
		p->total += (uint64_t)n;
		pump_want(p);
		return;
	}
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0 || p->total < p->due) {
		p->error = n < 0 ? errno : ENODATA;
		guest_stream_cancel(p->s);
	} else {
		guest_stream_eof(p->s, PROTO_IN);
	}
	guest_pump_stop(p);
}

void guest_pump_start(struct guest_pump *p, struct guest *g, struct guest_stream *s, int fd)
{
	*p = (struct guest_pump){.s = s, .fd = fd, .buf = malloc(PROTO_DATA_MAX)};
	if (!p->buf)
		abort();
	p->watch = guest_watch_add(g, fd, POLLIN, pump_ready, p);
}

void guest_pump_writable(struct guest_pump *p)
{
	pump_want(p);
}

void guest_pump_stop(struct guest_pump *p)
{
	guest_watch_remove(p->watch);
	p->watch = NULL;
	free(p->buf);
	p->buf = NULL;
}

/* ---- a request without data ------------------------------------------------------------- */

struct plain_call {
	bool done;
	int error;
	char *text;
	uint8_t *body;
	uint32_t len;
};

static void plain_done(void *user, const struct guest_reply *reply)
{
	struct plain_call *c = user;

	c->done = true;
	c->error = reply->error;
	if (reply->error) {
		c->text = strdup(reply->text);
		return;
	}
	c->len = reply->body_len;
	c->body = malloc(c->len ? c->len : 1);
	if (!c->body)
		abort();
	if (c->len)
		memcpy(c->body, reply->body, c->len);
}

static const char *guest_type_name(enum proto_type type)
{
	switch (type) {
	case PROTO_EXEC:
		return "running a command in the guest";
	case PROTO_ATTACH:
		return "following a command in the guest";
	case PROTO_PROCESSES:
		return "listing the guest's commands";
	case PROTO_FILE_PUT:
		return "writing a file in the guest";
	case PROTO_FILE_GET:
		return "reading a file in the guest";
	case PROTO_FILE_STAT:
		return "looking at a file in the guest";
	case PROTO_FILE_LIST:
		return "listing a directory in the guest";
	case PROTO_FILE_MKDIR:
		return "making a directory in the guest";
	case PROTO_FILE_REMOVE:
		return "removing a file in the guest";
	case PROTO_FILE_RENAME:
		return "renaming a file in the guest";
	case PROTO_CODE:
		return "running code in the guest";
	case PROTO_CONTEXT:
		return "the guest's interpreter";
	case PROTO_IDENTITY:
		return "giving the guest its identity";
	case PROTO_CLOCK:
		return "setting the guest's clock";
	case PROTO_SYNCFS:
		return "syncing the guest's file systems";
	case PROTO_FREEZE:
		return "freezing the guest's file system";
	case PROTO_THAW:
		return "thawing the guest's file system";
	case PROTO_ZERO_FREE:
		return "zeroing the guest's free memory";
	case PROTO_DROP_CACHES:
		return "dropping the guest's caches";
	case PROTO_PROXY:
		return "the guest's proxy port";
	case PROTO_INFO:
		return "asking the guest about itself";
	case PROTO_SHUTDOWN:
		return "shutting the guest down";
	case PROTO_QUIESCE:
		return "quieting the guest";
	default:
		return "a request to the guest";
	}
}

int guest_request_error(struct guest *g, enum proto_type type, uint32_t len, struct err *err)
{
	if (len > PROTO_BODY_MAX)
		return err_set(err, E2BIG, "%s: the request is longer than %u bytes",
			guest_type_name(type), PROTO_BODY_MAX);
	if (g->dead)
		return err_set(err, g->dead, "%s: %s", guest_type_name(type), g->dead_text);
	return err_set(err, EBUSY, "%s: %u requests are under way already", guest_type_name(type),
		PROTO_STREAMS_MAX);
}

int guest_call(struct guest *g, enum proto_type type, const struct proto_out *body,
	int64_t deadline, int also_fd, uint8_t **ret_body, uint32_t *ret_len, struct err *err)
{
	static const struct guest_stream_ops ops = {.done = plain_done};
	struct plain_call c = {0};
	struct guest_stream *s;
	int rc;

	if (body && body->failed)
		return guest_request_error(g, type, UINT32_MAX, err);
	s = guest_request(g, type, body ? body->buf : NULL, body ? body->len : 0, &ops, &c);
	if (!s)
		return guest_request_error(g, type, body ? body->len : 0, err);
	rc = guest_wait_stream(g, s, &c.done, deadline, also_fd, err);
	if (rc < 0)
		err_prefix(err, "%s", guest_type_name(type));
	else if (c.error)
		rc = guest_reply_error(guest_type_name(type), c.error, c.text, err);
	free(c.text);
	if (rc < 0 || !ret_body) {
		free(c.body);
		return rc;
	}
	*ret_body = c.body;
	if (ret_len)
		*ret_len = c.len;
	return 0;
}
