/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARBAKE_BAKE_EXT4_READ_H
#define PARBAKE_BAKE_EXT4_READ_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/cleanup.h"
#include "common/digest.h"
#include "common/err.h"

/*
 * Reading an ext4 image with libext2fs: no mount, no root. The image may be hostile: depth, number of
 * entries and what is read are bounded. One thread at a time.
 */
struct ext4_image;

/* @fd is borrowed until ext4_image_free(). -EBADMSG: not an ext4 that libext2fs can read. */
int ext4_image_open(int fd, struct ext4_image **ret, struct err *err);
void ext4_image_free(struct ext4_image *img);
DEFINE_CLEANUP(struct ext4_image *, ext4_image_free)
#define cleanup_ext4_image cleanup_with(ext4_image_free_p_)

/* An entry that was found; borrowed while the callback runs. */
struct ext4_found {
	const char *path; /* absolute */
	const char *name; /* its last component */
	uint32_t ino;
	mode_t mode; /* with type bits */
	uid_t uid;
	gid_t gid;
	uint64_t bytes; /* of a regular file or symbolic link */
	uint32_t dev_major, dev_minor; /* of a device node */
};

/* A value other than 0 ends the walk. */
typedef int ext4_found_fn(void *user, const struct ext4_found *f);

/*
 * Call @fn for every entry below the root, directories before what they hold, in the order of the
 * paths' components by their bytes. Returns 0, what @fn returned, or -EBADMSG, -E2BIG.
 */
int ext4_image_walk(struct ext4_image *img, ext4_found_fn *fn, void *user, struct err *err);
/*
 * Read the regular file or symbolic link @ino, of at most @max bytes (-EFBIG), into fresh memory,
 * NUL-terminated. Caller frees *@ret.
 */
int ext4_image_read(struct ext4_image *img, uint32_t ino, size_t max, char **ret, size_t *ret_len,
	struct err *err);
/* The digest of what the regular file @ino holds. -EFBIG where it is larger than its image. */
int ext4_image_digest(
	struct ext4_image *img, uint32_t ino, char ret[static DIGEST_TEXT_SIZE], struct err *err);
/*
 * Do two regular files (of the same image, or of two) hold the same bytes? Their sizes must be the same and within their
 * images (-EFBIG).
 */
int ext4_image_same(struct ext4_image *a, uint32_t a_ino, struct ext4_image *b, uint32_t b_ino,
	bool *ret, struct err *err);
/*
 * The extended attributes of @ino, access control lists among them, as text: a line "NAME=VALUE" for each, sorted, the value in
 * hexadecimal digits. "" where it has none. Caller frees *@ret.
 */
int ext4_image_xattrs(struct ext4_image *img, uint32_t ino, char **ret, struct err *err);
/* The inode that @path (absolute, no link is followed) names. -ENOENT without an error text. */
int ext4_image_find(struct ext4_image *img, const char *path, uint32_t *ret);

#endif
