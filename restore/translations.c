/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of translated code. A file in it is whole (it is published by rename) and never
 * changes, so machines map it as it lies. The monitor that wrote it was confined, but had run a
 * guest: if that guest had broken out it could have written anything, which every sandbox of the
 * same template would run, confined as well. So a file serves the memory that it was made from and
 * no other. Whoever may write to the cache can do no more harm than whoever may write to the
 * monitor's program.
 *
 * A flipped bit in a file would give a wrong result in a guest, without any error. So a record says
 * what the file held when it was written (common/artifact.h), and a file that does not hold that
 * any more is not used.
 */
#include "restore/translations.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/artifact.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/log.h"
#include "common/paths.h"
#include "common/str.h"

#define DIRECTORY "translations"

void translations_name(
	const char *key, const char *monitor_version, char ret[static DIGEST_HEX_SIZE])
{
	cleanup_digest struct digest *d = digest_new();
	char sum[DIGEST_TEXT_SIZE];

	digest_update(d, key, strlen(key) + 1);
	digest_update(d, monitor_version, strlen(monitor_version) + 1);
	digest_final(d, sum);
	snprintf(ret, DIGEST_HEX_SIZE, "%s", sum + strlen("sha256:"));
}

int translations_open(const char *key, const struct monitor_facts *monitor)
{
	cleanup_free char *path = NULL;
	cleanup_fd int fd = -1;
	char name[DIGEST_HEX_SIZE];
	const char *cache;
	struct stat st;
	struct err err;
	int r;

	if (paths_get(PATHS_CACHE, &cache, NULL) < 0)
		return -1;
	translations_name(key, monitor->version, name);
	path = str_printf("%s/" DIRECTORY "/%s", cache, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
		st.st_mode & 0222)
		return -1;
	r = artifact_check(DIRECTORY, name, fd, false, NULL, &err);
	if (r == -EBADMSG)
		log_warn("%s", err.text);
	return r < 0 ? -1 : steal_fd(&fd);
}

/* By the first digit of the blob's digest, as the locks of expanded disks: no lock file is litter. */
int translations_lock(const char *key, bool wait, struct err *err)
{
	cleanup_free char *dir = NULL;
	char name[16];
	int r = paths_sub(PATHS_CACHE, DIRECTORY, &dir, err);

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), ".lock-%c", key[strcspn(key, ":") + 1]);
	return file_lock(dir, name, true, wait, err);
}

static const char *const state_names[] = {
	[TRANSLATIONS_UNNEEDED] = "unneeded",
	[TRANSLATIONS_MISSING] = "missing",
	[TRANSLATIONS_KEPT] = "kept",
};
_Static_assert(sizeof(state_names) / sizeof(*state_names) == TRANSLATIONS_KEPT + 1, "all named");

const char *translations_state_name(enum translations_state state)
{
	return state_names[state];
}

enum translations_state translations_look(const json_t *config, const char *key)
{
	cleanup_free char *path = NULL;
	const char *accel, *version, *cache;
	char name[DIGEST_HEX_SIZE];

	if (json_get_string(config, "accel", &accel, NULL) < 0 ||
		json_get_string(config, "monitor_version", &version, NULL) < 0 ||
		strcmp(accel, "tcg"))
		return TRANSLATIONS_UNNEEDED;
	if (paths_get(PATHS_CACHE, &cache, NULL) < 0)
		return TRANSLATIONS_MISSING;
	translations_name(key, version, name);
	path = str_printf("%s/" DIRECTORY "/%s", cache, name);
	return access(path, R_OK) == 0 ? TRANSLATIONS_KEPT : TRANSLATIONS_MISSING;
}

int translations_begin(struct publish *p, struct err *err)
{
	cleanup_free char *dir = NULL;
	int r = paths_sub(PATHS_CACHE, DIRECTORY, &dir, err);

	return r < 0 ? r : publish_begin(p, dir, err);
}

int translations_commit(
	struct publish *p, const char *key, const struct monitor_facts *monitor, struct err *err)
{
	char name[DIGEST_HEX_SIZE];
	int r;

	translations_name(key, monitor->version, name);
	r = publish_commit(p, name, 0400, err);
	return r < 0 ? r : artifact_seal(DIRECTORY, name, err);
}

int translations_verify(
	const char *key, const char *monitor_version, uint64_t *ret_bytes, struct err *err)
{
	char name[DIGEST_HEX_SIZE];

	translations_name(key, monitor_version, name);
	return artifact_verify(DIRECTORY, name, ret_bytes, err);
}
