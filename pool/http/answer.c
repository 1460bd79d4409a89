/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers. An answer is stored with its request and given to MHD when MHD next asks for it. That is
 * at once: either the request's handler is running, called by MHD, or the request is suspended, and
 * is resumed here.
 *
 * A stream has a ring of bytes between its writer and MHD, which grows as it is needed, up to
 * LIMIT_HTTP_BUFFER. A writer whose bytes do not fit is told how many were taken, and is told again
 * when half of the ring is free. While the ring is empty the connection is suspended.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/clock.h"
#include "common/limits.h"
#include "pool/http/limits.h"
#include "common/str.h"
#include "pool/http/http_private.h"

#define RING_FIRST (4 * KIB)

static bool is_head(const struct http_request *rq)
{
	return !strcmp(rq->method, "HEAD");
}

void http_add_header(struct http_request *rq, const char *name, const char *value)
{
	if (rq->n_headers == LIMIT_HTTP_ANSWER_HEADERS || rq->answer != HTTP_NO_ANSWER)
		return;
	rq->headers[rq->n_headers].name = str_dup(name);
	rq->headers[rq->n_headers++].value = str_dup(value);
}

/* The answer is there. */
static void ready(struct http_request *rq)
{
	if (rq->conn)
		http_resume(rq);
	else if (rq->answer == HTTP_WHOLE)
		http_request_free(rq); /* it was only waiting for this */
}

static void answer_whole(
	struct http_request *rq, unsigned status, const char *type, char *text, size_t len)
{
	if (rq->answer !=
		HTTP_NO_ANSWER) { /* one was given here (413), which its handler did not see */
		free(text);
		return;
	}
	rq->answer = HTTP_WHOLE;
	rq->status = status;
	rq->type = type;
	rq->whole_text = text;
	rq->whole_len = len;
	ready(rq);
}

void http_reply(struct http_request *rq, unsigned status, json_t *body)
{
	char *text = body ? json_text(body) : NULL;

	answer_whole(rq, status, text ? "application/json" : NULL, text, text ? strlen(text) : 0);
	json_decref(body);
}

void http_reply_text(struct http_request *rq, unsigned status, const char *type, const char *text)
{
	http_add_header(rq, "Content-Type", type);
	answer_whole(rq, status, NULL, str_dup(text), strlen(text));
}

void http_answer_error(struct http_request *rq, unsigned status, const char *why)
{
	http_reply(rq, status, json_pack("{s:i, s:s}", "code", (int)status, "message", why));
}

/* ---- streams -------------------------------------------------------------------------------- */

static void tell_room(void *user)
{
	struct http_request *rq = user;

	rq->tell = NULL;
	if (!rq->stream_over && http_stream_room(rq) && rq->writable)
		rq->writable(rq->stream_user);
}

void http_answer_tell(struct http_request *rq)
{
	rq->want_room = false;
	if (!rq->tell)
		rq->tell = loop_defer(rq->s->loop, tell_room, rq);
}

void http_stream_begin(struct http_request *rq, unsigned status, const char *type,
	void (*writable)(void *user), void *user)
{
	if (rq->answer != HTTP_NO_ANSWER)
		return;
	if (type)
		http_add_header(rq, "Content-Type", type);
	rq->answer = HTTP_STREAM;
	rq->status = status;
	rq->writable = writable;
	rq->stream_user = user;
	ready(rq);
}

/* Nobody will read it: a HEAD, a client that is gone, an answer that was given before. */
static bool unread(const struct http_request *rq)
{
	return rq->gone || is_head(rq) || rq->answer != HTTP_STREAM;
}

void http_stream_length(struct http_request *rq, uint64_t length)
{
	rq->has_length = true;
	rq->stream_length = length;
}

size_t http_stream_room(const struct http_request *rq)
{
	return unread(rq) ? LIMIT_HTTP_BUFFER : LIMIT_HTTP_BUFFER - rq->ring_len;
}

static void ring_grow(struct http_request *rq, size_t need)
{
	size_t size = rq->ring_size ? rq->ring_size : RING_FIRST, first;
	char *ring;

	while (size < need)
		size *= 2;
	if (size == rq->ring_size)
		return;
	ring = malloc(size);
	if (!ring)
		abort();
	first = rq->ring_size - rq->ring_at;
	if (first > rq->ring_len)
		first = rq->ring_len;
	if (rq->ring) {
		memcpy(ring, rq->ring + rq->ring_at, first);
		memcpy(ring + first, rq->ring, rq->ring_len - first);
	}
	free(rq->ring);
	rq->ring = ring;
	rq->ring_size = size;
	rq->ring_at = 0;
}

size_t http_stream_write(struct http_request *rq, const void *bytes, size_t len)
{
	size_t room = http_stream_room(rq), at, first, n = len < room ? len : room;

	if (unread(rq))
		return len;
	if (n < len)
		rq->want_room = true;
	if (!n || rq->stream_over)
		return n;
	ring_grow(rq, rq->ring_len + n);
	at = (rq->ring_at + rq->ring_len) % rq->ring_size;
	first = n < rq->ring_size - at ? n : rq->ring_size - at;
	memcpy(rq->ring + at, bytes, first);
	memcpy(rq->ring, (const char *)bytes + first, n - first);
	rq->ring_len += n;
	http_resume(rq);
	return n;
}

static size_t ring_take(struct http_request *rq, char *to, size_t max)
{
	size_t n = rq->ring_len < max ? rq->ring_len : max, first = rq->ring_size - rq->ring_at;

	if (!n)
		return 0;
	if (first > n)
		first = n;
	memcpy(to, rq->ring + rq->ring_at, first);
	memcpy(to + first, rq->ring, n - first);
	rq->ring_at = (rq->ring_at + n) % rq->ring_size;
	rq->ring_len -= n;
	return n;
}

static void stream_finish(struct http_request *rq, bool cut)
{
	if (rq->answer != HTTP_STREAM || rq->stream_over)
		return;
	rq->stream_over = true;
	rq->stream_cut = cut;
	if (rq->conn)
		http_resume(rq);
	else
		http_request_free(rq);
}

void http_stream_end(struct http_request *rq)
{
	stream_finish(rq, false);
}

void http_stream_abort(struct http_request *rq)
{
	stream_finish(rq, true);
}

/* MHD wants more of a stream. */
static ssize_t more(void *cls, uint64_t pos, char *to, size_t max)
{
	struct http_request *rq = cls;
	size_t n;

	(void)pos;
	if (rq->gone || rq->s->stopping)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	n = ring_take(rq, to, max);
	if (rq->want_room && rq->ring_len <= LIMIT_HTTP_BUFFER / 2)
		http_answer_tell(rq);
	rq->conn->deadline = clock_now_ns() + rq->s->stall_ns;
	if (n)
		return (ssize_t)n;
	if (rq->stream_over)
		return rq->stream_cut ? MHD_CONTENT_READER_END_WITH_ERROR
				      : MHD_CONTENT_READER_END_OF_STREAM;
	http_suspend(rq);
	return 0;
}

/* ---- to MHD --------------------------------------------------------------------------------- */

static struct MHD_Response *make_response(struct http_request *rq)
{
	size_t len = rq->whole_len;

	if (rq->answer == HTTP_WHOLE) {
		rq->conn->deadline = clock_now_ns() + rq->s->idle_ns +
			(int64_t)(len / LIMIT_HTTP_RATE) * 1000000000LL;
		return MHD_create_response_from_buffer(
			len, steal_ptr(&rq->whole_text), MHD_RESPMEM_MUST_FREE);
	}
	rq->conn->deadline = clock_now_ns() + rq->s->stall_ns;
	if (rq->answer == HTTP_UPGRADE)
		return http_upgrade_response(rq);
	return MHD_create_response_from_callback(
		rq->has_length ? rq->stream_length : MHD_SIZE_UNKNOWN, 16 * KIB, more, rq, NULL);
}

enum MHD_Result http_answer_queue(struct http_request *rq)
{
	struct MHD_Response *r = make_response(rq);
	enum MHD_Result done;

	if (!r)
		return MHD_NO;
	if (rq->type)
		MHD_add_response_header(r, "Content-Type", rq->type);
	for (size_t i = 0; i < rq->n_headers; i++)
		MHD_add_response_header(r, rq->headers[i].name, rq->headers[i].value);
	if (rq->s->quiesced)
		MHD_add_response_header(r, "Connection", "close");
	done = MHD_queue_response(rq->mhd, rq->status, r);
	rq->queued = done == MHD_YES;
	MHD_destroy_response(r);
	return done;
}

/*
 * MHD takes no answer between a body's first byte and its last. Where more of a body comes than is thrown
 * away (an upload whose disk is full), its client would see a closed connection and no reason. Nothing
 * has been sent for this request, so a short answer can be written here, by one call that does not wait.
 */
void http_answer_rest(struct http_request *rq)
{
	const char *reason = MHD_get_reason_phrase_for(rq->status);
	cleanup_free char *head = NULL;
	struct iovec parts[2];
	int n;

	if (rq->answer != HTTP_WHOLE || rq->queued || !rq->whole_text)
		return;
	n = asprintf(&head,
		"HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: "
		"%zu\r\n\r\n",
		rq->status, reason ? reason : "Error", rq->type ? rq->type : "application/json",
		rq->whole_len);
	if (n < 0)
		return;
	parts[0] = (struct iovec){head, (size_t)n};
	parts[1] = (struct iovec){rq->whole_text, rq->whole_len};
	sendmsg(rq->conn->fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = 2},
		MSG_DONTWAIT | MSG_NOSIGNAL);
}

void http_answer_free(struct http_request *rq)
{
	loop_timer_cancel(rq->tell);
	for (size_t i = 0; i < rq->n_headers; i++) {
		free(rq->headers[i].name);
		free(rq->headers[i].value);
	}
	free(rq->whole_text);
	free(rq->ring);
}
