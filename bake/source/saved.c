/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources saved in a directory, for a bake without a network, or for when a mirror has them no more. An archive that
 * mmdebstrap made is named by its stage's key, which its recipe has; whether it holds what was locked, the root disk's
 * digest tells. A download is named by its own digest.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/fetch/fetch.h"
#include "bake/plan/stage.h"
#include "bake/source/source.h"
#include "common/file.h"
#include "common/str.h"

static char *saved_name(const struct recipe *r, const struct plan *plan)
{
	const char *digest = r->source == RECIPE_TAR ? plan->source_digest : plan->key[PLAN_SOURCE];

	return str_printf("%s-%s.tar", r->source == RECIPE_TAR ? "archive" : r->suite,
		digest + strlen("sha256:"));
}

static int copy_all(int from, int to, struct err *err)
{
	struct stat st;
	int rc;

	if (fstat(from, &st))
		return err_sys(err, errno, "the archive's size");
	rc = file_copy_sparse(from, to, (uint64_t)st.st_size, NULL, NULL);
	return rc ? err_sys(err, -rc, "copy the archive") : 0;
}

int source_save(const struct recipe *r, const struct plan *plan, int64_t epoch, const char *dir,
	struct progress *progress, struct err *err)
{
	cleanup_publish struct publish out = PUBLISH_INIT;
	cleanup_free char *name = saved_name(r, plan);
	cleanup_fd int fd = -1;
	int rc = source_get(r, plan, epoch, false, progress, &fd, err);

	if (!rc)
		rc = file_mkdir_p(dir, 0755, err);
	if (!rc)
		rc = publish_begin(&out, dir, err);
	if (!rc)
		rc = copy_all(fd, out.fd, err);
	return rc ? rc : publish_commit(&out, name, 0644, err);
}

/* A download goes the way of downloads, which checks it. */
static int take_archive(
	const char *path, const struct plan *plan, struct progress *progress, struct err *err)
{
	cleanup_free char *real = realpath(path, NULL);
	cleanup_free char *url = str_printf("file://%s", real ? real : path);
	struct fetch_item item = {.url = url, .sha256 = plan->source_digest + strlen("sha256:")};
	int rc = fetch_all(&item, 1, progress, err);

	free(item.ret_path);
	return rc;
}

static int take_stage(
	const char *path, const struct plan *plan, struct progress *progress, struct err *err)
{
	const char *key = plan->key[PLAN_SOURCE];
	cleanup_publish struct publish out = PUBLISH_INIT;
	cleanup_fd int lock = stage_lock(PLAN_SOURCE, key, progress, err);
	cleanup_fd int from = open(path, O_RDONLY | O_CLOEXEC);
	int rc;

	if (lock < 0)
		return lock;
	if (from < 0)
		return err_sys(err, errno, "%s", path);
	rc = stage_begin(&out, err);
	if (!rc)
		rc = copy_all(from, out.fd, err);
	return rc ? rc : stage_commit(&out, PLAN_SOURCE, key, "tar", err);
}

int source_take_saved(const struct recipe *r, const struct plan *plan, const char *dir,
	struct progress *progress, struct err *err)
{
	cleanup_free char *name = saved_name(r, plan), *path = str_printf("%s/%s", dir, name);
	int rc;

	if (r->source == RECIPE_TAR && r->path)
		return 0; /* it is where it is */
	if (access(path, R_OK))
		return err_set(err, ENOENT,
			"%s does not have the sources of this recipe (%s): save them with `parbake "
			"fetch`",
			dir, name);
	progress_stage(progress, "saved", NULL, 0);
	rc = r->source == RECIPE_TAR ? take_archive(path, plan, progress, err)
				     : take_stage(path, plan, progress, err);
	if (!rc)
		progress_done(progress, "%s", name);
	return rc;
}
