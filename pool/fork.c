/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks: one checkpoint, many sandboxes. For a running sandbox the checkpoint is made for the fork.
 * For a paused sandbox it is the sandbox's own checkpoint under a second name, so that the sandbox
 * may be resumed or killed meanwhile. The fork's checkpoint is removed as soon as its last sandbox
 * has started or failed; a new daemon that finds one clears it as litter. A sandbox that has
 * started holds what it needs of the checkpoint open.
 *
 * What runs in a fork is what ran in its source up to that moment, but its identity is not the
 * same: a fork has an id, a machine id, a clock and entropy of its own.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/create_private.h"
#include "pool/handout_private.h"
#include "pool/lease_private.h"
#include "pool/limits_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"
#include "pool/work_private.h"

static void fork_tell_all(struct pool_transition *c, int error, const char *text)
{
	for (unsigned i = 0; i < c->count; i++)
		pool_later(c->pool, c->fn, c->user, error, text);
}

/* It is over: what it made goes. */
static void fork_end(struct pool_transition *c)
{
	struct err err;

	if (c->own && pool_trash(c->pool, c->capture, &err) < 0)
		log_warn("%s", err.text);
	pool_transition_free(c);
}

static void fork_lost(struct pool_transition *c, int error, const char *text)
{
	struct err err;

	fork_tell_all(c, error, text);
	if (c->own && pool_trash(c->pool, c->capture, &err) < 0)
		log_warn("%s", err.text);
}

static void fork_done(struct pool_handout *j, int error, const char *text, const json_t *reply)
{
	struct pool_transition *c = j->fork;

	c->pending--;
	pool_create_done(j, error, text, reply);
	if (!c->pending)
		fork_end(c);
}

/* The record of one fork; its id comes with its hand-out. */
static struct pool_sandbox *fork_sandbox(struct pool_transition *c, struct err *err)
{
	cleanup_json json_t *record = NULL;
	struct pool_record n;
	struct pool_sandbox *sb;
	char id[POOL_ID_SIZE];

	if (pool_record_read(c->record, &n, err) < 0)
		return NULL;
	pool_id_make(id);
	n.source = n.id;
	n.id = id;
	n.mode = "fork";
	n.generation = 1;
	record = pool_record_write(&n);
	sb = pool_sandbox_new(c->pool, record, POOL_CREATING, err);
	if (sb) {
		sb->version = pool_version_of(c->pool, &sb->record);
		sb->version->sandboxes++;
	}
	return sb;
}

static void fork_all(struct pool_transition *c)
{
	struct err err;

	c->pending++; /* until all are on their way */
	for (unsigned i = 0; i < c->count; i++) {
		struct pool_sandbox *sb = fork_sandbox(c, &err);
		struct pool_handout *j;

		if (!sb) {
			pool_later(c->pool, c->fn, c->user, EINVAL, err.text);
			continue;
		}
		j = calloc(1, sizeof(*j));
		if (!j)
			abort();
		*j = (struct pool_handout){.pool = c->pool,
			.sb = sb,
			.capture = str_dup(c->capture),
			.timeout_ms = c->timeout_ms,
			.began = clock_now_ns(),
			.deadline = clock_deadline(LIMIT_CREATE_MS),
			.done = fork_done,
			.fork = c,
			.fn = c->fn,
			.user = c->user};
		c->pending++;
		pool_handout_submit(j);
	}
	if (!--c->pending)
		fork_end(c);
}

static void fork_captured(struct pool_transition *c, int error, const char *text)
{
	fault_point("pool.fork.captured");
	pool_transition_release(c);
	if (error) {
		fork_tell_all(c, error, text);
		pool_transition_free(c); /* a checkpoint that failed left nothing */
	} else {
		fork_all(c);
	}
}

/* The same files in another directory, capture.json last. */
static int capture_link(const char *from, const char *to, struct err *err)
{
	cleanup_dir DIR *dir = opendir(from);
	cleanup_fd int to_dir = -1;
	struct dirent *e;

	if (!dir)
		return err_sys(err, errno, "opening %s", from);
	if (mkdir(to, 0700) < 0)
		return err_sys(err, errno, "making %s", to);
	to_dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to_dir < 0)
		return err_sys(err, errno, "opening %s", to);
	while ((e = readdir(dir))) {
		if (e->d_name[0] != '.' && strcmp(e->d_name, "capture.json") != 0 &&
			linkat(dirfd(dir), e->d_name, to_dir, e->d_name, 0) < 0)
			return err_sys(err, errno, "linking %s/%s", to, e->d_name);
	}
	if (linkat(dirfd(dir), "capture.json", to_dir, "capture.json", 0) < 0)
		return err_sys(err, errno, "linking %s/capture.json", to);
	return 0;
}

/* Of a paused one: its checkpoint is there. */
static int fork_paused(struct pool_transition *c, struct err *err)
{
	struct pool_sandbox *sb = c->sb;
	cleanup_free char *from = pool_capture_path(c->pool, sb->record.id, sb->capture);
	struct err why;
	int r = capture_link(from, c->capture, err);

	if (r < 0) {
		if (pool_trash(c->pool, c->capture, &why) < 0)
			log_warn("%s", why.text);
		pool_transition_free(c);
		return -err_of_files(-r);
	}
	pool_transition_release(c);
	fork_all(c);
	return 0;
}

static int fork_begin(struct pool *p, const char *id, unsigned count, uint64_t timeout_ms,
	pool_fn *fn, void *user, struct err *err)
{
	struct pool_transition *c;
	struct pool_sandbox *sb;
	char name[POOL_ID_SIZE];
	int r;

	if (p->draining)
		return err_set(err, ESHUTDOWN, "the pool is shutting down");
	if (count < 1 || count > LIMIT_POOL_FORK)
		return err_set(
			err, EINVAL, "count: %u is not within 1 to %d", count, LIMIT_POOL_FORK);
	r = pool_lease_check(p, &timeout_ms, err);
	if (r < 0 || (r = pool_transition_begin(p, id, true, &c, err)) < 0)
		return r;
	sb = c->sb;
	r = pool_limits_check(
		p, sb->record.key, pool_version_of(p, &sb->record), count, true, false, err);
	if (r < 0) {
		pool_transition_free(c);
		return r;
	}
	c->fn = fn;
	c->user = user;
	c->lost = fork_lost;
	c->captured = fork_captured;
	c->count = count;
	c->timeout_ms = timeout_ms;
	c->record = json_incref(sb->record_json);
	pool_id_make(name);
	c->capture = pool_path(p, "captures", name);
	c->own = true;
	if (sb->state == POOL_PAUSED)
		return fork_paused(c, err);
	pool_transition_capture(c, c->capture, false);
	return 0;
}

void pool_fork(struct pool *p, const char *id, unsigned count, uint64_t timeout_ms, pool_fn *fn,
	void *user)
{
	struct err err;
	int r = fork_begin(p, id, count, timeout_ms, fn, user, &err);

	for (unsigned i = 0; r < 0 && i < (count ? count : 1) && i < LIMIT_POOL_FORK; i++)
		pool_fail_later(p, fn, user, r, &err);
}
