/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_VMM_GUEST_GUEST_H
#define PARBAKE_VMM_GUEST_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/proto.h"
#include "common/cleanup.h"
#include "common/err.h"

/*
 * The host's end of the channel to one machine's agent (agent/proto.h). Not
 * blocking: the owner polls guest_fd() for guest_events() and calls
 * guest_dispatch(), from which the callbacks run; so an event loop carries many
 * guests, and guest_wait() is that loop for one. A guest and its streams belong
 * to one thread at a time. Whatever the agent sends is checked; a breach of the
 * protocol makes the guest dead (guest_dispatch() fails for ever after, open
 * streams are told).
 */
struct guest;
struct guest_stream;

/* The end of a request: what REPLY said. */
struct guest_reply {
	int error; /* 0, or a positive errno: the request failed; `text` says why */
	const char *text; /* borrowed until the callback returns */
	const uint8_t *body; /* the fields, for proto_next() */
	uint32_t body_len;
};

struct guest_stream_ops {
	/* @len bytes came on @channel; the return value is how many are consumed now. The rest
	 * stays queued (within the window) until guest_stream_resume(). NULL: discarded. */
	size_t (*data)(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len);
	/* the agent ended @channel. May be NULL. */
	void (*eof)(void *user, enum proto_channel channel);
	/* there is credit to send again after guest_stream_send() took less. May be NULL. */
	void (*writable)(void *user, enum proto_channel channel);
	/* the stream has ended; it is freed after this returns. Called exactly once. */
	void (*done)(void *user, const struct guest_reply *reply);
};

/* Take over the connected non-blocking-capable @fd (owned on success). */
int guest_new(int fd, struct guest **ret, struct err *err);
/* Close; open streams get done() with ECONNRESET first. Like guest_dispatch(), guest_wait() and
 * the calls that wait, not from within a callback. */
void guest_free(struct guest *g);
DEFINE_CLEANUP(struct guest *, guest_free)
#define cleanup_guest cleanup_with(guest_free_p_)

int guest_fd(const struct guest *g);
short guest_events(const struct guest *g); /* POLLIN | POLLOUT as wanted now */
/* Read and write what is possible without blocking; runs callbacks. -errno: the guest is dead. */
int guest_dispatch(struct guest *g, struct err *err);
/* Poll and dispatch until *@flag is true, the guest dies (-ECONNRESET …) or -ETIMEDOUT at
 * @deadline (clock.h). @also_fd (or -1), e.g. a pidfd: readable means -ECONNABORTED. */
int guest_wait(struct guest *g, const bool *flag, int64_t deadline, int also_fd, struct err *err);

/*
 * Watch another descriptor in guest_wait()'s loop (the bake's proxy does): @fn runs there with
 * what poll(2) found; with @events 0 it is not polled at all. Remove from within @fn is allowed,
 * and before guest_free() needed. An owner with an event loop of its own asks to be told of
 * them (guest_on_watch()), or has none.
 */
struct guest_watch;
struct guest_watch *guest_watch_add(
	struct guest *g, int fd, short events, void (*fn)(void *user, short revents), void *user);
void guest_watch_set(struct guest_watch *w, short events);
void guest_watch_remove(struct guest_watch *w);

/*
 * For an owner with an event loop of its own, before there are watches: it is told of each one that is made,
 * changed and removed, and calls guest_watch_ready() when poll(2) would find something. What add()
 * returns is given back to the others. After guest_watch_ready() ask for guest_events() anew.
 */
struct guest_watch_ops {
	void *(*add)(void *user, struct guest_watch *w, int fd, short events);
	void (*set)(void *handle, short events);
	void (*remove)(void *handle);
};
void guest_on_watch(struct guest *g, const struct guest_watch_ops *ops, void *user);
void guest_watch_ready(struct guest_watch *w, short revents); /* @w may be gone afterwards */

/*
 * Send SYNC now (queued; needs no answer yet): may be called before the machine
 * runs, so that the bytes are there when it does. Every open stream ends.
 */
void guest_sync_send(struct guest *g);
/* Has HELLO with our nonce come? Then *@ret (if not NULL) is filled. */
bool guest_synced(const struct guest *g, struct proto_hello *ret);
/* When it came, CLOCK_MONOTONIC ns; 0: it has not. */
int64_t guest_synced_at(const struct guest *g);
/* guest_sync_send() + wait for HELLO, sending SYNC anew every 500 ms (a booting guest's
 * port may not be open yet). -ETIMEDOUT, -ECONNABORTED, -EPROTO (version). */
int guest_sync(
	struct guest *g, int64_t deadline, int also_fd, struct proto_hello *ret, struct err *err);

/*
 * Open a stream with a request. @body holds fields (copied). Requests may be queued
 * before HELLO came: they are sent right after SYNC. Returns the stream, borrowed until
 * done(), or NULL where PROTO_STREAMS_MAX are open or @body is too long.
 */
struct guest_stream *guest_request(struct guest *g, enum proto_type type, const void *body,
	uint32_t body_len, const struct guest_stream_ops *ops, void *user);
/* Queue data for @channel: returns how many bytes were taken (≤ credit). */
size_t guest_stream_send(
	struct guest_stream *s, enum proto_channel channel, const void *bytes, size_t len);
void guest_stream_eof(struct guest_stream *s, enum proto_channel channel);
void guest_stream_cancel(struct guest_stream *s);
void guest_stream_signal(struct guest_stream *s, int sig);
void guest_stream_resize(struct guest_stream *s, unsigned rows, unsigned cols);
/* Offer queued data to data() again. May run eof() and done(): do not touch @s afterwards. */
void guest_stream_resume(struct guest_stream *s);
/* How many bytes guest_stream_send() would take now; where that is 0 (and the channel has not
 * ended), writable() will be called. */
size_t guest_stream_room(struct guest_stream *s, enum proto_channel channel);

/* Called for each PROXY_OPEN. Returns the ops for the new stream and sets *@ret_user, or NULL to
 * refuse. As the server of the new stream, the host ends it with guest_stream_reply(). */
/* (When the agent cancels such a stream, done() gets ECANCELED, and the REPLY is sent.) */
typedef const struct guest_stream_ops *guest_open_fn(
	void *user, struct guest_stream *s, void **ret_user);
void guest_on_open(struct guest *g, guest_open_fn *fn, void *user);
/* End an agent-opened stream (error: positive errno or 0). Frees it; done() is not called. */
void guest_stream_reply(struct guest_stream *s, int error, const char *text);

/* ---- calls that wait: one request from beginning to end --------------------------------- */

/*
 * A request without data: -errno of the agent's T_ERROR with its text, -ETIMEDOUT, or
 * what guest_wait() returns. On success the reply's fields are copied to *@ret_body (may be
 * NULL), caller frees.
 */
int guest_call(struct guest *g, enum proto_type type, const struct proto_out *body,
	int64_t deadline, int also_fd, uint8_t **ret_body, uint32_t *ret_len, struct err *err);

struct guest_exec_spec {
	const char *const *argv; /* NULL-terminated, or NULL with `shell` */
	const char *shell;
	const char *const *env; /* NULL-terminated or NULL */
	const char *cwd, *user; /* NULL: default */
	uint64_t timeout_ms; /* 0: none */
	uint64_t limit_out, limit_err; /* 0: LIMIT_OUTPUT_BYTES */
	uint64_t memory_max, pids_max; /* 0: none */
	unsigned rows, cols; /* both ≠ 0: a PTY */
	bool detach; /* return as soon as it runs; no input, output or timeout */
	int stdin_fd; /* read until EOF and carried; -1: none. May be a terminal. */
	/* output as it comes (≤ limits); NULL: collected in the result. -errno: it cannot be passed
	 * on; the command is killed and the call fails with that. */
	int (*output)(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len);
	void *user_data;
	/* with a PTY: when @resize_fd is readable, @resize takes it in and tells the new size. May be
	 * NULL. */
	void (*resize)(void *user, unsigned *ret_rows, unsigned *ret_cols);
	int resize_fd;
};

/* How a command or a piece of code ended; for EXEC and CODE. Free with guest_result_free(). */
struct guest_result {
	int exit_code; /* ≥ 0, or -1 where a signal ended it */
	int exit_signal; /* 0 or the signal */
	bool timed_out, oom, context_gone;
	bool cut_out, cut_err;
	uint64_t total_out, total_err, duration_ns;
	char *out, *err; /* collected, NUL-terminated; NULL where `output` was given */
	size_t out_len, err_len;
	/* CODE */
	uint32_t execution;
	char *ename, *evalue, *traceback; /* NULL: it did not raise. context_gone: how the
					   * interpreter ended, as `traceback` */
	char *results; /* JSON lines of channel 3, NUL-terminated, whole lines */
	bool cut_results; /* there were more than LIMIT_OUTPUT_BYTES of them */
};

void guest_result_free(struct guest_result *r);
#define cleanup_guest_result __attribute__((__cleanup__(guest_result_free)))

/* Run a command to its end. 0: it ran (see *@ret); -errno: it could not be run or the guest
 * is dead. @deadline bounds the whole call beyond the command's own timeout. */
int guest_exec(struct guest *g, const struct guest_exec_spec *spec, int64_t deadline, int also_fd,
	struct guest_result *ret, struct err *err);
/* Run code in the context @context (NULL: "default"; started if it is not). spec: timeout_ms,
 * limits and output are used. */
int guest_code(struct guest *g, const char *context, const char *code,
	const struct guest_exec_spec *spec, int64_t deadline, int also_fd, struct guest_result *ret,
	struct err *err);
/*
 * Copy a local descriptor's content (read until its end; a pipe is polled) to @path in the guest,
 * parents made / back: more than @max bytes is -EFBIG, with @max bytes written. @user may be NULL.
 */
int guest_put_file(struct guest *g, int fd, const char *path, uint32_t mode, const char *user,
	int64_t deadline, int also_fd, struct err *err);
int guest_get_file(struct guest *g, const char *path, int fd, uint64_t max, int64_t deadline,
	int also_fd, struct err *err);
/*
 * What a file of the guest's (@type PROTO_FILE_GET), one of /proc as well, or a directory (PROTO_FILE_LIST: a row of
 * struct proto_dirent) holds, NUL-terminated, in memory that the caller frees: at most @max bytes, more is -EFBIG.
 */
int guest_read(struct guest *g, enum proto_type type, const char *path, size_t max,
	int64_t deadline, int also_fd, char **ret, size_t *ret_len, struct err *err);

/* What the agent says of its machine (INFO). */
struct guest_info {
	uint8_t nonce[PROTO_NONCE_LEN]; /* the agent's own, made at boot, only in memory */
	uint64_t counter; /* SYNCs answered since boot */
	uint64_t uptime_ns;
	uint64_t mem_total, mem_free, mem_cached; /* bytes */
	uint32_t contexts, streams; /* alive; other streams open */
	char kernel[65]; /* uname -r, printable */
};

/* Ask the agent for it. -EPROTO where the answer lacks a field; otherwise as guest_call(). */
int guest_info(
	struct guest *g, int64_t deadline, int also_fd, struct guest_info *ret, struct err *err);

/*
 * The guest's wall clock. Ask what it says and correct it, if that was not done in the last minute: queued like any
 * request, nobody waits for it. Who uses a guest calls it before what it is for; an agent of before does not mind.
 */
void guest_clock_check(struct guest *g);
/* Its machine has stood still: the next guest_clock_check() asks, however short ago the last was. */
void guest_clock_doubt(struct guest *g);

/* The identity: what a clone must be told before anything else. */
struct guest_identity {
	bool named_only; /* the clone has its own identity already: it gets neither entropy nor a machine id */
	int64_t realtime_ns;
	uint8_t entropy[64];
	char machine_id[33];
	char hostname[64];
};

/* Make an identity: the time now, entropy from getrandom(2), a random machine id, @hostname
 * (NULL: "parbake-" and 8 digits of the machine id). */
int guest_identity_make(const char *hostname, struct guest_identity *ret, struct err *err);
/* Write the identity as the fields of an IDENTITY request. */
void guest_identity_body(const struct guest_identity *id, struct proto_out *o);

#endif
