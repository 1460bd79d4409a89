/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_RESTORE_TRAIN_H
#define PARBAKE_RESTORE_TRAIN_H

#include <stdbool.h>

#include "common/err.h"
#include "common/progress.h"
#include "restore/sandbox.h"
#include "store/store.h"

/*
 * Training: a sandbox of a template is made to do what sandboxes do most, and what its monitor
 * translates for that is kept for all later ones on this host (restore/translations.h). Each
 * function blocks until its sandbox is done, seconds under emulation, and may be called from any
 * thread that may fork.
 */

/*
 * Train a sandbox of @m, of which no translations are kept yet, with a pager of its own. It must pass
 * the template's ready check; that, and a guest that does not answer, are errors. Where the
 * monitor keeps no translations it succeeds without any. What each program gave goes to @progress
 * (may be NULL) as notes.
 */
int train_candidate(struct store *s, const struct store_manifest *m, struct progress *progress,
	struct err *err);
/*
 * The same of a template that has come from another host, or whose translations are gone from the
 * cache: once a host. Who comes while it is being done waits for it where @wait, and else leaves it
 * to the other. Does nothing where they are there, or where machines of @m keep none.
 */
int train_template(struct store *s, const struct store_manifest *m, bool wait,
	struct progress *progress, struct err *err);
/*
 * The same in a process of its own, which nobody waits for, of the template @digest that the store
 * in @store_dir (NULL: the usual one) has as @name:@tag. The caller's parent or subreaper reaps it.
 * @die_with_parent: it ends with the calling thread. PARBAKE_TRAIN=off in the environment: not at
 * all.
 */
void train_in_background(const char *store_dir, const char *digest, const char *name,
	const char *tag, bool die_with_parent);
int train_main(int argc, char **argv); /* of `parbake train`, that process */

/* The first calls of a sandbox: their pages belong to the working set. */
int train_first_call(struct sandbox *sb, const struct snapshot_config *config, struct err *err);
/* The template's own ready check; the error says what it said. */
int train_ready_check(struct sandbox *sb, const struct snapshot_config *config, struct err *err);

#define TRAIN_HOSTNAME "trial" /* setting it is part of a create */

#endif
