/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_CHECKPOINT_H
#define PARBAKE_RESTORE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/progress.h"
#include "restore/sandbox.h"
#include "store/store.h"

/*
 * Checkpoints: a sandbox put away, as what it differs in from its template. A checkpoint is a
 * directory:
 *
 *     capture.json   which template version (manifest digest), digests and sizes of the others, the
 *                    memory's ranges, the machine's identity; written last: without it there is no checkpoint
 *     memory         the pages that differ, in the store's image format (zstd frames)
 *     disk           the qcow2 overlay
 *     state          device state
 *
 * (docs/format.md has all of it.) As long as a checkpoint is there, a collection of garbage keeps
 * its template version, whether that has a name or not. Where checkpoints are copied into a
 * directory in which none was ever made, store_captures_at() has to be told of that directory.
 *
 * Memory is always a delta to the template itself, however often a sandbox was paused and resumed,
 * so there are no chains: a resumed sandbox has the pages of its checkpoint as its own, and the
 * next checkpoint finds them among those it has written.
 */
struct checkpoint_info {
	char manifest[DIGEST_TEXT_SIZE]; /* of the template version */
	uint64_t memory_bytes, disk_bytes; /* of the delta, raw */
	int64_t stopped_ns; /* how long the machine stood still */
};

/*
 * Take a checkpoint of a running sandbox (ACTIVE) into @dir, which is made here and must not exist.
 * The machine is paused for it; @go_on: it is resumed afterwards. On failure the machine is
 * resumed, and nothing is left of @dir. Guest streams may be open: in a machine restored from the
 * checkpoint the first SYNC ends them. Any directory will do that has room. -EEXIST, -ENOSPC,
 * -ETIMEDOUT (@deadline), -ENOENT where the template version is not in its store any more.
 */
int sandbox_capture(struct sandbox *sb, const char *dir, bool go_on, int64_t deadline,
	struct checkpoint_info *ret, struct err *err);

struct checkpoint;
/*
 * Open the checkpoint in @dir to restore from: all of it is checked (digests, tables, the overlay).
 * -ENOENT: there is none, or it is not complete; -EBADMSG: damaged.
 */
int checkpoint_open(const char *dir, struct checkpoint **ret, struct err *err);
void checkpoint_free(struct checkpoint *c);
DEFINE_CLEANUP(struct checkpoint *, checkpoint_free)
#define cleanup_checkpoint cleanup_with(checkpoint_free_p_)

/*
 * Start a monitor (STANDBY) that sandbox_restore() will bring to where @c was taken; @c is borrowed
 * until then. The sandbox gets a copy of the overlay, the pages and the device state. In any case
 * its clock is set right and its entropy is fresh. @same_identity: it keeps the machine id and host
 * name of the sandbox that the checkpoint was taken of, because it is that sandbox going on;
 * otherwise it gets new ones (a fork). Any number may be made from one checkpoint. -EINVAL: @c is
 * of another template version than @t.
 */
int sandbox_standby_from(struct template *t, struct checkpoint *c, bool same_identity,
	struct sandbox **ret, struct err *err);

/*
 * Publish a checkpoint as a template version of its own, whole: memory and disk with the deltas
 * applied, the config of the template it came from with what changed. Its working set is the template's.
 */
int checkpoint_publish(struct store *s, const struct checkpoint *c, const char *name,
	const char *tag, struct progress *progress, struct store_manifest *ret, struct err *err);

#endif
