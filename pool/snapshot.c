/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots: a checkpoint that stays, in STATE/captures/ID. A create takes that id in place of a
 * template's name. A snapshot that is given a name is put into the store instead, as a template
 * version like any other. A process of its own does that (publish.c), because it reads and
 * compresses all of the memory and the disk.
 *
 * The snapshot's record, STATE/snapshots/ID.json, is written first; capture.json, the checkpoint's
 * last file, makes the snapshot whole. A new daemon clears a snapshot that is not whole, or that
 * was to be published and is still here, as litter.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/str.h"
#include "pool/config.h"
#include "pool/pool.h"
#include "pool/limits_private.h"
#include "pool/pool_private.h"
#include "pool/published_private.h"
#include "pool/record_private.h"
#include "pool/sandbox_private.h"
#include "pool/transition_private.h"
#include "pool/version_private.h"
#include "pool/work_private.h"

/* ---- looking ---------------------------------------------------------------------------------- */

int pool_snapshot_find(
	struct pool *p, const char *id, json_t **ret_record, char **ret_capture, struct err *err)
{
	cleanup_free char *path = pool_record_path(p, "snapshots", id);
	cleanup_free char *capture = pool_path(p, "captures", id);
	cleanup_json json_t *record = NULL;
	struct pool_record n;
	int r;

	if (!pool_id_valid(id) || !pool_capture_whole(capture))
		return err_set(err, ENOENT, "there is no such snapshot");
	r = json_read_file(AT_FDCWD, path, &record, err);
	if (r == 0)
		r = pool_record_read(record, &n, err);
	if (r < 0)
		return r;
	*ret_record = steal_ptr(&record);
	*ret_capture = steal_ptr(&capture);
	return 0;
}

static int pool_snapshot_clear(struct pool *p, const char *id, struct err *err)
{
	cleanup_free char *path = pool_record_path(p, "snapshots", id);
	cleanup_free char *capture = pool_path(p, "captures", id);

	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, errno, "removing %s", path);
	return pool_trash(p, capture, err);
}

json_t *pool_snapshots(struct pool *p)
{
	cleanup_free char *path = str_printf("%s/snapshots", p->state);
	cleanup_dir DIR *dir = opendir(path);
	json_t *list = json_array();
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		cleanup_json json_t *record = NULL;
		cleanup_free char *capture = NULL;
		char id[POOL_ID_SIZE];

		if (pool_record_name(e->d_name, id) &&
			pool_snapshot_find(p, id, &record, &capture, NULL) == 0)
			json_array_append(list, record);
	}
	return list;
}

void pool_snapshot_remove(struct pool *p, const char *snapshot_id, pool_fn *fn, void *user)
{
	cleanup_json json_t *record = NULL;
	cleanup_free char *capture = NULL;
	struct err err;
	int r = pool_snapshot_find(p, snapshot_id, &record, &capture, &err);

	if (r == 0)
		r = pool_snapshot_clear(p, snapshot_id, &err);
	pool_fail_later(p, fn, user, r, &err);
}

/* ---- copying a checkpoint -------------------------------------------------------------------------- */

static int copy_file(int from_dir, int to_dir, const char *name, struct err *err)
{
	cleanup_fd int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	cleanup_fd int to = -1;
	struct stat st;
	int r;

	if (from < 0)
		return err_sys(err, errno, "opening a capture's %s", name);
	to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0)
		return err_sys(err, errno, "making a snapshot's %s", name);
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		r = -errno;
	else
		r = file_copy_sparse(from, to, (uint64_t)st.st_size, NULL, NULL);
	if (r == 0 && fsync(to) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(err, -r, "writing a snapshot's %s", name);
	return 0;
}

/* All of it, capture.json last. */
static int copy_capture(const char *from, const char *to, struct err *err)
{
	cleanup_dir DIR *dir = opendir(from);
	cleanup_fd int to_dir = -1;
	struct dirent *e;
	int r;

	if (!dir)
		return err_sys(err, errno, "opening %s", from);
	r = file_mkdir_p(to, 0700, err);
	if (r < 0)
		return r;
	to_dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to_dir < 0)
		return err_sys(err, errno, "opening %s", to);
	while (r == 0 && (e = readdir(dir))) {
		if (e->d_name[0] != '.' && strcmp(e->d_name, "capture.json"))
			r = copy_file(dirfd(dir), to_dir, e->d_name, err);
	}
	if (r == 0 && fsync(to_dir) < 0)
		r = err_sys(err, errno, "writing %s", to);
	if (r == 0)
		r = copy_file(dirfd(dir), to_dir, "capture.json", err);
	if (r == 0 && fsync(to_dir) < 0)
		r = err_sys(err, errno, "writing %s", to);
	return r;
}

/* ---- making ----------------------------------------------------------------------------------- */

static void snapshot_trash(struct pool_transition *c)
{
	struct err err;

	if (pool_snapshot_clear(c->pool, c->id, &err) < 0)
		log_warn("%s", err.text);
}

struct told {
	void (*done)(void *user, const char *snapshot_id, int error, const char *text);
	void *user;
};

static void tell_now(void *user, struct pool_sandbox *none, int error, const char *text)
{
	struct told *t = user;

	(void)none;
	t->done(t->user, NULL, error, text);
	free(t);
}

static void fail_later(struct pool *p,
	void (*done)(void *user, const char *snapshot_id, int error, const char *text), void *user,
	int error, const char *text)
{
	struct told *t = malloc(sizeof(*t));

	if (!t)
		abort();
	*t = (struct told){.done = done, .user = user};
	pool_later(p, tell_now, t, error, text);
}

static void snapshot_lost(struct pool_transition *c, int error, const char *text)
{
	fail_later(c->pool, c->done, c->user, error, text);
	snapshot_trash(c);
}

/* The end, once it does not need the sandbox any more. */
static void snapshot_end(struct pool_transition *c, int error, const char *text)
{
	if (error || c->name)
		snapshot_trash(c);
	c->done(c->user, error ? NULL : c->name ? c->name : c->id, error, text);
	pool_transition_free(c);
}

static void snapshot_published(void *user, int error, const char *text)
{
	struct pool_transition *c = user;
	cleanup_free char *why = str_dup(text);
	const char *key;
	struct err err;

	c->publish = NULL;
	c->pending--;
	if (!error && pool_store_refresh(c->pool, &err) < 0)
		log_warn("%s", err.text);
	key = json_string_value(json_object_get(c->record, "key"));
	if (!error && c->replaced[0])
		pool_published_lost(c->pool);
	if (!error && key && *key)
		pool_published_write(c->pool, c->name, key);
	snapshot_end(c, error, why);
}

static void snapshot_captured(struct pool_transition *c, int error, const char *text)
{
	struct err err;
	int r;

	fault_point("pool.snapshot.captured");
	pool_transition_release(c);
	if (error || !c->name) {
		snapshot_end(c, error, text);
		return;
	}
	r = pool_publish_start(c->pool, c->capture, c->name, c->only_new, c->replaced,
		snapshot_published, c, &c->publish, &err);
	if (r < 0)
		snapshot_end(c, err_of_files(-r), err.text);
	else
		c->pending++;
}

static void snapshot_write(void *arg)
{
	struct pool_transition *c = arg;
	cleanup_free char *text = json_text(c->record);
	cleanup_free char *dir = str_printf("%s/snapshots", c->pool->state);
	cleanup_free char *name = str_printf("%s.json", c->id);
	int r = file_publish(dir, name, text, strlen(text), 0600, &c->err);

	if (r == 0 && c->from)
		r = copy_capture(c->from, c->capture, &c->err);
	c->error = err_of_files(-r);
}

static void snapshot_written(void *arg)
{
	struct pool_transition *c = arg;

	c->pending--;
	if (!c->sb) {
		snapshot_trash(c);
		pool_transition_free(c);
	} else if (c->error || c->from) {
		snapshot_captured(c, c->error, c->err.text);
	} else {
		pool_transition_capture(c, c->capture, false);
	}
}

/* What is known of it: of whom, and what it is. */
static json_t *snapshot_record(const struct pool_transition *c)
{
	struct pool_record n = c->sb->record;
	json_t *record;

	n.source = n.id;
	n.id = c->id;
	n.mode = "snapshot";
	n.started_ms = clock_realtime_ns() / 1000000;
	record = pool_record_write(&n);
	if (c->name)
		json_object_set_new(record, "publish", json_string(c->name));
	return record;
}

/* Does @name lead to a template, or will it, by the configuration? */
static bool name_taken(struct pool *p, const char *name)
{
	cleanup_free char *base = str_printf("%.*s", (int)strcspn(name, ":"), name);
	const char *colon = strchr(name, ':');
	struct pool_tag tag;

	return pool_template_configured(p, base, colon ? colon + 1 : "latest") ||
		pool_version_resolve(p, name, &tag, NULL) == 0;
}

/* May the snapshot have its name? It may take the name from one that the sandbox's key has made. */
static int name_check(struct pool_transition *c, const char *name, struct err *err)
{
	const char *key = c->sb->record.key;
	struct pool_tag tag;

	if (!name_taken(c->pool, name))
		return 0;
	if (!*key || pool_published_by(c->pool, name, key, &tag, NULL) < 0)
		return err_set(err, EEXIST,
			"there is a template \"%s\": take another name or tag, or ask for it to be "
			"replaced, which holders of a key may not",
			name);
	snprintf(c->replaced, sizeof(c->replaced), "%s", tag.version->digest);
	return 0;
}

void pool_snapshot(struct pool *p, const char *id, const char *name, bool only_new,
	void (*done)(void *user, const char *snapshot_id, int error, const char *text), void *user)
{
	struct pool_transition *c;
	struct err err;
	int r;

	r = pool_transition_begin(p, id, true, &c, &err);
	if (r == 0) {
		/* now, as far as it is known, for a quick answer; its publication decides */
		if (name && only_new)
			r = name_check(c, name, &err);
		/* one that takes an earlier one's name takes its place */
		if (r == 0 && !c->replaced[0])
			r = pool_limits_snapshots(p, c->sb->record.key, &err);
		if (r < 0)
			pool_transition_free(c);
	}
	if (r < 0) {
		fail_later(p, done, user, -r, err.text);
		return;
	}
	pool_id_make(c->id);
	c->done = done;
	c->user = user;
	c->lost = snapshot_lost;
	c->captured = snapshot_captured;
	c->name = str_dup(name);
	c->only_new = only_new;
	c->record = snapshot_record(c);
	c->capture = pool_path(p, "captures", c->id);
	if (c->sb->state == POOL_PAUSED)
		c->from = pool_capture_path(p, c->sb->record.id, c->sb->capture);
	c->pending++;
	pool_work(p->works, snapshot_write, snapshot_written, c);
}
