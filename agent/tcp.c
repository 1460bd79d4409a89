/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP on the guest's loopback, both ways round. PORT: the host connects to a server in
 * the guest. PROXY: a program in the guest connects to the agent, and the host is asked to
 * serve that connection (PROXY_OPEN, an even stream). Either is a link: a socket whose two
 * directions are a source and a sink.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "agent/agent.h"
#include "agent/main.h"
#include "agent/pump.h"
#include "agent/request.h"

#define PROXY_BACKLOG 128

struct link {
	struct stream *stream;
	struct source out;
	struct sink in;
	struct watch *connecting;
	int fd; /* while connecting */
	uint16_t port;
	bool proxy;    /* the host is the server and ends it */
	bool canceled; /* proxy: the client has gone, the host was told */
};

static int proxy_fd = -1;
static struct watch *proxy_watch;
static unsigned proxy_links;

static void proxy_accept(void *user, uint32_t events);

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void link_free(struct link *l)
{
	bool proxy = l->proxy;

	watch_remove(l->connecting);
	close_fd(&l->fd);
	source_close(&l->out);
	sink_close(&l->in);
	free(l);
	if (!proxy)
		return;
	if (proxy_links-- == AGENT_PROXY_MAX && proxy_watch) /* it waited for this */
		watch_set(proxy_watch, EPOLLIN | EPOLLONESHOT);
}

/* A direction has ended. */
static void link_check(void *user)
{
	struct link *l = user;
	uint8_t buf[32];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	if (!l->stream) { /* proxy_reply() was; the last byte is written */
		link_free(l);
		return;
	}
	if (l->proxy) {
		/* with the client gone nobody reads what the host sends */
		if (l->out.done && l->in.broken && !l->canceled) {
			l->canceled = true;
			stream_cancel(l->stream);
		}
		return;
	}
	if (!l->out.done || !l->in.done)
		return;
	proto_put_u64(&o, PROTO_T_BYTES, l->out.total);
	stream_reply(l->stream, &o);
	link_free(l);
}

static int link_start(struct link *l, int fd)
{
	int on = 1, second = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (second < 0) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	source_start(&l->out, fd, l->stream, PROTO_OUT, link_check, l);
	sink_start(&l->in, second, SINK_SHUTDOWN, l->stream, PROTO_IN, link_check, l);
	return 0;
}

/* Closed with bytes unread or unsent a socket resets its peer: right where the host gave up. */
static void link_abort(struct stream *s)
{
	link_free(stream_user(s));
}

static void link_cancel(struct stream *s)
{
	link_abort(s);
	stream_reply_error(s, ECANCELED, "canceled");
}

static void link_data(struct stream *s, unsigned channel, const uint8_t *bytes, uint32_t len)
{
	struct link *l = stream_user(s);

	if (channel == PROTO_IN)
		sink_data(&l->in, bytes, len);
	else
		stream_consumed(s, channel, len);
}

static void link_eof(struct stream *s, unsigned channel)
{
	struct link *l = stream_user(s);

	if (channel == PROTO_IN)
		sink_eof(&l->in);
}

static void link_credit(struct stream *s, unsigned channel)
{
	struct link *l = stream_user(s);

	if (channel == PROTO_OUT)
		source_credit(&l->out);
}

/* ---- PORT ----------------------------------------------------------------------------- */

static const struct stream_ops port_ops = {
	.data = link_data,
	.eof = link_eof,
	.credit = link_credit,
	.cancel = link_cancel,
	.abort = link_abort,
};

static void port_fail(struct link *l, int err)
{
	struct stream *s = l->stream;
	char text[96];

	snprintf(text, sizeof(text), "cannot connect to port %u in the guest: %s", l->port,
		strerror(err));
	link_free(l);
	stream_reply_error(s, err, text);
}

static void port_connected(void *user, uint32_t events)
{
	struct link *l = user;
	socklen_t len = sizeof(int);
	int err = 0, fd = l->fd;

	(void)events;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err) {
		port_fail(l, err);
		return;
	}
	watch_remove(l->connecting);
	l->connecting = NULL;
	l->fd = -1;
	source_start(&l->out, fd, l->stream, PROTO_OUT, link_check, l);
	sink_release(&l->in);
}

void port_request(struct stream *s, unsigned type, struct request *r)
{
	struct sockaddr_in addr = loopback((uint16_t)r->port);
	struct link *l;
	int on = 1, second;

	(void)type;
	if (!r->has_port || r->port < 1 || r->port > 65535) {
		stream_reply_error(s, EINVAL, "a port is 1 to 65535");
		return;
	}
	l = agent_alloc(sizeof(*l));
	*l = (struct link){.stream = s, .port = (uint16_t)r->port};
	l->out.done = l->in.done = true; /* until they are started */
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || (connect(l->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 &&
				 errno != EINPROGRESS)) {
		port_fail(l, errno);
		return;
	}
	setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	second = fcntl(l->fd, F_DUPFD_CLOEXEC, 3);
	l->connecting = watch_add(l->fd, EPOLLOUT | EPOLLONESHOT, port_connected, l);
	if (second < 0 || !l->connecting) {
		close_fd(&second);
		port_fail(l, EMFILE);
		return;
	}
	sink_start(&l->in, second, SINK_SHUTDOWN, s, PROTO_IN, link_check, l);
	l->in.held = true; /* until it is connected */
	l->out.done = false;
	l->out.fd = -1;
	stream_set(s, &port_ops, l);
}

/* ---- PROXY ---------------------------------------------------------------------------- */

/* The host has ended it; what it sent before is still written to the client. */
static void proxy_reply(struct stream *s, const uint8_t *body, uint32_t len)
{
	struct link *l = stream_user(s);

	(void)body;
	(void)len;
	l->stream = l->in.stream = l->out.stream = NULL;
	source_close(&l->out);
	if (l->in.done)
		link_free(l);
	else
		sink_eof(&l->in); /* link_check() frees it */
}

static const struct stream_ops proxy_ops = {
	.data = link_data,
	.eof = link_eof,
	.credit = link_credit,
	.reply = proxy_reply,
	.abort = link_abort,
};

static void proxy_accept(void *user, uint32_t events)
{
	(void)user;
	(void)events;
	while (proxy_links < AGENT_PROXY_MAX) {
		int fd = accept4(proxy_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct link *l;

		if (fd < 0)
			break;
		l = agent_alloc(sizeof(*l));
		*l = (struct link){.proxy = true, .fd = -1};
		l->out.done = l->in.done = true;
		l->stream = stream_open(agent_wire, PROTO_PROXY_OPEN, &proxy_ops, l);
		proxy_links++;
		if (!l->stream) {
			close(fd);
			link_free(l);
		} else if (link_start(l, fd) < 0) {
			l->canceled = true;
			stream_cancel(l->stream);
		}
	}
	/* at the bound, clients wait in the backlog until a link ends */
	if (proxy_links < AGENT_PROXY_MAX)
		watch_set(proxy_watch, EPOLLIN | EPOLLONESHOT);
}

void proxy_reset(void)
{
	watch_remove(proxy_watch);
	proxy_watch = NULL;
	close_fd(&proxy_fd);
}

void proxy_request(struct stream *s, unsigned type, struct request *r)
{
	struct sockaddr_in addr = loopback((uint16_t)r->port);
	char text[96];
	int on = 1, err;

	(void)type;
	if (!r->has_port || r->port > 65535) {
		stream_reply_error(s, EINVAL, "a port is 1 to 65535, or 0 to stop");
		return;
	}
	proxy_reset();
	if (r->port == 0) {
		stream_reply(s, NULL);
		return;
	}
	proxy_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (proxy_fd >= 0 &&
		setsockopt(proxy_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
		bind(proxy_fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
		listen(proxy_fd, PROXY_BACKLOG) == 0)
		proxy_watch = watch_add(proxy_fd, EPOLLIN | EPOLLONESHOT, proxy_accept, NULL);
	if (!proxy_watch) {
		err = errno;
		snprintf(text, sizeof(text), "cannot listen on port %u in the guest: %s", r->port,
			strerror(err));
		proxy_reset();
		stream_reply_error(s, err, text);
		return;
	}
	stream_reply(s, NULL);
}
