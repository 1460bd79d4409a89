/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_PLAN_STAGE_H
#define PARBAKE_BAKE_PLAN_STAGE_H

#include <stdbool.h>

#include "bake/plan/plan.h"
#include "common/file.h"
#include "common/json.h"
#include "common/progress.h"

/*
 * The results of stages in the cache: PATHS_CACHE/stages/STAGE-KEY.SUFFIX. A file is there whole or
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
/*
 * Lock a key, so that one bake at a time makes its result. Waits for the lock, and says so in
 * @progress. Returns the descriptor that holds the lock.
 */
int stage_lock(enum plan_stage stage, const char *key, struct progress *progress, struct err *err);

/* A result being made: write to ret->fd, then commit; publish_end() in any case (cleanup_publish). */
int stage_begin(struct publish *ret, struct err *err);
int stage_commit(struct publish *p, enum plan_stage stage, const char *key, const char *suffix,
	struct err *err);

/* JSON facts beside a result (suffix "json"). stage_facts(): -ENOENT where there are none. */
int stage_facts(enum plan_stage stage, const char *key, json_t **ret, struct err *err);
int stage_put_facts(enum plan_stage stage, const char *key, const json_t *facts, struct err *err);

#endif
