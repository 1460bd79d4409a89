/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases. The keeper holds the lease and ends its sandbox by it, whether there is a daemon or not.
 * The daemon has a mirror of the lease, to show it and to decide by it. It also has a timer behind
 * the lease's end, for a keeper that cannot act (a stopped one): that keeper is killed. A keeper
 * that pauses its sandbox at the lease's end, or whose sandbox is being checkpointed, is first
 * given the time that this may take.
 *
 * A renewal is the keeper's decision too. What counts is what the keeper answered; where the lease
 * ended before the renewal arrived, that end counts.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/loop.h"
#include "pool/config.h"
#include "pool/guest_private.h"
#include "pool/keeper/keeper.h"
#include "pool/lease_private.h"
#include "pool/machine_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"

#define BACKSTOP_MS 2000

int pool_lease_check(const struct pool *p, uint64_t *timeout_ms, struct err *err)
{
	if (!*timeout_ms)
		*timeout_ms = p->config->timeout_ms;
	if (*timeout_ms > p->config->max_timeout_ms)
		return err_set(err, EINVAL,
			"timeout: %lu s is longer than the %lu s that this pool allows",
			*timeout_ms / 1000, p->config->max_timeout_ms / 1000);
	return 0;
}

char *pool_lease_pause_dir(const struct pool_sandbox *sb)
{
	if (!sb->record.auto_pause)
		return NULL;
	return pool_capture_path(sb->pool, sb->record.id, sb->record.generation);
}

static void lease_overdue(void *user)
{
	struct pool_sandbox *sb = user;

	sb->lease_timer = NULL;
	pool_sandbox_kill(sb, "its lease has ended, and its keeper did nothing");
}

static void lease_ended(void *user)
{
	struct pool_sandbox *sb = user;
	bool captures = sb->record.auto_pause || sb->transition;
	int64_t grace_ms = captures ? LIMIT_CAPTURE_MS : BACKSTOP_MS;

	/* from here on it is the keeper's: nobody may begin something in it */
	if (sb->record.auto_pause && sb->state == POOL_RUNNING && !sb->transition) {
		pool_sandbox_set(sb, POOL_PAUSING);
		pool_guest_close(sb, false);
	}
	sb->lease_timer =
		loop_timer_boot(sb->pool->loop, sb->end_ns + grace_ms * 1000000, lease_overdue, sb);
}

void pool_lease_set(struct pool_sandbox *sb, int64_t end_ns)
{
	loop_timer_cancel(sb->lease_timer);
	sb->end_ns = end_ns;
	sb->end_ms = (clock_realtime_ns() + (end_ns - clock_boot_ns())) / 1000000;
	sb->lease_timer = loop_timer_boot(sb->pool->loop, end_ns, lease_ended, sb);
}

/* ---- renewing --------------------------------------------------------------------------------- */

struct renewing {
	struct pool *pool;
	char id[POOL_ID_SIZE];
	pool_fn *fn;
	void *user;
};

static void renewed(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct renewing *r = user;
	struct pool_sandbox *sb = pool_sandbox_find(r->pool, r->id);
	uint64_t end;

	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (error == 0 && json_get_u64(reply, "end_ns", 0, INT64_MAX, &end, NULL) < 0) {
		error = EPROTO;
		text = "its keeper did not say until when";
	}
	/* a connection that broke while it was asked: the sandbox has ended */
	if (error == ECONNRESET || (error == 0 && !sb)) {
		error = ENOENT;
		text = "there is no such sandbox: it has ended just now";
	}
	if (error == 0)
		pool_lease_set(sb, (int64_t)end);
	if (r->fn)
		r->fn(r->user, error ? NULL : sb, error, error ? text : "");
	free(r);
}

static void renew_same(void *user, struct pool_sandbox *none, int error, const char *text)
{
	struct renewing *r = user;
	struct pool_sandbox *sb = pool_sandbox_find(r->pool, r->id);

	(void)none;
	(void)error;
	(void)text;
	if (r->fn)
		r->fn(r->user, sb, sb ? 0 : ENOENT,
			sb ? "" : "there is no such sandbox: it has ended just now");
	free(r);
}

void pool_renew(struct pool *p, const char *id, uint64_t timeout_ms, bool only_longer, pool_fn *fn,
	void *user)
{
	struct pool_sandbox *sb = pool_sandbox_find(p, id);
	cleanup_free char *pause_dir = NULL;
	struct renewing *r;
	struct err err;

	if (!sb) {
		pool_later(p, fn, user, ENOENT, "there is no such sandbox");
		return;
	}
	if (sb->state != POOL_RUNNING) {
		pool_later(p, fn, user, EBUSY,
			sb->state == POOL_PAUSED
				? "the sandbox is paused, its lease rests: resume or connect to it"
				: "the sandbox is being paused or resumed");
		return;
	}
	if (pool_lease_check(p, &timeout_ms, &err) < 0) {
		pool_later(p, fn, user, EINVAL, err.text);
		return;
	}
	r = malloc(sizeof(*r));
	if (!r)
		abort();
	*r = (struct renewing){.pool = p, .fn = fn, .user = user};
	memcpy(r->id, sb->record.id, sizeof(r->id));
	if (only_longer && clock_boot_deadline((int64_t)timeout_ms) <= sb->end_ns) {
		pool_later(p, renew_same, r, 0, "");
		return;
	}
	pause_dir = pool_lease_pause_dir(sb);
	keeper_renew(sb->machine->keeper, timeout_ms, pause_dir, NULL, renewed, r);
}
