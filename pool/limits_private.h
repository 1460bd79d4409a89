/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_LIMITS_PRIVATE_H
#define PARBAKE_POOL_LIMITS_PRIVATE_H

/* Limits: what the pool, and each key in it, may take (pool/limits.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct pool;
struct pool_version;

/* May @key make @n more sandboxes of version @v? -EDQUOT, -EAGAIN or -ENOMEM where it may not.
 * @create: take them from the key's creates per second. @stocked: a machine of @v that waits in
 * the stock will do. Standbys and spares are ended where their memory is needed. */
int pool_limits_check(struct pool *p, const char *key, const struct pool_version *v, unsigned n,
	bool create, bool stocked, struct err *err);
/* May @key have one more snapshot, or publish one more template? -EDQUOT. */
int pool_limits_snapshots(struct pool *p, const char *key, struct err *err);
/* The memory that sandboxes, standbys and spares are counted with, together, in bytes. */
uint64_t pool_memory_used(const struct pool *p);
/* Has the host @bytes of free memory, and its reserve besides? */
bool pool_memory_free_for(const struct pool *p, uint64_t bytes);
/* Where the host has less free memory than the reserve, end standbys and spares. */
void pool_memory_relieve(struct pool *p);
/* The token bucket: may one token be taken at @now (ns)? */
bool pool_tokens_take(double *tokens, int64_t *at, int64_t now, double per_s, double depth);
void pool_keys_free(struct pool *p);

#endif
