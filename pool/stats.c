/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a running sandbox uses and what its console said: asked of its keeper, and passed on. A
 * keeper that does not answer (it is stopped, or busy with a checkpoint) keeps nobody waiting for
 * long; an answer that comes later is dropped.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/loop.h"
#include "pool/keeper/keeper.h"
#include "pool/machine_private.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"

#define LOOK_MS 5000

struct pool_question {
	LIST_ENTRY(pool_question) link;
	struct loop_timer *timer;
	struct pool *pool;
	char id[POOL_ID_SIZE];
	bool stats;
	keeper_fn *fn;
	void *user;
};

static void question_free(struct pool_question *l)
{
	loop_timer_cancel(l->timer);
	LIST_REMOVE(l, link);
	free(l);
}

void pool_looking_free_all(struct pool *p)
{
	while (!LIST_EMPTY(&p->questions))
		question_free(LIST_FIRST(&p->questions));
}

/* The share of one processor since the last look. */
static double cpu_share(struct pool_sandbox *sb, uint64_t cpu_ns)
{
	int64_t now = clock_now_ns();
	int64_t since = sb->cpu_at ? now - sb->cpu_at
				   : clock_realtime_ns() - sb->record.started_ms * 1000000;
	double share = since > 0 && cpu_ns >= sb->cpu_ns
		? (double)(cpu_ns - sb->cpu_ns) / (double)since
		: 0;

	sb->cpu_at = now;
	sb->cpu_ns = cpu_ns;
	return share;
}

static void looked(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_question *l = user;
	struct pool_sandbox *sb = pool_sandbox_find(l->pool, l->id);
	cleanup_json json_t *more = NULL;
	uint64_t cpu = 0;

	if (!l->fn) { /* it has been answered */
		for (unsigned i = 0; i < n_fds; i++)
			close(fds[i]);
		question_free(l);
		return;
	}
	if (error == 0 && l->stats && sb) {
		json_get_u64(reply, "cpu_ns", 0, INT64_MAX, &cpu, NULL);
		more = json_copy((json_t *)reply);
		json_object_set_new(more, "cpu_pct", json_real(100 * cpu_share(sb, cpu)));
	}
	l->fn(l->user, error, text, more ? more : reply, fds, n_fds);
	question_free(l);
}

static void look_passed(void *user)
{
	struct pool_question *l = user;
	keeper_fn *fn = l->fn;

	l->timer = NULL;
	l->fn = NULL;
	fn(l->user, ETIMEDOUT, "the sandbox's keeper does not answer", NULL, NULL, 0);
}

static void not_there(void *user, struct pool_sandbox *none, int error, const char *text)
{
	struct pool_question *l = user;

	(void)none;
	l->fn(l->user, error, text, NULL, NULL, 0);
	question_free(l);
}

static void look(struct pool *p, const char *id, bool stats, keeper_fn *fn, void *user)
{
	struct pool_sandbox *sb = pool_sandbox_find(p, id);
	struct pool_question *l = malloc(sizeof(*l));

	if (!l)
		abort();
	*l = (struct pool_question){.pool = p, .stats = stats, .fn = fn, .user = user};
	LIST_INSERT_HEAD(&p->questions, l, link);
	if (!sb) {
		pool_later(p, not_there, l, ENOENT, "there is no such sandbox");
		return;
	}
	memcpy(l->id, sb->record.id, sizeof(l->id));
	if (!sb->machine) {
		pool_later(p, not_there, l, EBUSY, "the sandbox does not run");
		return;
	}
	l->timer = loop_timer(p->loop, clock_deadline(LOOK_MS), look_passed, l);
	if (stats)
		keeper_stats(sb->machine->keeper, looked, l);
	else
		keeper_console(sb->machine->keeper, looked, l);
}

void pool_stats(struct pool *p, const char *id, keeper_fn *fn, void *user)
{
	look(p, id, true, fn, user);
}

void pool_console(struct pool *p, const char *id, keeper_fn *fn, void *user)
{
	look(p, id, false, fn, user);
}
