/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_EXT4_EXT4_H
#define PARBAKE_BAKE_EXT4_EXT4_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cleanup.h"
#include "common/err.h"

/*
 * An ext4 image written with libext2fs: no mount, no root. The same calls in the same order give
 * the same bytes: UUID, hash seed and creation times come from ext4_options. One thread at a
 * time.
 */
struct ext4;

struct ext4_options {
	uint64_t bytes; /* of the image, multiple of 4 KiB */
	uint64_t inodes; /* at least this many; 0: by size */
	int64_t time; /* SOURCE_DATE_EPOCH: creation time, and of inodes that bring none */
	uint8_t uuid[16];
	uint8_t hash_seed[16];
	const char *label; /* ≤ 16 bytes */
};

/* What an entry carries besides its content. */
struct ext4_meta {
	mode_t mode; /* with type bits */
	uid_t uid;
	gid_t gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t rdev_major, rdev_minor; /* device nodes */
	const struct ext4_xattr {
		const char *name; /* full: "security.capability", "system.posix_acl_access" */
		const void *value;
		size_t len;
	} * xattrs;
	size_t n_xattrs;
	uint32_t flags; /* of chattr(1), FS_…_FL: those in EXT4_META_FLAGS are kept */
};

/*
 * Synchronous, immutable, append only, no dump, no access times: the flags that an archive may
 * set.
 */
#define EXT4_META_FLAGS 0x000000f8U

/*
 * Make a file system in @fd (a regular file, truncated to size here; sparse). Owned by the
 * caller.
 */
int ext4_create(int fd, const struct ext4_options *opt, struct ext4 **ret, struct err *err);

/*
 * Add entries by absolute path. Parents that are not there are made root:root 0755. What is there
 * already is replaced as an archive extractor would (a directory's metadata is set anew; a
 * non-directory is unlinked first; a directory with entries is not replaced by something else:
 * -EISDIR). No component is ever followed through a symbolic link: one in the middle of a path is
 * -ENOTDIR. Every error names the path. While a file is open other entries are -EBUSY; extended
 * attributes that do not fit into inode and one block are -E2BIG, namespaces that Linux does not
 * have -EOPNOTSUPP.
 */
int ext4_add_dir(struct ext4 *fs, const char *path, const struct ext4_meta *meta, struct err *err);
int ext4_add_symlink(struct ext4 *fs, const char *path, const char *target,
	const struct ext4_meta *meta, struct err *err);
int ext4_add_node(struct ext4 *fs, const char *path, const struct ext4_meta *meta, struct err *err);
int ext4_add_hardlink(struct ext4 *fs, const char *path, const char *existing, struct err *err);
/*
 * A file: begin, then write data in rising order of offset (gaps are holes), then end with the
 * full size.
 */
int ext4_file_begin(
	struct ext4 *fs, const char *path, const struct ext4_meta *meta, struct err *err);
int ext4_file_write(
	struct ext4 *fs, uint64_t offset, const void *data, size_t len, struct err *err);
int ext4_file_end(struct ext4 *fs, uint64_t size, struct err *err);

struct ext4_stats {
	uint64_t entries;
	uint64_t blocks_used_bytes, blocks_free_bytes, inodes_used, inodes_free;
};

/*
 * Index large directories, set times, write all, fsync; @ret may be NULL. An image that turns out
 * too small is told here, with what is needed at least (bytes, inodes): the calls before succeed
 * once it is full, write nothing more and only count (up to 64 GiB, then ext4_file_write() is
 * -ENOSPC). @fs is freed on success and failure.
 */
int ext4_finish(struct ext4 *fs, struct ext4_stats *ret, struct err *err);
void ext4_abort(struct ext4 *fs); /* NULL is allowed */

#endif
