/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy's connections. Each is a small machine of its own:
 *
 *     HEAD ──► LOOKUP ──► CONNECT ──┬──────────────► OPEN ──► gone
 *       └ refused: an answer, gone  └► TUNNEL ──────► (through the host's own proxy)
 *
 * LOOKUP waits for its turn where other connections of the same sandbox or key look names up. It
 * comes twice where the host has a proxy of its own and names are looked up here: first for the
 * name that the guest asked for, whose address is checked and is where the tunnel leads; then for
 * the proxy.
 *
 * No bytes are stored here beyond a head. While a connection is not OPEN, or its socket takes no
 * more, what the guest sends stays in the stream's queue, and the guest sends no more than its
 * credit. From the socket no more is read than the guest has given credit for. A connection is one
 * request: bytes past the end of a plain request's body are dropped.
 *
 * A connection is freed as soon as it ends, which can be within any call of resume() of the transport:
 * after such a call the connection is not touched.
 */
#include "egress/connection_private.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/timerfd.h>

#include "common/str.h"

enum conn_state { CONN_HEAD, CONN_LOOKUP, CONN_CONNECT, CONN_TUNNEL, CONN_OPEN };

struct proxy_conn {
	struct proxy *p;
	void *s; /* the transport's stream */
	enum conn_state state;
	char *head; /* LIMIT_PROXY_HEAD: the request's, then the upstream's answer */
	size_t head_len, request_len;
	struct proxy_head h;
	const struct proxy_upstream *via; /* NULL: directly */
	bool any_address;
	bool checked; /* via: the tunnel leads to an address, target, that was checked here */
	char target[272];

	struct proxy_lookup *lookup; /* NULL: it waits for its turn */
	unsigned waited_ms;
	const struct addrinfo *next; /* to be tried after this one */
	unsigned tried;
	const char *bad_address; /* the last one's reason */
	int fault; /* errno of the last try */

	int sock, timer;
	void *watch, *timer_watch; /* of the transport */
	char *request; /* a plain one's head, to be sent as soon as data may flow */
	size_t request_out;
	char *out; /* to be sent before anything else */
	size_t out_len, out_pos;
	uint64_t body_left;
	bool blocked, guest_eof, net_eof;
};

/* ---- what it waits for ------------------------------------------------------------------ */

static void *watch_add(
	struct proxy_conn *c, int fd, short events, void (*fn)(void *user, short revents))
{
	return c->p->transport->watch(c->p->transport_user, fd, events, fn, c);
}

static void watch_remove(struct proxy_conn *c, void *watch)
{
	if (watch)
		c->p->transport->unwatch(watch);
}

/* ---- its end ---------------------------------------------------------------------------- */

static void conn_free(struct proxy_conn *c)
{
	for (size_t i = 0; i < LIMIT_PROXY_STREAMS; i++) {
		if (c->p->conns[i] == c)
			c->p->conns[i] = NULL;
	}
	watch_remove(c, c->watch);
	watch_remove(c, c->timer_watch);
	proxy_lookup_free(c->lookup);
	close_fd(&c->sock);
	close_fd(&c->timer);
	free(c->head);
	free(c->request);
	free(c->out);
	free(c);
}

void proxy_conn_end(struct proxy_conn *c, int error, const char *text)
{
	c->p->transport->reply(c->s, error, text);
	conn_free(c);
}

/* Answer instead of the server, and end. */
__attribute__((format(printf, 3, 4))) static void conn_answer(
	struct proxy_conn *c, int status, const char *fmt, ...)
{
	static const struct {
		int status;
		const char *words;
	} names[] = {{400, "Bad Request"}, {403, "Forbidden"}, {411, "Length Required"},
		{431, "Request Header Fields Too Large"}, {502, "Bad Gateway"},
		{503, "Service Unavailable"}, {504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"}};
	const char *words = "Error";
	char text[1024], head[512];
	va_list args;
	int n;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text) - 1, fmt, args);
	va_end(args);
	strcat(text, "\n");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].status == status)
			words = names[i].words;
	}
	n = snprintf(head, sizeof(head),
		"HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n\r\n",
		status, words, strlen(text));
	c->p->transport->send(c->s, head, (size_t)n);
	c->p->transport->send(c->s, text, strlen(text));
	c->p->transport->eof(c->s);
	proxy_conn_end(c, 0, NULL);
}

static void refuse_address(struct proxy_conn *c)
{
	char why[128];

	snprintf(why, sizeof(why), "its address is %s", c->bad_address);
	proxy_note_refusal(c->p, c->h.host, c->h.port, why);
	conn_answer(c, 403,
		"parbake: %s has an address that is %s. If that is meant, write "
		"\"allow = %s:%u private\" in the recipe's [network].",
		c->h.host, c->bad_address, c->h.host, c->h.port);
}

/* ---- connecting ------------------------------------------------------------------------- */

static void sock_ready(void *user, short revents);
static void connect_next(struct proxy_conn *c);
static void lookup_begin(struct proxy_conn *c);

static void timer_arm(struct proxy_conn *c, int ms)
{
	const struct itimerspec t = {.it_value = {ms / 1000, (ms % 1000) * 1000000L}};

	timerfd_settime(c->timer, 0, &t, NULL);
}

static void timer_fired(void *user, short revents)
{
	struct proxy_conn *c = user;
	uint64_t n;

	(void)revents;
	if (read(c->timer, &n, sizeof(n)) != sizeof(n))
		return;
	if (c->state == CONN_LOOKUP && !c->lookup) {
		lookup_begin(c);
	} else if (c->state == CONN_LOOKUP) {
		conn_answer(c, 504, "parbake: looking up %s takes too long", c->h.host);
	} else if (c->state == CONN_CONNECT) {
		c->fault = ETIMEDOUT;
		connect_next(c);
	} else {
		conn_answer(c, 504, "parbake: the host's own proxy does not answer");
	}
}

/* What to wait for on the socket, by where the connection stands. */
static void conn_update(struct proxy_conn *c)
{
	short events = 0;

	if (c->state == CONN_CONNECT || c->out || c->blocked)
		events |= POLLOUT;
	if (c->state == CONN_TUNNEL && !c->out)
		events |= POLLIN;
	if (c->state == CONN_OPEN && !c->net_eof && c->p->transport->room(c->s))
		events |= POLLIN;
	if (c->watch)
		c->p->transport->watch_set(c->watch, events);
}

/* The guest will send no more: say so to the network, once all it sent has gone there. */
static void pass_eof(struct proxy_conn *c)
{
	if (c->guest_eof && c->state == CONN_OPEN && !c->out)
		shutdown(c->sock, SHUT_WR);
}

/* Data may flow. @early: bytes that an upstream proxy sent behind its answer. */
static void conn_open(struct proxy_conn *c, const char *early, size_t n_early)
{
	static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";

	watch_remove(c, c->timer_watch);
	c->timer_watch = NULL;
	close_fd(&c->timer);
	c->state = CONN_OPEN;
	if (c->request) {
		c->out = c->request;
		c->request = NULL;
		c->out_len = c->request_out;
		c->out_pos = 0;
		c->body_left = c->h.body_bytes;
	}
	if (c->h.connect)
		c->p->transport->send(c->s, established, strlen(established));
	c->p->transport->send(c->s, early, n_early);
	pass_eof(c);
	conn_update(c);
	c->p->transport->resume(c->s);
}

static void connected(struct proxy_conn *c)
{
	const char *auth = c->via ? c->via->auth : NULL;
	char authority[272];

	/* now, as the answer to CONNECT comes where its head lies; in a tunnel it is as to the server itself */
	if (!c->h.connect)
		c->request = proxy_head_rewrite(c->head, c->request_len, &c->h,
			c->via && !c->checked, auth, &c->request_out);
	if (!c->via || (!c->h.connect && !c->checked)) {
		conn_open(c, NULL, 0);
		return;
	}
	if (c->checked)
		strcpy(authority, c->target);
	else
		proxy_authority_text(c->h.host, c->h.port, authority);
	c->out = str_printf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", authority, authority,
		auth ? "Proxy-Authorization: " : "", auth ? auth : "", auth ? "\r\n" : "");
	c->out_len = strlen(c->out);
	c->head_len = 0;
	c->state = CONN_TUNNEL;
	timer_arm(c, LIMIT_PROXY_CONNECT_MS);
	conn_update(c);
}

/* Try the next address that may be tried. */
static void connect_next(struct proxy_conn *c)
{
	watch_remove(c, c->watch);
	c->watch = NULL;
	close_fd(&c->sock);
	while (c->next && c->tried < LIMIT_PROXY_ADDRESSES) {
		const struct addrinfo *a = c->next;
		const char *bad =
			c->any_address || c->via ? NULL : proxy_address_refused(a->ai_addr);

		c->next = a->ai_next;
		if (bad) {
			c->bad_address = bad;
			continue;
		}
		c->tried++;
		c->sock = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (c->sock < 0 ||
			(connect(c->sock, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS)) {
			c->fault = errno;
			close_fd(&c->sock);
			continue;
		}
		timer_arm(c, c->next ? LIMIT_PROXY_CONNECT_MS / 4 : LIMIT_PROXY_CONNECT_MS);
		c->state = CONN_CONNECT;
		c->watch = watch_add(c, c->sock, POLLOUT, sock_ready);
		return;
	}
	if (!c->tried && c->bad_address)
		refuse_address(c);
	else
		conn_answer(c, c->fault == ETIMEDOUT ? 504 : 502, "parbake: connecting to %s: %s",
			c->via ? "the host's own proxy" : c->h.host,
			c->fault ? strerrordesc_np(c->fault) : "it has no address");
}

/* Is it the host that is asked for whose address is looked up, and not the upstream proxy's? */
static bool looks_up_target(const struct proxy_conn *c)
{
	return !c->via || (c->p->resolve_here && !c->any_address && !c->checked);
}

/* Where the upstream's tunnel may lead: the first address that is not refused. */
static void target_found(struct proxy_conn *c, const struct addrinfo *found)
{
	char host[256];

	for (; found; found = found->ai_next) {
		const char *bad = proxy_address_refused(found->ai_addr);

		if (bad) {
			c->bad_address = bad;
		} else if (getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof(host), NULL,
				   0, NI_NUMERICHOST) == 0) {
			proxy_authority_text(host, c->h.port, c->target);
			c->checked = true;
			break;
		}
	}
	if (c->checked) {
		watch_remove(c, c->watch);
		c->watch = NULL;
		proxy_lookup_free(c->lookup);
		c->lookup = NULL;
		lookup_begin(c);
	} else if (c->bad_address) {
		refuse_address(c);
	} else {
		conn_answer(c, 502, "parbake: looking up %s: it has no address", c->h.host);
	}
}

static void lookup_ready(void *user, short revents)
{
	struct proxy_conn *c = user;
	const struct addrinfo *found;
	const char *why;

	(void)revents;
	if (proxy_lookup_result(c->lookup, &found, &why) < 0) {
		conn_answer(c, 502, "parbake: looking up %s: %s",
			looks_up_target(c) ? c->h.host : c->via->host, why);
	} else if (c->via && looks_up_target(c)) {
		target_found(c, found);
	} else {
		c->next = found;
		connect_next(c);
	}
}

/* Look up what is next to be; where no more may run now, again in a moment. */
static void lookup_begin(struct proxy_conn *c)
{
	bool target = looks_up_target(c);
	int r = proxy_lookup_start(target ? c->h.host : c->via->host,
		target ? c->h.port : c->via->port, &c->p->who, &c->lookup);

	if (r < 0 && (r != -EAGAIN || c->waited_ms >= LIMIT_PROXY_CONNECT_MS)) {
		conn_answer(c, 503, "parbake: too much is under way; try again");
	} else if (r < 0) {
		c->waited_ms += LIMIT_PROXY_LOOKUP_RETRY_MS;
		timer_arm(c, LIMIT_PROXY_LOOKUP_RETRY_MS);
	} else {
		timer_arm(c, LIMIT_PROXY_CONNECT_MS);
		c->watch = watch_add(c, proxy_lookup_fd(c->lookup), POLLIN, lookup_ready);
	}
}

/* The request's head is whole. */
static void conn_request(struct proxy_conn *c)
{
	struct proxy *p = c->p;
	const char *why = "";
	int status = proxy_head_parse(c->head, c->request_len, &c->h, &why);

	if (status) {
		conn_answer(c, status, "parbake: %s", why);
		return;
	}
	if (!proxy_allows(p, &c->h, &c->any_address)) {
		proxy_note_refusal(p, c->h.host, c->h.port, "not in [network] allow");
		conn_answer(c, 403, "parbake: %s:%u is not in the recipe's [network] allow",
			c->h.host, c->h.port);
		return;
	}
	c->via = proxy_env_for(&p->env, c->h.connect, c->h.host, c->h.port);
	c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (c->timer < 0) {
		conn_answer(c, 503, "parbake: too much is under way; try again");
		return;
	}
	c->state = CONN_LOOKUP;
	c->timer_watch = watch_add(c, c->timer, POLLIN, timer_fired);
	lookup_begin(c);
}

/* ---- the socket ------------------------------------------------------------------------- */

/* Send what is to go first. False: not all of it yet, or the connection is gone. */
static bool flush_out(struct proxy_conn *c)
{
	while (c->out_pos < c->out_len) {
		ssize_t n =
			send(c->sock, c->out + c->out_pos, c->out_len - c->out_pos, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return false;
		if (n < 0) {
			proxy_conn_end(c, errno, "the connection broke");
			return false;
		}
		c->out_pos += (size_t)n;
	}
	free(c->out);
	c->out = NULL;
	pass_eof(c);
	return true;
}

/* The host's own proxy answers CONNECT. */
static void tunnel_read(struct proxy_conn *c)
{
	size_t end;
	ssize_t n = recv(c->sock, c->head + c->head_len, LIMIT_PROXY_HEAD - c->head_len, 0);
	int status;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		c->head_len += (size_t)n;
	end = proxy_head_end(c->head, c->head_len);
	if (!end && n > 0 && c->head_len < LIMIT_PROXY_HEAD)
		return;
	status = end ? proxy_head_status(c->head, end) : -1;
	if (status < 200 || status > 299) {
		conn_answer(c, 502, "parbake: the host's own proxy refused %s:%u (status %d)",
			c->h.host, c->h.port, status);
		return;
	}
	conn_open(c, c->head + end, c->head_len - end);
}

/* Bytes, or the end, from the network. False: the connection is gone. */
static bool net_read(struct proxy_conn *c)
{
	size_t room = c->p->transport->room(c->s);
	ssize_t n;

	if (!room)
		return true;
	n = recv(c->sock, c->p->buf, room < sizeof(c->p->buf) ? room : sizeof(c->p->buf), 0);
	if (n > 0) {
		c->p->transport->send(c->s, c->p->buf, (size_t)n);
		return true;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n < 0) {
		proxy_conn_end(c, errno, "the connection broke");
		return false;
	}
	c->net_eof = true;
	c->p->transport->eof(c->s);
	if (!c->h.connect || c->guest_eof) {
		proxy_conn_end(c, 0, NULL);
		return false;
	}
	return true;
}

static void sock_ready(void *user, short revents)
{
	struct proxy_conn *c = user;

	if (c->state == CONN_CONNECT) {
		socklen_t len = sizeof(c->fault);

		if (getsockopt(c->sock, SOL_SOCKET, SO_ERROR, &c->fault, &len) < 0)
			c->fault = errno;
		if (c->fault)
			connect_next(c);
		else
			connected(c);
		return;
	}
	if (c->out && !flush_out(c))
		return;
	if (c->state == CONN_TUNNEL) {
		if (revents & (POLLIN | POLLHUP | POLLERR))
			tunnel_read(c);
		else
			conn_update(c);
		return;
	}
	if ((revents & (POLLIN | POLLHUP | POLLERR)) && !c->net_eof && !net_read(c))
		return;
	if (revents & (POLLOUT | POLLERR)) {
		c->blocked = false;
		conn_update(c);
		c->p->transport->resume(c->s);
		return;
	}
	conn_update(c);
}

/* ---- the guest's side ------------------------------------------------------------------- */

static size_t head_take(struct proxy_conn *c, const uint8_t *bytes, size_t len)
{
	size_t room = LIMIT_PROXY_HEAD - c->head_len, had = c->head_len, n, end;

	n = len < room ? len : room;
	memcpy(c->head + had, bytes, n);
	c->head_len += n;
	end = proxy_head_end(c->head, c->head_len);
	if (!end) {
		if (c->head_len == LIMIT_PROXY_HEAD)
			conn_answer(c, 431, "parbake: a request's head is longer than %lu bytes",
				LIMIT_PROXY_HEAD);
		return n;
	}
	c->request_len = end;
	conn_request(c);
	return end - had;
}

size_t proxy_conn_data(struct proxy_conn *c, const uint8_t *bytes, size_t len)
{
	size_t want = len;
	ssize_t n;

	if (c->state == CONN_HEAD)
		return head_take(c, bytes, len);
	if (c->state != CONN_OPEN || c->out || c->blocked)
		return 0;
	if (!c->h.connect && want > c->body_left)
		want = (size_t)c->body_left;
	if (!want)
		return len; /* past the request's end */
	do
		n = send(c->sock, bytes, want, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) {
		proxy_conn_end(c, errno, "the connection broke");
		return len;
	}
	if (n < 0)
		n = 0;
	if (!c->h.connect)
		c->body_left -= (uint64_t)n;
	if ((size_t)n < want) {
		c->blocked = true;
		conn_update(c);
		return (size_t)n;
	}
	return len;
}

void proxy_conn_eof(struct proxy_conn *c)
{
	c->guest_eof = true;
	if (c->state == CONN_HEAD) {
		if (c->head_len)
			conn_answer(c, 400, "parbake: the request ends in its head");
		else
			proxy_conn_end(c, 0, NULL);
	} else if (c->state == CONN_OPEN && c->net_eof) {
		proxy_conn_end(c, 0, NULL);
	} else {
		pass_eof(c);
	}
}

void proxy_conn_writable(struct proxy_conn *c)
{
	if (c->state == CONN_OPEN)
		conn_update(c);
}

void proxy_conn_lost(struct proxy_conn *c)
{
	conn_free(c);
}

struct proxy_conn *proxy_conn_new(struct proxy *p, void *stream)
{
	struct proxy_conn *c = malloc(sizeof(*c));

	if (!c)
		abort();
	*c = (struct proxy_conn){.p = p, .s = stream, .sock = -1, .timer = -1};
	c->head = malloc(LIMIT_PROXY_HEAD);
	if (!c->head)
		abort();
	return c;
}
