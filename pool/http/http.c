/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's connections.
 *
 * MHD runs without threads and without a listening socket. Its epoll descriptor is watched by our
 * loop; connections are accepted here and given to it, so that one MHD has the connections of all
 * listeners, and it is known here who is at the other end of each. A request is suspended while its
 * answer is not there yet, while its upload is not wanted, or while its stream has nothing to send.
 * MHD does not look at a suspended request until http_resume(), which also lets MHD run in the
 * loop's next round, never from within the caller.
 *
 * Deadlines are kept here, because MHD measures only silence. Each connection has a deadline by
 * which its request must have come, its upload must have made progress, or its answer must have
 * been sent. A connection that is late is shut down, which MHD sees as a hang-up. A suspended
 * connection waits for the daemon, and is not late.
 *
 * A request may outlive its connection; request.c says when.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/limits.h"
#include "pool/http/limits.h"
#include "common/log.h"
#include "pool/http/http_private.h"

#define SECOND 1000000000LL
/* of a connection's memory in MHD: header, twice over for its tables */
#define POOL_SIZE (64 * KIB)
#define TURNS 16 /* of MHD in one round of the loop */
#define ACCEPTS 64 /* likewise */
#define BREATH_MS 100

/* ---- MHD's turns --------------------------------------------------------------------------- */

static void run(void *user)
{
	struct http_server *s = user;
	bool more = true;

	s->run = NULL;
	s->running = true;
	for (int i = 0; i < TURNS && more; i++) {
		MHD_UNSIGNED_LONG_LONG left = 1;

		s->again = false;
		if (MHD_run(s->mhd) != MHD_YES)
			log_warn("http: the server could not take its turn");
		more = s->again || (MHD_get_timeout(s->mhd, &left) == MHD_YES && left == 0);
	}
	s->running = false;
	http_hangup_settle(s);
	if (more)
		http_kick(s);
}

void http_kick(struct http_server *s)
{
	if (s->running)
		s->again = true;
	if (!s->running && !s->run && !s->stopping)
		s->run = loop_defer(s->loop, run, s);
}

static void events_came(void *user, short revents)
{
	struct http_server *s = user;

	(void)revents;
	loop_timer_cancel(s->run);
	run(s);
}

void http_suspend(struct http_request *rq)
{
	MHD_suspend_connection(rq->mhd);
	rq->suspended = true;
}

void http_resume(struct http_request *rq)
{
	if (!rq->suspended)
		return;
	rq->suspended = false;
	MHD_resume_connection(rq->mhd);
	http_kick(rq->s);
}

/* ---- patience ------------------------------------------------------------------------------ */

void http_conn_cut(struct http_conn *c)
{
	shutdown(c->fd, SHUT_RDWR);
	c->deadline = CLOCK_NEVER;
	c->cut = true;
}

/* The deadline has passed: is it late, or has it got on meanwhile? */
static void check(struct http_conn *c, int64_t now)
{
	struct http_request *rq = c->rq;
	uint64_t due = (uint64_t)(c->s->idle_ns / SECOND) * LIMIT_HTTP_RATE;

	if (rq && rq->suspended) {
		c->deadline = now + c->s->idle_ns;
		return;
	}
	if (rq && !rq->whole && (rq->body == HTTP_UPLOAD || rq->body == HTTP_FORM) &&
		(rq->excused || rq->received - rq->at_check > due)) {
		rq->at_check = rq->received;
		rq->excused = false;
		c->deadline = now + c->s->idle_ns;
		return;
	}
	log_debug("http: a client was too slow; its connection is closed");
	http_conn_cut(c);
}

static void sweep(void *user)
{
	struct http_server *s = user;
	int64_t now = clock_now_ns();
	struct http_conn *c;

	s->sweep = NULL;
	LIST_FOREACH(c, &s->conns, link)
		if (c->deadline <= now)
			check(c, now);
	if (!LIST_EMPTY(&s->conns))
		s->sweep = loop_timer(s->loop, now + s->idle_ns / 8, sweep, s);
}

/* ---- connections --------------------------------------------------------------------------- */

/* Who may connect by TCP is not known before he has spoken; so the unix socket, where the operator
 * is, has connections that he cannot take. */
static bool is_full(const struct http_listener *li)
{
	const struct http_server *s = li->s;

	return s->n_conns >= s->max_conns ||
		(li->tcp && s->n_tcp >= s->max_conns - s->max_conns / 16);
}

static void listen_again(struct http_server *s, bool on)
{
	struct http_listener *li;

	s->full = false;
	LIST_FOREACH(li, &s->listeners, link) {
		s->full |= is_full(li);
		loop_set(li->watch, on && !is_full(li) ? POLLIN : 0);
	}
}

static void breathed(void *user)
{
	struct http_server *s = user;

	s->breath = NULL;
	listen_again(s, true);
}

/* MHD tells of a connection's beginning (from within MHD_add_connection()) and end. */
static void connection_changed(void *cls, struct MHD_Connection *mhd, void **context,
	enum MHD_ConnectionNotificationCode what)
{
	struct http_server *s = cls;
	struct http_conn *c = *context;

	(void)mhd;
	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = s->accepting;
		s->accepting = NULL;
		return;
	}
	if (!c)
		return;
	LIST_REMOVE(c, link);
	s->n_conns--;
	s->n_tcp -= c->tcp;
	s->n_hung -= c->hung;
	http_hangup_forget(c);
	http_share_leave(c);
	s->complained = s->complained && s->n_conns >= s->max_conns / 2;
	free(c->uri);
	free(c);
	*context = NULL;
	if (s->full && !s->stopping && !s->breath)
		listen_again(s, true);
}

/* Once, until half of them have left. */
__attribute__((format(printf, 2, 3))) static void complain(
	struct http_server *s, const char *fmt, ...)
{
	char text[128];
	va_list args;

	if (s->complained)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	log_warn("http: %s", text);
	s->complained = true;
}

static void add(struct http_listener *li, int fd, const struct sockaddr *from)
{
	struct http_server *s = li->s;
	struct http_conn *c = calloc(1, sizeof(*c));
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	struct ucred cred;
	socklen_t len = sizeof(cred);
	int on = 1;

	if (!c)
		abort();
	*c = (struct http_conn){.s = s, .fd = fd, .tcp = li->tcp, .uid = (uid_t)-1};
	c->deadline = clock_now_ns() + s->idle_ns;
	if (li->tcp) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	} else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0) {
		c->uid = cred.uid;
	}
	if (!http_share_enter(c, from)) {
		complain(s, "a client has its share of the connections");
		close(fd);
		free(c);
		return;
	}
	s->accepting = c;
	if (MHD_add_connection(s->mhd, fd, &none, sizeof(none)) != MHD_YES || s->accepting) {
		/* the descriptor is closed all the same */
		s->accepting = NULL;
		http_share_leave(c);
		free(c);
		return;
	}
	http_hangup_watch(c);
	LIST_INSERT_HEAD(&s->conns, c, link);
	s->n_conns++;
	s->n_tcp += li->tcp;
	if (!s->sweep)
		s->sweep = loop_timer(s->loop, clock_now_ns() + s->idle_ns / 8, sweep, s);
	http_kick(s);
}

static void accept_some(void *user, short revents)
{
	struct http_listener *li = user;
	struct http_server *s = li->s;

	(void)revents;
	for (int i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
		socklen_t len = sizeof(from);
		int fd;

		if (is_full(li)) {
			s->full = true;
			loop_set(li->watch, 0);
			complain(s, "%u connections are open; more wait", s->n_conns);
			return;
		}
		fd = accept4(li->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			add(li, fd, (const struct sockaddr *)&from);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			complain(s, "accept a connection: %s; more wait", strerrordesc_np(errno));
			listen_again(s, false);
			if (!s->breath)
				s->breath =
					loop_timer(s->loop, clock_deadline(BREATH_MS), breathed, s);
			return;
		}
	}
}

/* ---- what MHD asks ------------------------------------------------------------------------- */

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* The request line as it came, before MHD takes it apart. */
static void *saw_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	struct http_conn *c = conn_of(mhd);

	(void)cls;
	if (c) {
		free(c->uri);
		c->uri = strdup(uri);
	}
	return NULL;
}

/* Decoding is ours (request.c). */
static size_t unescape_nothing(void *cls, struct MHD_Connection *mhd, char *text)
{
	(void)cls;
	(void)mhd;
	return strlen(text);
}

static size_t header_size(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	return info ? info->header_size : 0;
}

/* Its handler has chosen. A body that will not be read need not come: the answer goes now, and ends the connection. */
static enum MHD_Result chosen(struct http_request *rq)
{
	const char *expect = http_header(rq, "Expect");

	if (rq->unframed && !rq->queued)
		return http_answer_queue(rq);
	if (rq->answer != HTTP_NO_ANSWER && !rq->queued && rq->length &&
		((expect && !strcasecmp(expect, "100-continue")) ||
			(rq->length != UINT64_MAX && rq->length > LIMIT_HTTP_DISCARD)))
		return http_answer_queue(rq);
	return MHD_YES;
}

/* Its headers are here. */
static enum MHD_Result begin(
	struct http_server *s, struct MHD_Connection *mhd, const char *method, void **rq_cls)
{
	struct http_conn *c = conn_of(mhd);
	struct http_request *rq;
	const char *why = NULL;
	unsigned status = 0;

	if (!c || !c->uri || s->stopping)
		return MHD_NO;
	rq = http_request_new(c, mhd, method, steal_ptr(&c->uri), &status, &why);
	*rq_cls = rq;
	c->deadline = clock_now_ns() + s->idle_ns;
	if (!status && header_size(mhd) > LIMIT_HTTP_HEADER) {
		status = 431;
		why = "the request's headers are too long";
	}
	if (status)
		http_answer_error(rq, status, why);
	else
		s->fn(s->user, rq);
	return rq->waits ? MHD_YES : chosen(rq);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *mhd, const char *url,
	const char *method, const char *version, const char *data, size_t *len, void **rq_cls)
{
	struct http_server *s = cls;
	struct http_request *rq = *rq_cls;

	(void)url;
	(void)version;
	if (!rq)
		return begin(s, mhd, method, rq_cls);
	if (s->stopping)
		return MHD_NO;
	if (rq->gone && !rq->whole) /* and no more of it will come */
		return MHD_NO;
	if (rq->waited) { /* MHD calls for the headers once more */
		rq->waited = false;
		return chosen(rq);
	}
	if (rq->suspended) /* the next chunk of what has just been refused */
		return MHD_YES;
	if (*len) {
		if (http_body_data(rq, data, len))
			return MHD_YES;
		http_answer_rest(rq);
		return MHD_NO;
	}
	rq->whole = true;
	if (!rq->ended)
		http_body_end(rq);
	if (rq->answer != HTTP_NO_ANSWER)
		return http_answer_queue(rq);
	if (rq->gone) /* it hung up while it waited */
		return MHD_NO;
	if (rq->ended)
		http_suspend(rq);
	return MHD_YES;
}

static void completed(
	void *cls, struct MHD_Connection *mhd, void **rq_cls, enum MHD_RequestTerminationCode how)
{
	struct http_request *rq = *rq_cls;

	(void)cls;
	(void)mhd;
	*rq_cls = NULL;
	if (rq)
		http_request_over(rq, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

/* What it says of clients' mistakes. */
static void said(void *cls, const char *fmt, va_list args)
{
	char text[512];

	(void)cls;
	/* on a unix socket it tries TCP's options with every answer */
	if (log_get_level() < LOG_LEVEL_DEBUG || strstr(fmt, "Setting %s option") ||
		strstr(fmt, "Failed to push"))
		return;
	vsnprintf(text, sizeof(text), fmt, args);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http: %s", text);
}

/* ---- the server ---------------------------------------------------------------------------- */

/* Sandboxes need descriptors too: connections get a quarter of those that there may be. */
static unsigned most_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / 4 >= LIMIT_HTTP_CONNECTIONS)
		return LIMIT_HTTP_CONNECTIONS;
	return files.rlim_cur < 64 ? 16 : (unsigned)(files.rlim_cur / 4);
}

int http_server_new(
	struct loop *l, http_handler_fn *fn, void *user, struct http_server **ret, struct err *err)
{
	cleanup_http_server struct http_server *s = calloc(1, sizeof(*s));
	const union MHD_DaemonInfo *info;

	if (!s)
		abort();
	*s = (struct http_server){.loop = l, .fn = fn, .user = user};
	s->max_conns = most_connections();
	s->max_bodies = LIMIT_HTTP_BODIES;
	s->idle_ns = LIMIT_HTTP_IDLE_S * SECOND;
	s->stall_ns = LIMIT_HTTP_STALL_S * SECOND;
	s->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE |
			MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG,
		0, NULL, NULL, handle, s, MHD_OPTION_EXTERNAL_LOGGER, said, NULL,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIMIT_HTTP_CONNECTIONS + 8,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_SIZE,
		MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_NOTIFY_CONNECTION, connection_changed,
		s, MHD_OPTION_NOTIFY_COMPLETED, completed, s, MHD_OPTION_URI_LOG_CALLBACK, saw_uri,
		s, MHD_OPTION_UNESCAPE_CALLBACK, unescape_nothing, NULL, MHD_OPTION_END);
	info = s->mhd ? MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info)
		return err_set(err, EIO, "start the HTTP server: libmicrohttpd refused");
	s->watch = loop_add(l, info->epoll_fd, POLLIN, events_came, s, err);
	if (!s->watch)
		return -EIO;
	*ret = steal_ptr(&s);
	return 0;
}

int http_server_listen(struct http_server *s, int fd, bool tcp, struct err *err)
{
	struct http_listener *li = calloc(1, sizeof(*li));
	int flags = fcntl(fd, F_GETFL);

	if (!li)
		abort();
	*li = (struct http_listener){.s = s, .fd = fd, .tcp = tcp};
	/* a client that is gone before it was accepted must not make accept(2) wait */
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		free(li);
		return err_sys(err, errno, "set up a listening socket");
	}
	li->watch = loop_add(s->loop, fd, POLLIN, accept_some, li, err);
	if (!li->watch) {
		free(li);
		return -EIO;
	}
	LIST_INSERT_HEAD(&s->listeners, li, link);
	return 0;
}

void http_server_quiesce(struct http_server *s)
{
	struct http_listener *li;
	struct http_conn *c;

	s->quiesced = true;
	while ((li = LIST_FIRST(&s->listeners))) {
		LIST_REMOVE(li, link);
		loop_remove(li->watch);
		close_fd(&li->fd);
		free(li);
	}
	LIST_FOREACH(c, &s->conns, link) {
		/* what has not come whole has not begun; an upload has */
		bool begun = c->rq &&
			(c->rq->whole || c->rq->body == HTTP_UPLOAD || c->rq->body == HTTP_FORM ||
				c->rq->queued);

		if (!begun)
			http_conn_cut(c);
	}
}

unsigned http_server_awaited(const struct http_server *s)
{
	const struct http_conn *c;
	unsigned n = 0;

	LIST_FOREACH(c, &s->conns, link)
		n += c->rq && !c->cut && !c->rq->gone;
	return n;
}

void http_server_stop(struct http_server *s)
{
	struct http_request *rq;

	if (s->stopping)
		return;
	http_server_quiesce(s);
	s->stopping = true;
	loop_timer_cancel(s->run);
	loop_timer_cancel(s->sweep);
	loop_timer_cancel(s->breath);
	loop_remove(s->watch);
	/* MHD refuses to stop with suspended connections; their handlers see that we stop */
	LIST_FOREACH(rq, &s->requests, link) {
		http_upgrade_cut(rq);
		if (rq->conn)
			http_resume(rq);
	}
	if (s->mhd)
		MHD_stop_daemon(s->mhd);
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	http_server_stop(s);
	while (!LIST_EMPTY(&s->requests))
		http_request_free(LIST_FIRST(&s->requests));
	free(s);
}
