/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A resumed sandbox, until all of its memory is its own. It answers before that: the pages of its
 * checkpoint that it has not touched arrive later (restore/pager/own.c). So the checkpoint stays,
 * and so does the record of the paused sandbox, until the keeper says that the machine has all of
 * its pages. Where the machine ends before that, the sandbox is paused in that checkpoint again, as
 * if it had not been resumed.
 *
 * A running sandbox whose sb->capture is not 0 has not settled yet. The keeper is asked again and
 * again, with short questions, so that no other request to it has to wait.
 */
#include "pool/settle_private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/json.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/str.h"
#include "pool/keeper/keeper.h"
#include "pool/machine_private.h"
#include "pool/paused_private.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/transition_private.h"
#include "pool/work_private.h"

#define ASK_FIRST_MS 20
#define ASK_LAST_MS 1000

struct settled {
	struct pool_sandbox *sb;
	char *capture;
};

/* What it was is written down; the checkpoint it came from goes. */
static void settled_noted(void *user, int error, const char *text)
{
	struct settled *s = user;
	struct pool *p = s->sb->pool;
	struct err err;

	if (pool_sandbox_put(s->sb) && error)
		log_warn("sandbox %s: %s", s->sb->record.id, text);
	if (pool_trash(p, s->capture, &err) < 0)
		log_warn("%s", err.text);
	free(s->capture);
	free(s);
}

static void settled(struct pool_sandbox *sb)
{
	struct settled *s = malloc(sizeof(*s));
	cleanup_free char *path = pool_record_path(sb->pool, "paused", sb->record.id);

	if (!s)
		abort();
	*s = (struct settled){
		.sb = sb, .capture = pool_capture_path(sb->pool, sb->record.id, sb->capture)};
	sb->capture = 0;
	pool_sandbox_hold(sb);
	/* the record of one that is pausing is the pause's */
	if (sb->state == POOL_RUNNING && sb->record.auto_pause) {
		pool_paused_write(sb, settled_noted, s);
		return;
	}
	if (sb->state == POOL_RUNNING)
		unlink(path);
	settled_noted(s, 0, "");
}

static void settle_ask(void *user);

static void settle_answered(
	void *user, int error, const char *text, const json_t *reply, int *fds, unsigned n_fds)
{
	struct pool_machine *m = user;
	struct pool_sandbox *sb = m->sb;

	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
	if (!sb || !sb->capture || error == ECONNRESET)
		return; /* its end is about to be told, or has been */
	if (error == ENOSYS || (!error && json_is_true(json_object_get(reply, "settled")))) {
		settled(sb); /* a keeper of an older parbake does not know */
	} else if (error) {
		log_warn("sandbox %s: %s", sb->record.id, text); /* its machine ends for it */
	} else {
		sb->settle_ms = sb->settle_ms < ASK_LAST_MS / 2 ? 2 * sb->settle_ms : ASK_LAST_MS;
		sb->settle_timer =
			loop_timer(sb->pool->loop, clock_deadline(sb->settle_ms), settle_ask, sb);
	}
}

static void settle_ask(void *user)
{
	struct pool_sandbox *sb = user;

	sb->settle_timer = NULL;
	if (sb->machine)
		keeper_settled(sb->machine->keeper, settle_answered, sb->machine);
}

void pool_settle(struct pool_sandbox *sb)
{
	fault_point("pool.resume.running");
	sb->settle_ms = ASK_FIRST_MS;
	settle_ask(sb);
}

void pool_settle_adopted(struct pool_sandbox *sb)
{
	unsigned before = sb->record.generation ? sb->record.generation - 1 : 0;
	cleanup_free char *capture = pool_capture_path(sb->pool, sb->record.id, before);

	if (!before || !pool_capture_whole(capture))
		return;
	sb->capture = before;
	pool_settle(sb);
}

bool pool_settle_ended(struct pool_sandbox *sb)
{
	cleanup_free char *capture = pool_capture_path(sb->pool, sb->record.id, sb->capture);
	static const char why[] =
		"the sandbox ended before all of its memory was there: it is paused, as it was "
		"before it was resumed";

	/* with a lease that does not pause it, what it held was given up */
	if (!sb->capture || (!sb->record.auto_pause && clock_boot_ns() >= sb->end_ns) ||
		!pool_capture_whole(capture))
		return false;
	log_warn("sandbox %s: %s", sb->record.id, why);
	pool_sandbox_set_paused(sb, sb->capture);
	pool_transition_lost(sb, why);
	return true;
}
