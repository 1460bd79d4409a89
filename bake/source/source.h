/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SOURCE_SOURCE_H
#define PARBAKE_BAKE_SOURCE_SOURCE_H

#include "bake/plan/plan.h"
#include "bake/recipe/recipe.h"
#include "common/progress.h"

/*
 * Sources of root disks. Each gives a descriptor of a tar archive (compressed or not), open for
 * reading at offset 0; caller closes. Results are cached by the plan's source key, unless @anew.
 */
int source_get(const struct recipe *r, const struct plan *plan, int64_t epoch, bool anew,
	struct progress *progress, int *ret_fd, struct err *err);

/* [root] source = debian: write the archive to @out_fd. */
int source_debian(const struct recipe *r, int64_t epoch, int out_fd, struct progress *progress,
	struct err *err);
/*
 * The host's apt sources for @suite as sources.list(5) lines, from `apt-get indextargets`' output
 * @targets in the format SOURCE_TARGET_FORMAT. Caller frees *@ret. -ENOENT where there is none.
 */
#define SOURCE_TARGET_FORMAT "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
int source_debian_list(const char *targets, const char *suite, char **ret, struct err *err);
/* [root] source = tar: a path next to the recipe, or a download. */
int source_tar(const struct recipe *r, const struct plan *plan, struct progress *progress,
	int *ret_fd, struct err *err);

/*
 * Save the source in the directory @dir (made where it is not there), as a file named by what it is; and take such a one from there
 * into the cache, where source_get() finds it. A source that is a file beside the recipe is saved, too, and not taken. -ENOENT:
 * @dir does not have it.
 */
int source_save(const struct recipe *r, const struct plan *plan, int64_t epoch, const char *dir,
	struct progress *progress, struct err *err);
int source_take_saved(const struct recipe *r, const struct plan *plan, const char *dir,
	struct progress *progress, struct err *err);

#endif
