/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of stage results. A result is a file without a name until it is whole (struct publish): a
 * bake that dies, however, leaves nothing.
 *
 * Locks are 256 files a stage, chosen by the key, so that they need never be removed. The order
 * of taking them is guest, root, source; two keys that share a lock merely wait for each other.
 */
#include "bake/plan/stage.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/artifact.h"
#include "common/file.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/str.h"

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
	rc = artifact_check("stages", name, fd, false, NULL, err);
	if (rc < 0) {
		close(fd);
		if (rc == -EBADMSG)
			log_warn("%s", err->text);
		return rc == -EBADMSG ? -ENOENT : rc; /* made anew */
	}
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

int stage_begin(struct publish *ret, struct err *err)
{
	cleanup_free char *dir = NULL;
	int rc = stage_dir(&dir, err);

	return rc ? rc : publish_begin(ret, dir, err);
}

int stage_commit(struct publish *p, enum plan_stage stage, const char *key, const char *suffix,
	struct err *err)
{
	cleanup_free char *name = result_name(stage, key, suffix);
	int rc = publish_commit(p, name, 0600, err);

	return rc < 0 ? rc : artifact_seal("stages", name, err);
}

int stage_facts(enum plan_stage stage, const char *key, json_t **ret, struct err *err)
{
	cleanup_free char *dir = NULL, *name = result_name(stage, key, "json"), *path = NULL;
	int rc = stage_dir(&dir, err);

	if (rc)
		return rc;
	path = str_printf("%s/%s", dir, name);
	utimensat(AT_FDCWD, path, NULL, 0); /* used now, as its result */
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
