/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template versions: those that the store's tags name now, and those that sandboxes were made from
 * and no tag names any more. Standbys and spares belong to a version, so a tag that moves takes
 * effect with the next create: before each create one stat(2) shows whether index.json has changed,
 * and it is read when it has.
 *
 * A version has a zygote from when something is first made of it. The zygote ends when it has not
 * been needed for a while. Where no tag names the version and nothing is being made of it, the
 * zygote ends at once.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/str.h"
#include "pool/config.h"
#include "pool/keeper/keeper.h"
#include "pool/machine_private.h"
#include "pool/pool_private.h"
#include "pool/record_private.h"
#include "pool/stock_private.h"
#include "pool/version_private.h"
#include "restore/translations.h"
#include "store/signed.h"
#include "store/snapshot.h"

#define ZYGOTE_IDLE_NS (600 * 1000000000LL)
#define RETRY_FIRST_NS 500000000LL
#define RETRY_MAX_NS (60 * 1000000000LL)

/* ---- versions --------------------------------------------------------------------------------- */

static struct pool_version *version_with(struct pool *p, const char *digest)
{
	struct pool_version *v;

	LIST_FOREACH(v, &p->versions, link)
		if (!strcmp(v->digest, digest))
			break;
	return v;
}

/* @shape's env is @env, whose reference is taken. */
static struct pool_version *version_new(struct pool *p, const char *name, const char *tag,
	const char *digest, const struct pool_record *shape, json_t *env)
{
	struct pool_version *v = calloc(1, sizeof(*v));

	if (!v)
		abort();
	*v = (struct pool_version){.pool = p, .shape_env = env, .rate_at = clock_now_ns()};
	snprintf(v->digest, sizeof(v->digest), "%s", digest);
	snprintf(v->name, sizeof(v->name), "%s", name);
	snprintf(v->tag, sizeof(v->tag), "%s", tag);
	snprintf(v->user, sizeof(v->user), "%s", shape->user ? shape->user : "");
	v->shape = (struct pool_record){.vcpus = shape->vcpus,
		.memory_bytes = shape->memory_bytes,
		.disk_bytes = shape->disk_bytes,
		.exec_timeout_ms = shape->exec_timeout_ms,
		.output_bytes = shape->output_bytes,
		.exec_memory_bytes = shape->exec_memory_bytes,
		.exec_pids = shape->exec_pids,
		.context = shape->context,
		.user = v->user,
		.template_env = env};
	LIST_INSERT_HEAD(&p->versions, v, link);
	return v;
}

static int version_of_manifest(
	struct pool *p, const struct store_manifest *m, struct pool_version **ret, struct err *err)
{
	cleanup_snapshot_config struct snapshot_config c = {0};
	const struct store_layer *memory = store_layer(m, STORE_MEDIA_MEMORY);
	struct pool_version *v = version_with(p, m->digest);
	struct pool_record shape;
	json_t *env;
	int r;

	if (!v) {
		r = snapshot_config_from_json(m->config, &c, err);
		if (r < 0) {
			err_prefix(err, "template %s", m->name);
			return r;
		}
		pool_record_template(&c, &shape, &env);
		v = version_new(p, m->name, m->tag, m->digest, &shape, env);
	}
	if (!v->config)
		v->config = json_incref(m->config);
	if (memory)
		memcpy(v->memory_digest, memory->digest, sizeof(v->memory_digest));
	*ret = v;
	return 0;
}

struct pool_version *pool_version_of(struct pool *p, const struct pool_record *n)
{
	struct pool_version *v = version_with(p, n->digest);
	json_t *env;

	if (v)
		return v;
	env = n->template_env ? json_deep_copy(n->template_env) : json_array();
	if (!env)
		abort();
	return version_new(p, n->name, n->tag, n->digest, n, env);
}

static void version_free(struct pool_version *v)
{
	LIST_REMOVE(v, link);
	if (v->zygote)
		zygote_free(v->zygote);
	json_decref(v->shape_env);
	json_decref(v->config);
	free(v);
}

void pool_versions_free(struct pool *p)
{
	while (!LIST_EMPTY(&p->versions))
		version_free(LIST_FIRST(&p->versions));
	free(p->tags);
	p->tags = NULL;
	p->n_tags = 0;
}

void pool_version_failed(struct pool_version *v, const char *text)
{
	int64_t wait = RETRY_FIRST_NS << (v->failed_in_row < 7 ? v->failed_in_row : 7);

	v->failures++;
	v->failed_in_row++;
	v->retry_at = clock_now_ns() + (wait > RETRY_MAX_NS ? RETRY_MAX_NS : wait);
	if (strcmp(v->error, text))
		log_warn("template %s: a machine could not be made: %s", v->name, text);
	snprintf(v->error, sizeof(v->error), "%s", text);
}

/* ---- zygotes -------------------------------------------------------------------------------- */

static void zygote_bury(void *user)
{
	zygote_free(user);
}

static void zygote_ended(void *user, const char *text)
{
	struct pool_version *v = user;
	struct zygote *n = v->zygote;

	v->zygote = NULL;
	pool_version_failed(v, text);
	/* not from within its own callback */
	loop_defer(v->pool->loop, zygote_bury, n);
}

static bool version_in_use(const struct pool_version *v)
{
	return v->handouts || v->ready[0] || v->ready[1] || v->making[0] || v->making[1];
}

/* How many zygotes were last used for the key of @v. */
static unsigned zygotes_of(const struct pool_version *v)
{
	const struct pool_version *other;
	unsigned n = 0;

	LIST_FOREACH(other, &v->pool->versions, link)
		n += other->zygote && !strcmp(other->zygote_key, v->zygote_key);
	return n;
}

/*
 * All places are taken: end the zygote that is worth least, of those that are not in use just now. Of the key
 * that has most of them, the one that was not needed for longest: so no key's many versions cost others
 * more than the wait for their own.
 */
static bool zygote_evict(struct pool *p)
{
	struct pool_version *worst = NULL, *v;
	unsigned most = 0;

	LIST_FOREACH(v, &p->versions, link) {
		unsigned n;

		if (!v->zygote || version_in_use(v) || (v->tagged && v->want))
			continue;
		n = zygotes_of(v);
		if (!worst || n > most || (n == most && v->zygote_used < worst->zygote_used)) {
			worst = v;
			most = n;
		}
	}
	if (!worst)
		return false;
	zygote_free(worst->zygote);
	worst->zygote = NULL;
	return true;
}

int pool_version_zygote(struct pool_version *v, const char *key, struct err *err)
{
	const struct pool_version *other;
	struct pool *p = v->pool;
	unsigned n = 0;
	int r;

	snprintf(v->zygote_key, sizeof(v->zygote_key), "%s", key);
	if (v->zygote)
		return 0;
	LIST_FOREACH(other, &p->versions, link)
		n += other->zygote != NULL;
	if (n >= p->config->max_templates && !zygote_evict(p))
		return err_set(err, EAGAIN,
			"%u templates are in use at once, as many as a pool serves: try again "
			"later",
			p->config->max_templates);
	r = p->config->require_signature
		? store_signed_by_file(p->store, v->digest, p->config->require_signature, err)
		: 0;
	if (r < 0)
		return r;
	r = zygote_start(p->loop, p->store_dir, v->digest, v->name, v->tag, p->sockets,
		zygote_ended, v, &v->zygote, err);
	if (r < 0) {
		v->zygote = NULL;
		return r;
	}
	v->zygote_used = clock_now_ns();
	return 0;
}

static bool version_known(const struct pool *p, const struct pool_version *v)
{
	const struct pool_machine *m;

	LIST_FOREACH(m, &p->machines, link) {
		if (m->version == v)
			return true;
	}
	return v->sandboxes > 0;
}

void pool_versions_sweep(struct pool *p)
{
	int64_t now = clock_now_ns();
	struct pool_version *v, *next;

	for (v = LIST_FIRST(&p->versions); v; v = next) {
		bool needed = version_in_use(v) || (v->tagged && v->want);

		/* with no tag any more, too: what it opens, a large disk maybe, may take longer than one try to use it */
		if (v->zygote && !needed && now - v->zygote_used > ZYGOTE_IDLE_NS) {
			zygote_free(v->zygote);
			v->zygote = NULL;
		}
		next = LIST_NEXT(v, link);
		if (!v->tagged && !v->zygote && !needed && !version_known(p, v))
			version_free(v);
	}
}

/* ---- tags ------------------------------------------------------------------------------------- */

static int tag_order(const void *a, const void *b)
{
	const struct pool_tag *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->tag, y->tag);
}

static struct pool_tag *tag_find(struct pool *p, const char *name, const char *tag)
{
	for (size_t i = 0; i < p->n_tags; i++) {
		if (!strcmp(p->tags[i].name, name) && !strcmp(p->tags[i].tag, tag))
			return &p->tags[i];
	}
	return NULL;
}

/* The tag of a version that has the name for an alias, where no tag has it. */
static struct pool_tag *tag_of_alias(struct pool *p, const char *name, const char *tag)
{
	for (size_t i = 0; i < p->n_tags; i++) {
		struct pool_tag *t = &p->tags[i];

		if (t->version && !strcmp(t->tag, tag) &&
			snapshot_aliases_have(t->version->config, name))
			return t;
	}
	return NULL;
}

static struct pool_tag *tag_add(struct pool *p, const char *name, const char *tag)
{
	struct pool_tag *t;

	p->tags = realloc(p->tags, (p->n_tags + 1) * sizeof(*p->tags));
	if (!p->tags)
		abort();
	t = &p->tags[p->n_tags++];
	*t = (struct pool_tag){0};
	snprintf(t->name, sizeof(t->name), "%s", name);
	snprintf(t->tag, sizeof(t->tag), "%s", tag);
	return t;
}

/* The configuration's templates: those that the store lacks are listed too, with no version. */
void pool_versions_configure(struct pool *p)
{
	const struct config *c = p->config;
	struct pool_version *v;
	size_t kept = 0;

	LIST_FOREACH(v, &p->versions, link)
		v->want = NULL;
	for (size_t i = 0; i < p->n_tags; i++) {
		if (p->tags[i].version)
			p->tags[kept++] = p->tags[i];
	}
	p->n_tags = kept;
	for (size_t i = 0; i < c->n_templates; i++) {
		const struct config_template *want = &c->templates[i];
		const char *tag = want->tag[0] ? want->tag : "latest";
		struct pool_tag *t = tag_find(p, want->name, tag);

		if (!t)
			t = tag_of_alias(p, want->name, tag);
		if (!t)
			tag_add(p, want->name, tag);
		else if (t->version && (!t->version->want || !strcmp(t->name, want->name)))
			t->version->want = want;
	}
	if (p->n_tags)
		qsort(p->tags, p->n_tags, sizeof(*p->tags), tag_order);
}

static void tags_replace(struct pool *p, const struct store_manifest *list, size_t n)
{
	struct pool_version *v;

	LIST_FOREACH(v, &p->versions, link)
		v->tagged = false;
	p->n_tags = 0;
	for (size_t i = 0; i < n; i++) {
		struct pool_tag *t;
		struct err err;

		if (version_of_manifest(p, &list[i], &v, &err) < 0) {
			log_warn("%s", err.text);
			continue;
		}
		if (!v->tagged) {
			snprintf(v->name, sizeof(v->name), "%s", list[i].name);
			snprintf(v->tag, sizeof(v->tag), "%s", list[i].tag);
		}
		v->tagged = true;
		t = tag_add(p, list[i].name, list[i].tag);
		t->version = v;
		snprintf(t->created, sizeof(t->created), "%s", list[i].created);
	}
	pool_versions_configure(p);
}

int pool_store_refresh(struct pool *p, struct err *err)
{
	cleanup_free char *path = str_printf("%s/index.json", store_dir(p->store));
	struct store_manifest *list = NULL;
	struct stat st = {0};
	size_t n = 0;
	int r;

	if (stat(path, &st) < 0 && errno != ENOENT)
		return err_sys(err, errno, "looking at %s", path);
	if (p->index.read && st.st_dev == p->index.dev && st.st_ino == p->index.ino &&
		st.st_size == p->index.size && st.st_mtim.tv_sec == p->index.mtime.tv_sec &&
		st.st_mtim.tv_nsec == p->index.mtime.tv_nsec)
		return 0;
	r = store_list(p->store, &list, &n, err);
	if (r < 0)
		return r;
	tags_replace(p, list, n);
	for (size_t i = 0; i < n; i++)
		store_manifest_clear(&list[i]);
	free(list);
	/* as it was before it was read: a change meanwhile is seen the next time */
	p->index.dev = st.st_dev;
	p->index.ino = st.st_ino;
	p->index.size = st.st_size;
	p->index.mtime = st.st_mtim;
	p->index.read = true;
	return 0;
}

/* NAME[:TAG] of what is in the store, or an alias of it; NULL: none. */
static const struct pool_tag *tag_named(struct pool *p, const char *ref)
{
	char name[LIMIT_NAME_SIZE];
	const char *colon = strchr(ref, ':'), *tag = colon ? colon + 1 : "latest";
	size_t len = colon ? (size_t)(colon - ref) : strlen(ref);
	const struct pool_tag *t;

	if (len >= sizeof(name) || strchr(ref, '@'))
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)len, ref);
	t = tag_find(p, name, tag);
	return t && t->version ? t : tag_of_alias(p, name, tag);
}

int pool_version_resolve(struct pool *p, const char *ref, struct pool_tag *ret, struct err *err)
{
	cleanup_manifest struct store_manifest m = {0};
	const struct pool_tag *t;
	int r = pool_store_refresh(p, err);

	if (r < 0)
		return r;
	t = tag_named(p, ref);
	if (t) {
		*ret = *t;
		return 0;
	}
	/* by digest; or what is wrong with it, and which name is near */
	r = store_resolve(p->store, ref, &m, err);
	if (r < 0)
		return r;
	*ret = (struct pool_tag){0};
	snprintf(ret->name, sizeof(ret->name), "%s", m.name);
	snprintf(ret->tag, sizeof(ret->tag), "%s", m.tag);
	snprintf(ret->created, sizeof(ret->created), "%s", m.created);
	return version_of_manifest(p, &m, &ret->version, err);
}

static void tag_info(const struct pool_tag *t, struct pool_template_info *ret)
{
	struct pool_version *v = t->version;
	unsigned want[2];

	*ret = (struct pool_template_info){.name = t->name,
		.tag = t->tag,
		.digest = "",
		.created = "",
		.error = "it is not in the store"};
	if (!v)
		return;
	pool_stock_want(v, want);
	*ret = (struct pool_template_info){
		.name = t->name,
		.tag = t->tag,
		.digest = v->digest,
		.created = t->created,
		.standbys = v->ready[POOL_KIND_STANDBY],
		.spares = v->ready[POOL_KIND_SPARE],
		.want_standbys = want[POOL_KIND_STANDBY],
		.want_spares = want[POOL_KIND_SPARE],
		.making = v->making[0] + v->making[1],
		.sandboxes = v->sandboxes,
		.hits_spare = v->hits_spare,
		.hits_standby = v->hits_standby,
		.misses = v->misses,
		.failures = v->failures,
		.error = v->error,
		.arrivals_per_s = pool_stock_rate(v),
		.memory_bytes = v->shape.memory_bytes,
		.vcpus = v->shape.vcpus,
		.disk_bytes = v->shape.disk_bytes,
		.aliases = json_object_get(json_object_get(v->config, "extra"), "aliases"),
		.translations =
			translations_state_name(translations_look(v->config, v->memory_digest)),
	};
}

bool pool_template(struct pool *p, unsigned i, struct pool_template_info *ret)
{
	if (i >= p->n_tags)
		return false;
	tag_info(&p->tags[i], ret);
	return true;
}

bool pool_template_named(struct pool *p, const char *ref, struct pool_template_info *ret)
{
	const struct pool_tag *t = pool_store_refresh(p, NULL) < 0 ? NULL : tag_named(p, ref);

	if (t)
		tag_info(t, ret);
	return t != NULL;
}
