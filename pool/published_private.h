/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PUBLISHED_PRIVATE_H
#define PARBAKE_POOL_PUBLISHED_PRIVATE_H

/* Whose a template of the store is, where a key published it (pool/published.c). */

struct pool;

/* Note that @key has published @ref (NAME[:TAG]), as it is now. */
void pool_published_note(struct pool *p, const char *ref, const char *key);
/* How many templates and snapshots @key has, those on their way included. */
unsigned pool_published_count(struct pool *p, const char *key);
/* Some time after a template was removed: have the store let go of what nothing needs. */
void pool_published_collect(struct pool *p);

#endif
