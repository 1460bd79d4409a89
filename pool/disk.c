/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's disk. A pause is never refused for what its key has there: the sandbox would be lost
 * at its lease's end. Creates, forks and snapshots are refused instead, so a key exceeds its share
 * by the sandboxes that it has running, and by no more.
 */
#include "pool/disk_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/cleanup.h"
#include "common/json.h"
#include "common/units.h"
#include "pool/config.h"
#include "pool/pool.h"
#include "pool/pool_private.h"
#include "pool/sandbox_private.h"

#define SHARE_LEAST_BYTES (64 * MIB) /* what each key may have in any case */

uint64_t pool_disk_of_capture(const char *dir)
{
	cleanup_dir DIR *d = opendir(dir);
	uint64_t bytes = 0;
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d))) {
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

static uint64_t snapshots_of(struct pool *p, const char *key)
{
	cleanup_json json_t *list = pool_snapshots(p);
	uint64_t bytes = 0;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *record = json_array_get(list, i);
		const char *whose = json_string_value(json_object_get(record, "key"));
		const char *id = json_string_value(json_object_get(record, "id"));
		cleanup_free char *capture = id ? pool_path(p, "captures", id) : NULL;

		if (capture && whose && !strcmp(whose, key))
			bytes += pool_disk_of_capture(capture);
	}
	return bytes;
}

int pool_disk_check(struct pool *p, const struct config_key *c, bool snapshots, struct err *err)
{
	uint64_t bytes = 0, most = c->max_disk;
	const struct pool_sandbox *sb;
	struct statvfs fs;

	if (!most && p->config->n_keys < 2)
		return 0;
	TAILQ_FOREACH(sb, &p->sandboxes, link) {
		if (!strcmp(sb->record.key, c->name))
			bytes += sb->disk_bytes;
	}
	if (snapshots)
		bytes += snapshots_of(p, c->name);
	if (most)
		return bytes < most ? 0
				    : err_set(err, EDQUOT,
					      "the key \"%s\" has %lu MiB on the host's disk, and "
					      "may have %lu MiB: "
					      "remove a paused sandbox or a snapshot",
					      c->name, bytes / MIB, most / MIB);
	if (bytes < SHARE_LEAST_BYTES)
		return 0;
	if (statvfs(p->state, &fs) < 0)
		return err_sys(err, errno, "%s", p->state);
	if (bytes < (uint64_t)fs.f_bavail * fs.f_frsize)
		return 0;
	return err_set(err, EDQUOT,
		"the key \"%s\" has %lu MiB on the host's disk, and no more than that is free "
		"there: "
		"remove a paused sandbox or a snapshot",
		c->name, bytes / MIB);
}
