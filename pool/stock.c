/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stock: standbys and spares that wait to be handed out.
 *
 * How many there should be is as configured, or follows from the rate of arrivals times the time
 * that making one takes, with a margin because arrivals do not come evenly.
 *
 * When they are made: at most refill_per_s a second, and at most one per processor at a time. None
 * is made while a create waits or runs, nor right after one, because the next create may be on its
 * way. Creates that never pause must not keep the stock empty for ever: where they go on for long,
 * one is made now and then.
 *
 * The stock stays within the memory budget, counted by what a machine of that template was seen to
 * use. A template version whose machines fail is left alone for a while, which doubles with each
 * failure up to a minute.
 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "pool/config.h"
#include "pool/keeper/keeper.h"
#include "pool/limits_private.h"
#include "pool/machine_private.h"
#include "pool/pool_private.h"
#include "pool/stock_private.h"
#include "pool/version_private.h"

#define RATE_TAU_S 10.0
#define RATE_MARGIN 2.0
#define QUIET_NS 20000000 /* behind a create */
#define STARVED_NS 1000000000LL
#define MAKE_MS LIMIT_CREATE_MS
/* a monitor and the pages of a first answer, until one was measured */
#define COST_UNKNOWN (48 * MIB)
/* a monitor and its keeper, beside the guest's memory, where all of that is reserved */
#define COST_AROUND (16 * MIB)
#define MEASURED_AT_ONCE 16
#define MEASURED_FOR_NS (30 * 1000000000LL)

/* ---- how many --------------------------------------------------------------------------------- */

double pool_rate_next(double rate, double dt_s, unsigned arrivals)
{
	return rate * exp(-(dt_s > 0 ? dt_s : 0) / RATE_TAU_S) + arrivals / RATE_TAU_S;
}

/* What arrives while one is made, and a margin: of n expected, √n more come often. One at least. */
unsigned pool_rate_target(double rate, double make_s, unsigned max)
{
	double n = rate * make_s;
	double want = ceil(n + RATE_MARGIN * sqrt(n));

	if (want < 1)
		want = 1;
	return want > max ? max : (unsigned)want;
}

double pool_stock_rate(const struct pool_version *v)
{
	return pool_rate_next(v->rate, (double)(clock_now_ns() - v->rate_at) / 1e9, 0);
}

void pool_stock_arrival(struct pool_version *v)
{
	int64_t now = clock_now_ns();

	v->rate = pool_rate_next(v->rate, (double)(now - v->rate_at) / 1e9, 1);
	v->rate_at = now;
}

uint64_t pool_version_cost(const struct pool_version *v)
{
	if (v->pool->config->memory_reserved)
		return v->shape.memory_bytes + COST_AROUND;
	return v->cost_bytes ? v->cost_bytes : COST_UNKNOWN;
}

void pool_stock_want(struct pool_version *v, unsigned ret[static 2])
{
	const struct config_template *t = v->want;
	double rate = pool_stock_rate(v);

	ret[POOL_KIND_STANDBY] = ret[POOL_KIND_SPARE] = 0;
	if (!t || v->pool->draining)
		return;
	ret[POOL_KIND_STANDBY] = t->standbys != CONFIG_AUTO
		? t->standbys
		: pool_rate_target(rate, v->make_s[POOL_KIND_STANDBY], t->max_standbys);
	ret[POOL_KIND_SPARE] = t->spares != CONFIG_AUTO
		? t->spares
		: pool_rate_target(rate, v->make_s[POOL_KIND_SPARE], t->max_spares);
}

/* ---- taking, losing ---------------------------------------------------------------------------- */

static enum pool_kind kind_of(enum pool_use use)
{
	return use == POOL_USE_MAKING_SPARE || use == POOL_USE_SPARE ? POOL_KIND_SPARE
								     : POOL_KIND_STANDBY;
}

/* Not in the stock any more. */
static void stock_remove(struct pool_machine *m)
{
	struct pool_version *v = m->version;

	if (m->use == POOL_USE_STANDBY || m->use == POOL_USE_SPARE)
		v->ready[kind_of(m->use)]--;
	else
		v->making[kind_of(m->use)]--;
	loop_timer_cancel(m->timer);
	m->timer = NULL;
}

static struct pool_machine *stock_find(struct pool_version *v, enum pool_use use)
{
	struct pool_machine *m;

	LIST_FOREACH(m, &v->pool->machines, link)
		if (m->version == v && m->use == use)
			break;
	return m;
}

struct pool_machine *pool_stock_take(struct pool_version *v, const char **ret_mode)
{
	struct pool_machine *m = NULL;

	if (v->ready[POOL_KIND_SPARE]) {
		m = stock_find(v, POOL_USE_SPARE);
		v->hits_spare++;
		*ret_mode = "spare";
	} else if (v->ready[POOL_KIND_STANDBY]) {
		m = stock_find(v, POOL_USE_STANDBY);
		v->hits_standby++;
		*ret_mode = POOL_MODE_STANDBY;
	} else {
		v->misses++;
		return NULL;
	}
	stock_remove(m);
	m->use = POOL_USE_HANDOUT;
	return m;
}

/* One that was being made could not be, or was not in time. */
static void stock_failed(struct pool_version *v, const char *text)
{
	v->tried = true;
	pool_version_failed(v, text);
}

void pool_stock_ended(struct pool_machine *m, const char *text)
{
	struct pool_version *v = m->version;

	stock_remove(m);
	if (m->use == POOL_USE_MAKING_STANDBY || m->use == POOL_USE_MAKING_SPARE)
		stock_failed(v, text);
	else
		log_warn("template %s: a %s has ended by itself: %s", v->name,
			m->use == POOL_USE_SPARE ? "spare" : "standby", text);
}

void pool_stock_end(struct pool_version *v)
{
	struct pool_machine *m, *next;

	for (m = LIST_FIRST(&v->pool->machines); m; m = next) {
		next = LIST_NEXT(m, link);
		if (m->version == v && m->use <= POOL_USE_SPARE) {
			stock_remove(m);
			pool_machine_end(m, NULL, NULL);
		}
	}
}

uint64_t pool_stock_bytes(const struct pool *p, const struct pool_version *keep)
{
	const struct pool_version *v;
	uint64_t bytes = 0;

	LIST_FOREACH(v, &p->versions, link) {
		if (v != keep)
			bytes += (uint64_t)(v->ready[POOL_KIND_STANDBY] +
					 v->ready[POOL_KIND_SPARE]) *
				pool_version_cost(v);
	}
	return bytes;
}

bool pool_stock_give_up(struct pool *p, const struct pool_version *keep)
{
	struct pool_version *v;

	LIST_FOREACH(v, &p->versions, link) {
		bool spare = v->ready[POOL_KIND_SPARE] > 0;
		struct pool_machine *m;

		if (v == keep || (!spare && !v->ready[POOL_KIND_STANDBY]))
			continue;
		m = stock_find(v, spare ? POOL_USE_SPARE : POOL_USE_STANDBY);
		stock_remove(m);
		pool_machine_end(m, NULL, NULL);
		return true;
	}
	return false;
}

/* ---- making ----------------------------------------------------------------------------------- */

/* What it takes: of its own alone, with what the host spends around it. */
static void measured(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	struct pool_version *v = m->version ? m->version : m->sb ? m->sb->version : NULL;
	uint64_t bytes = 0, part;
	static const char *const parts[] = {"memory_private", "monitor_private", "keeper_private"};

	(void)text;
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (error)
		return;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (json_get_u64(reply, parts[i], 0, INT64_MAX, &part, NULL) == 0)
			bytes += part;
	}
	if (!bytes)
		return;
	if (m->sb)
		m->sb->cost_bytes = bytes;
	if (m->sb && json_get_u64(reply, "disk_bytes", 0, INT64_MAX, &part, NULL) == 0)
		m->sb->disk_bytes = part;
	/* what the next will take is what those before it took, the newest most */
	if (v)
		v->cost_bytes =
			v->cost_bytes ? v->cost_bytes - v->cost_bytes / 8 + bytes / 8 : bytes;
}

static void measure(struct pool_machine *m, int64_t now)
{
	m->measured_ns = now;
	keeper_stats(m->keeper, measured, m);
}

void pool_stock_measure(struct pool *p)
{
	int64_t now = clock_now_ns();
	unsigned left = MEASURED_AT_ONCE;
	struct pool_machine *m;

	LIST_FOREACH(m, &p->machines, link) {
		if (!left)
			break;
		if (m->use != POOL_USE_SANDBOX || !m->sb || m->sb->state != POOL_RUNNING ||
			(m->measured_ns && now - m->measured_ns < MEASURED_FOR_NS))
			continue;
		measure(m, now);
		left--;
	}
}

static void made(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	struct pool_version *v = m->version;
	enum pool_kind kind;
	double took = (double)(clock_now_ns() - m->began) / 1e9;

	(void)reply;
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (m->use != POOL_USE_MAKING_STANDBY && m->use != POOL_USE_MAKING_SPARE)
		return; /* given up meanwhile */
	kind = kind_of(m->use);
	stock_remove(m);
	if (error) {
		stock_failed(v, text);
		pool_machine_end(m, NULL, NULL);
		return;
	}
	v->tried = true;
	v->failed_in_row = 0;
	v->error[0] = '\0';
	v->make_s[kind] = v->make_s[kind] > 0 ? 0.8 * v->make_s[kind] + 0.2 * took : took;
	v->ready[kind]++;
	m->use = kind == POOL_KIND_SPARE ? POOL_USE_SPARE : POOL_USE_STANDBY;
	if (!v->cost_bytes && kind == POOL_KIND_SPARE)
		measure(m, clock_now_ns());
	pool_stock_refill(v->pool);
}

static void make_passed(void *user)
{
	struct pool_machine *m = user;

	m->timer = NULL;
	stock_remove(m);
	stock_failed(m->version, "it was not ready in time");
	pool_machine_end(m, NULL, NULL);
}

static bool make_one(struct pool_version *v, enum pool_kind kind)
{
	bool spare = kind == POOL_KIND_SPARE;
	struct pool_machine *m;
	struct err err;

	if (pool_machine_make(v, "", NULL, false,
		    spare ? POOL_USE_MAKING_SPARE : POOL_USE_MAKING_STANDBY, &m, &err) < 0) {
		stock_failed(v, err.text);
		return false;
	}
	v->making[kind]++;
	m->timer = loop_timer(v->pool->loop, clock_deadline(MAKE_MS), make_passed, m);
	if (spare)
		keeper_prepare(m->keeper, made, m);
	else
		keeper_ready(m->keeper, made, m);
	return true;
}

/* ---- when ------------------------------------------------------------------------------------- */

/* What is missing most urgently: spares first, of the version with the smallest share of its own. */
static struct pool_version *most_wanting(struct pool *p, enum pool_kind *ret_kind)
{
	int64_t now = clock_now_ns();
	struct pool_version *found = NULL, *v;
	double least = 1;

	for (int kind = POOL_KIND_SPARE; kind >= POOL_KIND_STANDBY && !found; kind--) {
		LIST_FOREACH(v, &p->versions, link) {
			unsigned want[2], have = v->ready[kind] + v->making[kind];

			pool_stock_want(v, want);
			if (have >= want[kind] || v->retry_at > now)
				continue;
			if (pool_memory_used(p) + pool_version_cost(v) > pool_memory_budget(p) ||
				!pool_memory_free_for(p, pool_version_cost(v))) {
				v->tried = true;
				snprintf(v->error, sizeof(v->error),
					"the memory budget is used up: no more is kept ready");
				continue;
			}
			if (!found || (double)have / want[kind] < least) {
				found = v;
				least = (double)have / want[kind];
				*ret_kind = (enum pool_kind)kind;
			}
		}
	}
	return found;
}

static void refill_again(void *user)
{
	struct pool *p = user;

	p->refill_timer = NULL;
	pool_stock_refill(p);
}

static void refill_at(struct pool *p, int64_t at)
{
	if (!p->refill_timer)
		p->refill_timer = loop_timer(p->loop, at, refill_again, p);
}

/* May something be made while there are creates, or were a moment ago? */
static bool yields(struct pool *p, int64_t now)
{
	bool busy = !TAILQ_EMPTY(&p->queue) || p->slots_used || now - p->handout_ended < QUIET_NS;

	if (!busy) {
		p->refill_starved = 0;
		return false;
	}
	if (!p->refill_starved)
		p->refill_starved = now;
	if (now - p->refill_starved >= STARVED_NS) {
		p->refill_starved = now; /* this one, then wait again */
		return false;
	}
	refill_at(p, now + QUIET_NS);
	return true;
}

/* More than wanted (the rate has fallen, the configuration changed): the surplus ends. */
static void trim(struct pool_version *v)
{
	static const enum pool_use uses[] = {POOL_USE_STANDBY, POOL_USE_SPARE};
	unsigned want[2];

	pool_stock_want(v, want);
	for (int kind = POOL_KIND_STANDBY; kind <= POOL_KIND_SPARE; kind++) {
		while (v->ready[kind] > want[kind]) {
			struct pool_machine *m = stock_find(v, uses[kind]);

			stock_remove(m);
			pool_machine_end(m, NULL, NULL);
		}
	}
}

void pool_stock_refill(struct pool *p)
{
	double per_s = p->config->refill_per_s;
	unsigned making = 0, most = p->slots / 2;
	int64_t now = clock_now_ns();
	struct pool_version *v;
	enum pool_kind kind = POOL_KIND_STANDBY;

	if (p->draining || p->opening)
		return;
	LIST_FOREACH(v, &p->versions, link) {
		trim(v);
		making += v->making[0] + v->making[1];
	}
	while (making < (most ? most : 1) && (v = most_wanting(p, &kind))) {
		if (yields(p, now))
			return;
		if (!pool_tokens_take(&p->refill_tokens, &p->refill_at, now, per_s, 1)) {
			refill_at(p, now + (int64_t)(1e9 / per_s));
			return;
		}
		if (make_one(v, kind))
			making++;
	}
}

bool pool_settled(const struct pool *p, struct err *why)
{
	struct pool_version *v;
	bool settled = true;

	for (size_t i = 0; i < p->n_tags; i++) {
		if (!p->tags[i].version)
			err_set(why, ENOENT, "template %s:%s: it is not in the store",
				p->tags[i].name, p->tags[i].tag);
	}
	LIST_FOREACH(v, &p->versions, link) {
		unsigned want[2];
		bool full;

		pool_stock_want(v, want);
		full = v->ready[0] >= want[0] && v->ready[1] >= want[1];
		if (!full && v->error[0])
			err_set(why, EIO, "template %s: %s", v->name, v->error);
		else if (!full)
			settled = false;
	}
	return settled;
}
