/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources, and their cache. An archive that mmdebstrap made is kept in the cache; a source that is
 * a file already is used where it is.
 */
#include "bake/source/source.h"

#include <string.h>
#include <sys/stat.h>

#include "bake/plan/stage.h"
#include "common/cleanup.h"
#include "common/file.h"

int source_get(const struct recipe *r, const struct plan *plan, int64_t epoch, bool anew,
	struct progress *progress, int *ret_fd, struct err *err)
{
	const char *key = plan->key[PLAN_SOURCE];
	cleanup_publish struct publish out = PUBLISH_INIT;
	cleanup_fd int lock = -1;
	char size[16];
	struct stat st;
	int rc;

	if (r->source == RECIPE_TAR)
		return source_tar(r, plan, progress, ret_fd, err);
	lock = stage_lock(PLAN_SOURCE, key, progress, err);
	if (lock < 0)
		return lock;
	progress_stage(progress, "source", "bytes", 0);
	rc = anew ? -ENOENT : stage_open(PLAN_SOURCE, key, "tar", ret_fd, err);
	if (rc != -ENOENT) {
		if (!rc)
			progress_done(progress, "cached");
		return rc;
	}
	rc = stage_begin(&out, err);
	if (!rc)
		rc = source_debian(r, epoch, out.fd, progress, err);
	if (rc) {
		err_prefix(err, "[root] source = debian");
		return rc;
	}
	if (fstat(out.fd, &st))
		return err_sys(err, errno, "the archive's size");
	rc = stage_commit(&out, PLAN_SOURCE, key, "tar", err);
	if (!rc)
		rc = stage_open(PLAN_SOURCE, key, "tar", ret_fd, err);
	if (!rc)
		progress_done(progress, "%s %s and %zu packages, %s", "Debian", r->suite,
			r->packages.n, progress_bytes((uint64_t)st.st_size, size));
	return rc;
}
