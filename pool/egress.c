/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's way out: the proxy of egress/proxy.h in the daemon's loop (in a bake it runs in
 * guest_wait()'s loop). Only a sandbox that may reach something has one, and the proxy connects to
 * what the sandbox may reach and to nothing else.
 *
 * The agent listens for the sandbox's connections from the moment that the daemon has the channel.
 * Every command gets the environment variables that lead to the proxy. The proxy's sockets are
 * watches of the guest (guest_watch_add()): each is watched in the daemon's loop for as long as it
 * waits for anything.
 */

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "egress/proxy.h"
#include "pool/egress_private.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "vmm/guest/guest.h"
#include "vmm/guest/proxy.h"

#define EGRESS_PORT 3128 /* on guest loopback, as while a template is baked */

struct pool_egress {
	struct pool_sandbox *sb;
	struct proxy *proxy;
};

struct egress_watch {
	struct pool_egress *egress;
	struct guest_watch *w;
	int fd;
	struct loop_watch *watch; /* NULL: it waits for nothing */
};

static void egress_ready(void *user, short revents)
{
	struct egress_watch *e = user;
	struct pool_sandbox *sb = e->egress->sb;

	pool_sandbox_hold(sb);
	guest_watch_ready(e->w, revents);
	if (pool_sandbox_put(sb))
		pool_guest_kick(sb);
}

static void egress_watch_set(void *handle, short events)
{
	struct egress_watch *e = handle;
	struct err err;

	if (!events) {
		loop_remove(e->watch);
		e->watch = NULL;
	} else if (e->watch) {
		loop_set(e->watch, events);
	} else {
		e->watch =
			loop_add(e->egress->sb->pool->loop, e->fd, events, egress_ready, e, &err);
		if (!e->watch)
			log_warn("sandbox %s: its way out: %s", e->egress->sb->record.id, err.text);
	}
}

static void *egress_watch_add(void *user, struct guest_watch *w, int fd, short events)
{
	struct egress_watch *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	*e = (struct egress_watch){.egress = user, .w = w, .fd = fd};
	egress_watch_set(e, events);
	return e;
}

static void egress_watch_remove(void *handle)
{
	struct egress_watch *e = handle;

	loop_remove(e->watch);
	free(e);
}

static const struct guest_watch_ops egress_watches = {
	.add = egress_watch_add, .set = egress_watch_set, .remove = egress_watch_remove};

static void egress_note(void *user, const char *text)
{
	struct pool_egress *e = user;

	log_info("sandbox %s: %s", e->sb->record.id, text);
}

static void listening(void *user, const struct guest_reply *reply)
{
	(void)user;
	if (reply->error && reply->error != ECONNRESET)
		log_warn("a sandbox has no way out: its agent: %s", reply->text);
}

static const struct guest_stream_ops listen_ops = {.done = listening};

static void egress_listen(struct pool_sandbox *sb)
{
	uint8_t buf[16];
	struct proto_out o = {.buf = buf, .max = sizeof(buf)};

	guest_sync_send(sb->guest);
	sb->guest_synced = true;
	proto_put_u32(&o, PROTO_T_PORT, EGRESS_PORT);
	guest_request(sb->guest, PROTO_PROXY, buf, o.len, &listen_ops, NULL);
	pool_guest_kick(sb);
}

json_t *pool_egress_env(const struct pool_record *n)
{
	static const char *const to[] = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"};
	static const char *const direct[] = {"no_proxy", "NO_PROXY"};
	json_t *env = json_object();
	char url[40];

	snprintf(url, sizeof(url), "http://127.0.0.1:%d", EGRESS_PORT);
	for (size_t i = 0; i < sizeof(to) / sizeof(*to); i++)
		json_object_set_new(env, to[i], json_string(url));
	for (size_t i = 0; i < sizeof(direct) / sizeof(*direct); i++)
		json_object_set_new(env, direct[i], json_string("127.0.0.1,localhost"));
	/* whoever sets them means it */
	json_object_update(env, (json_t *)n->env);
	return env;
}

int pool_egress_new(struct pool_sandbox *sb, struct err *err)
{
	struct pool_egress *e = calloc(1, sizeof(*e));
	struct proxy_rule allow[LIMIT_POOL_ALLOW];
	size_t n = json_array_size(sb->record.allow);
	int r = 0;

	if (!e)
		abort();
	for (size_t i = 0; i < n && r == 0; i++)
		r = pool_rule_read(json_array_get(sb->record.allow, i), &allow[i], err);
	if (r < 0) {
		free(e);
		return r;
	}
	e->sb = sb;
	guest_on_watch(sb->guest, &egress_watches, e);
	r = guest_proxy_new(sb->guest,
		&(struct proxy_spec){.rules = allow,
			.n_rules = n,
			.who = {.sandbox = sb->record.id, .key = sb->record.key},
			.resolve_here = true,
			.note = egress_note,
			.user = e},
		&e->proxy, err);
	if (r < 0) {
		free(e);
		return r;
	}
	sb->egress = e;
	json_decref(sb->egress_env);
	sb->egress_env = pool_egress_env(&sb->record);
	egress_listen(sb);
	return 0;
}

void pool_egress_free(struct pool_egress *e)
{
	if (!e)
		return;
	proxy_free(e->proxy);
	free(e);
}
