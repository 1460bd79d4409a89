/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_ENVD_PRIVATE_H
#define PARBAKE_POOL_ENVD_ENVD_PRIVATE_H

#include "common/limits.h"
#include "pool/envd/envd.h"
#include "pool/envd/text.h"

/* What the parts of the wire share. Nobody else includes this. */

/* ---- one request (wire_call.c) --------------------------------------------------------------- */

/* How an answer's errors look. */
enum wire_style {
	WIRE_PLAIN, /* {"code": status, "message": …} */
	WIRE_UNARY, /* Connect: {"code": "not_found", "message": …} */
	WIRE_STREAM, /* Connect, enveloped: in the last envelope */
	WIRE_LINES, /* plain until the answer has begun, then a line {"type": "error", …} */
};

enum wire_code {
	WIRE_CANCELED,
	WIRE_INVALID,
	WIRE_DEADLINE,
	WIRE_NOT_FOUND,
	WIRE_EXISTS,
	WIRE_DENIED,
	WIRE_EXHAUSTED,
	WIRE_FULL,
	WIRE_PRECONDITION,
	WIRE_UNIMPLEMENTED,
	WIRE_INTERNAL,
	WIRE_UNAVAILABLE,
	WIRE_UNAUTHENTICATED,
	WIRE_TYPE, /* the content type */
	WIRE_CODES
};

struct wire_call;

/* What a route is made of. */
struct wire_route {
	const char *method, *path; /* of "/contexts/": anything below */
	enum wire_style style;
	bool body; /* a JSON body is collected (and parsed) before start() */
	size_t size; /* of the structure that begins with a struct wire_call */
	/* the sandbox runs; @body: NULL where none is collected. It answers, now or later. */
	void (*start)(struct wire_call *c, const struct wire_target *t, const json_t *body);
	/* what was written is through, there is room for more. May be NULL. */
	void (*writable)(struct wire_call *c);
	/* the client is gone (or has its answer): c->rq is NULL. May be NULL. */
	void (*gone)(struct wire_call *c);
	/* nobody holds it any more: free what it has, not @c. May be NULL. */
	void (*destroy)(struct wire_call *c);
};

struct wire_call {
	struct wire *w;
	const struct wire_route *route;
	char id[LIMIT_NAME_SIZE]; /* of the sandbox */
	char *rest; /* what followed route->path */
	struct http_request *rq; /* NULL: the client is gone, or has its answer */
	unsigned refs; /* the request's, each open guest stream's, each holder's */
	enum wire_style style;
	const char *reason; /* stands in its error, for programs; NULL: none */
	bool begun; /* the answer has */
	bool answered; /* all of it has been given to HTTP, or waits in `pending` */
	bool closed; /* HTTP has been told the end of a stream */
	struct wire_buf pending; /* what HTTP had no room for */
	struct loop_timer *timer; /* wire_call_limit() */
	struct loop_timer *keepalive;
	int64_t keepalive_ns;
	void (*on_keepalive)(struct wire_call *c);
	void (*on_limit)(struct wire_call *c);
};

void wire_call_hold(struct wire_call *c);
void wire_call_release(struct wire_call *c);
/* Its client is gone: nothing waits to be sent, no timer runs. */
void wire_call_quiet(struct wire_call *c);
/* May it still be written to? */
bool wire_call_open(const struct wire_call *c);
/* Is there unsent text, so that no more should be written? writable() comes then. */
bool wire_call_full(const struct wire_call *c);

/* An answer, whole. @body is taken. */
void wire_reply(struct wire_call *c, unsigned status, json_t *body);
/* An answer in parts: begin, write (all of it is taken), finish. */
void wire_begin(struct wire_call *c, unsigned status, const char *type);
void wire_write(struct wire_call *c, const void *bytes, size_t len);
/* One JSON line; @value is taken. */
void wire_line(struct wire_call *c, json_t *value);
void wire_finish(struct wire_call *c);
/* Cut what has begun; else answer with an error. */
void wire_abort(struct wire_call *c);
/* An error in the call's style; it ends the answer. */
void wire_fail(struct wire_call *c, enum wire_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same of an agent's (or the host's) positive errno. */
void wire_fail_errno(struct wire_call *c, int error, const char *text);
enum wire_code wire_code_of(int error);
unsigned wire_code_status(enum wire_style style, enum wire_code code);
/* {"code": name, "message": text} */
json_t *wire_error_object(enum wire_code code, const char *text);

/* Call @fn every @interval_ms while the answer is open, where nothing else waits to be sent. */
void wire_keepalive(struct wire_call *c, uint64_t interval_ms, void (*fn)(struct wire_call *c));
/* Call @fn once in @ms; replaces the former limit. @ms 0: never. */
void wire_call_limit(struct wire_call *c, uint64_t ms, void (*fn)(struct wire_call *c));

/*
 * A request to the sandbox's guest for @c. Holds @c until done(), which calls wire_call_release().
 * NULL: the call has failed (and the error was answered): too many are open, or it is too long.
 */
struct guest_stream *wire_request(struct wire_call *c, enum proto_type type,
	const struct proto_out *body, const struct guest_stream_ops *ops, void *user);
/* Something was queued for its guest. */
void wire_kick(struct wire *w, const char *id);
bool wire_find(struct wire *w, const char *id, struct wire_target *ret);

/* ---- what requests say (wire.c) -------------------------------------------------------------- */

/* The guest's user of Authorization: Basic, or of ?username=; "" where none is named. 0, or -EINVAL
 * with the error answered. */
int wire_user(struct wire_call *c, char ret[LIMIT_USER + 1]);
/*
 * A path as clients write it: absolute, or relative to the home directory of @user ("", root:
 * /root, others: /home/USER), also as "~" and "~/…". 0, or -EINVAL with the error answered.
 */
int wire_path(
	struct wire_call *c, const char *path, const char *user, char ret[PROTO_PATH_MAX + 1]);
/* The string (no NUL in it) at @key of @body: "" where it is absent or null. -EINVAL: answered. */
int wire_string(struct wire_call *c, const json_t *body, const char *key, const char **ret);
/* Variables: of the template, of the sandbox, then @own (may be NULL). A new object of strings;
 * NULL: @own is none, the error was answered. */
json_t *wire_env(struct wire_call *c, const struct wire_target *t, const json_t *own);
/* They as T_ENV fields. */
void wire_put_env(struct proto_out *o, const json_t *env);
/* Connect-Timeout-Ms; UINT64_MAX where there is none. -EINVAL: answered. */
int wire_timeout_header(struct wire_call *c, uint64_t *ret);
/* What a call may take: @asked (UINT64_MAX: nothing was; 0: as long as may be) or the template's. */
uint64_t wire_timeout(const struct wire_target *t, uint64_t asked);

/* ---- commands (wire_process.c) --------------------------------------------------------------- */

/* How a command ended. */
struct wire_end {
	int error; /* 0, or why it could not run or be followed to its end */
	const char *text;
	bool exited; /* else: by exit_signal */
	unsigned exit_code, exit_signal;
	bool timed_out, oom, cut_out, cut_err;
	uint64_t total_out, total_err, duration_ns, timeout_ms;
};

/* Someone who follows a command: a call. */
struct wire_reader_ops {
	void (*started)(struct wire_call *c, uint32_t pid);
	void (*data)(struct wire_call *c, enum proto_channel channel, bool pty,
		const uint8_t *bytes, size_t len);
	void (*ended)(struct wire_call *c, const struct wire_end *end);
};

/* Read the reply's fields; false where they are broken. */
bool wire_end_parse(const struct guest_reply *reply, struct wire_end *end);
/* Answer with end->error. */
void wire_fail_end(struct wire_call *c, const struct wire_end *end);

struct wire_process_spec {
	const char *const *argv; /* n_argv of them; NULL with `shell` */
	size_t n_argv;
	const char *shell;
	const char *cwd, *user; /* "": the default */
	const json_t *env; /* object of strings */
	const char *tag; /* "": none */
	const json_t *config; /* as LIST shows it */
	uint64_t timeout_ms, limit_out, limit_err;
	unsigned rows, cols; /* both ≠ 0: a terminal */
	bool has_stdin;
	bool keep; /* it goes on when nobody follows it any more */
};

struct wire_process;

/* Run it, followed by @c. NULL: the error was answered. */
struct wire_process *wire_process_start(struct wire_call *c, const struct wire_target *t,
	const struct wire_process_spec *spec, const struct wire_reader_ops *ops);
/* Follow one that runs. false: too many do; answered. */
bool wire_process_follow(
	struct wire_process *p, struct wire_call *c, const struct wire_reader_ops *ops);
/* @c has room again / is gone. */
void wire_process_resume(struct wire_process *p);
void wire_process_leave(struct wire_process *p, struct wire_call *c);
/* By number, or by tag (@tag not NULL), in the sandbox @id. NULL: none. */
struct wire_process *wire_process_find(
	struct wire *w, const char *id, uint32_t pid, const char *tag);
/* The next in the sandbox, of all: in the order of their beginning. */
struct wire_process *wire_process_next(
	struct wire *w, const char *id, const struct wire_process *after);
json_t *wire_process_info(const struct wire_process *p);
bool wire_process_is_pty(const struct wire_process *p);
bool wire_process_has_input(const struct wire_process *p); /* stdin is there and not closed */
uint32_t wire_process_pid(const struct wire_process *p);
void wire_process_signal(struct wire_process *p, int sig);
void wire_process_resize(struct wire_process *p, unsigned rows, unsigned cols);
/*
 * Input: @bytes is taken (free()). @c (NULL: nobody) is answered with {} when the last of it has
 * been taken by the agent's window. @close: then no more comes. -EAGAIN: too much waits already.
 */
int wire_process_input(
	struct wire_process *p, struct wire_call *c, uint8_t *bytes, size_t len, bool close);

/* ---- the state (wire.c) ---------------------------------------------------------------------- */

struct wire_context;
struct code_call;

struct wire {
	struct loop *loop;
	const struct wire_ops *ops;
	void *user;
	unsigned refs; /* its owner's, each call's, each command's */
	struct wire_process *processes; /* of all sandboxes, oldest first */
	uint32_t last_pid;
	struct wire_context *contexts; /* wire_context.c */
	struct code_call *codes; /* wire_code.c: those with variables, in their order */
};

void wire_hold(struct wire *w);
void wire_release(struct wire *w);
void wire_contexts_free(struct wire *w);
/* The loop may go: no timer of a command is left. */
void wire_processes_unguard(struct wire *w);

/* Tables of routes, ended by one without a path. */
extern const struct wire_route wire_routes_process[], wire_routes_exec[], wire_routes_files[],
	wire_routes_filesystem[], wire_routes_code[], wire_routes_contexts[];

#endif
