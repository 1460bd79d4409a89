/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates that keys have published.
 *
 * STATE/published/NAME:TAG.json says which key has published a template of the store, and which
 * version. So the key that published a template can remove it; where an operator has put another
 * version in its place, that version is not removed. The same key may also publish another version
 * under that name. A key's published templates and its snapshots
 * are bounded together (max_snapshots). Some minutes after a template was removed, `parbake gc`, in
 * a process of its own, removes from the store what that template alone needed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/config.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/published_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"
#include "store/store.h"

/* gc keeps what is younger than ten minutes, as a bake may be about to name it */
#define GC_AFTER_NS (11 * 60 * 1000000000LL)

/* "NAME:TAG.json" of a valid reference; NULL: it is none. Caller frees. */
static char *file_name(const char *ref)
{
	const char *colon = strchr(ref, ':');
	cleanup_free char *name = str_printf("%.*s", (int)strcspn(ref, ":"), ref);
	const char *tag = colon ? colon + 1 : "latest";

	if (!store_name_valid(name) || !store_tag_valid(tag))
		return NULL;
	return str_printf("%s:%s.json", name, tag);
}

static char *note_path(const struct pool *p, const char *ref)
{
	cleanup_free char *name = file_name(ref);

	return name ? str_printf("%s/published/%s", p->state, name) : NULL;
}

/* The text of a field; "" where there is none. */
static const char *text_of(const json_t *obj, const char *field)
{
	const char *text = json_string_value(json_object_get(obj, field));

	return text ? text : "";
}

void pool_published_write(struct pool *p, const char *ref, const char *key)
{
	cleanup_free char *dir = str_printf("%s/published", p->state);
	cleanup_free char *name = file_name(ref), *text = NULL;
	cleanup_json json_t *obj = NULL;
	struct pool_tag tag;
	struct err err = {0};
	int r = name ? pool_version_resolve(p, ref, &tag, &err) : -EINVAL;

	if (r == 0) {
		obj = json_pack("{s:s, s:s}", "key", key, "digest", tag.version->digest);
		text = json_text(obj);
		r = file_publish(dir, name, text, strlen(text), 0600, &err);
	}
	if (r < 0)
		log_warn("template %s: whose it is cannot be noted: %s", ref, err.text);
}

unsigned pool_published_count(struct pool *p, const char *key)
{
	cleanup_free char *path = str_printf("%s/published", p->state);
	cleanup_json json_t *snapshots = pool_snapshots(p);
	cleanup_dir DIR *dir = opendir(path);
	const struct pool_transition *c;
	struct dirent *e;
	unsigned n = 0;

	for (size_t i = 0; i < json_array_size(snapshots); i++)
		n += !strcmp(text_of(json_array_get(snapshots, i), "key"), key);
	while (dir && (e = readdir(dir))) {
		cleanup_json json_t *obj = NULL;

		if (e->d_name[0] != '.' && json_read_file(dirfd(dir), e->d_name, &obj, NULL) == 0)
			n += !strcmp(text_of(obj, "key"), key);
	}
	/* and those on their way */
	LIST_FOREACH(c, &p->transitions, link)
		n += c->id[0] && c->record && !strcmp(text_of(c->record, "key"), key);
	return n;
}

bool pool_template_configured(const struct pool *p, const char *name, const char *tag)
{
	for (size_t i = 0; i < p->config->n_templates; i++) {
		const struct config_template *t = &p->config->templates[i];

		if (!strcmp(t->name, name) && !strcmp(t->tag[0] ? t->tag : "latest", tag))
			return true;
	}
	return false;
}

int pool_published_by(
	struct pool *p, const char *ref, const char *key, struct pool_tag *ret_tag, struct err *err)
{
	cleanup_free char *path = note_path(p, ref);
	cleanup_json json_t *obj = NULL;
	struct pool_tag tag;
	int r = path ? pool_version_resolve(p, ref, &tag, NULL) : -ENOENT;

	if (r < 0)
		return err_set(err, ENOENT, "template \"%.64s\" doesn't exist", ref);
	r = json_read_file(AT_FDCWD, path, &obj, NULL);
	if (r < 0 || strcmp(text_of(obj, "digest"), tag.version->digest))
		return err_set(err, EPERM,
			"template \"%.64s\" is in the host's store: `parbake rm` removes it there",
			ref);
	if (*key && strcmp(text_of(obj, "key"), key))
		return err_set(err, EPERM, "template \"%.64s\" was published by another key", ref);
	if (pool_template_configured(p, tag.name, tag.tag))
		return err_set(err, EPERM, "template \"%.64s\" is one of the configuration's", ref);
	*ret_tag = tag;
	return 0;
}

void pool_published_lost(struct pool *p)
{
	p->gc_wanted_at = clock_now_ns() + GC_AFTER_NS;
	if (!p->gc_at)
		p->gc_at = p->gc_wanted_at;
}

static int template_remove(struct pool *p, const char *ref, const char *key, struct err *err)
{
	cleanup_free char *path = note_path(p, ref);
	struct pool_tag tag;
	int r = pool_published_by(p, ref, key, &tag, err);

	if (r == 0)
		r = store_remove(p->store, ref, err);
	if (r < 0)
		return r;
	if (unlink(path) < 0 && errno != ENOENT)
		log_warn("removing %s: %s", path, strerrordesc_np(errno));
	pool_published_lost(p);
	return pool_store_refresh(p, err);
}

void pool_template_remove(struct pool *p, const char *ref, const char *key, pool_fn *fn, void *user)
{
	struct err err;
	int r = template_remove(p, ref, key, &err);

	pool_fail_later(p, fn, user, r, &err);
}

/* ---- what nothing needs any more ---------------------------------------------------------------- */

static void gc_ended(void *user, int error, const char *text)
{
	struct pool *p = user;

	p->gc = NULL;
	if (error)
		log_warn("gc of the store: %s", text);
}

void pool_published_collect(struct pool *p)
{
	struct err err;

	if (!p->gc_at || p->gc || clock_now_ns() < p->gc_at)
		return;
	/* what lost its name since then is too young for this run: there is another */
	p->gc_at = p->gc_wanted_at > clock_now_ns() ? p->gc_wanted_at : 0;
	if (pool_publish_gc(p, gc_ended, p, &p->gc, &err) < 0)
		log_warn("gc of the store: %s", err.text);
}
