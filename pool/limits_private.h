/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_LIMITS_PRIVATE_H
#define PARBAKE_POOL_LIMITS_PRIVATE_H

/* What the pool, and a key in it, may take (pool/limits.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct pool;
struct pool_version;

/* May @key make @n more, of @v? -EDQUOT, -EAGAIN, -ENOMEM. @create: taken from its allowance. @stocked: what
 * waits of @v will do. Shells and spares are ended where their memory is needed. */
int pool_limits_check(struct pool *p, const char *key, const struct pool_version *v, unsigned n,
	bool create, bool stocked, struct err *err);
/* May @key have one more snapshot, or publish one more template? -EDQUOT. */
int pool_limits_snapshots(struct pool *p, const char *key, struct err *err);
/* What sandboxes and what waits are counted with, together. */
uint64_t pool_memory_used(const struct pool *p);
/* Has the host @bytes for it, and its reserve besides? */
bool pool_memory_free_for(const struct pool *p, uint64_t bytes);
/* The host is short of its reserve: what waits goes. */
void pool_memory_relieve(struct pool *p);
/* The token bucket: may one be taken at @now? */
bool pool_tokens_take(double *tokens, int64_t *at, int64_t now, double per_s, double depth);
void pool_keys_free(struct pool *p);

#endif
