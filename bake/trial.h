/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_TRIAL_H
#define PARBAKE_BAKE_TRIAL_H

#include "common/err.h"
#include "store/snapshot.h"
#include "store/store.h"

/*
 * The trial of a snapshot: the last stage of a bake before publishing. Each function blocks until its
 * restores are done, seconds under emulation. They start a pager of their own and may be called from any
 * thread that may fork.
 */

/*
 * Restore @candidate, which is in @s without a tag, twice: the first time to keep what its monitor
 * translates, the second time to record what it touches until its first answer. Both must pass the
 * template's ready check. On success *@ret is the working set (empty where memory is not served by
 * userfaultfd), which the caller clears. Errors name the restore and what the check said.
 */
int trial_restore(struct store *s, const struct store_manifest *candidate,
	struct snapshot_ranges *ret, struct err *err);

/*
 * The first of the two restores alone: for a snapshot that was baked on another host, or whose
 * translations are gone from the cache. Where the monitor keeps no translations it succeeds without
 * any.
 */
int trial_train(struct store *s, const struct store_manifest *m, struct err *err);

/*
 * Restore @m once, as any sandbox, and have it pass its ready check; where it has none, it must
 * answer. *@ret_ms is how long that took. Errors have what the check said.
 */
int trial_ready(struct store *s, const struct store_manifest *m, uint64_t *ret_ms, struct err *err);

#endif
