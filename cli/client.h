/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_CLIENT_H
#define PARBAKE_CLI_CLIENT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/json.h"

/*
 * The pool's API (docs/api.md), as its clients here see it: any number of requests at once, in one
 * thread. Where the daemon is: PARBAKE_API (unix:PATH, http://HOST:PORT, https://…), else the unix
 * socket of this user's places; PARBAKE_API_KEY goes with every request.
 */
struct client;
struct client_call;

int client_new(struct client **ret, struct err *err);
/* Requests that are still open are dropped, their done() is not called. */
void client_free(struct client *c);
DEFINE_CLEANUP(struct client *, client_free)
#define cleanup_client cleanup_with(client_free_p_)

/* The end of a request. All of it is borrowed until done() returns. */
struct client_answer {
	int error; /* 0; else a positive errno: no answer, one cut short, or a status from 400 on */
	unsigned status; /* 0: there was none */
	const char *body; /* NUL-terminated; "" where it went to data() */
	size_t len;
	const char *next; /* x-next-token; "" where it is the last page */
	const char *text; /* what went wrong, for a person; "" */
};

struct client_spec {
	const char *method;
	const char *path; /* with its query, encoded (client_escape()) */
	const json_t *json; /* a body; or … */
	const void *body; /* … bytes, copied; or … */
	size_t body_len;
	int upload_fd; /* … a file of upload_bytes, where > 0; borrowed until the end */
	uint64_t upload_bytes;
	const char *type; /* of body or upload; NULL: application/json */
	const char *const *headers; /* "Name: value", NULL-terminated; or NULL */
	int64_t timeout_ms; /* until the end of it all; 0: CLIENT_TIMEOUT_MS; -1: none */
	/* The body of a 2xx as it comes, in place of client_answer.body: 0, or a negative errno to
	 * give up. Others are collected up to LIMIT_JSON_BYTES. */
	int (*data)(void *user, const char *bytes, size_t len);
	void (*done)(void *user, const struct client_answer *a);
	void *user;
};
#define CLIENT_TIMEOUT_MS 60000

/* Begin. NULL where it could not (@err); else done() is called once, from within client_turn(). */
struct client_call *client_begin(struct client *c, const struct client_spec *spec, struct err *err);
/* Drop it before its end; done() is not called. */
void client_drop(struct client_call *call);
void client_drop_all(struct client *c);
/*
 * Wait until @deadline (clock.h) at most for the network or one of @fds (revents are set), and let
 * what has come be dealt with. A callback may begin requests. -errno where waiting itself failed.
 */
int client_turn(
	struct client *c, struct pollfd *fds, unsigned n, int64_t deadline, struct err *err);

/*
 * One JSON request from begin to end. *@ret (may be NULL) is a new reference, NULL where the answer had no
 * body. Returns 0, or what client_answer.error says, negative. @body is borrowed, may be NULL.
 */
int client_call(struct client *c, const char *method, const char *path, const json_t *body,
	json_t **ret, struct err *err);
/* The same of a request with all there is to say; spec's done and user are set here. */
int client_call_spec(
	struct client *c, const struct client_spec *spec, json_t **ret, struct err *err);
/* An element of a path or query, percent-encoded. Caller frees. */
char *client_escape(const char *text);
/* ---- sandboxes ----------------------------------------------------------------------------- */

/* All sandboxes, page by page: "running", "paused", or NULL for both. A new array. */
int client_list(struct client *c, const char *state, json_t **ret, struct err *err);
/*
 * The id that @text is, or of which it is a prefix that no other has. Caller frees. -ENOENT: none;
 * -EEXIST: several.
 */
int client_resolve(struct client *c, const char *text, char **ret, struct err *err);
/*
 * Times of an answer: @obj's @key (RFC 3339, UTC) in milliseconds since 1970. False: none such.
 */
bool client_time(const json_t *obj, const char *key, int64_t *ret_ms);
/* "12s", "5m03s", "2h07m", "3d04h"; "-" for a negative one. */
const char *client_age(int64_t ms, char ret[static 16]);
/* A string or number of an answer; "" or 0 where there is none. Borrowed. */
const char *client_string(const json_t *obj, const char *key);
double client_number(const json_t *obj, const char *key);

/* Connect and resolve at once: what most commands begin with. */
int client_open(const char *text, struct client **ret, char **ret_id, struct err *err);

#endif
