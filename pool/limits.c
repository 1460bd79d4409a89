/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits: of the whole pool, of a key, and of the host's memory. Sandboxes that run or are about to
 * run count; a paused sandbox costs disk alone. They are counted anew each time, from the sandboxes
 * themselves, so there is no counter that could be wrong.
 *
 * A sandbox's memory is counted as what it was last seen to use beyond what it shares: its own
 * pages, its monitor and its keeper. A new sandbox is counted as what those of its template use,
 * since the memory that a guest may use at most is fifty times what an idle guest uses. The reserve
 * is for memory that grows between two measurements: that much of the host's memory stays free.
 * Where the reserve is used up, standbys and spares are ended first, and then creates are refused;
 * nothing that runs is ended. An operator who cannot accept that chooses to have every guest's
 * whole memory counted (memory_count = reserved).
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/share.h"
#include "pool/config.h"
#include "pool/disk_private.h"
#include "pool/handout_private.h"
#include "pool/limits_private.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/published_private.h"
#include "pool/sandbox_private.h"
#include "pool/stock_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"

#define RESERVE_PART 16 /* of the host's memory, unless the configuration says otherwise */
#define RESERVE_LEAST (128 * MIB)
#define SHARE_LEAST 4 /* sandboxes that each key may have while there is room */
#define SHARE_LEAST_BYTES (256 * MIB)

bool pool_tokens_take(double *tokens, int64_t *at, int64_t now, double per_s, double depth)
{
	if (now > *at)
		*tokens += (double)(now - *at) / 1e9 * per_s;
	*at = now;
	if (*tokens > depth)
		*tokens = depth;
	/* a nanosecond's worth of rounding is not a reason to wait */
	if (*tokens < 1 - 1e-6)
		return false;
	*tokens -= 1;
	return true;
}

static struct pool_key *key_get(struct pool *p, const char *name, double depth)
{
	struct pool_key *k;

	LIST_FOREACH(k, &p->keys, link)
		if (!strcmp(k->name, name))
			return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		abort();
	*k = (struct pool_key){.tokens = depth, .at = clock_now_ns()};
	snprintf(k->name, sizeof(k->name), "%s", name);
	LIST_INSERT_HEAD(&p->keys, k, link);
	return k;
}

void pool_keys_free(struct pool *p)
{
	struct pool_key *k;

	while ((k = LIST_FIRST(&p->keys))) {
		LIST_REMOVE(k, link);
		free(k);
	}
}

static bool counts(const struct pool_sandbox *sb)
{
	return sb->state != POOL_PAUSED;
}

/* Forks that wait for their checkpoint: they are no hand-outs yet, and will be. */
static unsigned forks_pending(const struct pool_transition *c)
{
	return c->sb ? c->count : 0;
}

static void key_count(
	const struct pool *p, const char *key, uint64_t *ret_sandboxes, uint64_t *ret_memory)
{
	const struct pool_sandbox *sb;
	const struct pool_handout *j;
	const struct pool_transition *c;

	*ret_sandboxes = *ret_memory = 0;
	TAILQ_FOREACH(sb, &p->sandboxes, link) {
		if (counts(sb) && !strcmp(sb->record.key, key)) {
			++*ret_sandboxes;
			*ret_memory += sb->record.memory_bytes;
		}
	}
	LIST_FOREACH(j, &p->handouts, link) {
		if (!j->sb->listed && !strcmp(j->sb->record.key, key)) {
			++*ret_sandboxes;
			*ret_memory += j->sb->record.memory_bytes;
		}
	}
	LIST_FOREACH(c, &p->transitions, link) {
		unsigned n = forks_pending(c);

		if (n && !strcmp(c->sb->record.key, key)) {
			*ret_sandboxes += n;
			*ret_memory += n * c->sb->record.memory_bytes;
		}
	}
}

uint64_t pool_memory_used(const struct pool *p)
{
	const struct pool_transition *c;
	const struct pool_version *v;
	const struct pool_sandbox *sb;
	uint64_t bytes = 0;

	LIST_FOREACH(c, &p->transitions, link)
		if (forks_pending(c) && c->sb->version)
			bytes += c->count * pool_version_cost(c->sb->version);

	LIST_FOREACH(v, &p->versions, link) {
		uint64_t n = v->sandboxes + v->ready[0] + v->ready[1] + v->making[0] + v->making[1];

		bytes += n * pool_version_cost(v);
	}
	if (p->config->memory_reserved)
		return bytes;
	/* in place of what one of its template takes, what this one was seen to take */
	TAILQ_FOREACH(sb, &p->sandboxes, link) {
		if (sb->version && sb->cost_bytes)
			bytes += sb->cost_bytes - pool_version_cost(sb->version);
	}
	return bytes;
}

static uint64_t host_total(void)
{
	static uint64_t total;

	if (!total)
		total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return total;
}

uint64_t pool_memory_budget(const struct pool *p)
{
	return p->config->memory_budget ? p->config->memory_budget : host_total() / 4 * 3;
}

static uint64_t reserve_bytes(const struct pool *p)
{
	uint64_t part = host_total() / RESERVE_PART;

	if (p->config->memory_reserve)
		return p->config->memory_reserve;
	return part < RESERVE_LEAST ? RESERVE_LEAST : part;
}

/* What the host could still give; UINT64_MAX where it does not say. */
static uint64_t host_available(void)
{
	cleanup_free char *text = NULL;
	const char *at;
	size_t len;

	if (file_read_all(AT_FDCWD, "/proc/meminfo", 64 * KIB, &text, &len, NULL) < 0)
		return UINT64_MAX;
	at = strstr(text, "MemAvailable:");
	return at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * KIB : UINT64_MAX;
}

bool pool_memory_free_for(const struct pool *p, uint64_t bytes)
{
	return host_available() >= bytes + reserve_bytes(p);
}

/* End what waits, of others than @keep, until the host has @bytes free. What it has then, by what they cost. */
static uint64_t free_up(struct pool *p, const struct pool_version *keep, uint64_t bytes)
{
	uint64_t available = host_available();

	while (available < bytes) {
		uint64_t before = pool_stock_bytes(p, keep);

		if (!pool_stock_give_up(p, keep))
			break;
		available += before - pool_stock_bytes(p, keep);
	}
	return available;
}

void pool_memory_relieve(struct pool *p)
{
	free_up(p, NULL, reserve_bytes(p));
}

/* What waits and is not about to be taken. */
static unsigned waiting(const struct pool_version *v)
{
	unsigned ready = v->ready[POOL_KIND_STANDBY] + v->ready[POOL_KIND_SPARE];

	return ready > v->handouts ? ready - v->handouts : 0;
}

/* Standbys and spares go before a sandbox is refused; what a create takes from the stock is counted already. */
static int host_check(
	struct pool *p, const struct pool_version *v, unsigned n, bool stocked, struct err *err)
{
	const struct pool_version *keep = stocked ? v : NULL;
	unsigned fresh = stocked && waiting(v) ? n - 1 : n;
	uint64_t budget = pool_memory_budget(p), used = pool_memory_used(p);
	uint64_t more = fresh * pool_version_cost(v), reserve = reserve_bytes(p), available;

	if (used + more > budget + pool_stock_bytes(p, keep))
		return err_set(err, ENOMEM,
			"the memory budget is used up: %lu MiB of %lu are in use (memory_budget in "
			"[pool])",
			used / MIB, budget / MIB);
	available = free_up(p, keep, more + reserve);
	if (available < more + reserve)
		return err_set(err, ENOMEM,
			"the host has no memory left for it: %lu MiB are free, and %lu are kept so "
			"(memory_reserve in [pool])",
			available / MIB, reserve / MIB);
	while (pool_memory_used(p) + more > budget && pool_stock_give_up(p, keep))
		;
	return 0;
}

static const struct config_key *key_config(const struct pool *p, const char *key)
{
	for (size_t i = 0; i < p->config->n_keys; i++) {
		if (!strcmp(p->config->keys[i].name, key))
			return &p->config->keys[i];
	}
	return NULL;
}

static int key_check(struct pool *p, const struct config_key *c, const struct pool_version *v,
	unsigned n, struct err *err)
{
	uint64_t sandboxes, memory, more = n * v->shape.memory_bytes;

	key_count(p, c->name, &sandboxes, &memory);
	if (c->max_sandboxes && sandboxes + n > c->max_sandboxes)
		return err_set(err, EDQUOT,
			"the key \"%s\" has %lu sandboxes, and may have %u at once: end or pause "
			"one",
			c->name, sandboxes, c->max_sandboxes);
	if (c->max_memory && memory + more > c->max_memory)
		return err_set(err, EDQUOT,
			"the key \"%s\" has sandboxes with %lu MiB of memory, and may have %lu "
			"MiB: end "
			"or pause one",
			c->name, memory / MIB, c->max_memory / MIB);
	return 0;
}

/* What one that its section sets no bound for may take, where there are other keys: never so much that nothing is left. */
static int key_share(struct pool *p, const struct config_key *c, const struct pool_version *v,
	unsigned n, size_t running, struct err *err)
{
	uint64_t sandboxes, memory, cost = 0, used = pool_memory_used(p);
	uint64_t budget = pool_memory_budget(p), more = n * pool_version_cost(v);
	const struct pool_sandbox *sb;
	size_t kept = 0;

	if (p->config->n_keys < 2)
		return 0;
	key_count(p, c->name, &sandboxes, &memory);
	TAILQ_FOREACH(sb, &p->sandboxes, link) {
		if (strcmp(sb->record.key, c->name))
			continue;
		kept++;
		if (counts(sb) && sb->version)
			cost += sb->cost_bytes && !p->config->memory_reserved
				? sb->cost_bytes
				: pool_version_cost(sb->version);
	}
	if (!c->max_sandboxes &&
		!share_may_take(
			sandboxes + n - 1, running + n - 1, p->config->max_sandboxes, SHARE_LEAST))
		return err_set(err, EDQUOT,
			"the key \"%s\" has %lu sandboxes, and the pool has room for no more than "
			"that "
			"besides: end or pause one",
			c->name, sandboxes);
	if (!c->max_memory && cost + more > SHARE_LEAST_BYTES &&
		(used + more > budget || cost + more > budget - used))
		return err_set(err, EDQUOT,
			"the sandboxes of the key \"%s\" take %lu MiB, and of the memory budget no "
			"more "
			"than that is free: end or pause one",
			c->name, cost / MIB);
	if (!share_may_take(
		    kept + n - 1, p->n_sandboxes + n - 1, LIMIT_POOL_SANDBOXES, SHARE_LEAST))
		return err_set(err, EDQUOT,
			"the key \"%s\" has %zu sandboxes with those that are paused: remove some",
			c->name, kept);
	return 0;
}

int pool_limits_check(struct pool *p, const char *key, const struct pool_version *v, unsigned n,
	bool create, bool stocked, struct err *err)
{
	const struct config_key *c = key_config(p, key);
	size_t coming = p->counts[POOL_CREATING], running;
	const struct pool_transition *ch;
	int r;

	LIST_FOREACH(ch, &p->transitions, link)
		coming += forks_pending(ch);
	running = p->n_sandboxes - p->counts[POOL_PAUSED] + coming;
	if (running + n > p->config->max_sandboxes)
		return err_set(err, EAGAIN,
			"the pool has %zu sandboxes, and may have %u at once (max_sandboxes in "
			"[pool])",
			running, p->config->max_sandboxes);
	if (create && p->n_sandboxes + coming + n > LIMIT_POOL_SANDBOXES)
		return err_set(err, EAGAIN,
			"the pool has %zu sandboxes with those that are paused: remove some",
			p->n_sandboxes);
	r = c ? key_check(p, c, v, n, err) : 0;
	if (r == 0 && c)
		r = key_share(p, c, v, n, running, err);
	if (r == 0 && c && create)
		r = pool_disk_check(p, c, false, err);
	if (r == 0)
		r = host_check(p, v, n, stocked, err);
	if (r == 0 && c && create && c->creates_per_s > 0) {
		double depth = c->creates_per_s < 1 ? 1 : c->creates_per_s;
		struct pool_key *k = key_get(p, key, depth);

		if (!pool_tokens_take(&k->tokens, &k->at, clock_now_ns(), c->creates_per_s, depth))
			r = err_set(err, EAGAIN,
				"the key \"%s\" may create %g sandboxes a second: try again in a "
				"moment",
				key, c->creates_per_s);
		else /* forks are made if the first may be; who comes next waits for all */
			k->tokens -= n - 1;
	}
	return r;
}

int pool_limits_snapshots(struct pool *p, const char *key, struct err *err)
{
	const struct config_key *c = key_config(p, key);
	unsigned n = c ? pool_published_count(p, key) : 0;

	if (c && n >= c->max_snapshots)
		return err_set(err, EDQUOT,
			"the key \"%s\" has %u snapshots and templates of its own, as many as it "
			"may: "
			"remove one",
			key, n);
	return c ? pool_disk_check(p, c, true, err) : 0;
}
