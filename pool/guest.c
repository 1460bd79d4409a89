/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guests in the loop: each guest is dispatched when its channel is ready. SYNC is sent with the
 * first use, so that a sandbox that nobody talks to costs nothing. SYNC also ends whatever the
 * daemon before this one left in the channel.
 *
 * A channel that dies is the sandbox's end. Mostly the machine is gone, and its keeper is about to
 * say why. Where the keeper does not, the agent has broken the protocol, and such a machine is not
 * left running.
 *
 * A guest may be closed from within one of its own callbacks. So it is taken from its sandbox at
 * once, and freed in the loop's next round.
 */

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/loop.h"
#include "pool/egress_private.h"
#include "pool/guest_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"
#include "vmm/guest/guest.h"

#define ENDING_GRACE_MS 1000

static void guest_lost(void *user)
{
	struct pool_sandbox *sb = user;

	sb->guest_timer = NULL;
	pool_sandbox_kill(sb, "its agent does not keep to the protocol");
}

static void guest_events_set(struct pool_sandbox *sb)
{
	loop_set(sb->guest_watch, guest_events(sb->guest));
}

static void guest_ready(void *user, short revents)
{
	struct pool_sandbox *sb = user;
	struct pool *p = sb->pool;
	struct guest *g = sb->guest;
	struct err err;
	int r;

	(void)revents;
	/* callbacks may end the sandbox, and with it the guest's place in it */
	pool_sandbox_hold(sb);
	r = guest_dispatch(g, &err);
	if (!pool_sandbox_put(sb) || sb->guest != g)
		return;
	if (r == 0) {
		guest_events_set(sb);
		return;
	}
	log_info("sandbox %s: its channel: %s", sb->record.id, err.text);
	loop_remove(sb->guest_watch);
	sb->guest_watch = NULL;
	if (!sb->guest_timer)
		sb->guest_timer =
			loop_timer(p->loop, clock_deadline(ENDING_GRACE_MS), guest_lost, sb);
}

int pool_guest_open(struct pool_sandbox *sb, int channel, struct err *err)
{
	int r = guest_new(channel, &sb->guest, err);

	if (r < 0) {
		close(channel);
		return r;
	}
	sb->guest_synced = false;
	/* until it is asked something there is nothing to read: only its end */
	sb->guest_watch = loop_add(sb->pool->loop, guest_fd(sb->guest), 0, guest_ready, sb, err);
	if (!sb->guest_watch) {
		guest_free(sb->guest);
		sb->guest = NULL;
		return -EIO;
	}
	if (sb->record.allow) {
		r = pool_egress_new(sb, err);
		if (r < 0)
			pool_guest_close(sb, false);
	}
	return r;
}

/* A guest that is to be freed outside of its callbacks. */
struct pool_burial {
	LIST_ENTRY(pool_burial) link;
	struct guest *guest;
	struct loop_timer *timer;
};

static void guest_bury(void *user)
{
	struct pool_burial *b = user;

	LIST_REMOVE(b, link);
	guest_free(b->guest);
	free(b);
}

static void bury_later(struct pool *p, struct guest *g)
{
	struct pool_burial *b = malloc(sizeof(*b));

	if (!b)
		abort();
	*b = (struct pool_burial){.guest = g};
	LIST_INSERT_HEAD(&p->burials, b, link);
	b->timer = loop_defer(p->loop, guest_bury, b);
}

void pool_guests_bury(struct pool *p)
{
	struct pool_burial *b;

	while ((b = LIST_FIRST(&p->burials))) {
		loop_timer_cancel(b->timer);
		guest_bury(b);
	}
}

int pool_guest_close(struct pool_sandbox *sb, bool keep)
{
	struct guest *g = sb->guest;
	int kept = -1;

	loop_timer_cancel(sb->guest_timer);
	sb->guest_timer = NULL;
	if (!g)
		return -1;
	pool_egress_free(sb->egress);
	sb->egress = NULL;
	loop_remove(sb->guest_watch);
	sb->guest_watch = NULL;
	if (keep)
		kept = fcntl(guest_fd(g), F_DUPFD_CLOEXEC, 3);
	sb->guest = NULL;
	bury_later(sb->pool, g);
	return kept;
}

struct guest *pool_guest(struct pool_sandbox *sb)
{
	if (sb->state != POOL_RUNNING || !sb->guest_watch)
		return NULL;
	if (!sb->guest_synced)
		guest_sync_send(sb->guest);
	sb->guest_synced = true;
	guest_clock_check(sb->guest);
	return sb->guest;
}

void pool_guest_kick(struct pool_sandbox *sb)
{
	if (sb->guest_watch)
		guest_events_set(sb);
}
