/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_ROOT_H
#define PARBAKE_BAKE_ROOT_H

#include "bake/plan/plan.h"
#include "bake/recipe/recipe.h"
#include "common/progress.h"

/*
 * The root disk: an ext4 file system of [machine] disk bytes with the source's entries and
 * [files] in it.
 */
struct root_disk {
	int fd; /* read-only; caller closes */
	char raw_digest[DIGEST_TEXT_SIZE];
};

/*
 * Make the root disk, or take it from the cache (unless @anew). @source_anew: do the source stage
 * anew, too. -ENOSPC says how large [machine] disk must be; -ESTALE: an input is not what the plan
 * was made of.
 */
int root_get(const struct recipe *r, const struct plan *plan, int64_t epoch, bool source_anew,
	bool anew, struct progress *progress, struct root_disk *ret, struct err *err);

#endif
