/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From libarchive's view of an entry to ext4's: names made into paths, and metadata checked for
 * what a Linux inode can hold. The numbers of users and groups count, and their names do not: only
 * the guest's own files could say which numbers belong to the names. Access control lists come out
 * of libarchive entry by entry and are put together in the form of the xattr system calls.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/source/unpack_private.h"

#define ACL_TAG_USER_OBJ 0x01
#define ACL_TAG_USER 0x02
#define ACL_TAG_GROUP_OBJ 0x04
#define ACL_TAG_GROUP 0x08
#define ACL_TAG_MASK 0x10
#define ACL_TAG_OTHER 0x20

struct acl_entry {
	uint32_t id;
	uint16_t tag, perm;
};

int unpack_path(const char *in, char ret[static LIMIT_PATH], struct err *err)
{
	size_t len = 0;
	unsigned depth = 0;

	if (!in || !*in)
		return err_set(err, EINVAL, "an entry without a name");
	for (const char *p = in; *p;) {
		size_t part = strcspn(p, "/");
		const char *next = p + part + strspn(p + part, "/");

		if (part == 2 && memcmp(p, "..", 2) == 0)
			return err_set(err, EINVAL, "%.256s: '..' in a name", in);
		if (part > 255)
			return err_set(err, ENAMETOOLONG,
				"%.64s…: a name of %zu bytes; 255 is the most", in, part);
		if (part > 0 && !(part == 1 && *p == '.')) {
			if (len + 1 + part >= LIMIT_PATH)
				return err_set(err, ENAMETOOLONG,
					"%.64s…: a path of more than %d bytes", in, LIMIT_PATH - 1);
			if (++depth > LIMIT_PATH_DEPTH)
				return err_set(err, ENAMETOOLONG,
					"%.64s…: more than %d directories deep", in,
					LIMIT_PATH_DEPTH);
			ret[len++] = '/';
			memcpy(ret + len, p, part);
			len += part;
		}
		p = next;
	}
	if (len == 0)
		ret[len++] = '/';
	ret[len] = '\0';
	return 0;
}

static int id_read(int64_t id, const char *what, uint32_t *ret, struct err *err)
{
	/* the highest is "no id" to Linux */
	if (id < 0 || id >= UINT32_MAX)
		return err_set(
			err, EINVAL, "%s %lld is not one that Linux has", what, (long long)id);
	*ret = (uint32_t)id;
	return 0;
}

static int by_tag(const void *a, const void *b)
{
	const struct acl_entry *x = a, *y = b;

	if (x->tag != y->tag)
		return x->tag < y->tag ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int acl_qualifier(
	int tag, int qualifier, const char *name, struct acl_entry *ret, struct err *err)
{
	char *end;

	ret->id = UINT32_MAX; /* ACL_UNDEFINED_ID */
	if (tag != ARCHIVE_ENTRY_ACL_USER && tag != ARCHIVE_ENTRY_ACL_GROUP)
		return 0;
	if (qualifier < 0 && name && *name) {
		unsigned long long number;

		errno = 0;
		number = strtoull(name, &end, 10);
		if (!*end && !errno && name[0] >= '0' && name[0] <= '9' && number < UINT32_MAX) {
			ret->id = (uint32_t)number;
			return 0;
		}
	}
	if (qualifier < 0)
		return err_set(err, EINVAL,
			"its access control list names \"%s\" without a number; "
			"make the archive with --numeric-owner",
			name ? name : "");
	ret->id = (uint32_t)qualifier;
	return 0;
}

static int acl_tag(int tag)
{
	switch (tag) {
	case ARCHIVE_ENTRY_ACL_USER_OBJ:
		return ACL_TAG_USER_OBJ;
	case ARCHIVE_ENTRY_ACL_USER:
		return ACL_TAG_USER;
	case ARCHIVE_ENTRY_ACL_GROUP_OBJ:
		return ACL_TAG_GROUP_OBJ;
	case ARCHIVE_ENTRY_ACL_GROUP:
		return ACL_TAG_GROUP;
	case ARCHIVE_ENTRY_ACL_MASK:
		return ACL_TAG_MASK;
	case ARCHIVE_ENTRY_ACL_OTHER:
		return ACL_TAG_OTHER;
	default:
		return 0;
	}
}

/*
 * The list of @type into @buf; *@ret_len 0 where there is none. The access list's mask is the
 * mode's group bits, as with setxattr(2).
 */
static int acl_read(struct archive_entry *entry, int type, unsigned char *buf, size_t *ret_len,
	mode_t *mode, struct err *err)
{
	struct acl_entry list[UNPACK_ACL_ENTRIES_MAX];
	int r, rtype, perm, tag, qualifier;
	const char *name;
	size_t n = 0;

	*ret_len = 0;
	if (archive_entry_acl_reset(entry, type) == 0)
		return 0;
	while ((r = archive_entry_acl_next(entry, type, &rtype, &perm, &tag, &qualifier, &name)) ==
		ARCHIVE_OK) {
		if (n == UNPACK_ACL_ENTRIES_MAX)
			return err_set(err, E2BIG, "an access control list of more than %d entries",
				UNPACK_ACL_ENTRIES_MAX);
		r = acl_qualifier(tag, qualifier, name, &list[n], err);
		if (r < 0)
			return r;
		list[n].tag = acl_tag(tag);
		list[n].perm = perm & 7;
		if (!list[n].tag)
			return err_set(
				err, EOPNOTSUPP, "an access control list that is not POSIX.1e's");
		if (type == ARCHIVE_ENTRY_ACL_TYPE_ACCESS && list[n].tag == ACL_TAG_MASK)
			*mode = (*mode & ~(mode_t)070) | list[n].perm << 3;
		n++;
	}
	if (r != ARCHIVE_EOF && r != ARCHIVE_WARN)
		return err_set(err, EINVAL, "an access control list that cannot be read");
	qsort(list, n, sizeof(list[0]), by_tag);
	memcpy(buf, (unsigned char[]){2, 0, 0, 0}, 4);
	for (size_t i = 0; i < n; i++) {
		uint16_t t = htole16(list[i].tag), p = htole16(list[i].perm);
		uint32_t id = htole32(list[i].id);

		memcpy(buf + 4 + i * 8, &t, 2);
		memcpy(buf + 4 + i * 8 + 2, &p, 2);
		memcpy(buf + 4 + i * 8 + 4, &id, 4);
	}
	*ret_len = 4 + n * 8;
	return 0;
}

static int acls_read(struct archive_entry *entry, struct unpack_meta *out, struct err *err)
{
	static const struct {
		int type;
		const char *name;
	} kinds[2] = {
		{ARCHIVE_ENTRY_ACL_TYPE_ACCESS, "system.posix_acl_access"},
		{ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, "system.posix_acl_default"},
	};

	if (archive_entry_acl_types(entry) & ARCHIVE_ENTRY_ACL_TYPE_NFS4)
		return err_set(err, EOPNOTSUPP,
			"an NFSv4 access control list, which ext4 has no room for");
	for (int i = 0; i < 2; i++) {
		size_t len;
		int r = acl_read(entry, kinds[i].type, out->acl[i], &len, &out->meta.mode, err);

		if (r < 0)
			return r;
		if (len == 0)
			continue;
		out->xattrs[out->meta.n_xattrs++] = (struct ext4_xattr){
			.name = kinds[i].name, .value = out->acl[i], .len = len};
	}
	return 0;
}

static bool xattr_known(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 ||
		strncmp(name, "security.", 9) == 0 ||
		strncmp(name, "system.posix_acl_", strlen("system.posix_acl_")) == 0;
}

static int xattrs_read(struct archive_entry *entry, struct unpack_meta *out, struct err *err)
{
	const char *name;
	const void *value;
	size_t len;

	archive_entry_xattr_reset(entry);
	while (archive_entry_xattr_next(entry, &name, &value, &len) == ARCHIVE_OK) {
		if (!name || !xattr_known(name)) {
			out->xattrs_skipped++;
			continue;
		}
		/* two are kept free for access control lists */
		if (out->meta.n_xattrs >= UNPACK_XATTRS_MAX - 2)
			return err_set(err, E2BIG, "more than %d extended attributes",
				UNPACK_XATTRS_MAX - 2);
		out->xattrs[out->meta.n_xattrs++] =
			(struct ext4_xattr){.name = name, .value = value, .len = len};
	}
	return 0;
}

static void times_read(struct archive_entry *entry, int64_t clamp_mtime_s, struct ext4_meta *meta)
{
	long ns = archive_entry_mtime_nsec(entry);

	meta->mtime_s = archive_entry_mtime_is_set(entry) ? archive_entry_mtime(entry) : 0;
	meta->mtime_ns = ns > 0 && ns < 1000000000 ? (uint32_t)ns : 0;
	if (meta->mtime_s >= clamp_mtime_s) {
		meta->mtime_s = clamp_mtime_s;
		meta->mtime_ns = 0;
	}
}

int unpack_meta_read(struct archive_entry *entry, int64_t clamp_mtime_s, struct unpack_meta *out,
	struct err *err)
{
	struct ext4_meta *meta = &out->meta;
	unsigned long set = 0, clear = 0;
	int r;

	memset(meta, 0, sizeof(*meta));
	meta->xattrs = out->xattrs;
	meta->mode = archive_entry_filetype(entry) | (archive_entry_perm(entry) & 07777);
	r = id_read(archive_entry_uid(entry), "owner", &meta->uid, err);
	if (r == 0)
		r = id_read(archive_entry_gid(entry), "group", &meta->gid, err);
	if (r < 0)
		return r;
	times_read(entry, clamp_mtime_s, meta);
	if (S_ISCHR(meta->mode) || S_ISBLK(meta->mode)) {
		meta->rdev_major = archive_entry_rdevmajor(entry);
		meta->rdev_minor = archive_entry_rdevminor(entry);
	}
	archive_entry_fflags(entry, &set, &clear);
	meta->flags = set & EXT4_META_FLAGS;
	r = xattrs_read(entry, out, err);
	return r < 0 ? r : acls_read(entry, out, err);
}
