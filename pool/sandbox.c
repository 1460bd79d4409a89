/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandboxes themselves: found by id, listed by their start (newest first), counted by state.
 *
 * A sandbox that is being created is not listed. It has its id only when its machine has taken the
 * id: so a try that fails leaves nothing to be found. A sandbox that ends cannot be found any more
 * from the moment that its end was asked for; it is counted until its machine is gone.
 */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/str.h"
#include "pool/cgroup_private.h"
#include "pool/disk_private.h"
#include "pool/guest_private.h"
#include "pool/handout_private.h"
#include "pool/machine_private.h"
#include "pool/paused_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/settle_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"

const char *pool_state_name(enum pool_state state)
{
	static const char *const names[] = {
		"creating", "running", "pausing", "paused", "resuming", "ending"};

	static_assert(sizeof(names) / sizeof(names[0]) == POOL_ENDING + 1, "a name each");
	return names[state];
}

/* 20 of 36 characters: 103 bits. */
void pool_id_make(char ret[static POOL_ID_SIZE])
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned n = 0;

	while (n < POOL_ID_LEN) {
		uint8_t bytes[32];

		if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
			continue;
		for (unsigned i = 0; i < sizeof(bytes) && n < POOL_ID_LEN; i++) {
			if (bytes[i] < 252) /* 7 × 36: each as likely as the others */
				ret[n++] = digits[bytes[i] % 36];
		}
	}
	ret[n] = '\0';
}

bool pool_id_valid(const char *text)
{
	return strlen(text) == POOL_ID_LEN &&
		strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == POOL_ID_LEN;
}

static struct pool_bucket *bucket(struct pool *p, const char *id)
{
	uint32_t h = 2166136261u; /* FNV-1a; ids are random anyway */

	for (; *id; id++)
		h = (h ^ (uint8_t)*id) * 16777619u;
	return &p->buckets[h % POOL_BUCKETS];
}

struct pool_sandbox *pool_sandbox_new(
	struct pool *p, json_t *record, enum pool_state state, struct err *err)
{
	struct pool_record fields;
	struct pool_sandbox *sb;

	if (pool_record_read(record, &fields, err) < 0)
		return NULL;
	sb = calloc(1, sizeof(*sb));
	if (!sb)
		abort();
	sb->pool = p;
	sb->record_json = json_incref(record);
	sb->record = fields;
	sb->state = state;
	p->counts[state]++;
	return sb;
}

void pool_sandbox_set(struct pool_sandbox *sb, enum pool_state state)
{
	struct pool *p = sb->pool;

	p->counts[sb->state]--;
	p->counts[state]++;
	sb->state = state;
	if (state == POOL_PAUSED || state == POOL_RUNNING)
		pool_waiters_wake(sb);
}

int pool_sandbox_set_record(struct pool_sandbox *sb, json_t *record, struct err *err)
{
	struct pool_record fields;
	int r = pool_record_check(record, err);

	if (r < 0 || (r = pool_record_read(record, &fields, err)) < 0)
		return r;
	assert(!sb->listed || !strcmp(fields.id, sb->record.id));
	json_incref(record);
	json_decref(sb->record_json);
	sb->record_json = record;
	sb->record = fields;
	return 0;
}

/* Is @a listed before @b? */
static bool newer(const struct pool_sandbox *a, const struct pool_sandbox *b)
{
	if (a->record.started_ms != b->record.started_ms)
		return a->record.started_ms > b->record.started_ms;
	return strcmp(a->record.id, b->record.id) > 0;
}

void pool_sandbox_list(struct pool_sandbox *sb)
{
	struct pool_sandbox *older;

	LIST_INSERT_HEAD(bucket(sb->pool, sb->record.id), sb, bucket);
	TAILQ_FOREACH(older, &sb->pool->sandboxes, link)
		if (!newer(older, sb))
			break;
	if (older)
		TAILQ_INSERT_BEFORE(older, sb, link);
	else
		TAILQ_INSERT_TAIL(&sb->pool->sandboxes, sb, link);
	sb->listed = true;
	sb->pool->n_sandboxes++;
}

static void unlist(struct pool_sandbox *sb)
{
	if (!sb->listed)
		return;
	LIST_REMOVE(sb, bucket);
	TAILQ_REMOVE(&sb->pool->sandboxes, sb, link);
	sb->listed = false;
	sb->pool->n_sandboxes--;
}

static void sandbox_free_now(struct pool_sandbox *sb)
{
	json_decref(sb->record_json);
	json_decref(sb->egress_env);
	free(sb->shown.text);
	free(sb);
}

/* Let go of all that it has while it runs. */
static void sandbox_stop(struct pool_sandbox *sb)
{
	assert(!sb->machine);
	pool_guest_close(sb, false);
	loop_timer_cancel(sb->lease_timer);
	sb->lease_timer = NULL;
	loop_timer_cancel(sb->settle_timer);
	sb->settle_timer = NULL;
	pool_cgroup_free(sb->cgroup);
	sb->cgroup = NULL;
	if (sb->version)
		sb->version->sandboxes--;
	sb->version = NULL;
}

void pool_sandbox_set_paused(struct pool_sandbox *sb, unsigned capture)
{
	cleanup_free char *path = NULL;

	sandbox_stop(sb);
	if (sb->state != POOL_RESUMING)
		sb->paused_ms = clock_realtime_ns() / 1000000;
	if (sb->capture && sb->capture != capture)
		pool_paused_clear_one(sb, sb->capture);
	sb->capture = capture;
	path = pool_capture_path(sb->pool, sb->record.id, capture);
	sb->disk_bytes = pool_disk_of_capture(path);
	pool_sandbox_set(sb, POOL_PAUSED);
}

void pool_sandbox_remove(struct pool_sandbox *sb)
{
	pool_transition_lost(sb, "the sandbox has ended");
	pool_waiters_wake(sb);
	sandbox_stop(sb);
	sb->pool->counts[sb->state]--;
	unlist(sb);
	sb->removed = true;
	if (!sb->held)
		sandbox_free_now(sb);
}

void pool_sandbox_hold(struct pool_sandbox *sb)
{
	sb->held++;
}

bool pool_sandbox_put(struct pool_sandbox *sb)
{
	sb->held--;
	if (!sb->removed)
		return true;
	if (!sb->held)
		sandbox_free_now(sb);
	return false;
}

struct pool_sandbox *pool_sandbox_find(struct pool *p, const char *id)
{
	struct pool_sandbox *sb;

	if (!pool_id_valid(id))
		return NULL;
	LIST_FOREACH(sb, bucket(p, id), bucket)
		if (!strcmp(sb->record.id, id))
			break;
	return sb && sb->state != POOL_ENDING ? sb : NULL;
}

/* ---- ends ------------------------------------------------------------------------------------- */

/* Its machine is gone. Where the end of its lease paused it, or it needed the checkpoint it came from, it rests now; else
 * all of it goes. */
static void sandbox_gone(struct pool_sandbox *sb, bool may_pause)
{
	cleanup_free char *capture =
		pool_capture_path(sb->pool, sb->record.id, sb->record.generation);
	struct err err;

	if (may_pause && pool_capture_whole(capture)) {
		pool_sandbox_set_paused(sb, sb->record.generation);
		log_info("sandbox %s: paused", sb->record.id);
		pool_transition_rested(sb);
		return;
	}
	if (may_pause && pool_settle_ended(sb))
		return;
	if (pool_paused_clear(sb, &err) < 0)
		log_warn("sandbox %s: %s", sb->record.id, err.text);
	pool_sandbox_remove(sb);
}

void pool_sandbox_ended(struct pool_sandbox *sb, const char *text)
{
	log_info("sandbox %s: ended: %s", sb->record.id, text);
	sb->machine = NULL;
	sandbox_gone(sb, true);
}

struct killing {
	struct pool_sandbox *sb;
	bool may_pause;
	pool_fn *fn;
	void *user;
};

static void kill_gone(void *user, int error, const char *text)
{
	struct killing *k = user;
	struct pool *p = k->sb->pool;
	cleanup_free char *why = str_dup(text ? text : "");

	fault_point("pool.kill.gone");
	sandbox_gone(k->sb, k->may_pause);
	if (k->fn)
		k->fn(k->user, NULL, error, why);
	free(k);
	pool_handout_pump(p);
}

static void sandbox_end(struct pool_sandbox *sb, bool may_pause, pool_fn *fn, void *user)
{
	struct killing *k = malloc(sizeof(*k));
	struct pool_machine *m = sb->machine;

	if (!k)
		abort();
	*k = (struct killing){.sb = sb, .may_pause = may_pause, .fn = fn, .user = user};
	pool_sandbox_set(sb, POOL_ENDING);
	pool_transition_lost(sb, "the sandbox was killed");
	pool_guest_close(sb, false);
	loop_timer_cancel(sb->lease_timer);
	sb->lease_timer = NULL;
	sb->machine = NULL;
	m->sb = NULL;
	pool_machine_end(m, kill_gone, k);
}

void pool_sandbox_kill(struct pool_sandbox *sb, const char *why)
{
	if (!sb->machine || sb->state == POOL_ENDING)
		return;
	log_warn("sandbox %s is ended: %s", sb->record.id, why);
	sandbox_end(sb, true, NULL, NULL);
}

/* Its hand-out ends, and the checkpoint that it was paused in is removed. */
static void kill_resuming(struct pool_sandbox *sb, pool_fn *fn, void *user)
{
	struct killing *k = malloc(sizeof(*k));
	struct pool_handout *j;

	if (!k)
		abort();
	*k = (struct killing){.sb = sb, .fn = fn, .user = user};
	pool_sandbox_set(sb, POOL_ENDING);
	LIST_FOREACH(j, &sb->pool->handouts, link)
		if (j->sb == sb)
			break;
	pool_handout_abort(j, ENOENT, "the sandbox was killed", kill_gone, k);
}

void pool_kill(struct pool *p, const char *id, pool_fn *fn, void *user)
{
	struct pool_sandbox *sb = pool_sandbox_find(p, id);
	struct err err;

	if (!sb) {
		pool_later(p, fn, user, ENOENT, "there is no such sandbox");
	} else if (sb->machine) {
		sandbox_end(sb, false, fn, user);
	} else if (sb->state == POOL_PAUSED) {
		int r = pool_paused_clear(sb, &err);

		if (r == 0)
			pool_sandbox_remove(sb);
		pool_fail_later(p, fn, user, r, &err);
	} else if (sb->state == POOL_RESUMING) {
		kill_resuming(sb, fn, user);
	} else if (!pool_transition_kill(sb, fn, user)) {
		pool_later(p, fn, user, EBUSY, "the sandbox is being killed already");
	}
}
