/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_GUEST_GUEST_PRIVATE_H
#define PARBAKE_VMM_GUEST_GUEST_PRIVATE_H

#include <sys/queue.h>

#include "common/buffer.h"
#include "vmm/guest/guest.h"

/* The guest's client from inside: what guest.c (the connection), stream.c and frame.c (streams),
 * loop.c, and call.c and its like (calls that wait) share. Nobody else includes this. */

struct guest_rx {
	struct buffer queue; /* bytes that came and are not consumed yet: ≤ PROTO_WINDOW */
	uint32_t credit; /* bytes that the agent may still send */
	uint32_t owed; /* bytes consumed, whose credit was not given back yet */
	bool eof, eof_told;
};

struct guest_tx {
	struct buffer queue; /* bytes taken and not framed yet; their credit is spent already */
	uint32_t credit;
	bool eof_wanted, eof_sent;
	bool blocked; /* somebody waits for writable() */
};

struct guest_stream {
	struct guest *g;
	const struct guest_stream_ops *ops; /* NULL: nobody listens (any more) */
	void *user;
	uint32_t number;
	enum proto_type type;
	struct guest_rx rx[PROTO_CHANNELS];
	struct guest_tx tx[PROTO_CHANNELS];

	struct buffer request; /* the whole frame, until it is in the output */
	uint64_t
		request_end; /* its end in the output, counted as guest.sent is; 0: not there yet */
	uint64_t signals; /* bit n - 1: signal n is to be sent */
	bool cancel_wanted, cancel_sent, resize_wanted;
	uint16_t rows, cols;

	bool replied; /* the agent's REPLY is here, and waits for the queues to be read */
	uint8_t *reply;
	uint32_t reply_len;

	bool finishing; /* agent's stream: our REPLY goes out behind what is queued */
	int finish_error;
	char *finish_text;

	unsigned busy; /* callbacks running: freed when the last one returns */
	bool gone; /* it was taken out of the table */
	bool in_data;

	bool listed; /* in guest.ready */
	TAILQ_ENTRY(guest_stream) ready;
};

struct guest_watch {
	struct guest *g;
	int fd;
	short events;
	void (*fn)(void *user, short revents); /* NULL: removed */
	void *user;
	void *handle; /* of the owner's loop; NULL: there is none */
};

struct guest {
	int fd;
	int dead; /* 0 or the errno it died of */
	bool dead_by_eof;
	char dead_text[512];
	bool dispatching, waiting;

	/* synchronising */
	bool synced;
	int64_t synced_at; /* CLOCK_MONOTONIC ns */
	int64_t clock_asked_at; /* the same; 0: never */
	bool hold; /* SYNC may have to be sent again: keep requests back until HELLO */
	bool sync_begun;
	uint8_t nonce[PROTO_NONCE_LEN];
	unsigned hellos_due; /* SYNCs with this nonce not answered yet */
	struct proto_hello hello;

	struct buffer rx, out;
	size_t out_left; /* of the frame at the head of `out`, where part of it has been sent */
	uint64_t sent; /* bytes given to the socket, ever */

	/* streams of our own: number = 2 * (slot + PROTO_STREAMS_MAX * generation) + 1 */
	struct guest_stream *ours[PROTO_STREAMS_MAX];
	uint32_t generation[PROTO_STREAMS_MAX];
	unsigned n_ours;
	/* the agent's, and the numbers of its streams closed last: late frames on these are no breach */
	struct guest_stream *theirs[PROTO_STREAMS_MAX];
	unsigned n_theirs;
	uint32_t closed[PROTO_STREAMS_MAX];
	unsigned closed_next;
	TAILQ_HEAD(, guest_stream) ready; /* those with something to send take turns */

	guest_open_fn *on_open;
	void *open_user;

	const struct guest_watch_ops *watch_ops;
	void *watch_user;
	struct guest_watch **watches;
	size_t n_watches, cap_watches;
	struct pollfd *polls;
	size_t cap_polls;
};

/* The guest has broken the protocol: it is dead from now on; streams are told. Harmless where it is already. */
void guest_breach(struct guest *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Send what can be sent now. */
void guest_flush(struct guest *g);

/* Append one frame to the output. */
void guest_frame(struct guest *g, enum proto_type type, uint16_t flags, uint32_t stream,
	const void *body, uint32_t len);
/* Move what streams have to send into the output, in turns, until it holds a good write's worth. */
void guest_fill(struct guest *g);
/* Handle a frame for a stream, whose header has been checked. */
void guest_stream_frame(struct guest *g, const struct proto_header *h, const uint8_t *body);
/* End every stream: call done() with @error and @text. */
void guest_streams_end(struct guest *g, int error, const char *text);
/* Make a new stream, in no table yet. */
struct guest_stream *guest_stream_new(struct guest *g, enum proto_type type);
/* Around callbacks: a stream that ends meanwhile is freed by the last release. */
void guest_stream_hold(struct guest_stream *s);
void guest_stream_release(struct guest_stream *s);
/* Put @s on the list of streams that have something to send. */
void guest_stream_list(struct guest_stream *s);
/* Take @s out of the tables, then call done(). The caller holds @s. */
void guest_stream_end(struct guest_stream *s, const struct guest_reply *reply);
/* Drop what is queued for sending on @s. */
void guest_stream_drop_tx(struct guest_stream *s);
struct guest_stream *guest_stream_find(struct guest *g, uint32_t number);
/*
 * May frames for the agent's stream @number still be on their way? The agent sees our REPLYs in
 * order and cannot have more than PROTO_STREAMS_MAX streams it knows of as open: so many
 * numbers are remembered.
 */
bool guest_lately_closed(const struct guest *g, uint32_t number);
#define GUEST_OUT_HIGH (128u << 10) /* a write's worth */
#define GUEST_CREDIT_STEP (PROTO_WINDOW / 4) /* credit goes back in pieces of this size */

/* Nobody listens to @s from now on: send CANCEL, and drop what still comes. */
void guest_stream_abandon(struct guest_stream *s);

/* ---- for calls that wait ---------------------------------------------------------------- */

/* A descriptor being read into a stream's channel 0, as fast as credit allows. */
struct guest_pump {
	struct guest_stream *s; /* NULL: the stream has ended */
	struct guest_watch *watch;
	int fd;
	uint8_t *buf;
	uint64_t total;
	uint64_t due; /* bytes that must come before the end; else it is an error: ENODATA */
	int error; /* positive errno: reading failed; the stream is cancelled */
};

void guest_pump_start(struct guest_pump *p, struct guest *g, struct guest_stream *s, int fd);
void guest_pump_writable(struct guest_pump *p);
/* Stop reading. Calling it twice does no harm. */
void guest_pump_stop(struct guest_pump *p);

/* -errno of a reply's error, with its text behind @what. */
int guest_reply_error(const char *what, int error, const char *text, struct err *err);

/*
 * Is @text (may be NULL) at most @max bytes long? The agent takes a field beyond its bound for a
 * breach, which would end the connection: so it is an error here, -EINVAL that names @what.
 */
int guest_check_text(const char *what, const char *text, size_t max, struct err *err);

/* Set @err to why guest_request() returned NULL for a body of @len bytes. */
int guest_request_error(struct guest *g, enum proto_type type, uint32_t len, struct err *err);

/*
 * Wait until *@done, with @s open and @deadline; where that fails, the stream is abandoned
 * (*@done stays false: the callbacks will not run any more).
 */
int guest_wait_stream(struct guest *g, struct guest_stream *s, const bool *done, int64_t deadline,
	int also_fd, struct err *err);

#endif
