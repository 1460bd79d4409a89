/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_PLAN_PLAN_H
#define PARBAKE_BAKE_PLAN_PLAN_H

#include <stdint.h>

#include "bake/recipe/recipe.h"
#include "common/digest.h"
#include "common/err.h"

/*
 * The stages of a bake and their cache keys. A key is the SHA-256 of a stage's inputs, written
 * as text, with the key of the stage before among them; so a stage's result may be used again
 * exactly while its key is the same.
 */
enum plan_stage {
	PLAN_SOURCE, /* the archive the root is made from */
	PLAN_ROOT, /* the root disk */
	PLAN_GUEST, /* booted, installed, warmed, captured: one running machine, so one stage */
	PLAN_STAGES
};

const char *plan_stage_name(enum plan_stage stage);

/* What a bake depends on beside its recipe. All borrowed. */
struct plan_facts {
	int64_t epoch; /* SOURCE_DATE_EPOCH */
	const char *kernel_digest; /* "sha256:…" */
	const char *agent_digest; /* of the initramfs */
	const char *monitor; /* name, version, machine type and CPU model */
	const char *accel;
};

struct plan {
	char key[PLAN_STAGES][DIGEST_TEXT_SIZE];
	char recipe_digest[DIGEST_TEXT_SIZE]; /* of recipe_text() */
	char source_digest
		[DIGEST_TEXT_SIZE]; /* of the archive, where it is known before: source = tar */
};

/*
 * Make the plan. This reads the files that [files] and [root] path name, to digest them. -ENOENT
 * names recipe key and file.
 */
int plan_make(
	const struct recipe *r, const struct plan_facts *facts, struct plan *ret, struct err *err);
/*
 * The root stage's key, where the files that [files] names have the digests @sums, in @r's order,
 * and @p has the source key. So whoever reads the files can tell whether they are still those that
 * plan_make() has read.
 */
void plan_root_key(const struct recipe *r, int64_t epoch, const struct plan *p,
	const char (*sums)[DIGEST_TEXT_SIZE], char ret[static DIGEST_TEXT_SIZE]);
/* The digest of a regular file of the host. -EINVAL: it is none. */
int plan_file_digest(const char *path, char ret[static DIGEST_TEXT_SIZE], struct err *err);
/* SOURCE_DATE_EPOCH of the environment, else PLAN_EPOCH. -EINVAL where it is not a number. */
#define PLAN_EPOCH 1735689600 /* 2025-01-01T00:00:00Z */
int plan_epoch(int64_t *ret, struct err *err);

#endif
