/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_CLIENT_STREAM_H
#define PARBAKE_CLI_CLIENT_STREAM_H

#include "cli/client.h"
#include "common/buffer.h"
#include "common/json.h"
#include "cli/limits.h"

/* Answers that come in parts: JSON, an object a line, or in the frames of the Connect protocol. */

struct client_parts {
	/* One part: 0, or a negative errno to give up (with @err). @flags: of a frame. */
	int (*part)(void *user, const json_t *obj, unsigned flags, struct err *err);
	void *user;
	bool framed;
	/* kept between calls */
	struct buffer buf;
	struct err err; /* why client_parts_feed() gave up */
};

#define CLIENT_FRAME_END 2u /* the frame behind the last message */

/* What came. Lines and frames are at most LIMIT_CLIENT_PART. 0 or -errno with p->err. */
int client_parts_feed(struct client_parts *p, const char *bytes, size_t len);
/* The end: what has no newline is a line too; a cut frame is -EPROTO. */
int client_parts_end(struct client_parts *p);
void client_parts_clear(struct client_parts *p);
/* A frame of @obj: caller frees *@ret. */
void client_frame(const json_t *obj, void **ret, size_t *ret_len);

/* ---- a command in a sandbox ---------------------------------------------------------------- */

struct client_exec {
	const char *const *argv; /* or shell */
	const char *shell;
	const char *const *env; /* "NAME=VALUE", NULL-terminated; NULL: none */
	const char *cwd, *user; /* NULL: as the sandbox has it */
	uint64_t timeout_ms; /* 0: as the sandbox has it */
	bool tty;
	int stdin_fd; /* -1: none */
	/* Output: standard output (1) or error (2). 0, or a negative errno to give up. */
	int (*output)(void *user, int fd, const void *bytes, size_t len);
	void *user_data;
};

struct client_exit {
	int code; /* -1: killed by signal */
	int signal;
	bool timed_out, oom, cut_out, cut_err;
	int64_t total_out, total_err; /* written by the command; -1: not told */
};

/*
 * What is to run, and where, into the request @obj. What is UTF-8 goes as text; where something is not, all of
 * its kind goes as bytes in base 64, so that the command gets what was typed. @connect: by the names of
 * process.Process, else by those of POST /exec.
 */
void client_exec_put(const struct client_exec *spec, bool connect, json_t *obj);
/* "Authorization: Basic …", by which a request names the user; NULL: none is asked for. Caller frees. */
char *client_exec_user(const struct client_exec *spec);
/* Run it to its end. -errno: it did not run, or how it ended is not known. */
int client_exec_run(struct client *c, const char *id, const struct client_exec *spec,
	struct client_exit *ret, struct err *err);
/* The positive errno of an error, {"code": "not_found", "reason": …}: ENOENT and EACCES are those of the
 * program alone. */
int client_errno(const json_t *error);
/* The same of an answer that is one. */
int client_exec_errno(const struct client_answer *a);
/* The same with standard input or a terminal (client_process.c). */
int client_process_run(struct client *c, const char *id, const struct client_exec *spec,
	struct client_exit *ret, struct err *err);

#endif
