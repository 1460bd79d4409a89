/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_WIRE_H
#define PARBAKE_AGENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent/proto.h"

/*
 * The agent's end of the connection: frames, synchronising, streams, credit and
 * whose turn it is to send (agent/proto.h has the rules). It knows nothing of what the
 * requests mean. Everything runs in the agent's one thread; functions called back may
 * call any function here except wire_turn().
 */
struct wire;
struct stream;

/* What a stream's owner does; a NULL means: nothing to do. */
struct stream_ops {
	/* @len bytes came; give their credit back with stream_consumed(), now or later.
	 * NULL: they are dropped. @bytes is borrowed until this returns. */
	void (*data)(struct stream *s, unsigned channel, const uint8_t *bytes, uint32_t len);
	void (*eof)(struct stream *s, unsigned channel);
	void (*credit)(struct stream *s, unsigned channel); /* there was none, now there is */
	void (*cancel)(struct stream *s); /* end the work, then stream_reply() */
	void (*signal)(struct stream *s, uint32_t sig);
	void (*resize)(struct stream *s, unsigned rows, unsigned cols);
	/* agent-opened: the host ended it. The stream is freed after this returns. */
	void (*reply)(struct stream *s, const uint8_t *body, uint32_t len);
	/* the connection is gone, and with it this stream: freed after this returns. */
	void (*abort)(struct stream *s);
};

struct wire_ops {
	/* The host opened @s with a request. Must set stream_set() or stream_reply(). */
	void (*request)(struct stream *s, unsigned type, const uint8_t *body, uint32_t len);
	/* A SYNC is being answered: fill what the wire does not know. */
	void (*hello)(struct proto_hello *h);
	/* Every stream has been aborted: forget the former connection. */
	void (*reset)(void);
};

/* A connection over @fd (borrowed, non-blocking). */
struct wire *wire_new(int fd, const struct wire_ops *ops);
void wire_free(struct wire *w);

/* The descriptor may be readable or writable again (edge-triggered). */
void wire_event(struct wire *w, uint32_t events);
/* One turn: read, let senders send, write; each bounded. True: there is more to do at once. */
bool wire_turn(struct wire *w);
/* Has the other end of a socket closed it? */
bool wire_closed(const struct wire *w);
unsigned wire_streams(const struct wire *w); /* open now */
/* Give memory of emptied buffers back. */
void wire_trim(struct wire *w);
/* The host broke a rule: FAULT with the text, every stream aborted, unsynchronised. */
__attribute__((format(printf, 2, 3))) void wire_breach(struct wire *w, const char *fmt, ...);

void stream_set(struct stream *s, const struct stream_ops *ops, void *user);
void *stream_user(const struct stream *s);
struct wire *stream_wire(const struct stream *s);

/* How many bytes of DATA may go out on @channel now; 0 until ops->credit(). */
uint32_t stream_room(struct stream *s, unsigned channel);
/* Where to put at most @len (≤ stream_room()) bytes of DATA; then stream_commit() what came.
 * Nothing else may be sent between the two. */
uint8_t *stream_reserve(struct stream *s, uint32_t len);
void stream_commit(struct stream *s, unsigned channel, uint32_t len);
void stream_eof(struct stream *s, unsigned channel);
/* Give credit for @len bytes received back to the host. */
void stream_consumed(struct stream *s, unsigned channel, uint32_t len);
/* The end, with a body of fields: @s is gone. */
void stream_reply(struct stream *s, const struct proto_out *body);
/* The same with T_ERROR alone (positive errno). */
void stream_reply_error(struct stream *s, int err, const char *text);
/* Open an even stream with a request. NULL: not synchronised, or too many. */
struct stream *stream_open(struct wire *w, unsigned type, const struct stream_ops *ops, void *user);
/* Ask the host to end an even stream. */
void stream_cancel(struct stream *s);

/*
 * A sender has bytes to send when its turn comes. While queued it is called once a
 * turn and sends at most one frame.
 */
enum sender_state { SENDER_MORE, SENDER_IDLE };

struct sender {
	enum sender_state (*fill)(struct sender *s);
	TAILQ_ENTRY(sender) link;
	struct wire *wire; /* while it is queued there, else NULL */
};

void sender_queue(struct wire *w, struct sender *s);
void sender_unqueue(struct sender *s);

#endif
