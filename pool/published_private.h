/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PUBLISHED_PRIVATE_H
#define PARBAKE_POOL_PUBLISHED_PRIVATE_H

/* Which key has published which template of the store (pool/published.c). */

struct pool;

/* Remember that @key has published @ref (NAME[:TAG]), in the version that @ref names now. */
void pool_published_write(struct pool *p, const char *ref, const char *key);
/* How many templates and snapshots @key has, those that are being made included. */
unsigned pool_published_count(struct pool *p, const char *key);
/* Collect garbage in the store some time from now: a template was removed. */
void pool_published_collect(struct pool *p);

#endif
