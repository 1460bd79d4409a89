/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to an agent: input, output, synchronising, and what makes it dead.
 *
 * Output. Frames wait in two places: `out`, one flat buffer that leaves by one send(2), and the
 * streams' own queues (stream.c). guest_fill() moves frames from the streams into `out` in turns,
 * and only while `out` holds less than GUEST_OUT_HIGH: so a SYNC, an IDENTITY and the first request
 * leave in one write, while an agent that does not read cannot make `out` grow past GUEST_OUT_HIGH
 * and one stream's frames.
 *
 * Input. A frame is looked at as soon as its header is there, so that nothing is gathered for a
 * frame that will be refused, and handled when all of it is. Every rule of agent/proto.h is checked
 * here (for the frame) or in frame.c (for its stream); the first one broken makes the guest dead,
 * with a text that names it. There is no way back.
 *
 * Synchronising. All SYNCs between two calls of guest_sync_send() carry the same nonce: an agent
 * that takes longer than the time between two of them (a busy host) still answers one that counts.
 * HELLOs to an older nonce are dropped with everything else that comes before ours; those to our
 * further SYNCs come later and are expected, one for each. A SYNC ends every stream, so while
 * another one may have to be sent (`hold`), requests wait for HELLO; without it they leave right
 * behind SYNC.
 */
#include "common/buffer.h"
#include "vmm/guest/guest_private.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/clock.h"

#define RX_SIZE (64u << 10) /* a read's worth; more only for a longer frame */
#define RX_BUDGET (1u << 20) /* bytes read in one dispatch: others want their turn */

/* ---- life ------------------------------------------------------------------------------- */

int guest_new(int fd, struct guest **ret, struct err *err)
{
	struct stat st;
	struct guest *g;
	int flags;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "the agent's channel");
	if (!S_ISSOCK(st.st_mode))
		return err_set(err, ENOTSOCK, "the agent's channel is not a socket");
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_sys(err, errno, "the agent's channel");
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(err, ENOMEM, "out of memory");
	g->fd = fd;
	TAILQ_INIT(&g->ready);
	*ret = g;
	return 0;
}

static void die(struct guest *g, int code)
{
	char text[sizeof(g->dead_text)];

	g->dead = code;
	g->synced = false;
	memcpy(text, g->dead_text, sizeof(text));
	guest_streams_end(g, ECONNRESET, text);
	buffer_free(&g->out);
}

/* The guest is dead from now on; streams are told. Harmless where it is already. */
__attribute__((format(printf, 3, 4))) static void guest_die(
	struct guest *g, int code, const char *fmt, ...)
{
	va_list args;

	if (g->dead)
		return;
	va_start(args, fmt);
	vsnprintf(g->dead_text, sizeof(g->dead_text), fmt, args);
	va_end(args);
	die(g, code);
}

void guest_free(struct guest *g)
{
	if (!g)
		return;
	guest_die(g, ECONNRESET, "the agent's channel was closed");
	for (size_t i = 0; i < g->n_watches; i++)
		free(g->watches[i]);
	free(g->watches);
	free(g->polls);
	buffer_free(&g->rx);
	buffer_free(&g->out);
	close_fd(&g->fd);
	free(g);
}

int guest_fd(const struct guest *g)
{
	return g->fd;
}

short guest_events(const struct guest *g)
{
	short events = POLLIN;

	if (g->dead)
		return 0;
	if (g->out.len || (!TAILQ_EMPTY(&g->ready) && g->sync_begun && (g->synced || !g->hold)))
		events |= POLLOUT;
	return events;
}

void guest_breach(struct guest *g, const char *fmt, ...)
{
	va_list args;
	int n;

	if (g->dead)
		return;
	n = snprintf(g->dead_text, sizeof(g->dead_text), "the agent broke the protocol: ");
	va_start(args, fmt);
	vsnprintf(g->dead_text + n, sizeof(g->dead_text) - (size_t)n, fmt, args);
	va_end(args);
	die(g, EPROTO);
}

/* ---- output ----------------------------------------------------------------------------- */

void guest_frame(struct guest *g, enum proto_type type, uint16_t flags, uint32_t stream,
	const void *body, uint32_t len)
{
	struct proto_header h = {PROTO_MAGIC, (uint16_t)type, flags, stream, len};

	buffer_reserve(&g->out, sizeof(h) + len);
	buffer_append(&g->out, &h, sizeof(h));
	buffer_append(&g->out, body, len);
}

/* @n bytes left: know how much of a frame is still to go, should SYNC have to follow it. */
static void out_sent(struct guest *g, size_t n)
{
	g->sent += n;
	while (n) {
		size_t step;

		if (!g->out_left) {
			struct proto_header h;

			/* there are bytes: some were just sent */
			memcpy(&h, g->out.bytes + g->out.head, /* NOLINT */
				sizeof(h));
			g->out_left = sizeof(h) + h.length;
		}
		step = n < g->out_left ? n : g->out_left;
		g->out_left -= step;
		n -= step;
		buffer_consume(&g->out, step);
	}
}

void guest_flush(struct guest *g)
{
	while (!g->dead) {
		ssize_t n;

		if (g->sync_begun && (g->synced || !g->hold))
			guest_fill(g);
		if (!g->out.len)
			return;
		n = send(
			g->fd, g->out.bytes + g->out.head, g->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				return;
			g->dead_by_eof = true;
			guest_die(g, ECONNRESET, "the agent's channel broke: %s",
				strerrordesc_np(errno));
			return;
		}
		if ((size_t)n < g->out.len) {
			out_sent(g, (size_t)n);
			return;
		}
		out_sent(g, (size_t)n);
	}
}

/* ---- synchronising ---------------------------------------------------------------------- */

/* Queue a SYNC behind nothing but the rest of a frame that is on its way already. */
static void sync_queue(struct guest *g)
{
	struct proto_sync sync = {.version_min = PROTO_VERSION, .version_max = PROTO_VERSION};

	g->out.len = g->out_left;
	memcpy(sync.nonce, g->nonce, sizeof(sync.nonce));
	guest_frame(g, PROTO_SYNC, 0, 0, &sync, sizeof(sync));
	g->hellos_due++;
}

void guest_sync_send(struct guest *g)
{
	if (g->dead)
		return;
	guest_streams_end(g, ECONNRESET, "the connection was synchronised anew");
	if (getrandom(g->nonce, sizeof(g->nonce), 0) != sizeof(g->nonce))
		abort(); /* cannot fail for so few bytes (getrandom(2)) */
	g->synced = false;
	g->sync_begun = true;
	g->hellos_due = 0;
	memset(g->closed, 0, sizeof(g->closed));
	sync_queue(g);
}

bool guest_synced(const struct guest *g, struct proto_hello *ret)
{
	if (g->synced && ret)
		*ret = g->hello;
	return g->synced;
}

int64_t guest_synced_at(const struct guest *g)
{
	return g->synced ? g->synced_at : 0;
}

int guest_sync(
	struct guest *g, int64_t deadline, int also_fd, struct proto_hello *ret, struct err *err)
{
	struct err why;
	int rc;

	if (g->dead)
		return err_set(err, g->dead, "%s", g->dead_text);
	guest_sync_send(g);
	g->hold = true;
	for (;;) {
		int64_t again = clock_deadline(500);
		bool last = deadline <= again;

		rc = guest_wait(g, &g->synced, last ? deadline : again, also_fd, &why);
		if (rc != -ETIMEDOUT || last)
			break;
		sync_queue(g);
	}
	g->hold = false;
	if (rc == -ETIMEDOUT)
		return err_set(err, ETIMEDOUT, "the agent does not answer");
	if (rc < 0)
		return err_set(err, -rc, "%s", why.text);
	if (ret)
		*ret = g->hello;
	return 0;
}

static void hello_take(struct guest *g, const uint8_t *body)
{
	memcpy(&g->hello, body, sizeof(g->hello));
	if (g->hello.version == 0) {
		guest_die(g, EPROTO,
			"the agent speaks no version of the protocol that this program does (%u): "
			"bake the template again",
			PROTO_VERSION);
		return;
	}
	if (g->hello.version != PROTO_VERSION) {
		guest_breach(g, "HELLO chose version %u, which was not offered", g->hello.version);
		return;
	}
	g->hellos_due--;
	g->synced = true;
	g->synced_at = clock_now_ns();
}

/* Drop bytes until our HELLO. Returns how many are done with. */
static size_t rx_unsynced(struct guest *g, const uint8_t *bytes, size_t len)
{
	size_t pos = 0;

	while (pos < len) {
		const struct proto_header want = {PROTO_MAGIC, PROTO_HELLO, 0, 0, PROTO_HELLO_LEN};
		const uint8_t *p = memchr(bytes + pos, PROTO_MAGIC & 0xff, len - pos);
		size_t have;

		if (!p)
			return len;
		pos = (size_t)(p - bytes);
		have = len - pos;
		if (memcmp(p, &want, have < sizeof(want) ? have : sizeof(want)) != 0) {
			pos++;
			continue;
		}
		if (have < sizeof(want) + PROTO_HELLO_LEN)
			return pos;
		if (memcmp(p + sizeof(want), g->nonce, sizeof(g->nonce)) != 0) {
			pos++;
			continue;
		}
		hello_take(g, p + sizeof(want));
		return pos + sizeof(want) + PROTO_HELLO_LEN;
	}
	return len;
}

/* ---- input ------------------------------------------------------------------------------ */

/* The rules of a header alone, by type: which stream, which length. */
static bool header_check(struct guest *g, const struct proto_header *h)
{
	static const struct {
		uint16_t type;
		bool connection, channel;
		uint32_t min, max;
		const char *name;
	} rules[] = {
		{PROTO_HELLO, true, false, PROTO_HELLO_LEN, PROTO_HELLO_LEN, "HELLO"},
		{PROTO_FAULT, true, false, 0, PROTO_BODY_MAX, "FAULT"},
		{PROTO_DATA, false, true, 0, PROTO_DATA_MAX, "DATA"},
		{PROTO_EOF, false, true, 0, 0, "EOF"},
		{PROTO_CREDIT, false, false, 8, 8, "CREDIT"},
		{PROTO_CANCEL, false, false, 0, 0, "CANCEL"},
		{PROTO_REPLY, false, false, 0, PROTO_BODY_MAX, "REPLY"},
		{PROTO_PROXY_OPEN, false, false, 0, PROTO_BODY_MAX, "PROXY_OPEN"},
	};

	if (h->magic != PROTO_MAGIC) {
		guest_breach(g, "a header without the magic number (%08x)", h->magic);
		return false;
	}
	if (h->length > PROTO_BODY_MAX) {
		guest_breach(g, "a frame of %u bytes; at most %u are allowed", h->length,
			PROTO_BODY_MAX);
		return false;
	}
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].type != h->type)
			continue;
		if (rules[i].connection != (h->stream == 0))
			guest_breach(g, "%s on stream %u", rules[i].name, h->stream);
		else if (h->length < rules[i].min || h->length > rules[i].max)
			guest_breach(g, "%s of %u bytes", rules[i].name, h->length);
		else if (rules[i].channel ? h->flags >= PROTO_CHANNELS : h->flags != 0)
			guest_breach(g, "%s with flags %u", rules[i].name, h->flags);
		return !g->dead;
	}
	guest_breach(g, "a frame of type %u, which an agent does not send", h->type);
	return false;
}

/* A frame of the connection itself. */
static void connection_frame(struct guest *g, const struct proto_header *h, const uint8_t *body)
{
	char text[256];
	size_t n;

	if (h->type == PROTO_HELLO) {
		if (!g->hellos_due)
			guest_breach(g, "HELLO without a SYNC");
		else if (memcmp(body, g->nonce, sizeof(g->nonce)) != 0)
			guest_breach(g, "HELLO with a nonce that was not sent");
		else
			hello_take(g, body);
		return;
	}
	/* FAULT: shown to a person, so nothing but text */
	n = h->length < sizeof(text) - 1 ? h->length : sizeof(text) - 1;
	for (size_t i = 0; i < n; i++)
		text[i] = body[i] < 0x20 || body[i] == 0x7f ? '?' : (char)body[i];
	text[n] = '\0';
	guest_die(g, EPROTO, "the agent gave up: %s", text);
}

/* Handle whole frames in the buffer. */
static void rx_process(struct guest *g)
{
	while (!g->dead && g->rx.len) {
		const uint8_t *p = g->rx.bytes + g->rx.head;
		struct proto_header h;
		size_t whole;

		if (!g->synced) {
			size_t n = g->sync_begun ? rx_unsynced(g, p, g->rx.len) : g->rx.len;

			buffer_consume(&g->rx, n);
			if (!g->synced)
				return;
			continue;
		}
		if (g->rx.len < sizeof(h))
			return;
		memcpy(&h, p, sizeof(h));
		if (!header_check(g, &h))
			return;
		whole = sizeof(h) + h.length;
		if (g->rx.len < whole) {
			buffer_reserve(&g->rx, whole - g->rx.len);
			return;
		}
		if (h.stream)
			guest_stream_frame(g, &h, p + sizeof(h));
		else
			connection_frame(g, &h, p + sizeof(h));
		buffer_consume(&g->rx, whole);
	}
}

static void rx_read(struct guest *g)
{
	size_t budget = RX_BUDGET;

	while (!g->dead && budget) {
		uint8_t *to = buffer_reserve(&g->rx, g->rx.len < RX_SIZE ? RX_SIZE - g->rx.len : 1);
		size_t room = g->rx.cap - g->rx.head - g->rx.len;
		ssize_t n = recv(g->fd, to, room, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			g->dead_by_eof = true;
			if (n < 0)
				guest_die(g, ECONNRESET, "the agent's channel broke: %s",
					strerrordesc_np(errno));
			else
				guest_die(g, ECONNRESET, "the agent's channel ended");
			return;
		}
		g->rx.len += (size_t)n;
		rx_process(g);
		if ((size_t)n < room)
			return; /* that was all: spare the call that would say so */
		budget -= (size_t)n < budget ? (size_t)n : budget;
	}
}

int guest_dispatch(struct guest *g, struct err *err)
{
	if (g->dispatching)
		return err_set(err, EDEADLK, "guest_dispatch() from within a callback");
	g->dispatching = true;
	guest_flush(g);
	rx_read(g);
	guest_flush(g);
	g->dispatching = false;
	return g->dead ? err_set(err, g->dead, "%s", g->dead_text) : 0;
}
