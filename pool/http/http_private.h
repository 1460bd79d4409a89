/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_HTTP_HTTP_PRIVATE_H
#define PARBAKE_POOL_HTTP_HTTP_PRIVATE_H

#include <microhttpd.h>
#include <sys/queue.h>

#include "pool/http/limits.h"
#include "pool/http/http.h"

/* What the parts of the server share: http.c has the connections, request.c what stands in a
 * request, upload.c its body, answer.c what goes back. */

struct http_listener {
	struct http_server *s;
	int fd;
	bool tcp;
	struct loop_watch *watch;
	LIST_ENTRY(http_listener) link;
};

/* Who has connections: an address, a user of this host, a key (share.c). */
struct http_holder {
	LIST_ENTRY(http_holder) bucket;
	unsigned n; /* connections */
	size_t bodies; /* bytes that are being collected */
	char name[];
};
#define HTTP_HOLDERS 256 /* of the hash by name */

struct http_server {
	struct loop *loop;
	http_handler_fn *fn;
	void *user;
	struct MHD_Daemon *mhd;
	struct loop_watch *watch; /* of MHD's epoll */
	struct loop_timer *run; /* MHD has work that no descriptor will tell of */
	struct loop_timer *sweep; /* for deadlines that have passed */
	struct loop_timer *breath; /* no descriptors: accepting goes on later */
	LIST_HEAD(, http_listener) listeners;
	LIST_HEAD(, http_conn) conns; /* the newest first */
	struct http_conn *accepting;
	unsigned n_conns, n_tcp, max_conns; /* LIMIT_HTTP_CONNECTIONS */
	unsigned n_unknown; /* of those, whose client has not said who it is */
	unsigned n_hung; /* of those, whose client has hung up */
	LIST_HEAD(http_bucket, http_holder) holders[HTTP_HOLDERS];
	size_t bodies, max_bodies; /* bytes that are being collected; LIMIT_HTTP_BODIES */
	LIST_HEAD(, http_request) requests; /* those whose handler has been called */
	int64_t idle_ns, stall_ns; /* LIMIT_HTTP_IDLE_S, LIMIT_HTTP_STALL_S */
	bool running, again; /* within MHD_run(); it is needed once more */
	bool full, complained, quiesced, stopping;
};

struct http_conn {
	struct http_server *s;
	LIST_ENTRY(http_conn) link;
	int fd; /* MHD's */
	bool tcp;
	uid_t uid;
	char *uri; /* as it came, of the request whose headers are being read */
	struct http_request *rq; /* at hand */
	struct http_holder *from,
		*key; /* whose it is: by where it comes from; by its key, NULL: none */
	struct loop_watch *watch; /* for its client's hang-up; NULL: it has come */
	bool known; /* http_admit() */
	bool hung; /* the client sends no more */
	bool cut; /* it is being closed */
	int64_t deadline; /* when it is cut; CLOCK_NEVER */
};

struct http_pair {
	const char *name, *value;
};

enum http_body { HTTP_DISCARD, HTTP_COLLECT, HTTP_UPLOAD, HTTP_FORM };
enum http_answer { HTTP_NO_ANSWER, HTTP_WHOLE, HTTP_STREAM, HTTP_UPGRADE };
enum http_part { HTTP_PART_NONE, HTTP_PART_FILE, HTTP_PART_OTHER };

/* A part of a form that begins in the held bytes. */
struct http_form_part {
	size_t at; /* of its first byte in them */
	char *field, *filename;
};

struct http_request {
	struct http_server *s;
	LIST_ENTRY(http_request) link;
	struct http_conn
		*conn; /* NULL: the client is gone; it waits for its handler's answer to be freed */
	struct MHD_Connection *mhd;
	char *method, *uri, *path; /* uri: query[] points into it */
	char *target; /* as it came */
	struct http_pair *query;
	size_t n_query;
	bool tcp;
	uid_t uid;
	void (*on_end)(void *user, bool complete);
	void *end_user;
	bool suspended; /* in MHD, by us */
	bool waits, waited; /* http_wait(): its handler has not chosen yet; had not */

	/* its body */
	enum http_body body;
	bool whole; /* all of it has come from the client */
	bool ended; /* and has been passed on */
	bool stopped, go; /* by data()'s taking less; http_upload_resume() came meanwhile */
	uint64_t length, received; /* length: UINT64_MAX not told */
	bool unframed; /* where it ends cannot be told: nothing behind its head is read */
	uint64_t discarded, at_check; /* received, at the last deadline */
	bool excused; /* since then it was stopped: by us, not by the client */
	size_t max;
	char *text; /* collected */
	size_t text_len, text_size; /* text_size: counted in s->bodies, and with its holder */
	struct http_holder *payer;
	/* one of the two is called, with body_user; dropped is NULL once that is settled */
	void (*collected)(void *user, struct http_request *rq, const char *body, size_t len);
	void (*dropped)(void *user);
	const struct http_upload_ops *ops;
	void *body_user;
	struct MHD_PostProcessor *form;
	enum http_part part;
	bool (*on_part)(void *user, const char *field, const char *filename);
	char *part_field, *part_name; /* of the one at hand */
	uint64_t part_bytes;
	struct http_form_part *parts; /* not told yet, in their order */
	size_t n_parts;
	char *held; /* taken off the form, not yet taken by data() */
	size_t held_at, held_len, held_size;

	/* its answer */
	enum http_answer answer;
	bool queued;
	unsigned status;
	const char *type;
	struct {
		char *name, *value;
	} headers[LIMIT_HTTP_ANSWER_HEADERS];
	size_t n_headers;
	char *whole_text;
	size_t whole_len;
	char *ring;
	size_t ring_at, ring_len, ring_size;
	bool has_length; /* http_stream_length() */
	uint64_t stream_length;
	const struct http_upgrade_ops *upgrade;
	void *upgrade_user;
	struct MHD_UpgradeResponseHandle *upgraded; /* NULL: not yet, or closed */
	bool stream_over, stream_cut; /* http_stream_end(), http_stream_abort() */
	bool gone; /* the client hung up: nothing is worth sending */
	bool want_room;
	void (*writable)(void *user);
	void *stream_user;
	struct loop_timer *tell; /* writable() is to be called */
};

/* http.c: call MHD_run() in the loop's next round (or once more, where it is running). */
void http_kick(struct http_server *s);
void http_suspend(struct http_request *rq);
/* End a connection: MHD sees a hang-up. */
void http_conn_cut(struct http_conn *c);
void http_resume(struct http_request *rq); /* where it is suspended */

/* request.c. @uri is taken. 0, or the status of what is wrong with it, said in *@ret_why. */
struct http_request *http_request_new(struct http_conn *conn, struct MHD_Connection *mhd,
	const char *method, char *uri, unsigned *ret_status, const char **ret_why);
/* MHD is done with @rq. @sent: all of the answer was sent. */
void http_request_over(struct http_request *rq, bool sent);
void http_request_free(struct http_request *rq);

/* upload.c: *@len of @bytes came; *@len becomes what was not taken. false: end the
 * connection. */
bool http_body_data(struct http_request *rq, const char *bytes, size_t *len);
/* All of the body has come, and what is held may be passed on. */
void http_body_end(struct http_request *rq);
void http_body_free(struct http_request *rq);

/* hangup.c: watch a connection for its client's end; stop watching before it is closed. */
void http_hangup_watch(struct http_conn *c);
void http_hangup_forget(struct http_conn *c);
/*
 * MHD has had its turn: end the connections of clients that have hung up, where nothing more can
 * come of them.
 */
void http_hangup_settle(struct http_server *s);

/*
 * share.c: @c comes from the address @from (TCP), or from a user of this host. False: that holder
 * has its full share already.
 */
bool http_share_enter(struct http_conn *c, const struct sockaddr *from);
void http_share_leave(struct http_conn *c);
/* @bytes more are to be collected for @rq; false: that is beyond the share of its holder. */
bool http_share_collect(struct http_request *rq, size_t bytes);
void http_share_collected(struct http_request *rq); /* no bytes are collected for @rq any more */

/* upgrade.c: the answer that begins an upgrade; and its end, where the server stops. */
struct MHD_Response *http_upgrade_response(struct http_request *rq);
void http_upgrade_cut(struct http_request *rq);

/* answer.c */
void http_answer_error(struct http_request *rq, unsigned status, const char *why);
enum MHD_Result http_answer_queue(struct http_request *rq);
/*
 * The connection ends in the middle of a body: send what has been answered past MHD, as far as the
 * socket takes it.
 */
void http_answer_rest(struct http_request *rq);
/* Call writable() in the loop's next round. */
void http_answer_tell(struct http_request *rq);
void http_answer_free(struct http_request *rq);

#endif
