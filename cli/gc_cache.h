/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_CLI_GC_CACHE_H
#define PARBAKE_CLI_GC_CACHE_H

#include "cli/cli.h"

/*
 * Remove from the cache what no template of @s was made from or runs on and nobody has used for @keep_s seconds:
 * expanded disks, stage results, downloads. All of it can be made again. Counts go to *@ret_files and
 * *@ret_bytes (of disk space); with @dry_run nothing is removed.
 */
int gc_cache(struct store *s, int64_t keep_s, bool dry_run, unsigned *ret_files, uint64_t *ret_bytes,
	struct err *err);

#endif
