/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_POOL_VERSION_PRIVATE_H
#define PARBAKE_POOL_VERSION_PRIVATE_H

/* Template versions and the tags that lead to them (pool/template.c). */

#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "pool/record_private.h"

struct config_template;
struct pool;
struct zygote;

/* Room for the text that says why something failed, as a person is told it. */
#define POOL_TEXT_MAX 512

struct pool_version {
	struct pool *pool;
	struct pool_version *next;
	char digest[DIGEST_TEXT_SIZE];
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	bool tagged; /* some tag leads to it now */
	struct pool_record shape; /* the template's part */
	json_t *shape_env; /* behind shape.template_env */
	json_t *config; /* of the template; NULL: it is not in the store any more */
	const struct config_template *want; /* NULL: made when asked for, nothing kept ready */

	struct zygote *zygote;
	int64_t zygote_used; /* when something was last made */
	char zygote_key[LIMIT_NAME_SIZE]; /* for whom; "": for nobody's key, or to be kept ready */
	int64_t retry_at; /* after failures: not before */
	unsigned failed_in_row;
	bool tried; /* one shell or spare has been made, or could not be */

	unsigned ready[2], making[2]; /* by enum pool_kind */
	unsigned jobs, sandboxes;
	uint64_t hits_spare, hits_shell, misses, failures;
	char error[POOL_TEXT_MAX];

	double rate; /* arrivals a second, smoothed, as of … */
	int64_t rate_at;
	double make_s[2]; /* to make one, smoothed */
	uint64_t cost_bytes; /* of host memory, of one that is ready; 0: not measured yet */
};
enum pool_kind { POOL_KIND_SHELL, POOL_KIND_SPARE };

struct pool_tag {
	char name[LIMIT_NAME_SIZE], tag[LIMIT_NAME_SIZE];
	struct pool_version *version;
	char created[32];
};

/* Look whether the store has changed, and take in what it has. */
int pool_store_refresh(struct pool *p, struct err *err);
/* What @ref names now. -ENOENT. */
int pool_version_resolve(struct pool *p, const char *ref, struct pool_tag *ret, struct err *err);
/* The version that a record tells of, tagged or not; known from then on. */
struct pool_version *pool_version_of(struct pool *p, const struct pool_record *n);
/* Its zygote, for something of @key's, started where there is none. -EAGAIN: as many as there may be are at work. */
int pool_version_zygote(struct pool_version *v, const char *key, struct err *err);
void pool_version_failed(struct pool_version *v, const char *text);
/* Ends zygotes that nobody needs, forgets versions that nothing is made of. */
void pool_versions_sweep(struct pool *p);
void pool_versions_configure(struct pool *p);
void pool_versions_free(struct pool *p);

#endif
