/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories on disk. They get their blocks at the very end, when all names are known: one block,
 * with the names in order of arrival, where they fit. Otherwise an index over leaves sorted by hash
 * (htree.c), because that is the only form of more than one block that the kernel can still index.
 * The directories are written parents first, in order of arrival. Each block ends in a tail that
 * holds its checksum. (The format: Documentation/filesystems/ext4/directory.rst of the kernel.)
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bake/ext4/ext4_private.h"

#define TAIL sizeof(struct ext2_dir_entry_tail)

size_t ext4_dirent_size(size_t name_len)
{
	return (8 + name_len + 3) & ~(size_t)3;
}

size_t ext4_dirent_put(
	char *block, size_t at, uint32_t ino, uint8_t type, const char *name, size_t len)
{
	struct ext2_dir_entry_2 *e = (struct ext2_dir_entry_2 *)(block + at);

	e->inode = htole32(ino);
	e->rec_len = htole16(ext4_dirent_size(len));
	e->name_len = len;
	e->file_type = type;
	memcpy(e->name, name, len);
	return at + ext4_dirent_size(len);
}

void ext4_dirent_close(char *block, size_t last)
{
	struct ext2_dir_entry_2 *e = (struct ext2_dir_entry_2 *)(block + last);
	struct ext2_dir_entry_tail *tail =
		(struct ext2_dir_entry_tail *)(block + EXT4_BLOCK - TAIL);

	e->rec_len = htole16(EXT4_BLOCK - TAIL - last);
	tail->det_rec_len = htole16(TAIL);
	tail->det_reserved_name_len = htole16(EXT2_DIR_NAME_LEN_CSUM);
}

/*
 * All entries in one block, *@ret_blocks as many as the directory wants; NULL where they do not
 * fit.
 */
static char *linear_build(const struct ext4_dir *dir, size_t *ret_blocks)
{
	size_t n_blocks = dir->min_blocks ? dir->min_blocks : 1;
	size_t at = ext4_dirent_size(1) + ext4_dirent_size(2), last;
	const struct ext4_entry *entry;
	char *buf;

	TAILQ_FOREACH(entry, &dir->entries, link) {
		at += ext4_dirent_size(entry->len);
		if (at > EXT4_BLOCK - TAIL)
			return NULL;
	}
	buf = calloc(n_blocks, EXT4_BLOCK);
	if (!buf)
		abort();
	last = ext4_dirent_put(buf, 0, dir->ino, EXT2_FT_DIR, ".", 1);
	at = ext4_dirent_put(buf, last, dir->parent->ino, EXT2_FT_DIR, "..", 2);
	TAILQ_FOREACH(entry, &dir->entries, link) {
		last = at;
		at = ext4_dirent_put(buf, at, entry->ino, entry->type, entry->name, entry->len);
	}
	ext4_dirent_close(buf, last);
	for (size_t i = 1; i < n_blocks; i++)
		ext4_dirent_close(buf + i * EXT4_BLOCK, 0);
	*ret_blocks = n_blocks;
	return buf;
}

/* Take blocks for @buf, write them with their checksums, note the runs. */
static int blocks_write(struct ext4 *fs, const struct ext4_dir *dir, char *buf, size_t n_blocks,
	struct ext4_runs *runs, const char *path, struct err *err)
{
	for (size_t done = 0; done < n_blocks;) {
		uint64_t first, count;

		ext4_blocks_take(fs, n_blocks - done, &first, &count);
		for (size_t i = 0; i < count && !ext4_full(fs); i++) {
			errcode_t rc = ext2fs_write_dir_block4(
				fs->lib, first + i, buf + (done + i) * EXT4_BLOCK, 0, dir->ino);

			if (rc)
				return ext4_lib_error(err, rc, "%s: writing the directory", path);
		}
		ext4_runs_add(runs, done, first, count);
		done += count;
	}
	return 0;
}

static int dir_write(struct ext4 *fs, const struct ext4_dir *dir, struct err *err)
{
	uint64_t raw[EXT4_INODE / sizeof(uint64_t)] = {0};
	struct ext2_inode_large *inode = (struct ext2_inode_large *)raw;
	cleanup_free char *path = ext4_dir_path(dir);
	cleanup_free char *buf = NULL;
	struct ext4_runs runs = {.n = 0};
	size_t n_blocks;
	int r = 0;

	if (!ext4_full(fs))
		r = ext4_inode_read(fs, dir->ino, inode, path, err);
	if (r < 0)
		return r;
	buf = linear_build(dir, &n_blocks);
	if (!buf) {
		r = ext4_htree_build(fs, dir, &buf, &n_blocks, err);
		if (r < 0) {
			err_prefix(err, "%s", path);
			return r;
		}
		inode->i_flags |= EXT2_INDEX_FL;
	}
	r = blocks_write(fs, dir, buf, n_blocks, &runs, path, err);
	if (r == 0)
		r = ext4_runs_store(fs, &runs, dir->ino, inode, path, err);
	free(runs.items);
	if (r < 0)
		return r;
	inode->i_size = (uint32_t)(n_blocks * EXT4_BLOCK);
	inode->i_size_high = (uint64_t)n_blocks * EXT4_BLOCK >> 32;
	/* past the limit one link stands for "many": the feature dir_nlink */
	inode->i_links_count = dir->n_subdirs + 2 > EXT4_LINKS ? 1 : dir->n_subdirs + 2;
	return ext4_inode_write(fs, dir->ino, inode, path, err);
}

static int tree_write(struct ext4 *fs, const struct ext4_dir *dir, struct err *err)
{
	const struct ext4_entry *entry;
	int r = dir_write(fs, dir, err);

	TAILQ_FOREACH(entry, &dir->entries, link) {
		if (r < 0)
			break;
		if (entry->dir)
			r = tree_write(fs, entry->dir, err);
	}
	return r;
}

int ext4_dirs_write(struct ext4 *fs, struct err *err)
{
	return tree_write(fs, fs->root, err);
}
