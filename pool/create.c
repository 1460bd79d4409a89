/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates: a request is checked against the limits, a record is made, and a hand-out (handout.c)
 * finds a machine for it. The record of a sandbox that its lease pauses is written to STATE/paused
 * before the answer, since its keeper may pause it when there is no daemon.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "pool/create_private.h"
#include "pool/handout_private.h"
#include "pool/lease_private.h"
#include "pool/limits_private.h"
#include "pool/paused_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/stock_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"

/* ---- creates ---------------------------------------------------------------------------------- */

struct creating {
	struct pool_sandbox *sb;
	pool_fn *fn;
	void *user;
};

static void create_noted(void *user, int error, const char *text)
{
	struct creating *c = user;
	struct pool_sandbox *sb = c->sb;

	if (!pool_sandbox_put(sb)) {
		sb = NULL;
		error = ENOENT;
		text = "the sandbox has ended already";
	} else if (error) {
		pool_sandbox_kill(sb, text);
		sb = NULL;
	}
	c->fn(c->user, sb, error, text);
	free(c);
}

void pool_create_done(struct pool_handout *j, int error, const char *text, const json_t *reply)
{
	struct pool_sandbox *sb = j->sb;
	struct pool *p = j->pool;
	struct creating *c;

	if (p->on_create) {
		struct pool_sandbox_info f;

		pool_sandbox_info(sb, &f);
		f.create_ns = clock_now_ns() - j->began;
		p->on_create(p->on_create_user, &f, error == 0, json_object_get(reply, "trace"));
	}
	if (error) {
		pool_sandbox_remove(sb);
		j->fn(j->user, NULL, error, text);
	} else if (sb->record.auto_pause) {
		c = malloc(sizeof(*c));
		if (!c)
			abort();
		*c = (struct creating){.sb = sb, .fn = j->fn, .user = j->user};
		pool_sandbox_hold(sb);
		pool_paused_write(sb, create_noted, c);
	} else {
		j->fn(j->user, sb, 0, "");
	}
}

/* What is created from: a template's version, or a snapshot. */
struct source {
	struct pool_version *version;
	struct pool_tag tag;
	char *capture; /* NULL: a template */
};

static int source_find(
	struct pool *p, const char *ref, const char *key, struct source *ret, struct err *err)
{
	cleanup_json json_t *record = NULL;
	struct pool_record n;
	int r;

	*ret = (struct source){0};
	if (pool_id_valid(ref) && pool_snapshot_find(p, ref, &record, &ret->capture, NULL) == 0) {
		r = pool_record_read(record, &n, err);
		/* a key's snapshots are its own; who needs no key may use all */
		if (r == 0 && *key && strcmp(key, n.key))
			r = err_set(err, ENOENT, "there is no such template or snapshot");
		if (r < 0)
			return r;
		ret->version = pool_version_of(p, &n);
		memcpy(ret->tag.name, ret->version->name, sizeof(ret->tag.name));
		memcpy(ret->tag.tag, ret->version->tag, sizeof(ret->tag.tag));
		return 0;
	}
	r = pool_version_resolve(p, ref, &ret->tag, err);
	ret->version = ret->tag.version;
	return r;
}

/* An array of the rules, or NULL. */
static json_t *allow_list(const struct pool_create *spec)
{
	json_t *list = spec->n_allow ? json_array() : NULL;

	for (size_t i = 0; i < spec->n_allow; i++)
		json_array_append_new(list, pool_rule_write(&spec->allow[i]));
	return list;
}

static int create_begin(
	struct pool *p, const struct pool_create *spec, pool_fn *fn, void *user, struct err *err)
{
	cleanup_json json_t *record = NULL, *allow = allow_list(spec);
	struct source from = {0};
	cleanup_free char *capture = NULL;
	uint64_t timeout_ms = spec->timeout_ms;
	struct pool_record n;
	struct pool_sandbox *sb;
	struct pool_handout *j;
	char id[POOL_ID_SIZE];
	int r = pool_lease_check(p, &timeout_ms, err);

	if (r < 0)
		return r;
	r = source_find(p, spec->template, spec->key, &from, err);
	capture = from.capture;
	if (r < 0)
		return r;
	r = pool_limits_check(p, spec->key, from.version, 1, true, !capture, err);
	if (r < 0)
		return r;
	pool_id_make(id); /* each try has its own; this one is for its record to be whole */
	n = from.version->shape;
	n.id = id;
	n.name = from.tag.name;
	n.tag = from.tag.tag;
	n.digest = from.version->digest;
	n.key = spec->key;
	n.mode = "cold";
	n.started_ms = clock_realtime_ns() / 1000000;
	n.metadata = spec->metadata;
	n.env = spec->env;
	n.allow = allow;
	n.auto_pause = spec->auto_pause;
	n.auto_resume = spec->auto_resume;
	n.guarded_ports = spec->guarded_ports;
	n.mask_host = spec->mask_host;
	n.lease_ms = timeout_ms;
	n.generation = 1;
	record = pool_record_write(&n);
	r = pool_record_check(record, err);
	if (r < 0)
		return r;
	sb = pool_sandbox_new(p, record, POOL_CREATING, err);
	if (!sb)
		return -EINVAL;
	sb->version = from.version;
	sb->version->sandboxes++;
	pool_stock_arrival(sb->version);
	j = calloc(1, sizeof(*j));
	if (!j)
		abort();
	*j = (struct pool_handout){.pool = p,
		.sb = sb,
		.capture = steal_ptr(&capture),
		.timeout_ms = timeout_ms,
		.began = clock_now_ns(),
		.deadline = clock_deadline(LIMIT_CREATE_MS),
		.done = pool_create_done,
		.fn = fn,
		.user = user};
	pool_handout_submit(j);
	return 0;
}

void pool_create(struct pool *p, const struct pool_create *spec, pool_fn *fn, void *user)
{
	struct err err;
	int r;

	if (p->draining)
		r = err_set(&err, ESHUTDOWN, "the pool is shutting down");
	else
		r = create_begin(p, spec, fn, user, &err);
	if (r < 0)
		pool_fail_later(p, fn, user, r, &err);
}
