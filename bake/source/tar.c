/* SPDX-License-Identifier: Apache-2.0 */
/*
 * [root] source = tar. The plan knows the digest already; a download is checked against it by
 * bake/fetch.
 */
#include <fcntl.h>
#include <string.h>

#include "bake/fetch/fetch.h"
#include "bake/source/source.h"
#include "common/str.h"

int source_tar(const struct recipe *r, const struct plan *plan, struct progress *progress,
	int *ret_fd, struct err *err)
{
	struct fetch_item item = {.url = r->url, .sha256 = plan->source_digest + strlen("sha256:")};
	cleanup_free char *path = NULL;
	int fd, rc;

	if (r->path) {
		path = str_dup(r->path);
	} else {
		progress_stage(progress, "source", NULL, 0);
		rc = fetch_all(&item, 1, progress, err);
		if (rc) {
			err_prefix(err, "[root] url");
			return rc;
		}
		path = item.ret_path;
		progress_done(progress, NULL);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "%s", path);
	*ret_fd = fd;
	return 0;
}
