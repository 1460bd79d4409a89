/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting garbage, under the store's lock so that no name changes meanwhile. Everything that
 * index.json reaches is kept, whoever put it there: manifests of ours, of others, indexes of
 * manifests; and what checkpoints need (store_capture.c). A blob that stands where a manifest
 * should is read as a manifest, whatever type it claims, and every digest that a manifest mentions
 * is kept, in whatever field: so whatever any reader may need of it is there. Where a manifest
 * cannot be read it is not known what it keeps, so nothing is removed at all. All other blobs are
 * removed, if they are old enough not to belong to a bake that has yet to publish.
 *
 * A temporary file belongs to a dead writer when its lock can be taken (the kernel releases the
 * lock with the process). After a day without a write it is treated as such in any case.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "common/fault.h"
#include "common/log.h"
#include "store/store_private.h"
#include "store/limits.h"

#define TMP_KEEP_S (24 * 60 * 60)

struct gc {
	struct store *store;
	json_t *keep; /* object: hex → was it looked into as a manifest? */
	int64_t now, keep_s;
	bool dry_run;
	unsigned blobs;
	uint64_t bytes;
};

/* How a descriptor is meant, by where it stands. */
enum meant {
	MEANT_BLOB, /* a leaf, but where its type says manifest */
	MEANT_MANIFEST, /* whatever its type says: what `run` takes it for, too */
};

static int mark(
	struct gc *gc, const json_t *descriptor, enum meant meant, unsigned depth, struct err *err);

static int mark_all(
	struct gc *gc, const json_t *array, enum meant meant, unsigned depth, struct err *err)
{
	json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
	{
		int r = mark(gc, item, meant, depth, err);

		if (r < 0)
			return r;
	}
	return 0;
}

static int keep(struct gc *gc, const char *digest, bool inside, struct err *err)
{
	if (json_object_set_new(gc->keep, digest + 7, json_boolean(inside)) < 0)
		return err_sys(err, ENOMEM, "collect garbage");
	return 0;
}

/* Every digest that stands anywhere in @value: in fields that a later format, or another's, may have. */
static int keep_mentioned(struct gc *gc, const json_t *value, struct err *err)
{
	const char *text = json_string_value(value), *key;
	json_t *item;
	size_t i;
	int r = 0;

	if (text && digest_valid(text) && !json_object_get(gc->keep, text + 7))
		return keep(gc, text, false, err);
	json_array_foreach(value, i, item)
	{
		if (r == 0)
			r = keep_mentioned(gc, item, err);
	}
	json_object_foreach((json_t *)value, key, item)
	{
		if (r == 0)
			r = keep_mentioned(gc, item, err);
	}
	return r;
}

static bool is_manifest(const char *media)
{
	static const char *const medias[] = {STORE_MEDIA_MANIFEST, STORE_MEDIA_INDEX,
		"application/vnd.docker.distribution.manifest.v2+json",
		"application/vnd.docker.distribution.manifest.list.v2+json"};

	for (size_t i = 0; i < sizeof(medias) / sizeof(medias[0]); i++)
		if (!strcmp(media, medias[i]))
			return true;
	return false;
}

/* Of a type that is not known: may it name something? Then it is an object of JSON. */
static bool is_object(struct gc *gc, const char *digest)
{
	char text[64] = "";
	cleanup_fd int fd = -1;

	return store_blob_open(gc->store, digest, STORE_BYTES_ANY, &fd, NULL) == 0 &&
		pread(fd, text, sizeof(text) - 1, 0) > 0 && text[strspn(text, " \t\r\n")] == '{';
}

/* What a manifest or an index names. */
static int mark_inside(
	struct gc *gc, const struct store_layer *desc, unsigned depth, struct err *err)
{
	cleanup_json json_t *doc = NULL;
	json_t *config;
	int r;

	if (depth > LIMIT_INDEX_DEPTH)
		return err_set(err, EBADMSG, "manifests deeper than %d", LIMIT_INDEX_DEPTH);
	r = store_json_blob(gc->store, desc->digest, desc->bytes, LIMIT_MANIFEST_BYTES, &doc, err);
	if (r < 0)
		return r;
	config = json_object_get(doc, "config");
	r = config ? mark(gc, config, MEANT_BLOB, depth + 1, err) : 0;
	if (r == 0)
		r = mark_all(gc, json_object_get(doc, "layers"), MEANT_BLOB, depth + 1, err);
	if (r == 0)
		r = mark_all(gc, json_object_get(doc, "manifests"), MEANT_MANIFEST, depth + 1, err);
	return r < 0 ? r : keep_mentioned(gc, doc, err);
}

static int mark(
	struct gc *gc, const json_t *descriptor, enum meant meant, unsigned depth, struct err *err)
{
	struct store_layer desc;
	json_t *seen;
	int r = store_descriptor_parse(descriptor, &desc, err);
	bool inside;

	if (r < 0)
		return r;
	inside = is_manifest(desc.media) || (meant == MEANT_MANIFEST && is_object(gc, desc.digest));
	/* what one names as a mere blob another may name as a manifest */
	seen = json_object_get(gc->keep, desc.digest + 7);
	if (seen && (json_is_true(seen) || !inside))
		return 0;
	r = keep(gc, desc.digest, inside, err);
	return r == 0 && inside ? mark_inside(gc, &desc, depth, err) : r;
}

static int mark_index(struct gc *gc, struct err *err)
{
	cleanup_json json_t *index = NULL;
	json_t *item;
	size_t i;
	int r = store_index_read(gc->store, &index, err);

	if (r < 0)
		return r;
	json_array_foreach(json_object_get(index, "manifests"), i, item)
	{
		const char *ref = store_index_ref(item);

		r = mark(gc, item, MEANT_MANIFEST, 0, err);
		if (r < 0) {
			err_prefix(err,
				"nothing removed: \"%.127s\" cannot be read (bake it again, or "
				"`parbake rm` it)",
				ref ? ref : "a manifest without a name");
			return r;
		}
	}
	return 0;
}

static int mark_manifest(struct gc *gc, const char *digest, struct err *err)
{
	struct store_layer desc = {.bytes = STORE_BYTES_ANY};
	int r;

	if (json_is_true(json_object_get(gc->keep, digest + 7)))
		return 0;
	snprintf(desc.digest, sizeof(desc.digest), "%s", digest);
	r = keep(gc, digest, true, err);
	return r == 0 ? mark_inside(gc, &desc, 0, err) : r;
}

/* What a capture needs. One whose manifest is not here belongs to another store, or can be restored no
 * more. */
static int mark_capture(void *user, const char *manifest, const char *path, struct err *err)
{
	struct gc *gc = user;
	struct stat st;
	int r;

	if (fstatat(gc->store->blobs, manifest + 7, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = mark_manifest(gc, manifest, err);
	if (r < 0)
		err_prefix(err,
			"nothing removed: the template of the capture %s cannot be read "
			"(remove the capture, if it is not needed)",
			path);
	return r;
}

/* One of the newest versions of its name. */
static int mark_version(void *user, const char *manifest, struct err *err)
{
	return mark_manifest(user, manifest, err);
}

void store_keep_versions(struct store *s, unsigned n)
{
	s->keep_versions = n;
}

static int drop(struct gc *gc, int dirfd, const char *name, const struct stat *st, struct err *err)
{
	int r;

	if (!gc->dry_run) {
		r = fault_point("store.gc.before-unlink");
		if (r < 0 || (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT))
			return err_sys(err, r < 0 ? -r : errno, "remove %s", name);
	}
	log_debug("gc: %s", name);
	gc->blobs++;
	gc->bytes += (uint64_t)st->st_size;
	return 0;
}

/* A blob, a directory's entry: does it go? */
static int sweep_blob(struct gc *gc, int dirfd, const char *name, struct err *err)
{
	struct stat st;

	if (strlen(name) != DIGEST_HEX_SIZE - 1 ||
		strspn(name, "0123456789abcdef") != DIGEST_HEX_SIZE - 1)
		return 0; /* none of ours */
	if (json_object_get(gc->keep, name))
		return 0;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return 0;
	/* a time in the future is a clock set back: nobody's bake in progress */
	if (st.st_mtim.tv_sec > gc->now - gc->keep_s && st.st_mtim.tv_sec <= gc->now)
		return 0;
	return drop(gc, dirfd, name, &st, err);
}

static int sweep_tmp(struct gc *gc, int dirfd, const char *name, struct err *err)
{
	cleanup_fd int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && st.st_mtim.tv_sec > gc->now - TMP_KEEP_S)
		return 0;
	/* the lock is held until it is gone */
	return drop(gc, dirfd, name, &st, err);
}

/* An index.json that its writer did not live to rename: we hold the lock, so it is dead. */
static int sweep_index(struct gc *gc, int dirfd, const char *name, struct err *err)
{
	struct stat st;

	if (strncmp(name, STORE_TMP_PREFIX, strlen(STORE_TMP_PREFIX)) != 0 ||
		fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	return drop(gc, dirfd, name, &st, err);
}

/* A signature, named after the manifest that it is of. */
static int sweep_signature(struct gc *gc, int dirfd, const char *name, struct err *err)
{
	char hex[DIGEST_HEX_SIZE];
	struct stat st;

	if (strspn(name, "0123456789abcdef") != DIGEST_HEX_SIZE - 1 ||
		name[DIGEST_HEX_SIZE - 1] != '-')
		return 0;
	snprintf(hex, sizeof(hex), "%s", name);
	if (faccessat(gc->store->blobs, hex, F_OK, 0) == 0 ||
		fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return 0;
	return drop(gc, dirfd, name, &st, err);
}

static int sweep(struct gc *gc, int at, int (*one)(struct gc *, int, const char *, struct err *),
	struct err *err)
{
	cleanup_dir DIR *dir = NULL;
	struct dirent *entry;
	int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "read %s", gc->store->dir);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_sys(err, ENOMEM, "read %s", gc->store->dir);
	}
	while ((errno = 0, entry = readdir(dir))) {
		int r = one(gc, fd, entry->d_name, err);

		if (r < 0)
			return r;
	}
	return errno ? err_sys(err, errno, "read %s", gc->store->dir) : 0;
}

int store_gc(struct store *s, int64_t keep_s, bool dry_run, unsigned *ret_blobs,
	uint64_t *ret_bytes, struct err *err)
{
	cleanup_json json_t *keep = json_object();
	struct gc gc = {.store = s, .keep = keep, .keep_s = keep_s, .dry_run = dry_run};
	cleanup_fd int lock = store_lock(s, err), signatures = -1;
	int r;

	if (lock < 0)
		return lock;
	if (!keep)
		return err_sys(err, ENOMEM, "collect garbage");
	gc.now = time(NULL);
	r = mark_index(&gc, err);
	if (r == 0)
		r = store_captures_each(s, mark_capture, &gc, err);
	if (r == 0 && s->keep_versions)
		r = store_versions_each(s, s->keep_versions, mark_version, &gc, err);
	if (r == 0)
		r = sweep(&gc, s->blobs, sweep_blob, err);
	if (r == 0 && s->tmp >= 0)
		r = sweep(&gc, s->tmp, sweep_tmp, err);
	signatures = openat(s->fd, STORE_SIGNATURES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && signatures >= 0)
		r = sweep(&gc, signatures, sweep_signature, err);
	if (r == 0)
		r = sweep(&gc, s->fd, sweep_index, err);
	if (r < 0)
		return r;
	if (ret_blobs)
		*ret_blobs = gc.blobs;
	if (ret_bytes)
		*ret_bytes = gc.bytes;
	return 0;
}
