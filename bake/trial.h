/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_TRIAL_H
#define PARBAKE_BAKE_TRIAL_H

#include "common/err.h"
#include "common/progress.h"
#include "store/snapshot.h"
#include "store/store.h"

/*
 * The trial of a snapshot: the last stage of a bake before publishing. The function blocks until its
 * restores are done, seconds under emulation. It starts a pager of its own and may be called from any
 * thread that may fork.
 */

/*
 * Restore @candidate, which is in @s without a tag, twice: the first time to keep what its monitor
 * translates, the second time to record what it touches until its first answer. Both must pass the
 * template's ready check. What the programs of the first gave goes to @progress (may be NULL) as
 * notes. On success *@ret is the working set (empty where memory is not served by
 * userfaultfd), which the caller clears. Errors name the restore and what the check said.
 */
int trial_restore(struct store *s, const struct store_manifest *candidate,
	struct progress *progress, struct snapshot_ranges *ret, struct err *err);

/*
 * Restore @m once, as any sandbox, and have it pass its ready check; where it has none, it must
 * answer. *@ret_ms is how long that took. Errors have what the check said.
 */
int trial_ready(struct store *s, const struct store_manifest *m, uint64_t *ret_ms, struct err *err);

#endif
