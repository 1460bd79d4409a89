/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_PROVE_DIFF_H
#define PARBAKE_PROVE_DIFF_H

#include "bake/bake.h"
#include "common/json.h"
#include "common/progress.h"
#include "store/store.h"

/* Differences of two template versions: `parbake diff`. */

/* A template version in a store; both are borrowed. */
struct diff_side {
	struct store *store;
	const struct store_manifest *manifest;
};

/*
 * What differs between two template versions, as the object that `parbake diff --json` prints (docs/format.md): config,
 * recipe, packages, files, memory, processes. *@ret is the caller's reference; its "same" is true where nothing of it differs but
 * memory, whose bytes are never the same twice, and how much of it each process has. Seconds for large ones: disks are expanded, images read.
 */
int diff_versions(const struct diff_side *a, const struct diff_side *b, struct progress *progress,
	json_t **ret, struct err *err);
/*
 * The same of a recipe, as @view has it when a bake is planned, and a version: what of the config the recipe and this host
 * decide, and the recipes' lines. Packages, files and memory are known of what is baked alone; they are not there.
 */
int diff_recipe(const struct bake_view *view, const struct store_manifest *b, json_t **ret,
	struct err *err);

#endif
