/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SCAN_SCAN_H
#define PARBAKE_BAKE_SCAN_SCAN_H

#include <stdint.h>

#include "bake/scan/lent.h"
#include "common/err.h"
#include "common/json.h"
#include "common/progress.h"
#include "store/snapshot.h"

/*
 * The scan before publishing: a snapshot's memory, device state and disk are searched for what was
 * lent to its bake (bake/scan/lent.h). Nothing of the snapshot may be in the store yet. A hit is an
 * error that says what was found and where, and never shows it.
 */

/* What is searched; all of it is borrowed. */
struct scan_spec {
	struct lent *lent; /* what everybody can read on the root disk is taken out of it */
	int memory_fd; /* guest memory, as it lies in one file */
	uint64_t memory_bytes;
	int state_fd; /* the device state */
	uint64_t state_bytes;
	int disk_fd; /* the root disk, as it was before anything booted from it */
	uint64_t disk_bytes;
	/* what was written over it: these ranges, one behind the other in delta_fd */
	int delta_fd;
	uint64_t delta_bytes;
	const struct snapshot_ranges *delta;
	const char *scratch_dir; /* where files without a name may be made */
	struct progress *progress; /* may be NULL */
};

/*
 * Search all of it. 0: none of it was found, and *@ret (the caller's reference) is what was searched, as it stands
 * in the config (docs/format.md: `extra.scan`); NULL where nothing was lent, and nothing was searched. -EPERM:
 * something was found; the error names the first places, and what to do. Blocks for a second or so for each GiB.
 */
int scan_snapshot(const struct scan_spec *spec, json_t **ret, struct err *err);

#endif
