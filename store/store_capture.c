/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints as the store sees them: directories elsewhere, with a capture.json, that need a
 * template version of this store (restore/checkpoint.h). A collection of garbage keeps what they
 * name.
 *
 * The store has no list of checkpoints. STORE/captures holds a link to each directory that
 * checkpoints were ever put into, and what lies in those directories is read when it matters. So
 * anybody may remove, rename or copy a checkpoint within its directory without telling the store. A
 * checkpoint becomes one when it gets its capture.json. That happens under the store's lock, after
 * a check that its template version is still there. So a collection of garbage has either ended
 * before that, and the check sees what it removed, or it begins afterwards, and sees the
 * checkpoint.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/log.h"
#include "common/str.h"
#include "store/store_private.h"

#define LINKS "captures"
#define LINK_HEX 32 /* of the digest of the directory's path */

int store_manifest_whole(struct store *s, const char *digest, struct err *err)
{
	cleanup_manifest struct store_manifest m = {0};
	int r = store_manifest_read(s, digest, STORE_BYTES_ANY, &m, err);

	for (unsigned i = 0; r == 0 && i < m.n_layers; i++) {
		if (!store_blob_has(s, m.layers[i].digest, m.layers[i].bytes))
			r = err_set(err, ENOENT, "blob %s is missing in %s", m.layers[i].digest,
				s->dir);
	}
	if (r == -ENOENT || r == -EMEDIUMTYPE)
		r = err_set(err, ENOENT,
			"the template version %.19s… is not in %s any more: it was collected after "
			"it had "
			"lost its name, and nothing can be restored without it",
			digest, s->dir);
	return r;
}

int store_captures_at(struct store *s, const char *dir, struct err *err)
{
	cleanup_free char *real = realpath(dir, NULL);
	cleanup_fd int links = -1;
	char digest[DIGEST_TEXT_SIZE], name[LINK_HEX + 1];

	if (!real)
		return err_sys(err, errno, "%s", dir);
	if (mkdirat(s->fd, LINKS, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make %s/" LINKS, s->dir);
	links = openat(s->fd, LINKS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (links < 0)
		return err_sys(err, errno, "open %s/" LINKS, s->dir);
	digest_buffer(real, strlen(real), digest);
	snprintf(name, sizeof(name), "%.*s", LINK_HEX, digest + strlen("sha256:"));
	if (symlinkat(real, links, name) == 0)
		fsync(links);
	else if (errno != EEXIST)
		return err_sys(err, errno, "link %s in %s/" LINKS, real, s->dir);
	return 0;
}

int store_capture_publish(struct store *s, const char *dir, const char *manifest, const void *text,
	size_t len, struct err *err)
{
	cleanup_free char *parent = str_printf("%s/..", dir);
	cleanup_fd int lock = store_lock(s, err);
	int r;

	if (lock < 0)
		return lock;
	r = store_manifest_whole(s, manifest, err);
	if (r == 0)
		r = store_captures_at(s, parent, err);
	return r < 0 ? r : file_publish(dir, STORE_CAPTURE_FILE, text, len, 0600, err);
}

/* ---- for gc ---------------------------------------------------------------------------------- */

/* One entry of a directory of captures. */
static int look_at(int dirfd, const char *name, const char *where,
	int (*fn)(void *user, const char *manifest, const char *path, struct err *err), void *user,
	struct err *err)
{
	cleanup_fd int fd =
		openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	cleanup_free char *path = str_printf("%s/%s", where, name);
	cleanup_json json_t *obj = NULL;
	const char *manifest;
	struct err why;
	int r;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
			? 0
			: err_sys(err, errno, "%s", path);
	r = json_read_file(fd, STORE_CAPTURE_FILE, &obj, &why);
	if (r == -ENOENT)
		return 0; /* not a capture, or not yet */
	if (r < 0 && r != -EINVAL && r != -EFBIG)
		return err_set(err, -r, "%s: %s", path, why.text);
	if (r < 0 ||
		json_get_string(json_object_get(obj, "capture"), "manifest", &manifest, &why) < 0 ||
		!digest_valid(manifest)) {
		/* nothing can be restored from it */
		log_warn("%s: a damaged capture: its template is not kept for it", path);
		return 0;
	}
	return fn(user, manifest, path, err);
}

static int look_into(int links, const char *name,
	int (*fn)(void *user, const char *manifest, const char *path, struct err *err), void *user,
	struct err *err)
{
	cleanup_dir DIR *dir = NULL;
	struct dirent *entry;
	char where[4096] = "";
	int fd = openat(links, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (readlinkat(links, name, where, sizeof(where) - 1) < 0)
		return errno == EINVAL || errno == ENOENT ? 0 : err_sys(err, errno, "%s", name);
	if (fd < 0) /* a directory that is gone holds none */
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, errno, "%s", where);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_sys(err, ENOMEM, "read %s", where);
	}
	while ((errno = 0, entry = readdir(dir))) {
		int r;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		r = look_at(fd, entry->d_name, where, fn, user, err);
		if (r < 0)
			return r;
	}
	return errno ? err_sys(err, errno, "read %s", where) : 0;
}

int store_captures_each(struct store *s,
	int (*fn)(void *user, const char *manifest, const char *path, struct err *err), void *user,
	struct err *err)
{
	cleanup_dir DIR *dir = NULL;
	struct dirent *entry;
	int fd = openat(s->fd, LINKS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "open %s/" LINKS, s->dir);
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_sys(err, ENOMEM, "read %s/" LINKS, s->dir);
	}
	while ((errno = 0, entry = readdir(dir))) {
		int r;

		if (entry->d_name[0] == '.')
			continue;
		r = look_into(fd, entry->d_name, fn, user, err);
		if (r < 0)
			return r;
	}
	return errno ? err_sys(err, errno, "read %s/" LINKS, s->dir) : 0;
}
