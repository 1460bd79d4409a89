/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_SOURCE_UNPACK_PRIVATE_H
#define PARBAKE_BAKE_SOURCE_UNPACK_PRIVATE_H

/* What the files of the unpack family share; nobody else includes this. */
#include <archive.h>
#include <archive_entry.h>

#include "bake/ext4/ext4.h"
#include "bake/source/unpack.h"
#include "common/err.h"
#include "common/limits.h"

#define UNPACK_XATTRS_MAX 256
#define UNPACK_ACL_ENTRIES_MAX 1024

/* An entry's metadata, with what its pointers point to. Zeroed once, then used for all entries. */
struct unpack_meta {
	struct ext4_meta meta;
	struct ext4_xattr xattrs[UNPACK_XATTRS_MAX];
	unsigned char acl[2][4 + 8 * UNPACK_ACL_ENTRIES_MAX]; /* access, default */
	uint64_t xattrs_skipped; /* of namespaces that ext4 does not know, so far */
};

/*
 * Turn the name @in of an archive's entry into an absolute path: "./" and "/" in front, "//" and
 * "/./" are tidied away. -EINVAL for ".." and an empty name, -ENAMETOOLONG past LIMIT_PATH, 255
 * bytes a component or LIMIT_PATH_DEPTH.
 */
int unpack_path(const char *in, char ret[static LIMIT_PATH], struct err *err);

/*
 * Read @entry's metadata; a later time than @clamp_mtime_s becomes that one. @out's pointers are
 * good until @entry or @out is used again.
 */
int unpack_meta_read(struct archive_entry *entry, int64_t clamp_mtime_s, struct unpack_meta *out,
	struct err *err);

#endif
