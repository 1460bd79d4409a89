/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hand-outs: a create, a fork or a resume gets its machine.
 *
 * As many hand-outs as the host can carry at once are worked on; the others wait in line until
 * their deadline. So fifty creates that come at once on two cores take turns instead of starving
 * each other. A hand-out keeps its slot no longer than SLOT_MS: a machine that does not answer
 * holds up its own create and no other.
 *
 * A machine from the stock may be broken or stopped: nobody has looked at it since it was made.
 * Such a machine is ended and the next one is tried, and at last one is made for the purpose. So a
 * stale spare costs time, and never fails a create. Each try has an id of its own, because the
 * socket of the try before may still be there.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/str.h"
#include "pool/cgroup_private.h"
#include "pool/config.h"
#include "pool/guest_private.h"
#include "pool/handout_private.h"
#include "pool/keeper/keeper.h"
#include "pool/lease_private.h"
#include "pool/machine_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/stock_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"

#define SLOT_MS 2000
#define WAITING_TRY_MS 2000 /* a spare or standby that has not answered by then is given up */
#define WAITING_TRIES 3 /* … and so many of them, then one is made */
#define FRESH_TRIES 2

static void handout_try(struct pool_handout *j);

static void slot_release(struct pool_handout *j)
{
	if (j->slot)
		j->pool->slots_used--;
	j->slot = false;
	loop_timer_cancel(j->slot_timer);
	j->slot_timer = NULL;
}

static void queue_remove(struct pool_handout *j)
{
	if (j->queued)
		TAILQ_REMOVE(&j->pool->queue, j, queue);
	j->queued = false;
}

/* Take it out of everything, but for its machine and its sandbox. */
static void handout_detach(struct pool_handout *j)
{
	queue_remove(j);
	slot_release(j);
	loop_timer_cancel(j->deadline_timer);
	loop_timer_cancel(j->try_timer);
	j->deadline_timer = j->try_timer = NULL;
	LIST_REMOVE(j, link);
	j->sb->version->handouts--;
	j->pool->handout_ended = clock_now_ns();
}

/* A machine that is being ended under a sandbox's name. */
struct try_ending {
	struct pool_handout
		*j; /* ends when the machine is gone; NULL: somebody else has ended it */
	void (*gone)(void *user, int error, const char *text); /* who did, and is told; or NULL */
	void *user;
};

static void handout_free(struct pool_handout *j)
{
	if (j->ending)
		j->ending->j = NULL;
	free(j->capture);
	free(j->text);
	free(j);
}

static struct pool_machine *machine_take(struct pool_handout *j)
{
	struct pool_machine *m = j->machine;

	if (m)
		m->handout = NULL;
	j->machine = NULL;
	return m;
}

static void handout_end(struct pool_handout *j, int error, const char *text, const json_t *reply)
{
	struct pool *p = j->pool;

	handout_detach(j);
	j->done(j, error, text, reply);
	handout_free(j);
	pool_handout_pump(p);
	pool_stock_refill(p);
}

static void try_gone(void *user, int error, const char *text)
{
	struct try_ending *e = user;
	struct pool_handout *j = e->j;

	if (e->gone)
		e->gone(e->user, error, text);
	free(e);
	if (j) {
		cleanup_free char *why = steal_ptr(&j->text);

		j->ending = NULL;
		handout_end(j, j->error, why, NULL);
	}
}

/*
 * It has failed with @error. A sandbox that is to rest again can be resumed again as soon as that is told, under the
 * same name, so then its machine is gone; who was to be made has a name that nobody else gets.
 */
static void handout_fail(struct pool_handout *j, int error, const char *text)
{
	struct pool_machine *m = machine_take(j);

	if (!m || !j->sb->listed) {
		if (m)
			pool_machine_end(m, NULL, NULL);
		handout_end(j, error, text, NULL);
		return;
	}
	loop_timer_cancel(j->deadline_timer);
	j->deadline_timer = NULL;
	if (j->text != text) {
		free(j->text);
		j->text = str_dup(text);
	}
	j->error = error;
	j->ending = malloc(sizeof(*j->ending));
	if (!j->ending)
		abort();
	*j->ending = (struct try_ending){.j = j};
	pool_machine_end(m, try_gone, j->ending);
}

void pool_handout_cancel(struct pool_handout *j)
{
	struct pool_machine *m = machine_take(j);
	struct pool_sandbox *sb = j->sb;

	if (m)
		pool_machine_free(m);
	if (j->fork)
		j->fork->pending--;
	handout_detach(j);
	if (!sb->listed)
		pool_sandbox_remove(sb);
	handout_free(j);
}

struct gone_later {
	void (*gone)(void *user, int error, const char *text);
	void *user;
};

static void gone_now(void *user, struct pool_sandbox *sb, int error, const char *text)
{
	struct gone_later *g = user;

	(void)sb;
	g->gone(g->user, error, text);
	free(g);
}

void pool_handout_abort(struct pool_handout *j, int error, const char *text,
	void (*gone)(void *user, int error, const char *text), void *user)
{
	struct pool_machine *m = machine_take(j);
	struct gone_later *g;

	pool_later(j->pool, j->fn, j->user, error, text);
	if (m) {
		pool_machine_end(m, gone, user);
	} else if (j->ending) {
		j->ending->gone = gone;
		j->ending->user = user;
	} else {
		g = malloc(sizeof(*g));
		if (!g)
			abort();
		*g = (struct gone_later){.gone = gone, .user = user};
		pool_later(j->pool, gone_now, g, 0, "");
	}
	handout_detach(j);
	handout_free(j);
}

static void deadline_passed(void *user)
{
	struct pool_handout *j = user;
	cleanup_free char *text = j->queued
		? str_dup("the pool has been busy with others all the time")
		: str_printf("the sandbox did not answer in time%s%s", j->text ? "; before: " : "",
			  j->text ? j->text : "");

	j->deadline_timer = NULL;
	handout_fail(j, ETIMEDOUT, text);
}

static void slot_passed(void *user)
{
	struct pool_handout *j = user;

	j->slot_timer = NULL;
	slot_release(j);
	pool_handout_pump(j->pool);
}

/* ---- tries ------------------------------------------------------------------------------------ */

static void try_failed(struct pool_handout *j, int error, const char *text)
{
	bool was_fresh = !strcmp(j->sb->record.mode, "cold") || j->capture;
	struct pool_machine *m;

	loop_timer_cancel(j->try_timer);
	j->try_timer = NULL;
	free(j->text);
	j->text = str_dup(text);
	j->error = error ? err_of_files(error) : EIO;
	j->tries++;
	if (was_fresh && !j->capture)
		pool_version_failed(j->sb->version, text);
	else
		log_warn("template %s: a %s failed: %s", j->sb->version->name, j->sb->record.mode,
			text);
	/* what is restored under its own name is tried once: whoever asked may ask again */
	if (j->capture || (was_fresh && j->tries >= WAITING_TRIES + FRESH_TRIES - 1)) {
		cleanup_free char *why = str_dup(j->text);

		handout_fail(j, j->error, why);
		return;
	}
	m = machine_take(j);
	if (m)
		pool_machine_end(m, NULL, NULL);
	if (was_fresh && j->tries < WAITING_TRIES)
		j->tries = WAITING_TRIES;
	handout_try(j);
}

static void try_passed(void *user)
{
	struct pool_handout *j = user;

	j->try_timer = NULL;
	try_failed(j, ETIMEDOUT, "it does not answer");
}

void pool_handout_machine_ended(struct pool_handout *j, const char *text)
{
	machine_take(j);
	try_failed(j, EIO, text);
}

/* The sandbox runs: the machine is its own. */
static int take_over(struct pool_handout *j, const json_t *reply, int channel, struct err *err)
{
	struct pool_sandbox *sb = j->sb;
	json_int_t end = json_integer_value(json_object_get(reply, "end_ns"));
	json_int_t monitor = json_integer_value(json_object_get(reply, "monitor_pid"));
	int r = pool_guest_open(sb, channel, err);

	if (r < 0)
		return r;
	sb->machine = machine_take(j);
	sb->machine->use = POOL_USE_SANDBOX;
	sb->machine->sb = sb;
	sb->create_ns = clock_now_ns() - j->began;
	sb->cgroup = pool_cgroup_new(sb->pool->cgroups, sb->record.id, (int)monitor,
		sb->record.memory_bytes, sb->pool->config->machine_pids, sb->record.vcpus);
	pool_sandbox_set(sb, POOL_RUNNING);
	if (!sb->listed)
		pool_sandbox_list(sb);
	pool_lease_set(sb, end);
	return 0;
}

static void handed_out(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	struct pool_handout *j = m->handout;
	int channel = -1;
	struct err err;

	fault_point("pool.create.handed-out");
	if (error == 0 && n_fds == 2)
		channel = fds[1];
	for (unsigned i = 0; i < n_fds; i++) {
		if (fds[i] != channel || !j)
			close(fds[i]);
	}
	if (!j)
		return; /* it had been given up already */
	if (error) {
		try_failed(j, error, text);
	} else if (channel < 0) {
		try_failed(j, EPROTO, "its keeper gave no channel");
	} else if (take_over(j, reply, channel, &err) < 0) {
		try_failed(j, EIO, err.text);
	} else {
		json_t *kept = json_incref((json_t *)reply);

		handout_end(j, 0, "", kept);
		json_decref(kept);
	}
}

/* The sandbox's record for this try: its id and how it is made. */
static int try_record(struct pool_handout *j, const char *mode, struct err *err)
{
	struct pool_record n = j->sb->record;
	char id[POOL_ID_SIZE];
	json_t *record;
	int r;

	if (!j->sb->listed) {
		pool_id_make(id);
		n.id = id;
		n.started_ms = clock_realtime_ns() / 1000000;
	}
	n.mode = mode;
	record = pool_record_write(&n);
	r = pool_sandbox_set_record(j->sb, record, err);
	json_decref(record);
	return r;
}

static void handout_try(struct pool_handout *j)
{
	struct pool_version *v = j->sb->version;
	struct pool_machine *m = NULL;
	const char *mode = j->capture ? j->same_identity ? "resume" : "fork" : "cold";
	cleanup_free char *pause_dir = NULL;
	struct keeper_lease lease;
	struct err err;
	int r = 0;

	if (!j->capture && j->tries < WAITING_TRIES)
		m = pool_stock_take(v, &mode);
	if (!m)
		r = pool_machine_make(v, j->sb->record.key, j->capture, j->same_identity,
			POOL_USE_HANDOUT, &m, &err);
	if (r == 0)
		r = try_record(j, mode, &err);
	if (r < 0) {
		if (m)
			pool_machine_end(m, NULL, NULL);
		handout_end(j, -r, err.text, NULL);
		return;
	}
	m->use = POOL_USE_HANDOUT;
	m->handout = j;
	j->machine = m;
	if (!j->capture && strcmp(mode, "cold"))
		j->try_timer =
			loop_timer(j->pool->loop, clock_deadline(WAITING_TRY_MS), try_passed, j);
	pause_dir = pool_lease_pause_dir(j->sb);
	lease = (struct keeper_lease){.id = j->sb->record.id,
		.record = j->sb->record_json,
		.lease_ms = j->timeout_ms,
		.pause_dir = pause_dir};
	fault_point("pool.create.hand-out");
	keeper_hand_out(m->keeper, &lease, j->sb->record.id, handed_out, m);
}

/* ---- the queue -------------------------------------------------------------------------------- */

static void handout_begin(void *user)
{
	struct pool_handout *j = user;

	j->try_timer = NULL;
	handout_try(j);
}

void pool_handout_pump(struct pool *p)
{
	struct pool_handout *j;

	while ((j = TAILQ_FIRST(&p->queue)) && p->slots_used < p->slots) {
		queue_remove(j);
		p->slots_used++;
		j->slot = true;
		j->slot_timer = loop_timer(p->loop, clock_deadline(SLOT_MS), slot_passed, j);
		/* not from within whoever called: it may fail at once */
		j->try_timer = loop_defer(p->loop, handout_begin, j);
	}
}

void pool_handout_submit(struct pool_handout *j)
{
	struct pool *p = j->pool;

	LIST_INSERT_HEAD(&p->handouts, j, link);
	j->sb->version->handouts++;
	j->queued = true;
	TAILQ_INSERT_TAIL(&p->queue, j, queue);
	j->deadline_timer = loop_timer(p->loop, j->deadline, deadline_passed, j);
	pool_handout_pump(p);
}

void pool_handout_fail_waiting(struct pool *p, int error, const char *text)
{
	while (!TAILQ_EMPTY(&p->queue))
		handout_fail(TAILQ_FIRST(&p->queue), error, text);
}
