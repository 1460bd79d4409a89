/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adding entries. The path is walked in memory (tree.c), an entry that was there is
 * removed, an inode is written, and the name is added to its directory. Everything that can be
 * wrong with an entry is checked before anything is changed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bake/ext4/ext4_private.h"
#include "common/limits.h"
#include "common/str.h"

#define FAST_LINK 60U /* bytes of i_block; a target shorter than that lies there */

union inode_buf {
	struct ext2_inode_large inode;
	uint64_t raw[EXT4_INODE / sizeof(uint64_t)];
};

/* Where an entry goes. */
struct place {
	struct ext4_dir *dir;
	const char *name;
	size_t len;
};

static uint8_t type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return EXT2_FT_REG_FILE;
	case S_IFDIR:
		return EXT2_FT_DIR;
	case S_IFLNK:
		return EXT2_FT_SYMLINK;
	case S_IFCHR:
		return EXT2_FT_CHRDEV;
	case S_IFBLK:
		return EXT2_FT_BLKDEV;
	case S_IFIFO:
		return EXT2_FT_FIFO;
	case S_IFSOCK:
		return EXT2_FT_SOCK;
	default:
		return EXT2_FT_UNKNOWN;
	}
}

static int meta_check(const struct ext4_meta *meta, const char *path, struct err *err)
{
	if (meta->mtime_ns >= 1000000000)
		return err_set(err, EINVAL, "%s: a time with %u ns", path, meta->mtime_ns);
	if ((S_ISCHR(meta->mode) || S_ISBLK(meta->mode)) &&
		(meta->rdev_major > 0xfff || meta->rdev_minor > 0xfffff))
		return err_set(err, EINVAL, "%s: a device %u:%u; Linux has up to 4095:1048575",
			path, meta->rdev_major, meta->rdev_minor);
	return ext4_xattrs_check(meta, path, err);
}

/* An entry that is no directory with entries. */
static int drop_entry(struct ext4 *fs, struct ext4_dir *dir, struct ext4_entry *entry,
	const char *path, struct err *err)
{
	int r;

	if (entry->dir && entry->dir->min_blocks)
		return err_set(err, EBUSY, "%s: belongs to the file system and must stay", path);
	r = ext4_inode_drop(fs, entry->ino, entry->dir, err);
	if (r < 0) {
		err_prefix(err, "%s", path);
		return r;
	}
	ext4_dir_delete(dir, entry);
	return 0;
}

/* Find the place of a new entry that is not a directory and clear it. */
static int place_clear(struct ext4 *fs, const char *path, struct place *ret, struct err *err)
{
	struct ext4_entry *old;
	int r;

	if (fs->open.path)
		return err_set(err, EBUSY, "%s: %s is still being written", path, fs->open.path);
	r = ext4_walk(fs, path, true, &ret->dir, &ret->name, &ret->len, err);
	if (r < 0)
		return r;
	if (ret->len == 0)
		return err_set(err, EISDIR, "%s: the root can only be a directory", path);
	old = ext4_dir_find(ret->dir, ret->name, ret->len);
	if (old && old->dir && old->dir->n_entries)
		return err_set(err, EISDIR, "%s: a directory with entries is there already", path);
	return old ? drop_entry(fs, ret->dir, old, path, err) : 0;
}

/* Write a new inode with its xattrs; @inode is afterwards as on disk. */
static int inode_new(struct ext4 *fs, const char *path, const struct ext4_meta *meta,
	struct ext2_inode_large *inode, bool is_dir, uint32_t *ret, struct err *err)
{
	int r = ext4_inode_alloc(fs, is_dir, ret);

	if (r < 0 || ext4_full(fs))
		return r;
	r = ext4_inode_write(fs, *ret, inode, path, err);
	if (r == 0 && meta->n_xattrs) {
		r = ext4_inode_xattrs(fs, *ret, meta, path, err);
		if (r == 0 && !ext4_full(fs))
			r = ext4_inode_read(fs, *ret, inode, path, err);
	}
	return r;
}

/* New metadata for a directory that is there; its size and blocks are set at the end. */
static int dir_again(struct ext4 *fs, const char *path, uint32_t ino, const struct ext4_meta *meta,
	struct err *err)
{
	union inode_buf buf;
	int r;

	if (ext4_full(fs) || ino == 0)
		return 0;
	r = ext4_inode_read(fs, ino, &buf.inode, path, err);
	if (r == 0)
		r = ext4_inode_drop_xattrs(fs, ino, &buf.inode, path, err);
	if (r < 0)
		return r;
	ext4_inode_fill(fs, &buf.inode, meta);
	r = ext4_inode_write(fs, ino, &buf.inode, path, err);
	return r < 0 ? r : ext4_inode_xattrs(fs, ino, meta, path, err);
}

int ext4_add_dir(struct ext4 *fs, const char *path, const struct ext4_meta *meta, struct err *err)
{
	struct ext4_entry *old;
	union inode_buf buf;
	struct place place = {0};
	uint32_t ino;
	int r;

	if (!S_ISDIR(meta->mode))
		return err_set(err, EINVAL, "%s: mode %o is not a directory's", path, meta->mode);
	r = meta_check(meta, path, err);
	if (r == 0)
		r = ext4_walk(fs, path, true, &place.dir, &place.name, &place.len, err);
	if (r < 0)
		return r;
	if (place.len == 0)
		return dir_again(fs, path, fs->root->ino, meta, err);
	old = ext4_dir_find(place.dir, place.name, place.len);
	if (old && old->dir)
		return dir_again(fs, path, old->ino, meta, err);
	r = place_clear(fs, path, &place, err);
	if (r < 0)
		return r;
	ext4_inode_fill(fs, &buf.inode, meta);
	r = inode_new(fs, path, meta, &buf.inode, true, &ino, err);
	if (r < 0)
		return r;
	ext4_dir_insert(
		place.dir, place.name, place.len, ino, EXT2_FT_DIR, ext4_dir_new(ino, place.dir));
	return 0;
}

/* A target that does not fit into the inode gets a block. */
static int target_store(struct ext4 *fs, const char *path, const char *target, size_t len,
	uint32_t ino, struct ext2_inode_large *inode, struct err *err)
{
	char block[EXT4_BLOCK] = {0};
	struct ext4_runs runs = {.n = 0};
	uint64_t first, count;
	int r;

	if (len < FAST_LINK) {
		memcpy(inode->i_block, target, len);
		return 0;
	}
	memcpy(block, target, len);
	ext4_blocks_take(fs, 1, &first, &count);
	if (ext4_full(fs))
		return 0;
	r = ext4_io_write_data(fs->fd, first, block, 1);
	if (r < 0)
		return err_sys(err, -r, "%s: writing the image", path);
	ext4_runs_add(&runs, 0, first, 1);
	r = ext4_runs_store(fs, &runs, ino, inode, path, err);
	free(runs.items);
	return r;
}

int ext4_add_symlink(struct ext4 *fs, const char *path, const char *target,
	const struct ext4_meta *meta, struct err *err)
{
	size_t len = strlen(target);
	struct ext4_meta link = *meta;
	union inode_buf buf;
	struct place place = {0};
	uint32_t ino;
	int r;

	link.mode = S_IFLNK | 0777;
	link.flags = 0;
	if (len == 0 || len >= EXT4_BLOCK)
		return err_set(err, len ? ENAMETOOLONG : EINVAL,
			"%s: a symbolic link's target of %zu bytes", path, len);
	r = meta_check(&link, path, err);
	if (r == 0)
		r = place_clear(fs, path, &place, err);
	if (r < 0)
		return r;
	ext4_inode_fill(fs, &buf.inode, &link);
	r = ext4_inode_alloc(fs, false, &ino);
	if (r == 0)
		r = target_store(fs, path, target, len, ino, &buf.inode, err);
	buf.inode.i_size = len;
	if (r == 0)
		r = ext4_inode_write(fs, ino, &buf.inode, path, err);
	if (r == 0)
		r = ext4_inode_xattrs(fs, ino, &link, path, err);
	if (r < 0)
		return r;
	ext4_dir_insert(place.dir, place.name, place.len, ino, EXT2_FT_SYMLINK, NULL);
	return 0;
}

int ext4_add_node(struct ext4 *fs, const char *path, const struct ext4_meta *meta, struct err *err)
{
	uint8_t type = type_of(meta->mode);
	union inode_buf buf;
	struct place place = {0};
	uint32_t ino;
	int r;

	if (type != EXT2_FT_CHRDEV && type != EXT2_FT_BLKDEV && type != EXT2_FT_FIFO &&
		type != EXT2_FT_SOCK)
		return err_set(err, EINVAL, "%s: mode %o is not a device's, a pipe's or a socket's",
			path, meta->mode);
	r = meta_check(meta, path, err);
	if (r == 0)
		r = place_clear(fs, path, &place, err);
	if (r < 0)
		return r;
	ext4_inode_fill(fs, &buf.inode, meta);
	buf.inode.i_flags = 0;
	r = inode_new(fs, path, meta, &buf.inode, false, &ino, err);
	if (r < 0)
		return r;
	ext4_dir_insert(place.dir, place.name, place.len, ino, type, NULL);
	return 0;
}

/* One more name for @ino. */
static int link_count(
	struct ext4 *fs, uint32_t ino, const char *path, const char *existing, struct err *err)
{
	union inode_buf buf;
	int r;

	if (ext4_full(fs) || ino == 0)
		return 0;
	r = ext4_inode_read(fs, ino, &buf.inode, path, err);
	if (r < 0)
		return r;
	if (buf.inode.i_links_count >= EXT4_LINKS)
		return err_set(err, EMLINK, "%s: %s has %u hard links already", path, existing,
			EXT4_LINKS);
	buf.inode.i_links_count++;
	return ext4_inode_write(fs, ino, &buf.inode, path, err);
}

int ext4_add_hardlink(struct ext4 *fs, const char *path, const char *existing, struct err *err)
{
	struct ext4_entry *target, *old;
	struct place place = {0};
	uint32_t ino;
	uint8_t type;
	int r;

	if (fs->open.path)
		return err_set(err, EBUSY, "%s: %s is still being written", path, fs->open.path);
	r = ext4_walk(fs, existing, false, &place.dir, &place.name, &place.len, err);
	target = r < 0 ? NULL : ext4_dir_find(place.dir, place.name, place.len);
	if (r == -ENOENT || (r == 0 && place.len && !target))
		return err_set(err, ENOENT, "%s: a hard link to %s, which is not there (yet)", path,
			existing);
	if (r < 0) {
		err_prefix(err, "%s: a hard link", path);
		return r;
	}
	if (!target || target->dir)
		return err_set(err, EPERM, "%s: a hard link to %s, a directory", path, existing);
	r = ext4_walk(fs, path, true, &place.dir, &place.name, &place.len, err);
	if (r < 0)
		return r;
	old = ext4_dir_find(place.dir, place.name, place.len);
	if (old && (old == target || (old->ino && old->ino == target->ino)))
		return 0; /* it is that link already */
	/* counted first: clearing the place must not drop the last name of the target */
	ino = target->ino;
	type = target->type;
	r = link_count(fs, ino, path, existing, err);
	if (r < 0)
		return r;
	r = place_clear(fs, path, &place, err);
	if (r < 0) {
		ext4_inode_drop(fs, ino, false, NULL);
		return r;
	}
	ext4_dir_insert(place.dir, place.name, place.len, ino, type, NULL);
	return 0;
}

int ext4_file_begin(
	struct ext4 *fs, const char *path, const struct ext4_meta *meta, struct err *err)
{
	struct ext4_open *open = &fs->open;
	struct place place = {0};
	int r;

	if (!S_ISREG(meta->mode))
		return err_set(err, EINVAL, "%s: mode %o is not a file's", path, meta->mode);
	r = meta_check(meta, path, err);
	if (r == 0)
		r = place_clear(fs, path, &place, err);
	if (r < 0)
		return r;
	ext4_inode_fill(fs, open->inode, meta);
	if (meta->n_xattrs)
		r = inode_new(fs, path, meta, open->inode, false, &open->ino, err);
	else
		r = ext4_inode_alloc(fs, false, &open->ino);
	if (r < 0)
		return r;
	ext4_dir_insert(place.dir, place.name, place.len, open->ino, EXT2_FT_REG_FILE, NULL);
	open->path = str_dup(path);
	return 0;
}
