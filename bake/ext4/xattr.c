/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes are checked before libext2fs sees them. Their names must be in a namespace
 * that ext4 has an index for. Access control lists must be in the form of the xattr system calls
 * (version 2, eight bytes an entry: include/uapi/linux/posix_acl_xattr.h), which libext2fs turns
 * into ext4's own form without looking at their length.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"
#include "common/limits.h"

static bool acl_valid(const unsigned char *p, size_t len)
{
	uint32_t version;

	if (len < 4 + 8 || (len - 4) % 8)
		return false;
	memcpy(&version, p, sizeof(version));
	if (le32toh(version) != 2)
		return false;
	for (size_t at = 4; at < len; at += 8) {
		unsigned tag = p[at] | p[at + 1] << 8, perm = p[at + 2] | p[at + 3] << 8;

		if (perm > 7)
			return false;
		switch (tag) {
		case 0x01: /* ACL_USER_OBJ */
		case 0x02: /* ACL_USER */
		case 0x04: /* ACL_GROUP_OBJ */
		case 0x08: /* ACL_GROUP */
		case 0x10: /* ACL_MASK */
		case 0x20: /* ACL_OTHER */
			break;
		default:
			return false;
		}
	}
	return true;
}

static bool is_acl(const char *name)
{
	return strcmp(name, "system.posix_acl_access") == 0 ||
		strcmp(name, "system.posix_acl_default") == 0;
}

static int xattr_check(const struct ext4_xattr *x, const char *path, struct err *err)
{
	static const char *const spaces[] = {"user.", "trusted.", "security."};

	if (is_acl(x->name)) {
		if (!acl_valid(x->value, x->len))
			return err_set(
				err, EINVAL, "%s: %s: not an access control list", path, x->name);
		return 0;
	}
	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		size_t len = strlen(spaces[i]);

		if (strncmp(x->name, spaces[i], len))
			continue;
		if (x->name[len] == 0 || strlen(x->name + len) > EXT4_NAME)
			return err_set(err, EINVAL, "%s: an extended attribute's name of %zu bytes",
				path, strlen(x->name));
		return 0;
	}
	return err_set(err, EOPNOTSUPP,
		"%s: extended attribute %.64s: ext4 knows user., trusted., "
		"security. and the two access control lists",
		path, x->name);
}

int ext4_xattrs_check(const struct ext4_meta *meta, const char *path, struct err *err)
{
	size_t total = 0;

	for (size_t i = 0; i < meta->n_xattrs; i++) {
		int r = xattr_check(&meta->xattrs[i], path, err);

		if (r < 0)
			return r;
		total += strlen(meta->xattrs[i].name) + meta->xattrs[i].len;
		if (total > LIMIT_XATTR_BYTES || meta->xattrs[i].len > LIMIT_XATTR_BYTES)
			return err_set(err, E2BIG, "%s: more than %lu bytes of extended attributes",
				path, LIMIT_XATTR_BYTES);
	}
	return 0;
}
