/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_PUBLISHED_PRIVATE_H
#define PARBAKE_POOL_PUBLISHED_PRIVATE_H

/* Which key has published which template of the store (pool/published.c). */

#include <stdbool.h>

struct err;
struct pool;
struct pool_tag;

/* Remember that @key has published @ref (NAME[:TAG]), in the version that @ref names now. */
void pool_published_write(struct pool *p, const char *ref, const char *key);
/* How many templates and snapshots @key has, those that are being made included. */
unsigned pool_published_count(struct pool *p, const char *key);
/*
 * Is the template @ref in the version that @key has published ("": that any key has)? *@ret_tag:
 * what it is, borrowed until the store is read again. -ENOENT: there is none; -EPERM: another key
 * or the host's operator put it there, or the configuration names it.
 */
int pool_published_by(struct pool *p, const char *ref, const char *key, struct pool_tag *ret_tag,
	struct err *err);
/* Does the configuration name this template? */
bool pool_template_configured(const struct pool *p, const char *name, const char *tag);
/* A template has lost its name: collect garbage in the store when gc may take what it had. */
void pool_published_lost(struct pool *p);
/* Collect garbage in the store some time from now: a template was removed. */
void pool_published_collect(struct pool *p);

#endif
