/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_ENVD_ENVD_PRIVATE_H
#define PARBAKE_POOL_ENVD_ENVD_PRIVATE_H

#include <sys/queue.h>

#include "common/buffer.h"
#include "common/limits.h"
#include "pool/envd/envd.h"
#include "pool/envd/text.h"

/* envd: what the parts of pool/envd/ share. Nobody else includes this. */

/* ---- one request (call.c) --------------------------------------------------------------- */

/* The form of a call's error answers. */
enum envd_style {
	ENVD_PLAIN, /* {"code": status, "message": …} */
	ENVD_UNARY, /* Connect: {"code": "not_found", "message": …} */
	ENVD_STREAM, /* Connect, enveloped: in the last envelope */
	ENVD_LINES, /* plain until the answer has begun, then a line {"type": "error", …} */
};

enum envd_code {
	ENVD_CANCELED,
	ENVD_INVALID,
	ENVD_DEADLINE,
	ENVD_NOT_FOUND,
	ENVD_EXISTS,
	ENVD_DENIED,
	ENVD_EXHAUSTED,
	ENVD_FULL,
	ENVD_PRECONDITION,
	ENVD_UNIMPLEMENTED,
	ENVD_INTERNAL,
	ENVD_UNAVAILABLE,
	ENVD_UNAUTHENTICATED,
	ENVD_TYPE, /* the content type */
	ENVD_CODES
};

struct envd_call;

/* What a route is made of. */
struct envd_route {
	const char *method, *path; /* of "/contexts/": anything below */
	enum envd_style style;
	bool body; /* a JSON body is collected (and parsed) before start() */
	size_t size; /* of the structure that begins with a struct envd_call */
	/* called where the sandbox runs; @body: NULL where none is collected. Answers now or
	 * later. */
	void (*start)(struct envd_call *c, const struct envd_target *t, const json_t *body);
	/* what was written has been sent, and there is room for more. May be NULL. */
	void (*writable)(struct envd_call *c);
	/* the client is gone (or has its answer): c->rq is NULL. May be NULL. */
	void (*gone)(struct envd_call *c);
	/* nobody holds @c any more: free what it owns, not @c itself. May be NULL. */
	void (*destroy)(struct envd_call *c);
};

struct envd_call {
	struct envd *w;
	const struct envd_route *route;
	char id[LIMIT_NAME_SIZE]; /* of the sandbox */
	char *rest; /* what followed route->path */
	struct http_request *rq; /* NULL: the client is gone, or has its answer */
	unsigned refs; /* one for the request, each open guest stream and each other holder */
	enum envd_style style;
	bool routed; /* envd_handle() */
	const char *reason; /* a reason for programs, in its error answer; NULL: none */
	bool begun; /* the answer has begun */
	bool answered; /* all of it has been given to HTTP, or waits in `pending` */
	bool closed; /* HTTP has been told the end of a stream */
	struct buffer pending; /* what HTTP had no room for */
	struct loop_timer *timer; /* envd_call_limit() */
	struct loop_timer *keepalive;
	int64_t keepalive_ns;
	void (*on_keepalive)(struct envd_call *c);
	void (*on_limit)(struct envd_call *c);
};

void envd_call_hold(struct envd_call *c);
void envd_call_release(struct envd_call *c);
/* The client of @c is gone: drop what waits to be sent and stop the timers. */
void envd_call_quiet(struct envd_call *c);
/* May the answer still be written to? */
bool envd_call_open(const struct envd_call *c);
/* Is there unsent text, so that no more should be written? writable() comes then. */
bool envd_call_full(const struct envd_call *c);

/* Answer with all of @body, which is taken. */
void envd_reply(struct envd_call *c, unsigned status, json_t *body);
/* An answer in parts: begin, write (all of it is taken), finish. */
void envd_begin(struct envd_call *c, unsigned status, const char *type);
void envd_write(struct envd_call *c, const void *bytes, size_t len);
/* One JSON line; @value is taken. */
void envd_line(struct envd_call *c, json_t *value);
void envd_finish(struct envd_call *c);
/* Cut the answer where it has begun; otherwise answer with an error. */
void envd_abort(struct envd_call *c);
/* 502 in E2B's words, by which its SDKs know that a sandbox is paused or gone. */
void envd_asleep(struct envd_call *c);
/* An error in the call's style; it ends the answer. */
void envd_fail(struct envd_call *c, enum envd_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for a positive errno of the agent's or the host's. */
void envd_fail_errno(struct envd_call *c, int error, const char *text);
enum envd_code envd_code_of(int error);

/* Call @fn every @interval_ms while the answer is open, where nothing else waits to be sent. */
void envd_keepalive(struct envd_call *c, uint64_t interval_ms, void (*fn)(struct envd_call *c));
/* Call @fn once in @ms; replaces the former limit. @ms 0: never. */
void envd_call_limit(struct envd_call *c, uint64_t ms, void (*fn)(struct envd_call *c));

/* A request to the sandbox's guest for @c. Holds @c until done(), which calls envd_call_release().
 * NULL: the call has failed (and the error was answered): too many are open, or it is too long. */
struct guest_stream *envd_request(struct envd_call *c, enum proto_type type,
	const struct proto_out *body, const struct guest_stream_ops *ops, void *user);
/* Something was queued for the guest of sandbox @id: let the loop write it. */
void envd_kick(struct envd *w, const char *id);
bool envd_find(struct envd *w, const char *id, struct envd_target *ret);

/* ---- what requests say (envd.c) -------------------------------------------------------------- */

/* The guest's user of Authorization: Basic, or of ?username=; where neither is there, @standard, such as t->user
 * (NULL, "": the agent's own, root). 0, or -EINVAL with the error answered. */
int envd_user(struct envd_call *c, const char *standard, char ret[LIMIT_USER + 1]);
/* A path as clients write it: absolute, or relative to the home directory of @user ("", root:
 * /root, others: /home/USER), also as "~" and "~/…". 0, or -EINVAL with the error answered. */
int envd_path(
	struct envd_call *c, const char *path, const char *user, char ret[PROTO_PATH_MAX + 1]);
/* The string (no NUL in it) at @key of @body: "" where it is absent or null. -EINVAL: answered. */
int envd_string(struct envd_call *c, const json_t *body, const char *key, const char **ret);
/* Variables: of the template, of the sandbox, then @own (may be NULL). A new object of strings;
 * NULL: @own is not valid, and the error was answered. */
json_t *envd_env(struct envd_call *c, const struct envd_target *t, const json_t *own);
/* Put the variables @env into @o as fields @tag: T_ENV or T_SANDBOX_ENV. */
void envd_put_env(struct proto_out *o, uint16_t tag, const json_t *env);
/* Connect-Timeout-Ms; UINT64_MAX where there is none. -EINVAL: answered. */
int envd_timeout_header(struct envd_call *c, uint64_t *ret);
/* A call's limit, ms: @asked (UINT64_MAX: nothing; 0: as long as allowed), or the template's. */
uint64_t envd_timeout(const struct envd_target *t, uint64_t asked);

/* ---- what is to run (command.c) -------------------------------------------------------------- */

/* Strings, each without a NUL, not always UTF-8; NULL-terminated. */
struct envd_words {
	char **items;
	size_t n;
};
void envd_words_clear(struct envd_words *w);
#define cleanup_envd_words cleanup_with(envd_words_clear)
void envd_words_put(struct envd_words *w, const char *word);
/* The array @list (NULL: none), of strings, or where it is @coded of bytes in base 64, appended
 * to @w. -EINVAL: the error was answered. */
int envd_words_add(
	struct envd_call *c, const char *key, const json_t *list, bool coded, struct envd_words *w);
/* The same of variables, "NAME=VALUE" each. */
int envd_env_bytes(struct envd_call *c, const char *key, const json_t *list, struct envd_words *w);
/* The directory at @key, or, in base 64, at @key_bytes; "" where there is none. -EINVAL: answered. */
int envd_cwd(struct envd_call *c, const json_t *obj, const char *key, const char *key_bytes,
	const char *user, char ret[PROTO_PATH_MAX + 1]);

/* ---- commands (process.c) --------------------------------------------------------------- */

/* How a command ended. */
struct envd_end {
	int error; /* 0, or the errno that says why it could not run, or be followed to its end */
	const char *text;
	bool exited; /* else exit_signal ended it */
	unsigned exit_code, exit_signal;
	bool timed_out, oom, cut_out, cut_err;
	uint64_t total_out, total_err, duration_ns, timeout_ms;
};

/* What a call that follows a command is told of it. */
struct envd_reader_ops {
	void (*started)(struct envd_call *c, uint32_t pid);
	void (*data)(struct envd_call *c, enum proto_channel channel, bool pty,
		const uint8_t *bytes, size_t len);
	void (*ended)(struct envd_call *c, const struct envd_end *end);
};

/* Read the reply's fields; false where they are broken. */
bool envd_end_parse(const struct guest_reply *reply, struct envd_end *end);
/* Answer @c with the error end->error. */
void envd_fail_end(struct envd_call *c, const struct envd_end *end);

struct envd_process_spec {
	const struct envd_words *argv; /* of one at least; NULL with `shell` */
	const char *shell;
	const char *cwd, *user; /* "": the default */
	const json_t *env; /* object of strings */
	const struct envd_words *env_bytes; /* "NAME=VALUE" on top of it */
	const char *tag; /* "": none */
	uint64_t timeout_ms, limit_out, limit_err;
	unsigned rows, cols; /* both ≠ 0: a terminal */
	bool has_stdin;
};
struct envd_process;
/* Run a command, which @c follows. It goes on without followers. NULL: the error was answered. */
struct envd_process *envd_process_start(struct envd_call *c, const struct envd_target *t,
	const struct envd_process_spec *spec, const struct envd_reader_ops *ops);
/* Look for a command that runs in @c's sandbox, by number, or by tag where @tag is not NULL. The
 * guest is asked for a command that is not known here (it began before a pause or a fork, or under
 * another daemon). @fn is called with it, now or later; where there is no such command, the error
 * is answered instead. */
void envd_process_seek(struct envd_call *c, uint32_t pid, const char *tag,
	void (*fn)(struct envd_call *c, struct envd_process *p));
/* Let @c follow a command that runs. false: too many do, and the error was answered. */
bool envd_process_follow(
	struct envd_process *p, struct envd_call *c, const struct envd_reader_ops *ops);
/* A follower has room again; @c is gone and follows no more. */
void envd_process_resume(struct envd_process *p);
void envd_process_leave(struct envd_process *p, struct envd_call *c);
bool envd_process_is_pty(const struct envd_process *p);
bool envd_process_has_input(const struct envd_process *p); /* stdin is there and not closed */
uint32_t envd_process_pid(const struct envd_process *p);
void envd_process_signal(struct envd_process *p, int sig);
void envd_process_resize(struct envd_process *p, unsigned rows, unsigned cols);
/* Input for a command: @bytes is taken (free()). @c (NULL: nobody) is answered with {} when the
 * agent has the last byte. @close: no more comes after it. -EAGAIN: too much waits already. */
int envd_process_input(
	struct envd_process *p, struct envd_call *c, uint8_t *bytes, size_t len, bool close);
/* Answer with all commands that run in @c's sandbox, as its guest tells them. */
void envd_process_list(struct envd_call *c);

/* ---- the state (envd.c) ---------------------------------------------------------------------- */

struct envd {
	struct loop *loop;
	const struct envd_ops *ops;
	void *user;
	unsigned refs; /* one for its owner, each call and each command */
	TAILQ_HEAD(, envd_process) processes; /* of all sandboxes, oldest first */
};

void envd_hold(struct envd *w);
void envd_release(struct envd *w);
/* Cancel the timers of all commands, so that the loop may be freed. */
void envd_processes_unguard(struct envd *w);

/* Tables of routes, ended by one without a path. */
extern const struct envd_route envd_routes_process[], envd_routes_exec[], envd_routes_files[],
	envd_routes_filesystem[], envd_routes_watch[], envd_routes_code[], envd_routes_contexts[];

#endif
