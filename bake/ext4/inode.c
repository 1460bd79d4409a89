/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inodes. Numbers are given out in rising order from a cursor, so the used part of the inode tables
 * is one stretch and all groups behind it stay uninitialised. An inode that is dropped gives back
 * its extended attributes, its blocks (which become holes) and its number, and is zeroed.
 * In a full image entries have inode 0 and nothing here touches the disk.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/ext4/ext4_private.h"

int ext4_inode_alloc(struct ext4 *fs, bool is_dir, uint32_t *ret)
{
	ext2_filsys lib = fs->lib;
	uint32_t last = lib->super->s_inodes_count;
	ext2_ino_t ino;

	if (!ext4_full(fs) &&
		((fs->inode_cursor <= last &&
			 !ext2fs_find_first_zero_inode_bitmap2(
				 lib->inode_map, fs->inode_cursor, last, &ino)) ||
			!ext2fs_find_first_zero_inode_bitmap2(
				lib->inode_map, EXT2_FIRST_INODE(lib->super), last, &ino))) {
		ext2fs_inode_alloc_stats2(lib, ino, +1, is_dir);
		fs->inode_cursor = ino + 1;
		*ret = ino;
		return 0;
	}
	fs->short_inodes++;
	*ret = 0;
	return 0;
}

int ext4_inode_read(struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode, const char *path,
	struct err *err)
{
	errcode_t rc = ext2fs_read_inode_full(fs->lib, ino, (struct ext2_inode *)inode, EXT4_INODE);

	return rc ? ext4_lib_error(err, rc, "%s: reading inode %u", path, ino) : 0;
}

int ext4_inode_write(struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode,
	const char *path, struct err *err)
{
	errcode_t rc;

	if (ext4_full(fs))
		return 0;
	rc = ext2fs_write_inode_full(fs->lib, ino, (struct ext2_inode *)inode, EXT4_INODE);
	return rc ? ext4_lib_error(err, rc, "%s: writing inode %u", path, ino) : 0;
}

/* Seconds as ext4 holds them: 34 bits from 1901 to 2446, nanoseconds beside the upper two. */
static void time_put(int64_t s, uint32_t ns, uint32_t *ret, uint32_t *ret_extra)
{
	const int64_t min = INT32_MIN, max = min + (1LL << 34) - 1;

	s = s < min ? min : s > max ? max : s;
	*ret = (uint32_t)s;
	*ret_extra = (uint32_t)(((s - (int32_t)s) >> 32) & 3) | ns << 2;
}

void ext4_inode_fill(struct ext4 *fs, struct ext2_inode_large *inode, const struct ext4_meta *meta)
{
	uint32_t major = meta->rdev_major, minor = meta->rdev_minor;

	memset(inode, 0, EXT4_INODE);
	inode->i_mode = meta->mode;
	inode->i_uid = meta->uid & 0xffff;
	inode->osd2.linux2.l_i_uid_high = meta->uid >> 16;
	inode->i_gid = meta->gid & 0xffff;
	inode->osd2.linux2.l_i_gid_high = meta->gid >> 16;
	inode->i_links_count = 1;
	inode->i_flags = meta->flags & EXT4_META_FLAGS;
	inode->i_extra_isize = fs->lib->super->s_want_extra_isize;
	time_put(meta->mtime_s, meta->mtime_ns, &inode->i_mtime, &inode->i_mtime_extra);
	inode->i_atime = inode->i_mtime;
	inode->i_atime_extra = inode->i_mtime_extra;
	time_put(fs->time, 0, &inode->i_ctime, &inode->i_ctime_extra);
	inode->i_crtime = inode->i_ctime;
	inode->i_crtime_extra = inode->i_ctime_extra;
	if (!S_ISCHR(meta->mode) && !S_ISBLK(meta->mode))
		return;
	/* the kernel's two encodings: include/linux/kdev_t.h */
	if (major < 256 && minor < 256)
		inode->i_block[0] = major << 8 | minor;
	else
		inode->i_block[1] = (minor & 0xff) | major << 8 | (minor & ~0xffU) << 12;
}

int ext4_inode_xattrs(struct ext4 *fs, uint32_t ino, const struct ext4_meta *meta, const char *path,
	struct err *err)
{
	struct ext2_xattr_handle *handle = NULL;
	errcode_t rc;

	if (meta->n_xattrs == 0 || ext4_full(fs))
		return 0;
	rc = ext2fs_xattrs_open(fs->lib, ino, &handle);
	for (size_t i = 0; !rc && i < meta->n_xattrs; i++) {
		const struct ext4_xattr *x = &meta->xattrs[i];

		rc = ext2fs_xattr_set(handle, x->name, x->value, x->len);
		if (rc == EXT2_ET_EA_NO_SPACE)
			err_set(err, ENOSPC,
				"%s: its extended attributes (up to %s) are more than the %u bytes "
				"that an inode can have",
				path, x->name, EXT4_BLOCK);
	}
	if (handle)
		ext2fs_xattrs_close(&handle);
	if (rc == EXT2_ET_BLOCK_ALLOC_FAIL) {
		fs->short_blocks++;
		return 0;
	}
	if (rc == EXT2_ET_EA_NO_SPACE)
		return -E2BIG;
	return rc ? ext4_lib_error(err, rc, "%s: writing its extended attributes", path) : 0;
}

int ext4_inode_drop_xattrs(struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode,
	const char *path, struct err *err)
{
	uint64_t block = ext2fs_file_acl_block(fs->lib, (struct ext2_inode *)inode);
	errcode_t rc = ext2fs_free_ext_attr(fs->lib, ino, inode);

	if (rc)
		return ext4_lib_error(err, rc, "%s: freeing its extended attributes", path);
	if (block)
		ext4_io_discard(fs->fd, block, 1);
	return 0;
}

/*
 * Gathers the blocks of a file, tree blocks too. They are given back after the walk: it reads a
 * tree block after it has told of it.
 */
struct gather {
	struct ext4_runs runs;
	uint64_t n;
};

static int gather_block(ext2_filsys lib, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_block,
	int ref_offset, void *arg)
{
	struct gather *gather = arg;

	(void)lib, (void)logical, (void)ref_block, (void)ref_offset;
	ext4_runs_add(&gather->runs, gather->n++, *block, 1);
	return 0;
}

static int inode_free(
	struct ext4 *fs, uint32_t ino, struct ext2_inode_large *inode, bool is_dir, struct err *err)
{
	struct gather gather = {.n = 0};
	int r = ext4_inode_drop_xattrs(fs, ino, inode, "a replaced entry", err);

	if (r < 0)
		return r;
	if (ext2fs_inode_has_valid_blocks2(fs->lib, (struct ext2_inode *)inode)) {
		errcode_t rc = ext2fs_block_iterate3(
			fs->lib, ino, BLOCK_FLAG_READ_ONLY, NULL, gather_block, &gather);

		for (size_t i = 0; !rc && i < gather.runs.n; i++)
			ext4_blocks_release(
				fs, gather.runs.items[i].physical, gather.runs.items[i].count);
		free(gather.runs.items);
		if (rc)
			return ext4_lib_error(err, rc, "freeing the blocks of inode %u", ino);
	}
	memset(inode, 0, EXT4_INODE);
	ext2fs_inode_alloc_stats2(fs->lib, ino, -1, is_dir);
	return ext4_inode_write(fs, ino, inode, "a replaced entry", err);
}

int ext4_inode_drop(struct ext4 *fs, uint32_t ino, bool is_dir, struct err *err)
{
	uint64_t raw[EXT4_INODE / sizeof(uint64_t)];
	struct ext2_inode_large *inode = (struct ext2_inode_large *)raw;
	int r;

	if (ino == 0 || ext4_full(fs))
		return 0;
	r = ext4_inode_read(fs, ino, inode, "a replaced entry", err);
	if (r < 0)
		return r;
	if (!is_dir && inode->i_links_count > 1) {
		inode->i_links_count--;
		return ext4_inode_write(fs, ino, inode, "a replaced entry", err);
	}
	return inode_free(fs, ino, inode, is_dir, err);
}
