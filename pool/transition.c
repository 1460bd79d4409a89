/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transitions: a pause, a snapshot or a fork on its way. Each takes a while, and a sandbox has one
 * at a time. Here is what they share, and here are the pause and the resume.
 *
 * In a pause the sandbox's record is written to STATE/paused, and its keeper writes a checkpoint
 * and ends. From the moment that the checkpoint is whole, the sandbox is that checkpoint, whichever
 * process dies. Until then the sandbox is its machine: where the checkpoint fails, the machine goes
 * on as it was, and so does its channel.
 *
 * A resume is a hand-out with a checkpoint to start from. The checkpoint is removed only when the
 * sandbox runs and has all of its memory (settle.c).
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/json.h"
#include "common/limits.h"
#include "pool/limits.h"
#include "common/log.h"
#include "pool/guest_private.h"
#include "pool/handout_private.h"
#include "pool/keeper/keeper.h"
#include "pool/lease_private.h"
#include "pool/limits_private.h"
#include "pool/machine_private.h"
#include "pool/paused_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/settle_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"
#include "pool/work_private.h"
#include "vmm/guest/guest.h"

/*
 * ---- what transitions share
 * ------------------------------------------------------------------------
 */

int pool_transition_begin(struct pool *p, const char *id, bool or_paused,
	struct pool_transition **ret, struct err *err)
{
	struct pool_sandbox *sb = pool_sandbox_find(p, id);
	struct pool_transition *c;

	if (!sb)
		return err_set(err, ENOENT, "there is no such sandbox");
	if (sb->transition || (sb->state != POOL_RUNNING && sb->state != POOL_PAUSED))
		return err_set(err, EBUSY,
			"the sandbox is being paused, resumed, captured or forked: try again when "
			"that is done");
	if (sb->state == POOL_PAUSED && !or_paused)
		return err_set(err, EEXIST, "the sandbox is paused already");
	c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	*c = (struct pool_transition){.pool = p, .sb = sb, .channel = -1};
	LIST_INSERT_HEAD(&p->transitions, c, link);
	sb->transition = c;
	*ret = c;
	return 0;
}

void pool_transition_release(struct pool_transition *c)
{
	if (c->sb)
		c->sb->transition = NULL;
	c->sb = NULL;
}

void pool_transition_free(struct pool_transition *c)
{
	pool_transition_release(c);
	LIST_REMOVE(c, link);
	pool_publish_free(c->publish);
	close_fd(&c->channel);
	json_decref(c->record);
	free(c->capture);
	free(c->from);
	free(c->name);
	free(c);
}

void pool_transition_free_all(struct pool *p)
{
	struct pool_transition *c, *next;

	for (c = LIST_FIRST(&p->transitions); c; c = next) {
		next = LIST_NEXT(c, link);
		/* a work of its own still writes to it: it is lost with the process */
		if (!c->pending)
			pool_transition_free(c);
		else
			pool_transition_release(c);
	}
}

void pool_transition_lost(struct pool_sandbox *sb, const char *text)
{
	struct pool_transition *c = sb->transition;

	if (!c)
		return;
	pool_transition_release(c);
	c->lost(c, ENOENT, text);
	if (!c->pending)
		pool_transition_free(c);
}

static void change_captured(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	struct pool_transition *c = m->sb ? m->sb->transition : NULL;

	(void)reply;
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (m->sb && m->sb->guest) /* it was paused for that, and goes on */
		guest_clock_doubt(m->sb->guest);
	/* where the connection broke its end is about to be told, and says more */
	if (c && error != ECONNRESET)
		c->captured(c, err_of_files(error), text ? text : "");
}

void pool_transition_capture(struct pool_transition *c, const char *dir, bool stop)
{
	keeper_capture(c->sb->machine->keeper, dir, stop, change_captured, c->sb->machine);
}

/* ---- pause ------------------------------------------------------------------------------------ */

static void pause_lost(struct pool_transition *c, int error, const char *text)
{
	pool_later(c->pool, c->fn, c->user, error, text);
}

void pool_transition_rested(struct pool_sandbox *sb)
{
	struct pool_transition *c = sb->transition;

	if (c && c->lost == pause_lost) {
		pool_transition_release(c);
		c->fn(c->user, sb, 0, "");
		if (!c->pending)
			pool_transition_free(c);
	} else {
		pool_transition_lost(sb, "the sandbox's lease has ended, and it was paused");
	}
}

/* It goes on as it was. */
static void pause_failed(struct pool_transition *c, int error, const char *text)
{
	struct pool_sandbox *sb = c->sb;
	int channel = steal_fd(&c->channel);
	pool_fn *fn = c->fn;
	void *user = c->user;
	struct err err;

	log_warn("sandbox %s could not be paused: %s", sb->record.id, text);
	/* what it still needs of the checkpoint before stays, with the record */
	if (!sb->record.auto_pause && !sb->capture && pool_paused_clear(sb, &err) < 0)
		log_warn("sandbox %s: %s", sb->record.id, err.text);
	pool_transition_free(c);
	pool_sandbox_set(sb, POOL_RUNNING);
	fn(user, NULL, error, text);
	if (channel < 0 || pool_guest_open(sb, channel, &err) < 0)
		pool_sandbox_kill(sb, channel < 0 ? "its channel was lost" : err.text);
}

static void pause_gone(void *user, int error, const char *text)
{
	struct pool_transition *c = user;
	struct pool_sandbox *sb = c->sb;
	struct pool *p = c->pool;

	(void)error; /* it was told in the log; the checkpoint is whole, and is the sandbox now */
	(void)text;
	fault_point("pool.pause.gone");
	pool_sandbox_set_paused(sb, sb->record.generation);
	pool_transition_release(c);
	if (c->fn)
		c->fn(c->user, sb, 0, "");
	if (c->kill)
		pool_kill(p, sb->record.id, c->kill_fn, c->kill_user);
	pool_transition_free(c);
}

static void pause_captured(struct pool_transition *c, int error, const char *text)
{
	struct pool_sandbox *sb = c->sb;
	struct pool_machine *m = sb->machine;

	fault_point("pool.pause.captured");
	if (error) {
		pause_failed(c, error, text);
		return;
	}
	sb->machine = NULL;
	pool_machine_end(m, pause_gone, c);
}

bool pool_transition_kill(struct pool_sandbox *sb, pool_fn *fn, void *user)
{
	struct pool_transition *c = sb->transition;

	if (!c || c->kill)
		return false;
	c->kill = true;
	c->kill_fn = fn;
	c->kill_user = user;
	return true;
}

static void pause_noted(void *user, int error, const char *text)
{
	struct pool_transition *c = user;
	cleanup_free char *dir = NULL;

	c->pending--;
	if (!c->sb) {
		pool_transition_free(c);
	} else if (error) {
		pause_failed(c, error, text);
	} else {
		dir = pool_lease_pause_dir(c->sb);
		if (!dir)
			dir = pool_capture_path(
				c->pool, c->sb->record.id, c->sb->record.generation);
		pool_transition_capture(c, dir, true);
	}
}

void pool_pause(struct pool *p, const char *id, pool_fn *fn, void *user)
{
	struct pool_transition *c;
	struct err err;
	int r = pool_transition_begin(p, id, false, &c, &err);

	if (r < 0) {
		pool_fail_later(p, fn, user, r, &err);
		return;
	}
	c->fn = fn;
	c->user = user;
	c->lost = pause_lost;
	c->captured = pause_captured;
	pool_sandbox_set(c->sb, POOL_PAUSING);
	c->channel = pool_guest_close(c->sb, true);
	c->pending++;
	pool_paused_write(c->sb, pause_noted, c);
}

/* ---- waiting for the end of one ----------------------------------------------------------------- */

struct pool_waiter {
	SLIST_ENTRY(pool_waiter) link;
	struct pool *pool;
	char id[POOL_ID_SIZE];
	uint64_t timeout_ms;
	int auto_pause;
	pool_fn *fn;
	void *user;
};

static void pool_wait(
	struct pool_sandbox *sb, uint64_t timeout_ms, int auto_pause, pool_fn *fn, void *user)
{
	struct pool_waiter *w = malloc(sizeof(*w));

	if (!w)
		abort();
	*w = (struct pool_waiter){.pool = sb->pool,
		.timeout_ms = timeout_ms,
		.auto_pause = auto_pause,
		.fn = fn,
		.user = user};
	memcpy(w->id, sb->record.id, sizeof(w->id));
	SLIST_INSERT_HEAD(&sb->waiters, w, link);
}

/* What it waited for has ended, one way or another: what is asked for is asked anew. */
static void wait_over(void *user, struct pool_sandbox *none, int error, const char *text)
{
	struct pool_waiter *w = user;

	(void)none;
	(void)error;
	(void)text;
	pool_resume(w->pool, w->id, w->timeout_ms, w->auto_pause, w->fn, w->user);
	free(w);
}

void pool_waiters_wake(struct pool_sandbox *sb)
{
	struct pool_waiter *w;

	while ((w = SLIST_FIRST(&sb->waiters))) {
		SLIST_REMOVE_HEAD(&sb->waiters, link);
		pool_later(sb->pool, wait_over, w, 0, "");
	}
}

/* ---- resume ----------------------------------------------------------------------------------- */

static void resume_done(struct pool_handout *j, int error, const char *text, const json_t *reply)
{
	struct pool_sandbox *sb = j->sb;
	struct pool *p = j->pool;

	if (p->on_create) {
		struct pool_sandbox_info f;

		pool_sandbox_info(sb, &f);
		f.create_ns = clock_now_ns() - j->began;
		p->on_create(p->on_create_user, &f, error == 0, json_object_get(reply, "trace"));
	}
	if (error)
		pool_sandbox_set_paused(sb, sb->capture);
	else
		pool_settle(sb);
	j->fn(j->user, error ? NULL : sb, error, text);
}

/* May it, by the limits? Then it has its version, and its record says what it will be. */
static int resume_prepare(struct pool_sandbox *sb, int auto_pause, struct err *err)
{
	struct pool_version *v = pool_version_of(sb->pool, &sb->record);
	cleanup_json json_t *record = NULL;
	struct pool_record n = sb->record;
	int r = pool_limits_check(sb->pool, n.key, v, 1, false, false, err);

	if (r < 0)
		return r;
	n.generation = sb->capture + 1;
	n.auto_pause = auto_pause < 0 ? n.auto_pause : auto_pause != 0;
	record = pool_record_write(&n);
	r = pool_sandbox_set_record(sb, record, err);
	if (r < 0)
		return r;
	sb->version = v;
	v->sandboxes++;
	return 0;
}

static int resume_begin(struct pool_sandbox *sb, uint64_t timeout_ms, int auto_pause, pool_fn *fn,
	void *user, struct err *err)
{
	struct pool *p = sb->pool;
	struct pool_handout *j;
	int r = pool_lease_check(p, &timeout_ms, err);

	if (r == 0)
		r = resume_prepare(sb, auto_pause, err);
	if (r < 0)
		return r;
	j = calloc(1, sizeof(*j));
	if (!j)
		abort();
	*j = (struct pool_handout){.pool = p,
		.sb = sb,
		.capture = pool_capture_path(p, sb->record.id, sb->capture),
		.same_identity = true,
		.timeout_ms = timeout_ms,
		.began = clock_now_ns(),
		.deadline = clock_deadline(LIMIT_CREATE_MS),
		.done = resume_done,
		.fn = fn,
		.user = user};
	pool_sandbox_set(sb, POOL_RESUMING);
	pool_handout_submit(j);
	return 0;
}

void pool_wake(struct pool *p, const char *id, pool_fn *fn, void *user)
{
	const struct pool_sandbox *sb = pool_sandbox_find(p, id);
	uint64_t timeout_ms = sb ? sb->record.lease_ms : 0;

	if (timeout_ms < LIMIT_POOL_WAKE_MS)
		timeout_ms = LIMIT_POOL_WAKE_MS;
	if (timeout_ms > p->config->max_timeout_ms)
		timeout_ms = p->config->max_timeout_ms;
	pool_resume(p, id, timeout_ms, -1, fn, user);
}

void pool_resume(struct pool *p, const char *id, uint64_t timeout_ms, int auto_pause, pool_fn *fn,
	void *user)
{
	struct pool_sandbox *sb = pool_sandbox_find(p, id);
	struct err err;
	int r = 0;

	if (!sb)
		r = err_set(&err, ENOENT, "there is no such sandbox");
	else if (sb->state == POOL_RUNNING)
		pool_renew(p, id, timeout_ms, true, fn, user);
	else if (sb->state == POOL_PAUSING || sb->state == POOL_RESUMING)
		pool_wait(sb, timeout_ms, auto_pause, fn, user);
	else if (sb->transition)
		r = err_set(&err, EBUSY,
			"the sandbox is being captured or forked: try again when "
			"that is done");
	else if (p->draining)
		r = err_set(&err, ESHUTDOWN, "the pool is shutting down");
	else
		r = resume_begin(sb, timeout_ms, auto_pause, fn, user, &err);
	if (r < 0)
		pool_fail_later(p, fn, user, r, &err);
}
