/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an egress proxy asks of its transport, answered by a guest and its streams. A stream's user
 * is the proxy's connection, and the transport's user is the guest.
 */
#include "vmm/guest/proxy.h"

#include "vmm/guest/guest.h"

/* ---- from the guest to the proxy -------------------------------------------------------- */

static size_t conn_data(void *user, enum proto_channel channel, const uint8_t *bytes, size_t len)
{
	(void)channel;
	return proxy_conn_data(user, bytes, len);
}

static void conn_eof(void *user, enum proto_channel channel)
{
	(void)channel;
	proxy_conn_eof(user);
}

static void conn_writable(void *user, enum proto_channel channel)
{
	(void)channel;
	proxy_conn_writable(user);
}

static void conn_done(void *user, const struct guest_reply *reply)
{
	(void)reply;
	proxy_conn_lost(user);
}

static const struct guest_stream_ops conn_ops = {
	.data = conn_data, .eof = conn_eof, .writable = conn_writable, .done = conn_done};

static const struct guest_stream_ops *opened(void *user, struct guest_stream *s, void **ret_user)
{
	*ret_user = proxy_accept(user, s);
	return *ret_user ? &conn_ops : NULL;
}

/* ---- from the proxy to the guest -------------------------------------------------------- */

static size_t stream_send(void *stream, const void *bytes, size_t len)
{
	return guest_stream_send(stream, PROTO_IN, bytes, len);
}

static size_t stream_room(void *stream)
{
	return guest_stream_room(stream, PROTO_IN);
}

static void stream_eof(void *stream)
{
	guest_stream_eof(stream, PROTO_IN);
}

static void stream_resume(void *stream)
{
	guest_stream_resume(stream);
}

static void stream_reply(void *stream, int error, const char *text)
{
	guest_stream_reply(stream, error, text);
}

static void *watch(
	void *user, int fd, short events, void (*fn)(void *user, short revents), void *fn_user)
{
	return guest_watch_add(user, fd, events, fn, fn_user);
}

static void watch_set(void *w, short events)
{
	guest_watch_set(w, events);
}

static void unwatch(void *w)
{
	guest_watch_remove(w);
}

static void stop(void *user)
{
	guest_on_open(user, NULL, NULL);
}

static const struct proxy_transport transport = {
	.send = stream_send,
	.room = stream_room,
	.eof = stream_eof,
	.resume = stream_resume,
	.reply = stream_reply,
	.watch = watch,
	.watch_set = watch_set,
	.unwatch = unwatch,
	.stop = stop,
};

int guest_proxy_new(
	struct guest *g, const struct proxy_spec *spec, struct proxy **ret, struct err *err)
{
	int r = proxy_new(&transport, g, spec, ret, err);

	if (r == 0)
		guest_on_open(g, opened, *ret);
	return r;
}

int guest_proxy_listen(
	struct guest *g, unsigned port, int64_t deadline, int also_fd, struct err *err)
{
	uint8_t buf[16];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	proto_put_u32(&o, PROTO_T_PORT, port);
	return guest_call(g, PROTO_PROXY, &o, deadline, also_fd, NULL, NULL, err);
}
