/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata K=V is the extended attribute user.e2b.K, as E2B's SDKs have it. Only regular files and directories
 * can have such ones. Attributes that others set under these names are told, too, as far as they fit.
 */
#include "agent/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "agent/agent.h"
#include "agent/root.h"
#include "agent/user.h"

#define METADATA_PREFIX "user.e2b."
#define METADATA_PREFIX_LEN (sizeof(METADATA_PREFIX) - 1)
#define NAMES_MAX (64u << 10) /* XATTR_LIST_MAX */

static void stat_fill(const struct stat *st, struct proto_stat *ret)
{
	*ret = (struct proto_stat){.size = (uint64_t)st->st_size,
		.mtime_ns = st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.nlink = (uint32_t)st->st_nlink};
	user_id_name(false, ret->uid, ret->owner, sizeof(ret->owner));
	user_id_name(true, ret->gid, ret->group, sizeof(ret->group));
}

/* What the symbolic link @path leads to: its mode into @stat, its path as a length in @ret; 0: nothing. */
static uint16_t link_target(const char *path, struct proto_stat *stat, char ret[PROTO_PATH_MAX + 1])
{
	int fd = root_open(path, O_PATH, 0);
	char self[64];
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) == 0)
		n = readlink(self, ret, PROTO_PATH_MAX);
	close(fd);
	if (n <= 0)
		return 0;
	stat->target_mode = st.st_mode;
	return (uint16_t)n;
}

static void metadata_fill(struct entry *e, const char *self)
{
	static char names[NAMES_MAX];
	ssize_t len = listxattr(self, names, sizeof(names));

	for (const char *name = names; len > 0 && name < names + len; name += strlen(name) + 1) {
		const char *key = name + METADATA_PREFIX_LEN;
		char *to = e->metadata + e->stat.metadata_len;
		size_t room = sizeof(e->metadata) - e->stat.metadata_len, key_len;
		ssize_t n;

		if (strncmp(name, METADATA_PREFIX, METADATA_PREFIX_LEN) != 0 || !*key ||
			strchr(key, '='))
			continue;
		key_len = strlen(key);
		if (key_len + 2 > room)
			continue;
		n = getxattr(self, name, to + key_len + 1, room - key_len - 2);
		if (n < 0 || memchr(to + key_len + 1, 0, (size_t)n))
			continue;
		memcpy(to, key, key_len);
		to[key_len] = '=';
		to[key_len + 1 + (size_t)n] = '\0';
		e->stat.metadata_len += (uint32_t)(key_len + 2 + (size_t)n);
	}
}

void entry_fill(struct entry *ret, const char *path, const char *self, const struct stat *st)
{
	stat_fill(st, &ret->stat);
	ret->link_len = S_ISLNK(st->st_mode) ? link_target(path, &ret->stat, ret->link) : 0;
	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))
		metadata_fill(ret, self);
}

int entry_mark(int fd, char *const *pairs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const char *equals = strchr(pairs[i], '=');
		char name[XATTR_NAME_MAX + 1];

		if (!equals || equals == pairs[i])
			return -EINVAL;
		if (snprintf(name, sizeof(name), METADATA_PREFIX "%.*s", (int)(equals - pairs[i]),
			    pairs[i]) >= (int)sizeof(name))
			return -ENAMETOOLONG;
		if (fsetxattr(fd, name, equals + 1, strlen(equals + 1), 0) < 0)
			return -errno;
	}
	return 0;
}
