/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_STAGE_H
#define PARBAKE_BAKE_STAGE_H

#include <stdbool.h>

#include "bake/plan.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/progress.h"

/*
 * What stages leave in the cache: PATHS_CACHE/stages/STAGE-KEY.SUFFIX. A file is there whole or
 * not at all.
 */

/* The directory, made if it was not there. Caller frees. */
int stage_dir(char **ret, struct err *err);
/*
 * Open a result for reading: -ENOENT without an error text where there is none. Marks it as used
 * now.
 */
int stage_open(
	enum plan_stage stage, const char *key, const char *suffix, int *ret_fd, struct err *err);
/* One bake of a key at a time; waits, and says so. Returns the descriptor that holds the lock. */
int stage_lock(enum plan_stage stage, const char *key, struct progress *progress, struct err *err);

/*
 * A result being made: no name leads to it before stage_commit(), where the file system can do
 * that.
 */
struct stage_out {
	int fd; /* write here */
	char *dir, *tmp; /* tmp: NULL where the file has no name */
};
int stage_begin(struct stage_out *out, struct err *err);
int stage_commit(struct stage_out *out, enum plan_stage stage, const char *key, const char *suffix,
	struct err *err);
void stage_end(struct stage_out *out); /* harmless after commit and on zeros */
#define cleanup_stage_out cleanup_with(stage_end)

/* JSON facts beside a result (suffix "json"). stage_facts(): -ENOENT where there are none. */
int stage_facts(enum plan_stage stage, const char *key, json_t **ret, struct err *err);
int stage_put_facts(enum plan_stage stage, const char *key, const json_t *facts, struct err *err);

#endif
