/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines: keepers, as the daemon sees them. A machine is one object from when it is made (or
 * adopted) until it is gone, whoever has it meanwhile: the stock, a hand-out or a sandbox. Its
 * `use` says which of them is told of its end.
 *
 * A machine is ended by killing it, and freed when it is gone. Closing its connection alone never
 * ends it: a stopped keeper would not notice.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/str.h"
#include "pool/adopt_private.h"
#include "pool/handout_private.h"
#include "pool/keeper/keeper.h"
#include "pool/machine_private.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"
#include "pool/stock_private.h"
#include "pool/version_private.h"

static struct pool_machine *machine_new(struct pool *p, struct pool_version *v, enum pool_use use)
{
	struct pool_machine *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	*m = (struct pool_machine){.pool = p, .version = v, .use = use, .began = clock_now_ns()};
	LIST_INSERT_HEAD(&p->machines, m, link);
	return m;
}

void pool_machine_free(struct pool_machine *m)
{
	loop_timer_cancel(m->timer);
	if (m->keeper)
		keeper_free(m->keeper);
	LIST_REMOVE(m, link);
	free(m->path);
	free(m);
}

static void machine_ended(void *user, const char *text)
{
	struct pool_machine *m = user;
	struct pool_sandbox *sb = m->sb;
	struct pool_handout *j = m->handout;
	cleanup_free char *why = str_dup(text);

	switch (m->use) {
	case POOL_USE_MAKING_STANDBY:
	case POOL_USE_MAKING_SPARE:
	case POOL_USE_STANDBY:
	case POOL_USE_SPARE:
		pool_stock_ended(m, why);
		break;
	case POOL_USE_ADOPTED:
	case POOL_USE_FOREIGN:
		pool_adopt_ended(m, why);
		break;
	case POOL_USE_HANDOUT:
	case POOL_USE_SANDBOX:
	case POOL_USE_DYING:
		break;
	}
	pool_machine_free(m);
	if (j)
		pool_handout_machine_ended(j, why);
	if (sb)
		pool_sandbox_ended(sb, why);
}

static const struct keeper_ops machine_ops = {.ended = machine_ended};

int pool_machine_make(struct pool_version *v, const char *key, const char *capture,
	bool same_identity, enum pool_use use, struct pool_machine **ret, struct err *err)
{
	struct pool_machine *m;
	int r = pool_version_zygote(v, key, err);

	if (r < 0)
		return r;
	m = machine_new(v->pool, v, use);
	r = keeper_make(v->zygote, capture, same_identity, &machine_ops, m, &m->keeper, err);
	if (r < 0) {
		m->keeper = NULL;
		pool_machine_free(m);
		return r;
	}
	v->zygote_used = m->began;
	*ret = m;
	return 0;
}

int pool_machine_adopt(struct pool *p, const char *path, struct pool_machine **ret, struct err *err)
{
	struct pool_machine *m = machine_new(p, NULL, POOL_USE_ADOPTED);
	int r = keeper_adopt(p->loop, path, &machine_ops, m, &m->keeper, err);

	if (r < 0) {
		m->keeper = NULL;
		pool_machine_free(m);
		return r;
	}
	m->path = str_dup(path);
	*ret = m;
	return 0;
}

static void machine_gone(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	void (*gone)(void *user, int error, const char *text) = m->gone;
	void *of = m->user;
	cleanup_free char *why = str_dup(text ? text : "");

	(void)reply;
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (error)
		log_error("a machine could not be ended: %s", why);
	pool_machine_free(m);
	if (gone)
		gone(of, error, why);
}

void pool_machine_end(
	struct pool_machine *m, void (*gone)(void *user, int error, const char *text), void *user)
{
	loop_timer_cancel(m->timer);
	m->timer = NULL;
	m->use = POOL_USE_DYING;
	m->handout = NULL;
	m->sb = NULL;
	m->gone = gone;
	m->user = user;
	keeper_kill(m->keeper, machine_gone, m);
}
