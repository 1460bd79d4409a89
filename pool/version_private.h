/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_VERSION_PRIVATE_H
#define PARBAKE_POOL_VERSION_PRIVATE_H

/* Template versions, and the tags that lead to them (pool/template.c). One thread: the loop's. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "pool/record_private.h"

struct config_template;
struct pool;
struct zygote;

/* Bytes of an error text that is kept to be shown to a person later. */
#define POOL_TEXT_MAX 512

struct pool_version {
	struct pool *pool;
	LIST_ENTRY(pool_version) link;
	char digest[DIGEST_TEXT_SIZE];
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	bool tagged; /* some tag leads to it now */
	struct pool_record shape; /* the template's part */
	json_t *shape_env; /* behind shape.template_env */
	char user[LIMIT_ACCOUNT + 1]; /* behind shape.user */
	char memory_digest[DIGEST_TEXT_SIZE]; /* of the blob; "": not known */
	json_t *config; /* of the template; NULL: the template is not in the store any more */
	const struct config_template *want; /* NULL: not configured, so none is kept ready */

	struct zygote *zygote;
	int64_t zygote_used; /* when it last made something */
	char zygote_key[LIMIT_NAME_SIZE]; /* the key it serves; "": none, or the stock */
	int64_t retry_at; /* after failures: no standby or spare is made before this time */
	unsigned failed_in_row;
	bool tried; /* a standby or spare was made once, or failed to be */

	unsigned ready[2], making[2]; /* by enum pool_kind */
	unsigned handouts, sandboxes;
	uint64_t hits_spare, hits_standby, misses, failures;
	char error[POOL_TEXT_MAX];

	double rate; /* arrivals a second, smoothed, as of rate_at */
	int64_t rate_at;
	double make_s[2]; /* seconds that making one takes, smoothed */
	uint64_t cost_bytes; /* host memory that one standby or spare takes; 0: not measured yet */
};
enum pool_kind { POOL_KIND_STANDBY, POOL_KIND_SPARE };

struct pool_tag {
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	struct pool_version *version;
	char created[32];
};

/* Read the store's tags anew where the store has changed. */
int pool_store_refresh(struct pool *p, struct err *err);
/* The version that @ref names now. -ENOENT: none. */
int pool_version_resolve(struct pool *p, const char *ref, struct pool_tag *ret, struct err *err);
/* The version that the record @n names, tagged or not. The pool knows it from then on. */
struct pool_version *pool_version_of(struct pool *p, const struct pool_record *n);
/*
 * Make sure that @v has a zygote, for something of key @key. -EAGAIN: as many zygotes as there may
 * be are at work.
 */
int pool_version_zygote(struct pool_version *v, const char *key, struct err *err);
void pool_version_failed(struct pool_version *v, const char *text);
/* End zygotes that nobody needs, and forget versions that nothing is made of. */
void pool_versions_sweep(struct pool *p);
void pool_versions_configure(struct pool *p);
void pool_versions_free(struct pool *p);

#endif
