/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_HTTP_HTTP_H
#define PARBAKE_POOL_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/json.h"
#include "common/loop.h"
#include "pool/http/limits.h"

/*
 * HTTP/1.1 for the daemon, on libmicrohttpd, in the loop's thread, to which all functions belong. A
 * request is answered when its handler's work is done, which may be much later; the handler never
 * blocks. Bounds (limits.h): connections, headers, bodies, seconds an idle connection stays.
 */
struct http_server;
struct http_request;

/*
 * A request's headers have come. The handler must, now, choose one of http_collect(), http_upload()
 * or an answer (a body not asked for is then discarded). @rq is valid until its answer has been
 * given to its end (after that call do not use it); or, where http_on_end() was asked for, until
 * that is called.
 */
typedef void http_handler_fn(void *user, struct http_request *rq);

int http_server_new(
	struct loop *l, http_handler_fn *fn, void *user, struct http_server **ret, struct err *err);
/* Take over the listening socket @fd (owned on success); any number of them. @tcp: not a unix
 * socket. */
int http_server_listen(struct http_server *s, int fd, bool tcp, struct err *err);
/* No new connections; those that are idle are closed. */
void http_server_quiesce(struct http_server *s);
/* Close all connections: handlers that asked for it (http_on_end()) are told. Requests whose
 * answer is still owed stay valid until http_server_free(), so the parts that owe the answers
 * may be freed in between. */
void http_server_stop(struct http_server *s);
unsigned http_server_awaited(const struct http_server *s); /* of those, whose client is there */
void http_server_free(struct http_server *s);
DEFINE_CLEANUP(struct http_server *, http_server_free)
#define cleanup_http_server cleanup_with(http_server_free_p_)

/* ---- looking at a request; borrowed as long as it is valid ---------------------------------- */

const char *http_method(const struct http_request *rq);
const char *http_path(const struct http_request *rq); /* decoded, without the query; no NUL in it */
const char *http_header(const struct http_request *rq, const char *name); /* NULL: none */
const char *http_query(const struct http_request *rq, const char *name); /* decoded; NULL: none */
/* The request's target as it came, with the query, not decoded. */
const char *http_target(const struct http_request *rq);
/* Call @fn for each header, in the order they came. */
void http_each_header(const struct http_request *rq,
	void (*fn)(void *user, const char *name, const char *value), void *user);
/*
 * The length of the body in bytes. 0: there is no body; UINT64_MAX: it comes in chunks, so the
 * length is not known.
 */
uint64_t http_body_length(const struct http_request *rq);
bool http_from_tcp(const struct http_request *rq);
/* The user of a unix socket's peer; (uid_t)-1 over TCP. */
uid_t http_peer_uid(const struct http_request *rq);
/*
 * Call @fn (once) when the client is gone or the answer has been sent (@complete: all of it): @rq
 * is invalid after it. Without it a request whose client is gone stays valid until it is answered
 * to its end (its headers read as absent). A handler of an upload must ask for it, because end() is
 * not called for an upload that was cut. A client's hang-up is seen at once, whatever its request
 * waits for. A client that says that it sends no more counts as hung up, once all of its request
 * has been read.
 */
void http_on_end(struct http_request *rq, void (*fn)(void *user, bool complete), void *user);
/*
 * From within the handler, in place of its choice: the request waits, and nothing of its body is
 * read. Later, from the loop, whoever called http_wait() makes the choice as the handler would
 * have, and calls http_go_on(). Where http_is_gone() is true by then there is nobody to read an
 * answer, and any answer ends it.
 */
void http_wait(struct http_request *rq);
void http_go_on(struct http_request *rq);
bool http_is_gone(const struct http_request *rq);

/* Decode in place: %XX, and + where @plus. false: malformed, or a NUL. */
bool http_decode(char *text, bool plus);

/*
 * The client of @rq has been identified, and may use the API. @key: the name of the key that it
 * showed; NULL: no key. Connections of clients that were not identified are the first to be closed.
 * False: the key has its full share of connections, and this one will be closed behind the answer.
 */
bool http_admit(struct http_request *rq, const char *key);

/* ---- its body ------------------------------------------------------------------------------ */

/*
 * Collect the body, at most @max bytes (more: 413 is answered here), NUL-terminated, then call @fn.
 * Where the body never becomes whole (too long, too many at once, the client gone before all was
 * sent) @dropped is called instead, when the request is freed: exactly one of the two is called and
 * may free @user. @dropped may be NULL.
 */
void http_collect(struct http_request *rq, size_t max,
	void (*fn)(void *user, struct http_request *rq, const char *body, size_t len),
	void (*dropped)(void *user), void *user);
/* The body as it comes. data() returns how many bytes it took; fewer than @len: no more is read
 * until http_upload_resume(). end(): all of it has come. For multipart/form-data use
 * http_upload_form().
 * */
struct http_upload_ops {
	size_t (*data)(void *user, const char *bytes, size_t len);
	void (*end)(void *user);
};
void http_upload(struct http_request *rq, const struct http_upload_ops *ops, void *user);
/* The same for a multipart/form-data body: data() gets the content of all parts that have a file
 * name. part() is called with a part's field and file name before its data(). Where it returns
 * false (not yet), it is called again after http_upload_resume(). Other parts are skipped. A
 * body that is not such a form is answered here with 400. */
void http_upload_form(struct http_request *rq, const struct http_upload_ops *ops,
	bool (*part)(void *user, const char *field, const char *filename), void *user);
void http_upload_resume(struct http_request *rq);

/* ---- its answer: one of these -------------------------------------------------------------- */

/* @body is taken (a reference). NULL: an empty body. */
void http_reply(struct http_request *rq, unsigned status, json_t *body);
void http_reply_text(struct http_request *rq, unsigned status, const char *type, const char *text);
/* Add a header to the answer, before the answer begins. */
void http_add_header(struct http_request *rq, const char *name, const char *value);
/*
 * An answer of unknown length (chunked). write() takes at most what there is room for and returns
 * that (LIMIT_HTTP_BUFFER is kept); writable() is called when there is room again. end() finishes
 * it; http_stream_abort() cuts it, so that the client sees that it is not whole.
 */
void http_stream_begin(struct http_request *rq, unsigned status, const char *type,
	void (*writable)(void *user), void *user);
/* Say the length of the answer, where it is known, before the answer begins, so that the client
 * is told. Fewer bytes cut the answer, and more are not taken. An answer to HEAD has the length
 * too. */
void http_stream_length(struct http_request *rq, uint64_t length);
size_t http_stream_room(const struct http_request *rq);
size_t http_stream_write(struct http_request *rq, const void *bytes, size_t len);
void http_stream_end(struct http_request *rq);
void http_stream_abort(struct http_request *rq);

/*
 * Answer 101: the connection goes over to another protocol. begin() gets its socket, borrowed until
 * http_upgrade_close() (which the socket's owner calls when it is done) or cut(), and the bytes of
 * the client's that have been read already. cut(): the server stops, and closes the socket when
 * cut() returns. The callback of http_on_end() is called when the socket is closed.
 */
struct http_upgrade_ops {
	void (*begin)(void *user, int fd, const char *bytes, size_t len);
	void (*cut)(void *user);
};
void http_upgrade(struct http_request *rq, const struct http_upgrade_ops *ops, void *user);
void http_upgrade_close(struct http_request *rq);

#endif
