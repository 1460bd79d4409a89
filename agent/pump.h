/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_AGENT_PUMP_H
#define PARBAKE_AGENT_PUMP_H

#include "agent/agent.h"
#include "agent/loop.h"
#include "agent/wire.h"

/*
 * Bytes between a descriptor (pipe, socket, terminal) and a channel of a stream.
 * A source reads the descriptor when it is readable, the host gives credit and it
 * is its turn; a sink writes what the host sent and gives the credit back as it goes.
 */
struct source {
	struct sender sender; /* first: found from it */
	struct stream *stream; /* NULL: what comes is dropped and not counted */
	unsigned channel;
	int fd;
	struct watch *watch;
	uint64_t limit; /* bytes passed on; the rest is counted and dropped */
	uint64_t total; /* bytes that came */
	bool cut; /* more came than the limit */
	bool draining; /* the end is also where nothing is there to read */
	bool terminal; /* a PTY's master: EIO is its end, and draining waits for it */
	bool done;
	bool armed; /* its watch tells when there is something to read */
	uint64_t drained; /* bytes since draining began: a writer that never stops is cut off */
	void (*on_empty)(void *user); /* source_empty()'s */
	uint64_t emptied;
	void (*on_done)(void *user); /* the end came; it is closed and the host has its EOF */
	void *user;
};

/* Start with the non-blocking @fd (owned). A source must stay where it is in memory. */
void source_start(struct source *s, int fd, struct stream *stream, unsigned channel,
	void (*on_done)(void *user), void *user);
/* From now on what comes belongs to @stream, counted anew (NULL: to nobody). */
void source_attach(struct source *s, struct stream *stream, unsigned channel, uint64_t limit);
/* End as soon as there is nothing more to read now. */
void source_drain(struct source *s);
/* Call @on_empty(user) once when there is nothing more to read now; it goes on. Not called where
 * it ends before that: on_done() is. Only for a source that is not done. */
void source_empty(struct source *s, void (*on_empty)(void *user));
/* ops->credit() came for its channel. */
void source_credit(struct source *s);
/* Read and count what is there and drop it, then end: no on_done(). */
void source_finish(struct source *s);
/* Close at once, nothing more is sent. Harmless when already closed. */
void source_close(struct source *s);

/* A terminal's input ends by ^D; within a line it takes two, as the first only hands over what has been typed of
 * it. */
enum sink_end { SINK_CLOSE, SINK_SHUTDOWN, SINK_TERMINAL };

struct sink {
	struct stream *stream; /* NULL: nobody to give credit to any more */
	unsigned channel;
	int fd;
	struct watch *watch;
	uint8_t *buf; /* SINK_MAX bytes while there is something in it */
	uint32_t start, end;
	uint32_t
		orphans; /* of those, the first so many came on a former stream: nobody is owed credit */
	enum sink_end how; /* what the host's EOF does */
	bool held; /* what comes is kept, not written yet */
	bool inside; /* the last byte that came was not the end of a line */
	bool eof, done, broken;
	void (*on_done)(void *user); /* everything is written and ended, or it broke */
	void *user;
};

/* What waits: a window of the stream, and one of the stream before it. */
#define SINK_MAX (2 * PROTO_WINDOW)

/* Start with the non-blocking @fd (owned; a dup() where a source has the same one). */
void sink_start(struct sink *s, int fd, enum sink_end how, struct stream *stream, unsigned channel,
	void (*on_done)(void *user), void *user);
void sink_data(struct sink *s, const uint8_t *bytes, uint32_t len);
void sink_eof(struct sink *s);
/* From now on @stream (NULL: nobody) feeds it. What waits, PROTO_WINDOW bytes at most where there is a stream, is
 * still written. */
void sink_attach(struct sink *s, struct stream *stream);
/* Write what was held back, and go on. May end it. */
void sink_release(struct sink *s);
/* Drop what is left. Harmless when already closed. */
void sink_close(struct sink *s);

/* Forget what went through: the bytes of the last transfers. */
void pump_wipe(void);

#endif
