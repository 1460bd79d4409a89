/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trial of a snapshot that is about to be published: it is restored as any sandbox will be,
 * must pass its own ready check, and what it touches on the way to its first answer is its working
 * set.
 *
 * There are two restores. What the monitor of the first one translates is kept for all later
 * sandboxes, so the first one is made to run what sandboxes run (restore/train.h). The second has
 * those translations, as sandboxes will, and no premapped working set: the memory that it touches
 * is recorded. (A restore that has to translate reads the guest's code as well.)
 */
#include "bake/trial.h"

#include "common/clock.h"
#include "common/limits.h"
#include "restore/sandbox.h"
#include "restore/train.h"

static int restore_once(struct store *s, const struct store_manifest *m,
	const struct template_options *opt, struct snapshot_ranges *ret, struct err *err)
{
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	const struct snapshot_config *config;
	int r = template_open(s, m, opt, &t, err);

	if (r < 0)
		return r;
	config = template_config(t);
	r = sandbox_create(t, TRAIN_HOSTNAME, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (r < 0)
		return r;
	r = train_first_call(sb, config, err);
	if (!r && pager_client_way(template_pager(t)) == PAGER_UFFD)
		r = pager_client_recorded(template_pager(t), ret, err);
	if (!r)
		r = train_ready_check(sb, config, err);
	if (r < 0)
		sandbox_explain(sb, err);
	return r;
}

int trial_restore(struct store *s, const struct store_manifest *candidate,
	struct progress *progress, struct snapshot_ranges *ret, struct err *err)
{
	struct template_options record = {
		.own_pager = true,
		/* small windows: what is recorded is what was needed, not its neighbourhood */
		.pager = {.no_premap = true, .record = true, .window_bytes = 4096},
	};
	cleanup_with(snapshot_ranges_clear) struct snapshot_ranges wset = {0};
	int r;

	r = train_candidate(s, candidate, progress, err);
	if (r < 0) {
		err_prefix(err, "restore the new snapshot");
		return r;
	}
	r = restore_once(s, candidate, &record, &wset, err);
	if (r < 0) {
		err_prefix(err, "restore the new snapshot a second time");
		return r;
	}
	*ret = wset;
	wset = (struct snapshot_ranges){0};
	return 0;
}

int trial_ready(struct store *s, const struct store_manifest *m, uint64_t *ret_ms, struct err *err)
{
	const struct template_options opt = {.own_pager = true};
	cleanup_template struct template *t = NULL;
	cleanup_sandbox struct sandbox *sb = NULL;
	int64_t begin = clock_now_ns();
	int r = template_open(s, m, &opt, &t, err);

	if (!r)
		r = sandbox_create(t, TRAIN_HOSTNAME, clock_deadline(LIMIT_CREATE_MS), &sb, err);
	if (!r)
		r = train_first_call(sb, template_config(t), err);
	if (!r)
		r = train_ready_check(sb, template_config(t), err);
	if (!r)
		*ret_ms = (uint64_t)(clock_now_ns() - begin) / 1000000;
	else if (sb)
		sandbox_explain(sb, err);
	return r;
}
