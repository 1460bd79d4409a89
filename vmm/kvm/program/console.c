/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio 1.2, 5.3: the agent's channel, the one port of a multiport console.
 *
 * Flow control is the queues' own. What comes from the host stays in the socket until the guest has
 * room for it; what the guest sends stays in its queue until the socket takes it, and how much of a
 * chain the socket took already is part of the device's state. So the device itself holds no byte,
 * and a snapshot loses none that was given to it.
 *
 * Control messages to the guest are of three kinds, each of which is owed at most once: a guest
 * that asks for them without end gets no more memory of ours than a bit.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "vmm/kvm/program/virtio.h"

#define F_MULTIPORT (1ull << 1)

enum { QUEUE_RX, QUEUE_TX, QUEUE_CONTROL_RX, QUEUE_CONTROL_TX, QUEUES };

enum {
	DEVICE_READY,
	PORT_ADD,
	PORT_REMOVE,
	PORT_READY,
	CONSOLE_PORT,
	RESIZE,
	PORT_OPEN,
	PORT_NAME
};

struct control {
	uint32_t id;
	uint16_t event, value;
};

#define AT_ONCE 256 /* chains, before others have a turn */

#define OWED_ADD 1u
#define OWED_NAME 2u
#define OWED_OPEN 4u

static const char port_name[] = "parbake.agent";

static struct console *console_of(struct virtio *v)
{
	return (struct console *)v; /* its first member */
}

static void watch(struct console *c, uint32_t events)
{
	if (c->fd < 0 || c->watched == events)
		return;
	c->watched = events;
	c->watch(c->watch_user, events);
}

/* ---- control ---------------------------------------------------------------------------- */

static void pay(struct console *c)
{
	struct chain ch;

	while (c->owed && virtio_peek(&c->v, QUEUE_CONTROL_RX, &ch)) {
		struct {
			struct control m;
			char name[sizeof(port_name)];
		} out = {.m = {.event = PORT_OPEN, .value = c->fd >= 0}};
		size_t len = sizeof(out.m);

		if (c->owed & OWED_ADD) {
			out.m = (struct control){.event = PORT_ADD, .value = 1};
			c->owed &= (uint8_t)~OWED_ADD;
		} else if (c->owed & OWED_NAME) {
			out.m = (struct control){.event = PORT_NAME, .value = 1};
			memcpy(out.name, port_name, sizeof(port_name));
			len += sizeof(port_name) - 1;
			c->owed &= (uint8_t)~OWED_NAME;
		} else {
			c->owed &= (uint8_t)~OWED_OPEN;
		}
		virtio_give(&c->v, QUEUE_CONTROL_RX, &ch, (uint32_t)chain_write(&ch, 0, &out, len));
	}
}

static void take_control(struct console *c)
{
	struct control m;
	struct chain ch;

	while (virtio_peek(&c->v, QUEUE_CONTROL_TX, &ch)) {
		size_t len = chain_read(&ch, 0, &m, sizeof(m));

		virtio_give(&c->v, QUEUE_CONTROL_TX, &ch, 0);
		if (len < sizeof(m) || (m.event != DEVICE_READY && m.id != 0))
			continue;
		if (m.event == DEVICE_READY && m.value == 1)
			c->owed |= OWED_ADD;
		else if (m.event == PORT_READY && m.value == 1)
			c->owed |= OWED_NAME | OWED_OPEN;
		else if (m.event == PORT_OPEN)
			c->guest_open = m.value == 1;
	}
	pay(c);
}

/* ---- data ------------------------------------------------------------------------------- */

/* The other end is gone: what the guest sends goes nowhere, as at an unplugged line. */
static void hang_up(struct console *c)
{
	watch(c, 0);
	c->fd = -1;
	c->owed |= OWED_OPEN;
	pay(c);
}

/* As much as the socket takes. False: it takes no more now. */
static bool send_chain(struct console *c, const struct chain *ch)
{
	struct iovec iov[QUEUE_SEGMENTS];

	while (c->fd >= 0 && c->sent < ch->out_bytes) {
		struct msghdr msg = {.msg_iov = iov};
		ssize_t n;

		msg.msg_iovlen = chain_cut(ch, false, c->sent, ch->out_bytes - c->sent, iov);
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			c->sent += (uint64_t)n;
		else if (n < 0 && errno == EAGAIN)
			return false;
		else if (n < 0 && errno != EINTR)
			hang_up(c);
	}
	return true;
}

/* Returns the events to wait for: the next call goes on where this one left off. */
static uint32_t transmit(struct console *c)
{
	struct chain ch;

	for (unsigned i = 0; virtio_peek(&c->v, QUEUE_TX, &ch); i++) {
		if (i == AT_ONCE)
			return EPOLLOUT;
		if (!send_chain(c, &ch))
			return EPOLLOUT;
		c->sent = 0;
		virtio_give(&c->v, QUEUE_TX, &ch, 0);
	}
	return 0;
}

/* A buffer's worth. Returns the events to wait for: none where the guest has no room, or nobody reads. */
static uint32_t receive(struct console *c, bool readable)
{
	struct chain ch;

	if (!c->guest_open)
		return 0;
	for (unsigned i = 0; virtio_peek(&c->v, QUEUE_RX, &ch); i++) {
		struct msghdr msg = {.msg_iov = ch.iov + ch.n_out, .msg_iovlen = ch.n_in};
		ssize_t n;

		if (!readable || c->fd < 0 || i == AT_ONCE)
			return EPOLLIN;
		if (ch.in_bytes == 0) {
			virtio_give(&c->v, QUEUE_RX, &ch, 0);
			continue;
		}
		n = recvmsg(c->fd, &msg, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return EPOLLIN;
		if (n <= 0) {
			hang_up(c);
			return 0;
		}
		virtio_give(&c->v, QUEUE_RX, &ch, (uint32_t)n);
	}
	return 0;
}

static void serve(struct console *c, bool readable)
{
	uint32_t events = transmit(c);

	watch(c, events | receive(c, readable));
}

void console_event(struct console *c, uint32_t events)
{
	pthread_mutex_lock(&c->v.lock);
	serve(c, events & (EPOLLIN | EPOLLHUP | EPOLLERR));
	pthread_mutex_unlock(&c->v.lock);
}

static void console_notify(struct virtio *v, unsigned n)
{
	struct console *c = console_of(v);

	if (n == QUEUE_CONTROL_RX)
		pay(c);
	else if (n == QUEUE_CONTROL_TX)
		take_control(c);
	/* a port that was opened, or has buffers again, may have something waiting for it */
	serve(c, n == QUEUE_RX || n == QUEUE_CONTROL_TX);
}

static void console_read_config(struct virtio *v, uint32_t at, uint8_t *buf, uint32_t len)
{
	/* columns and rows (16 bits each): none; ports; emergency write: none */
	const uint32_t config[3] = {0, 1, 0};

	(void)v;
	if (at < sizeof(config))
		memcpy(buf, (const uint8_t *)config + at,
			len < sizeof(config) - at ? len : sizeof(config) - at);
}

static void console_reset(struct virtio *v)
{
	struct console *c = console_of(v);

	watch(c, 0);
	c->guest_open = false;
	c->owed = 0;
	c->sent = 0;
}

struct extra {
	uint64_t sent;
	uint8_t guest_open, owed, unused[6];
};

static void console_save(struct virtio *v, uint8_t *extra)
{
	struct console *c = console_of(v);
	struct extra e = {.sent = c->sent, .guest_open = c->guest_open, .owed = c->owed};

	memcpy(extra, &e, sizeof(e));
}

static int console_load(struct virtio *v, const uint8_t *extra)
{
	struct console *c = console_of(v);
	struct extra e;

	memcpy(&e, extra, sizeof(e));
	if (e.guest_open > 1 || e.owed > (OWED_ADD | OWED_NAME | OWED_OPEN))
		return -EBADMSG;
	c->guest_open = e.guest_open;
	c->owed = e.owed;
	c->sent = e.sent;
	return 0;
}

const struct virtio_ops console_ops = {
	.name = "console",
	.id = 3,
	.n_queues = QUEUES,
	.features = F_MULTIPORT,
	.notify = console_notify,
	.read_config = console_read_config,
	.reset = console_reset,
	.extra_bytes = sizeof(struct extra),
	.save = console_save,
	.load = console_load,
};
