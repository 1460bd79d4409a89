/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of stage results. A result is written to a file without a name (O_TMPFILE) and
 * linked into the directory when it is whole: a bake that dies, however, leaves nothing. On file
 * systems without O_TMPFILE the file has a temporary name meanwhile.
 *
 * Locks are 256 files a stage, chosen by the key, so that they need never be removed. The order
 * of taking them is guest, root, source; two keys that share a lock merely wait for each other.
 */
#include "bake/stage.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/paths.h"

static const char *key_hex(const char *key)
{
	return key + strlen("sha256:");
}

static char *result_name(enum plan_stage stage, const char *key, const char *suffix)
{
	return str_printf("%s-%s.%s", plan_stage_name(stage), key_hex(key), suffix);
}

int stage_dir(char **ret, struct err *err)
{
	return paths_sub(PATHS_CACHE, "stages", ret, err);
}

int stage_open(
	enum plan_stage stage, const char *key, const char *suffix, int *ret_fd, struct err *err)
{
	cleanup_free char *dir = NULL, *name = result_name(stage, key, suffix), *path = NULL;
	int fd, rc = stage_dir(&dir, err);

	if (rc)
		return rc;
	path = str_printf("%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT : err_sys(err, errno, "%s", path);
	futimens(fd, NULL);
	*ret_fd = fd;
	return 0;
}

int stage_lock(enum plan_stage stage, const char *key, struct progress *progress, struct err *err)
{
	cleanup_free char *dir = NULL, *name = NULL;
	int fd, rc = stage_dir(&dir, err);

	if (rc)
		return rc;
	name = str_printf("%s-%.2s.lock", plan_stage_name(stage), key_hex(key));
	fd = file_lock(dir, name, true, false, err);
	if (fd != -EWOULDBLOCK)
		return fd;
	progress_note(progress, "waiting for another bake of the same %s", plan_stage_name(stage));
	return file_lock(dir, name, true, true, err);
}

int stage_begin(struct stage_out *out, struct err *err)
{
	int rc;

	*out = (struct stage_out){.fd = -1};
	rc = stage_dir(&out->dir, err);
	if (rc)
		return rc;
	out->fd = open(out->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (out->fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)
		return err_sys(err, errno, "a file in %s", out->dir);
	out->tmp = str_printf("%s/.tmp-XXXXXX", out->dir);
	out->fd = mkostemp(out->tmp, O_CLOEXEC);
	if (out->fd < 0) {
		rc = err_sys(err, errno, "%s", out->tmp);
		free(steal_ptr(&out->tmp));
		return rc;
	}
	return 0;
}

int stage_commit(struct stage_out *out, enum plan_stage stage, const char *key, const char *suffix,
	struct err *err)
{
	cleanup_free char *name = result_name(stage, key, suffix), *path = NULL, *proc = NULL;
	cleanup_fd int dirfd = open(out->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	path = str_printf("%s/%s", out->dir, name);
	if (dirfd < 0 || fsync(out->fd))
		return err_sys(err, errno, "%s", path);
	if (out->tmp) {
		if (rename(out->tmp, path))
			return err_sys(err, errno, "%s", path);
		free(steal_ptr(&out->tmp));
	} else {
		/*
		 * a stage made anew replaces its result; linkat(2) cannot. The key's lock is
		 * held.
		 */
		if (unlink(path) && errno != ENOENT)
			return err_sys(err, errno, "%s", path);
		proc = str_printf("/proc/self/fd/%d", out->fd);
		if (linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
			return err_sys(err, errno, "%s", path);
	}
	if (fsync(dirfd))
		return err_sys(err, errno, "%s", out->dir);
	return 0;
}

void stage_end(struct stage_out *out)
{
	if (out->dir)
		close_fd(&out->fd);
	if (out->tmp)
		unlink(out->tmp);
	free(out->tmp);
	free(out->dir);
	*out = (struct stage_out){.fd = -1};
}

int stage_facts(enum plan_stage stage, const char *key, json_t **ret, struct err *err)
{
	cleanup_free char *dir = NULL, *name = result_name(stage, key, "json"), *path = NULL;
	int rc = stage_dir(&dir, err);

	if (rc)
		return rc;
	path = str_printf("%s/%s", dir, name);
	return json_read_file(AT_FDCWD, path, ret, err);
}

int stage_put_facts(enum plan_stage stage, const char *key, const json_t *facts, struct err *err)
{
	cleanup_free char *dir = NULL, *name = result_name(stage, key, "json"), *text = NULL;
	int rc = stage_dir(&dir, err);

	if (rc)
		return rc;
	text = json_text(facts);
	return file_publish(dir, name, text, strlen(text), 0600, err);
}
